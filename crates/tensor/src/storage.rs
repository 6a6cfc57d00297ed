//! Where bytes live: aligned allocations of our own, or any shared owner such as a mapped file.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
use std::sync::Arc;

use crate::{Error, MappedFile};

/// A cache line, and the widest vector register.
const ALIGNMENT: usize = 64;
/// A huge page. Allocations at least this large start on one and ask the kernel for huge pages: streams read
/// from 2 MiB pages are 1.2 to 1.9 times as fast as from 4 KiB pages on virtual machines.
pub const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes of our own, aligned to 64 bytes, in huge pages where large enough.
pub struct AlignedBytes {
    pointer: *mut u8,
    len: usize,
}

// SAFETY: the allocation is owned by this value alone and plain bytes have no thread affinity.
unsafe impl Send for AlignedBytes {}
// SAFETY: a shared reference gives read access only.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `len` zero bytes. On Linux, large allocations are zeroed by the kernel, page by page, on first touch.
    ///
    /// # Panics
    /// If the system refuses so much memory.
    pub fn zeroed(len: usize) -> AlignedBytes {
        AlignedBytes::try_zeroed(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`AlignedBytes::zeroed`], for sizes that may be more than there is.
    ///
    /// # Errors
    /// If the system refuses so much memory. One that promises more than it has ends a process only when that is used.
    pub fn try_zeroed(len: usize) -> Result<AlignedBytes, Error> {
        AlignedBytes::obtain(len).ok_or(Error::OutOfMemory { bytes: len })
    }

    fn obtain(len: usize) -> Option<AlignedBytes> {
        let pointer = if is_mapped(len) { map(len) } else { allocate(len) }?;
        Some(AlignedBytes { pointer, len })
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBytes {
        let mut copy = AlignedBytes::zeroed(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    /// As [`AlignedBytes::copy_of`], for sizes that may be more than there is.
    ///
    /// # Errors
    /// As [`AlignedBytes::try_zeroed`].
    pub fn try_copy_of(bytes: &[u8]) -> Result<AlignedBytes, Error> {
        let mut copy = AlignedBytes::try_zeroed(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if is_mapped(self.len) {
            // SAFETY: mapped in `map` with this very length, and owned.
            unsafe { unmap(self.pointer, self.len) };
        } else {
            let layout = layout(self.len, ALIGNMENT).expect("it was allocated with that");
            // SAFETY: allocated in `allocate` with this very layout, and owned.
            unsafe { dealloc(self.pointer, layout) };
        }
    }
}

/// Whether bytes come from the kernel rather than from the allocator.
///
/// The standard library zeroes aligned allocations itself, which would fill them with small pages before the kernel
/// hears that huge ones are wanted.
fn is_mapped(len: usize) -> bool {
    cfg!(target_os = "linux") && len >= HUGE_PAGE
}

/// The layout of `len` bytes, at least one; `None` near `isize::MAX`.
fn layout(len: usize, alignment: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1), alignment).ok()
}

/// `None` where there is not that much memory.
fn allocate(len: usize) -> Option<*mut u8> {
    let layout = layout(len, ALIGNMENT)?;
    // SAFETY: the layout has a size of at least one.
    let pointer = unsafe { alloc_zeroed(layout) };
    (!pointer.is_null()).then_some(pointer)
}

/// Whole huge pages for `len` bytes, of which the last may be made of small ones; `None` where there is not that much
/// memory.
#[cfg(target_os = "linux")]
fn map(len: usize) -> Option<*mut u8> {
    let layout = layout(len, HUGE_PAGE)?;
    // At most isize::MAX, so that one page more does not overflow.
    let size = layout.pad_to_align().size();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping, one huge page larger than needed so that an aligned range fits.
    let mapping = unsafe { libc::mmap(std::ptr::null_mut(), size + HUGE_PAGE, protection, flags, -1, 0) };
    if mapping == libc::MAP_FAILED {
        return None;
    }
    let mapping = mapping.cast::<u8>();
    let before = mapping.addr().next_multiple_of(HUGE_PAGE) - mapping.addr();
    let pointer = mapping.wrapping_add(before);
    // SAFETY: `before + size + after` is the mapping; what lies around the aligned range is given back. A refused
    // advice (no huge pages here) changes nothing.
    unsafe {
        unmap_range(mapping, before);
        unmap_range(pointer.wrapping_add(size), HUGE_PAGE - before);
        libc::madvise(pointer.cast(), len / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE);
    }
    Some(pointer)
}

/// # Safety
/// The range is mapped, whole pages, and nothing uses it any more.
#[cfg(target_os = "linux")]
unsafe fn unmap_range(start: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller's.
        let result = unsafe { libc::munmap(start.cast(), len) };
        debug_assert_eq!(result, 0, "unmapping pages of our own");
    }
}

/// # Safety
/// `pointer` is from [`map`] with this `len`, and nothing uses it any more.
#[cfg(target_os = "linux")]
unsafe fn unmap(pointer: *mut u8, len: usize) {
    let size = layout(len, HUGE_PAGE).expect("it was mapped with that").pad_to_align().size();
    // SAFETY: `map` kept exactly this range.
    unsafe { unmap_range(pointer, size) };
}

#[cfg(not(target_os = "linux"))]
fn map(_len: usize) -> Option<*mut u8> {
    unreachable!("`is_mapped` is true on Linux only")
}

/// # Safety
/// Never called: see [`map`].
#[cfg(not(target_os = "linux"))]
unsafe fn unmap(_pointer: *mut u8, _len: usize) {
    unreachable!("`is_mapped` is true on Linux only")
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation holds `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({})", self.len())
    }
}

/// Shared, immutable bytes: a range of some owner (an allocation, a mapped file, a foreign array) that lives
/// as long as anyone looks at it. Cloning and slicing copy nothing.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    /// The owner, if it is one.
    file: Option<Arc<MappedFile>>,
}

impl Bytes {
    /// All the bytes of an owner.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        Bytes::shared(Arc::new(owner))
    }

    /// All the bytes of an owner that is shared already.
    pub fn shared(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Bytes {
        let range = 0..(*owner).as_ref().len();
        Bytes { owner, range, file: None }
    }

    /// All the bytes of a mapped file.
    pub fn of_file(file: Arc<MappedFile>) -> Bytes {
        Bytes { file: Some(Arc::clone(&file)), ..Bytes::shared(file) }
    }

    /// The bytes of a file, mapped read-only: see [`MappedFile`].
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    pub fn map(path: &Path) -> io::Result<Bytes> {
        Ok(Bytes::of_file(Arc::new(MappedFile::open(path)?)))
    }

    /// The file that the bytes are mapped from, if they are.
    pub fn file(&self) -> Option<&Arc<MappedFile>> {
        self.file.as_ref()
    }

    /// A part of these bytes, or `None` when it lies outside them.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Bytes { range: start..start + range.len(), ..self.clone() })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_every_kind_are_zero_aligned_and_writable() {
        for len in [0, 1, 63, 4096, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 4097] {
            let mut bytes = AlignedBytes::zeroed(len);
            let alignment = if is_mapped(len) { HUGE_PAGE } else { ALIGNMENT };
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % alignment), (len, 0));
            assert!(bytes.iter().all(|&byte| byte == 0), "{len}");
            bytes.fill(7);
            assert_eq!(AlignedBytes::copy_of(&bytes)[..], bytes[..]);
        }
    }

    #[test]
    fn more_than_there_is_is_refused() {
        for len in [1 << 60, isize::MAX as usize, usize::MAX] {
            let error = AlignedBytes::try_zeroed(len).unwrap_err();
            assert_eq!(error, Error::OutOfMemory { bytes: len });
        }
        assert_eq!(AlignedBytes::try_zeroed(3).unwrap()[..], [0; 3]);
    }

    #[test]
    fn slices_stay_within_their_bytes() {
        let bytes = Bytes::new((0..10).collect::<Vec<u8>>());
        let middle = bytes.slice(2..8).unwrap();
        assert_eq!(middle[..], [2, 3, 4, 5, 6, 7]);
        assert_eq!(middle.slice(1..3).unwrap()[..], [3, 4]);
        assert_eq!(middle.slice(6..6).unwrap()[..], []);
        assert!(middle.slice(0..7).is_none() && middle.slice(7..7).is_none());
        assert!(middle.slice(std::ops::Range { start: 3, end: 2 }).is_none());
    }
}
