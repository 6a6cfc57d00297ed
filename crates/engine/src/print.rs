//! The values that graphs print, in the form a session asks for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use graph::ops::Print;
use tensor::print::{format_compact, format_full};
use tensor::{Tensor, save_binary, save_max_checkpoint};

use crate::{Operand, PrintOptions, PrintStyle};

/// How and where values print, for all models of a session.
#[derive(Default)]
pub(crate) struct Printer {
    options: Mutex<PrintOptions>,
    /// Where text goes; standard output if nowhere else.
    sink: Mutex<Option<Box<dyn Write + Send>>>,
}

impl Printer {
    pub(crate) fn options(&self) -> PrintOptions {
        lock(&self.options).clone()
    }

    pub(crate) fn set_options(&self, options: PrintOptions) {
        *lock(&self.options) = options;
    }

    pub(crate) fn set_sink(&self, sink: Box<dyn Write + Send>) {
        *lock(&self.sink) = Some(sink);
    }

    /// Shows what a node prints.
    pub(crate) fn print(
        &self,
        print: &Print,
        operands: &[Operand<'_>],
        options: &PrintOptions,
    ) -> Result<(), String> {
        let label = &print.label;
        match (options.style, &print.text) {
            (PrintStyle::None, _) => Ok(()),
            (PrintStyle::Compact | PrintStyle::Full, Some(text)) => self.line(&format!("{label} = {text}")),
            (PrintStyle::Compact, None) => self.line(&format_compact(label, &value(print, operands)?)),
            (PrintStyle::Full, None) => {
                self.line(&format_full(label, &value(print, operands)?, options.precision))
            }
            (PrintStyle::Binary, _) => save(save_binary, print, operands, options),
            (PrintStyle::BinaryMaxCheckpoint, _) => save(save_max_checkpoint, print, operands, options),
        }
    }

    /// One line, whole even if other threads print.
    fn line(&self, text: &str) -> Result<(), String> {
        let text = format!("{text}\n");
        let outcome = match &mut *lock(&self.sink) {
            Some(sink) => sink.write_all(text.as_bytes()).and_then(|()| sink.flush()),
            None => io::stdout().lock().write_all(text.as_bytes()),
        };
        outcome.map_err(|error| format!("printing: {error}"))
    }
}

/// Writes a value into the output directory by one of the two functions for that, which refuse labels that lead out of
/// it.
fn save(
    write: fn(&Path, &str, &Tensor) -> Result<PathBuf, tensor::Error>,
    print: &Print,
    operands: &[Operand<'_>],
    options: &PrintOptions,
) -> Result<(), String> {
    let missing = || format!("the print style is {}, but there is no output directory", options.style);
    let directory = options.output_directory.as_deref().ok_or_else(missing)?;
    write(directory, &print.label, &value(print, operands)?).map(|_| ()).map_err(|error| error.to_string())
}

/// What is printed; a text as its bytes.
fn value(print: &Print, operands: &[Operand<'_>]) -> Result<Tensor, String> {
    match (operands, &print.text) {
        (_, Some(text)) => Ok(Tensor::from_slice([text.len()], text.as_bytes())),
        ([Operand::View(view)], None) => view.to_tensor().map_err(|error| error.to_string()),
        _ => unreachable!("the type rule asks for one value or a text"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
