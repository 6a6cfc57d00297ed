//! The stack of a thread that panics during a call, on standard error.

use std::backtrace::Backtrace;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many calls ask for the stack of what panics. Any thread may be computing for them.
static WATCHED: AtomicUsize = AtomicUsize::new(0);

/// While it lives, panics print the stack of their thread.
pub(crate) struct CrashWatch(());

impl CrashWatch {
    pub(crate) fn new() -> CrashWatch {
        install();
        WATCHED.fetch_add(1, Ordering::Relaxed);
        CrashWatch(())
    }
}

impl Drop for CrashWatch {
    fn drop(&mut self) {
        WATCHED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds to what the process does when it panics, once.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            if WATCHED.load(Ordering::Relaxed) > 0 {
                eprintln!("stack trace of the crash:\n{}", Backtrace::force_capture());
            }
        }));
    });
}
