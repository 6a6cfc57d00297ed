//! What a session shares with its models: debugging, printing, profiling.

use std::backtrace::Backtrace;

use crate::debug::DebugConfig;
use crate::debug::crash::CrashWatch;
use crate::print::Printer;
use crate::trace::Recorder;
use crate::{Error, PrintOptions};

/// Shared by a session and all models it makes, so that changes reach them at once.
pub(crate) struct Instruments {
    pub(crate) debug: DebugConfig,
    pub(crate) printer: Printer,
    pub(crate) recorder: Recorder,
}

impl Instruments {
    /// Those of a new session.
    pub(crate) fn new() -> Result<Instruments, Error> {
        let (printer, recorder) = (Printer::default(), Recorder::default());
        Ok(Instruments { debug: DebugConfig::of_session()?, printer, recorder })
    }

    /// How values print now.
    pub(crate) fn print_options(&self) -> PrintOptions {
        let options = self.printer.options();
        PrintOptions { style: self.debug.print_style().unwrap_or(options.style), ..options }
    }

    /// Runs what calls a model, with the stack traces that are asked for.
    pub(crate) fn traced<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let _watch = self.debug.stack_trace_on_crash().then(CrashWatch::new);
        call().map_err(|error| {
            if self.debug.stack_trace_on_error() {
                Error::Traced { error: Box::new(error), stack: Box::new(Backtrace::force_capture()) }
            } else {
                error
            }
        })
    }
}
