//! Advice to the system about the pages of a mapped file. Refusals are ignored.

use std::ops::Range;

use memmap2::Mmap;

/// Asks the system to read a part ahead of its use.
#[cfg(unix)]
pub(super) fn prefetch(map: &Mmap, range: Range<usize>) {
    let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
}

/// Asks the system to read a part ahead of its use.
#[cfg(windows)]
pub(super) fn prefetch(map: &Mmap, range: Range<usize>) {
    use windows_sys::Win32::System::Memory::{PrefetchVirtualMemory, WIN32_MEMORY_RANGE_ENTRY};
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    let part = &map[range];
    let entry = WIN32_MEMORY_RANGE_ENTRY {
        VirtualAddress: part.as_ptr().cast_mut().cast(),
        NumberOfBytes: part.len(),
    };
    // SAFETY: one entry lives until the call returns, and the mapped pages that it names are only read.
    unsafe { PrefetchVirtualMemory(GetCurrentProcess(), 1, &entry, 0) };
}

/// Gives the physical memory of whole pages back to the system. Reading them later reads the file again.
#[cfg(unix)]
pub(super) fn release(map: &Mmap, pages: Range<usize>) {
    // SAFETY: the pages are clean pages of a private file mapping that cannot be written through, so a later read finds
    // the same bytes in the file; live views stay valid.
    let _ =
        unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, pages.start, pages.len()) };
}

/// Gives the physical memory of whole pages back to the system. Reading them later reads the file again.
#[cfg(windows)]
pub(super) fn release(map: &Mmap, pages: Range<usize>) {
    let pages = &map[pages];
    // SAFETY: the pages are mapped. To unlock pages that are not locked only takes them out of the working set.
    unsafe { windows_sys::Win32::System::Memory::VirtualUnlock(pages.as_ptr().cast(), pages.len()) };
}
