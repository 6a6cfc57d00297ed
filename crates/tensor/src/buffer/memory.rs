//! The memory under buffers: who owns it, and guards that admit many readers or one writer.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use crate::far::{Allocation, FarMemory};
use crate::{AlignedBytes, Element, Error};

/// Bytes that live as long as this value, reached only through guards.
pub(super) struct Memory {
    /// Dangling if the bytes are far.
    data: NonNull<u8>,
    len: usize,
    /// The number of readers, or -1 for a writer.
    state: AtomicIsize,
    /// Whether the pages stay in memory.
    pub(super) pinned: bool,
    /// Frees the bytes.
    owner: Owner,
}

/// What is the host's is never looked at otherwise.
enum Owner {
    Aligned { _bytes: AlignedBytes },
    Other { _owner: Box<dyn Send> },
    Far(Arc<dyn FarMemory>),
}

// SAFETY: the bytes are reached only through guards, and `state` admits one writer or any number of readers; the owner
// may be dropped on any thread and is not reached otherwise, unless it is far memory, which is `Send` and `Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn aligned(mut bytes: AlignedBytes) -> Memory {
        let (data, len) = (NonNull::from(&mut bytes[..]).cast(), bytes.len());
        Memory::of(data, len, Owner::Aligned { _bytes: bytes })
    }

    /// Memory of another owner.
    ///
    /// # Safety
    /// Until the owner is dropped, `data` is valid for reads of `len` bytes, and for writes unless every buffer over it
    /// is read-only; it is written only through guards on this memory, and not read elsewhere while such a guard writes.
    pub(super) unsafe fn foreign(data: NonNull<u8>, len: usize, owner: Box<dyn Send>) -> Memory {
        Memory::of(data, len, Owner::Other { _owner: owner })
    }

    pub(super) fn allocated(allocation: Allocation) -> Memory {
        match allocation {
            Allocation::Host(bytes) => Memory::aligned(bytes),
            Allocation::Far(far) => Memory::of(NonNull::dangling(), far.len(), Owner::Far(far)),
        }
    }

    fn of(data: NonNull<u8>, len: usize, owner: Owner) -> Memory {
        Memory { data, len, state: AtomicIsize::new(0), pinned: false, owner }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The memory of a device, if the host cannot reach it.
    pub(super) fn far(&self) -> Option<&dyn FarMemory> {
        match &self.owner {
            Owner::Far(far) => Some(&**far),
            Owner::Aligned { .. } | Owner::Other { .. } => None,
        }
    }

    /// Read access to `len` bytes from `start`.
    ///
    /// # Errors
    /// If someone writes, or a device holds the bytes.
    ///
    /// # Panics
    /// If they lie outside.
    pub(super) fn read(self: &Arc<Memory>, start: usize, len: usize) -> Result<ReadGuard, Error> {
        let data = self.part(start, len)?;
        Ok(ReadGuard { data, len, _reader: Reader::new(self)? })
    }

    /// Write access to `len` bytes from `start`.
    ///
    /// # Errors
    /// If anyone reads or writes, or a device holds the bytes.
    ///
    /// # Panics
    /// If they lie outside.
    pub(super) fn write(self: &Arc<Memory>, start: usize, len: usize) -> Result<WriteGuard, Error> {
        let data = self.part(start, len)?;
        Ok(WriteGuard { data, len, _writer: Writer::new(self)? })
    }

    /// Access to `len` bytes of a device from `start`, to read or to write them there; `None` if they are the host's.
    ///
    /// # Errors
    /// As [`Memory::read`] or [`Memory::write`].
    pub(super) fn hold(
        self: &Arc<Memory>,
        start: usize,
        len: usize,
        written: bool,
    ) -> Result<Option<FarGuard>, Error> {
        let Owner::Far(far) = &self.owner else { return Ok(None) };
        let hold = if written { Hold::Write(Writer::new(self)?) } else { Hold::Read(Reader::new(self)?) };
        Ok(Some(FarGuard { memory: Arc::clone(far), range: start..start + len, _hold: hold }))
    }

    /// The bytes from `start` on, brought to the host if they are far.
    ///
    /// # Errors
    /// While someone writes, or if the device fails.
    pub(super) fn fetch(self: &Arc<Memory>, start: usize, len: usize) -> Result<Fetched, Error> {
        let Some(far) = self.far() else { return self.read(start, len).map(Fetched::Here) };
        let _reader = Reader::new(self)?;
        let mut bytes = AlignedBytes::try_zeroed(len)?;
        far.read(start, &mut bytes)?;
        Ok(Fetched::Copied(bytes))
    }

    /// Overwrites the bytes from `start` on, wherever they are.
    ///
    /// # Errors
    /// While anyone reads or writes, or if the device fails.
    pub(super) fn store(self: &Arc<Memory>, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some(far) = self.far() else {
            self.write(start, bytes.len())?.copy_from_slice(bytes);
            return Ok(());
        };
        let _writer = Writer::new(self)?;
        far.write(&[(start, bytes)])
    }

    /// The address of `len` bytes from `start`; for guards, and for those who hand the memory to others.
    ///
    /// # Errors
    /// If the bytes are far.
    ///
    /// # Panics
    /// If they lie outside.
    pub(super) fn part(&self, start: usize, len: usize) -> Result<NonNull<u8>, Error> {
        if let Some(far) = self.far() {
            return Err(Error::Far { device: far.allocator().spec().to_string() });
        }
        let inside = start.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "a buffer lies within its memory");
        // SAFETY: `start` is at most the length of the memory.
        Ok(unsafe { self.data.add(start) })
    }
}

