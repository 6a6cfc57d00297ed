//! Survives reads of pages that a mapped file does not have any more: a handler of SIGBUS puts zeros in their place.
//!
//! The handler runs in the middle of any code, so it takes no lock and allocates nothing. It reads a list that only grows,
//! whose entries are used again.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{c_int, c_void, siginfo_t};

/// Pages that a mapping has lost, from now until it is dropped, which must be before the mapping is.
#[derive(Debug)]
pub(super) struct LostPages(&'static Entry);

/// A mapping of the list.
#[derive(Debug)]
struct Entry {
    /// The first address; [`UNUSED`] if the entry may be used again.
    start: AtomicUsize,
    /// The address after the last.
    end: AtomicUsize,
    /// Whether a page was lost.
    lost: AtomicBool,
    next: *const Entry,
}

// SAFETY: `next` is set before the entry is shared and points to an entry that lives forever.
unsafe impl Sync for Entry {}

const UNUSED: usize = usize::MAX;

static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Held by who changes entries.
static CHANGING: Mutex<()> = Mutex::new(());
static HANDLER: OnceLock<Handler> = OnceLock::new();

/// The state of the system when the handler was installed.
struct Handler {
    page_size: usize,
    /// Handles errors elsewhere.
    previous: libc::sigaction,
}

impl LostPages {
    /// Watches a mapping.
    ///
    /// # Errors
    /// If the system refuses the handler.
    pub(super) fn watch(map: &[u8]) -> io::Result<LostPages> {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        if HANDLER.get().is_none() {
            install()?;
        }
        let start = map.as_ptr().addr();
        let entry = entries().find(|entry| entry.start.load(Ordering::Relaxed) == UNUSED);
        let entry = entry.unwrap_or_else(add_entry);
        entry.lost.store(false, Ordering::Relaxed);
        entry.end.store(start + map.len(), Ordering::Release);
        entry.start.store(start, Ordering::Release);
        Ok(LostPages(entry))
    }

    /// Whether a page was read that the file did not have.
    pub(super) fn any(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Drop for LostPages {
    fn drop(&mut self) {
        self.0.start.store(UNUSED, Ordering::Release);
    }
}

impl Entry {
    /// Whether an address is in the mapping.
    fn holds(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // Another mapping may have the entry by now; one at the same address is the same to who reads there.
        (start..end).contains(&address) && self.start.load(Ordering::Acquire) == start
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: entries are leaked, and shared references to them are the only ones.
    let entry = |pointer: *const Entry| unsafe { pointer.as_ref() };
    std::iter::successors(entry(ENTRIES.load(Ordering::Acquire)), move |before| entry(before.next))
}

fn add_entry() -> &'static Entry {
    let entry = Box::leak(Box::new(Entry {
        start: AtomicUsize::new(UNUSED),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        next: ENTRIES.load(Ordering::Acquire),
    }));
    ENTRIES.store(ptr::from_mut(entry), Ordering::Release);
    entry
}

fn install() -> io::Result<()> {
    let check = |result: c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let mut previous = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: it only asks, and fills `previous` if it succeeds.
    let previous = unsafe {
        check(libc::sigaction(libc::SIGBUS, ptr::null(), previous.as_mut_ptr()))?;
        previous.assume_init()
    };
    // SAFETY: `sysconf` has no preconditions.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page_size = usize::try_from(page_size).map_err(|_| io::Error::last_os_error())?;
    // There before the handler runs for the first time.
    HANDLER.get_or_init(|| Handler { page_size, previous });
    // SAFETY: all zeros is an action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_bus_error as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler does what a handler may do.
    check(unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) })
}

/// Puts zeros in the place of the page that was read, and of those after it, if they are of a file that is watched. The read
/// is then made again.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handler) = HANDLER.get() else { return };
    // SAFETY: with `SA_SIGINFO`, the system passes the facts of the signal, which has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let found = entries().find(|entry| entry.holds(address));
    if found.is_some_and(|entry| replace(entry, address, handler.page_size)) {
        return;
    }
    // SAFETY: this handler was given the same arguments.
    unsafe { forward(&handler.previous, signal, info, context) }
}

/// Maps zeros from the page of an address to the end of an entry's mapping.
fn replace(entry: &Entry, address: usize, page_size: usize) -> bool {
    let page = address / page_size * page_size;
    let len = entry.end.load(Ordering::Acquire).saturating_sub(page);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let place = ptr::without_provenance_mut(page);
    // SAFETY: the thread that handles this signal reads the mapping, so it is there, from before `page` to `len` bytes after;
    // that its bytes change is what a mapping of a file allows anyway.
    let mapped = unsafe { libc::mmap(place, len, libc::PROT_READ, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    entry.lost.store(true, Ordering::Relaxed);
    true
}

/// Handles a signal as an earlier action does.
///
/// # Safety
/// The arguments are those of the signal that is handled.
unsafe fn forward(action: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match action.sa_sigaction {
        // SAFETY: puts the action back that was there; the read is made again, and ends the process.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::sigaction(signal, action, ptr::null_mut());
        },
        // SAFETY: with this flag, the address is that of a function with these arguments.
        handler if action.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
            handler(signal, info, context);
        },
        // SAFETY: without it, the function takes the signal alone.
        handler => unsafe {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use memmap2::Mmap;

    use super::*;

    #[test]
    fn entries_are_used_again() {
        let bytes = [0u8; 64];
        let count = entries().count();
        for _ in 0..1000 {
            let lost = LostPages::watch(&bytes).unwrap();
            assert!(lost.0.holds(bytes.as_ptr().addr() + 63) && !lost.0.holds(bytes.as_ptr().addr() + 64));
        }
        // Other tests map files meanwhile.
        assert!(entries().count() < count + 100);
    }

    /// A process that reads past the end of a file which is not watched ends as it would without this module.
    #[test]
    fn errors_elsewhere_have_the_effect_that_they_had() {
        let path = std::env::temp_dir().join(format!("perihelion-elsewhere-{}", std::process::id()));
        std::fs::write(&path, [7; 8192]).unwrap();
        // SAFETY: only the child reads the mapping once the file is cut off.
        let map = unsafe { Mmap::map(&File::open(&path).unwrap()) }.unwrap();
        let _watched = LostPages::watch(&[0]).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        std::fs::remove_file(&path).unwrap();
        let byte = map[4096..].as_ptr();
        // SAFETY: the child makes no call that needs the threads which it does not have.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the byte is mapped; that its page is gone ends the child.
            unsafe {
                ptr::read_volatile(byte);
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: it fills in the status of the child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status}");
    }
}
