//! Keeps what goes wrong in one request from the others: a panic becomes an error, and a batch that cannot run runs in
//! halves until each sequence that fails is alone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::Error;
use crate::run::batch::{Batch, Slice};
#[cfg(test)]
use crate::run::kv_cache::SequenceId;

/// What came of a batch.
pub(crate) struct Isolated<T> {
    /// The batch, or the parts of it that could run.
    pub(crate) ran: Vec<Ran<T>>,
    /// Sequences that cannot run even alone.
    pub(crate) failed: Vec<(Slice, Error)>,
}

/// A batch that ran.
pub(crate) struct Ran<T> {
    pub(crate) batch: Batch,
    pub(crate) output: T,
    pub(crate) time: Duration,
}

/// Runs a batch, or else its halves. Results do not depend on who runs together, so the others get the same as if nothing
/// had failed.
///
/// # Errors
/// If the files of the model have changed, which no half would survive.
pub(crate) fn run<T>(
    batch: Batch,
    attempt: &mut dyn FnMut(&Batch) -> Result<T, Error>,
) -> Result<Isolated<T>, Error> {
    let mut isolated = Isolated { ran: Vec::new(), failed: Vec::new() };
    halve(batch, attempt, &mut isolated)?;
    Ok(isolated)
}

fn halve<T>(
    mut batch: Batch,
    attempt: &mut dyn FnMut(&Batch) -> Result<T, Error>,
    isolated: &mut Isolated<T>,
) -> Result<(), Error> {
    let began = Instant::now();
    match guarded(|| attempt(&batch)) {
        Ok(output) => isolated.ran.push(Ran { batch, output, time: began.elapsed() }),
        Err(error) if error.is_file_changed() => return Err(error),
        Err(error) if batch.slices.len() == 1 => isolated.failed.push((batch.slices.remove(0), error)),
        Err(_) => {
            let slices = batch.slices.split_off(batch.slices.len() / 2);
            halve(batch, attempt, isolated)?;
            halve(Batch { slices, copies: Vec::new() }, attempt, isolated)?;
        }
    }
    Ok(())
}

/// A panic becomes an error, so that the sequence it happened in is the only one that ends.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::Defect(panic_message(&*panic))))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

/// What a test does in place of a step.
#[cfg(test)]
pub(crate) type Fault = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// What goes wrong in steps, for tests.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Faults {
    /// Happens in the next step.
    pub(crate) once: Option<Fault>,
    /// Whichever batch has one of these cannot run.
    pub(crate) poisoned: Vec<SequenceId>,
}

#[cfg(test)]
impl Faults {
    pub(crate) fn strike(&mut self, batch: &Batch) -> Result<(), Error> {
        let found = batch.slices.iter().find(|slice| self.poisoned.contains(&slice.id));
        assert!(found.is_none(), "poisoned");
        self.once.take().map_or(Ok(()), |fault| fault())
    }
}