/// Counts as one who reads a memory, and keeps it.
pub(super) struct Reader(Arc<Memory>);

impl Reader {
    pub(super) fn new(memory: &Arc<Memory>) -> Result<Reader, Error> {
        let mut current = memory.state.load(Ordering::Relaxed);
        loop {
            if current < 0 {
                return Err(Error::Busy("written"));
            }
            let state = &memory.state;
            match state.compare_exchange_weak(current, current + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Reader(Arc::clone(memory))),
                Err(now) => current = now,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}

/// Counts as the one who writes a memory, and keeps it.
pub(super) struct Writer(Arc<Memory>);

impl Writer {
    pub(super) fn new(memory: &Arc<Memory>) -> Result<Writer, Error> {
        match memory.state.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Writer(Arc::clone(memory))),
            Err(state) => Err(Error::Busy(if state < 0 { "written" } else { "read" })),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.state.store(0, Ordering::Release);
    }
}

/// Access to a buffer's bytes in the memory of a device, counted as one of its readers or as its writer.
pub struct FarGuard {
    memory: Arc<dyn FarMemory>,
    range: Range<usize>,
    _hold: Hold,
}

enum Hold {
    Read(#[expect(dead_code, reason = "counts until it is dropped")] Reader),
    Write(#[expect(dead_code, reason = "counts until it is dropped")] Writer),
}

impl FarGuard {
    /// The memory, of which the bytes may be a part.
    pub fn memory(&self) -> &Arc<dyn FarMemory> {
        &self.memory
    }

    /// Where in the memory the bytes are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// Bytes to read: the host's own under a guard, or a copy of far ones.
pub(super) enum Fetched {
    Here(ReadGuard),
    Copied(AlignedBytes),
}

impl Fetched {
    /// The bytes in memory of their own.
    pub(super) fn into_aligned(self) -> Result<AlignedBytes, Error> {
        match self {
            Fetched::Here(guard) => AlignedBytes::try_copy_of(&guard),
            Fetched::Copied(bytes) => Ok(bytes),
        }
    }
}

impl Deref for Fetched {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Fetched::Here(guard) => guard,
            Fetched::Copied(bytes) => bytes,
        }
    }
}

/// Read access to a buffer's bytes; others may read, none may write.
pub struct ReadGuard {
    data: NonNull<u8>,
    len: usize,
    _reader: Reader,
}

// SAFETY: the guard gives shared access to plain bytes, whose memory the reader keeps.
unsafe impl Send for ReadGuard {}
// SAFETY: as above.
unsafe impl Sync for ReadGuard {}

impl ReadGuard {
    /// The bytes as elements.
    ///
    /// # Panics
    /// If they are no whole number of elements of type `T`, or lie at no multiple of its alignment, as a view or a part
    /// of a file may.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        bytemuck::cast_slice(self)
    }
}

impl Deref for ReadGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie within the memory, and the reader is counted, so no writer exists.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for ReadGuard {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The only access to a buffer's bytes, for writing.
pub struct WriteGuard {
    data: NonNull<u8>,
    len: usize,
    _writer: Writer,
}

// SAFETY: the guard gives the only access to plain bytes, whose memory the writer keeps.
unsafe impl Send for WriteGuard {}
// SAFETY: a shared reference to it gives read access only.
unsafe impl Sync for WriteGuard {}

impl Deref for WriteGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie within the memory, and this guard is the only access.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl DerefMut for WriteGuard {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; guards to write are made only of memory that may be written.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}
