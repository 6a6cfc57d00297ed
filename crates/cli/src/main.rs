//! The binary `peri`.

use std::ffi::OsString;
use std::process::ExitCode;

/// Most arrays are short-lived, and mimalloc uses their memory again quickly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command_line: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(cli::run(&command_line, return_memory))
}

/// Returns freed memory to the system, which mimalloc otherwise does when it is called the next time.
fn return_memory() {
    // SAFETY: it may be called at any time, from any thread.
    unsafe { mi_collect(true) }
}

unsafe extern "C" {
    /// A function of mimalloc.
    fn mi_collect(force: bool);
}
