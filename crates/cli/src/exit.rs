//! How a command ends: one line on standard error, and a code that scripts can tell apart.

use std::io::Write;
use std::process::ExitCode;

use pipelines::OutOfMemory;

/// The user pressed Ctrl-C, and what was under way was ended in order.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Arguments that parse but make no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub String);

/// Says what went wrong, and gives its code.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if is_broken_pipe(&error) {
        // Whoever reads our output has seen enough.
        return ExitCode::SUCCESS;
    }
    let (code, quiet) = if error.is::<Interrupted>() {
        (130, true)
    } else if error.is::<Usage>() {
        (2, false)
    } else if error.chain().any(|cause| cause.is::<OutOfMemory>()) {
        (4, false)
    } else if error.chain().any(|cause| cause.is::<models::Error>() || cause.is::<weights::Error>()) {
        (3, false)
    } else {
        (1, false)
    };
    if !quiet {
        // One line, whatever the message holds; a closed standard error changes nothing.
        let message = format!("{error:#}").replace('\n', " ");
        let _ = writeln!(std::io::stderr(), "peri: {message}");
    }
    ExitCode::from(code)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
