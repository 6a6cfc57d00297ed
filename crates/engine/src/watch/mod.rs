//! What happens around the steps of one call, other than computing them: checks, logs, times.

mod floats;
mod poison;
#[cfg(test)]
mod tests;

use std::time::Instant;

use self::floats::{coordinates, expect_finite, find_float, has_infinity};
use self::poison::{fill, find_poison, poison};
use crate::frame::{Array, FrameOperand, FrameStep, OperandSource};
use crate::plan::PlanStep;
use crate::{
    AssertLevel, Error, KernelSettings, LogLevel, Marker, Operand, Profiling, Program, StepTime,
    UninitializedReadMode, ViewMut,
};

/// When a step began, and how long it took.
pub(crate) type TimedStep = (Instant, StepTime);

/// Looks at each step of a call. Plain calls have none.
pub(crate) struct Watch<'c> {
    program: &'c Program,
    settings: &'c KernelSettings,
    /// Whether each step waits for the device.
    sync: bool,
    /// The steps that ran.
    pub(crate) steps: Vec<TimedStep>,
    /// The step that runs.
    step: usize,
    /// Whether an operand of that step has an infinity, such as those of masks.
    infinities: bool,
    started: Instant,
}

impl<'c> Watch<'c> {
    /// A watch that measures steps, and does what the settings of the plan ask for.
    pub(crate) fn new(program: &'c Program, sync: bool) -> Watch<'c> {
        let settings = &program.settings;
        Watch {
            program,
            settings,
            sync,
            steps: Vec::new(),
            step: 0,
            infinities: false,
            started: Instant::now(),
        }
    }

    /// Whether the settings ask for one.
    pub(crate) fn is_needed(settings: &KernelSettings) -> bool {
        settings.nan_check
            || settings.uninitialized_read_check.is_some()
            || settings.profiling != Profiling::Off
            || settings.log_level == LogLevel::Trace
            || settings.op_log_level != LogLevel::NotSet
    }

    /// Before a step is computed.
    pub(crate) fn before(
        &mut self,
        number: usize,
        step: &PlanStep,
        sized: &FrameStep,
        operands: &[Operand<'_>],
        results: &mut [ViewMut<'_>],
        scratch: &mut [u8],
    ) -> Result<(), String> {
        self.step = number;
        let op = step.work.op_name();
        log_at(self.settings.op_log_level, &self.program.name, number, op);
        if let Some(mode) = self.settings.uninitialized_read_check {
            self.expect_written(mode, sized, operands, results)?;
            poison(operands, results);
            fill(scratch);
        }
        if self.settings.nan_check {
            self.infinities = operands.iter().zip(&sized.operands).any(|(operand, known)| match operand {
                Operand::View(view) => has_infinity(known.array.dtype, view.bytes),
                Operand::InResult => has_infinity(known.array.dtype, results[0].bytes),
                _ => false,
            });
        }
        if let Some(marker) = self.marker() {
            marker.push(op);
        }
        self.started = Instant::now();
        Ok(())
    }

    /// After a step, whether it was computed or failed.
    pub(crate) fn ended(&self) {
        if let Some(marker) = self.marker() {
            marker.pop();
        }
    }

    /// After a step was computed.
    pub(crate) fn after(
        &mut self,
        step: &PlanStep,
        sized: &FrameStep,
        results: &[ViewMut<'_>],
    ) -> Result<(), String> {
        if self.sync {
            self.program.device().synchronize().map_err(|error| error.to_string())?;
        }
        let time = StepTime::new(step, sized, self.started.elapsed());
        if self.settings.log_level == LogLevel::Trace {
            self.log_step(&time);
        }
        self.steps.push((self.started, time));
        if self.settings.nan_check {
            let infinities = self.infinities;
            results.iter().enumerate().try_for_each(|(i, result)| expect_finite(i, result, infinities))
        } else {
            Ok(())
        }
    }

    fn expect_written(
        &self,
        mode: UninitializedReadMode,
        sized: &FrameStep,
        operands: &[Operand<'_>],
        results: &[ViewMut<'_>],
    ) -> Result<(), String> {
        for (position, (operand, FrameOperand { array, source })) in
            operands.iter().zip(&sized.operands).enumerate()
        {
            let bytes = match (operand, source) {
                (Operand::View(view), OperandSource::Piece) => view.bytes,
                // Of a program of several parts: what an earlier part made.
                (Operand::View(view), OperandSource::Input(..)) if self.program.root.whole().is_none() => {
                    view.bytes
                }
                (Operand::InResult, _) => &*results[0].bytes,
                _ => continue,
            };
            if let Some(element) = find_poison(array.dtype, bytes) {
                let form = format!("{}{}", array.dtype, array.shape);
                let message =
                    format!("reads element {element} of operand {position}, {form}, which no step wrote");
                self.found_unwritten(mode, &message)?;
            }
        }
        Ok(())
    }

    fn found_unwritten(&self, mode: UninitializedReadMode, message: &str) -> Result<(), String> {
        match mode {
            UninitializedReadMode::Abort => Err(message.to_string()),
            UninitializedReadMode::Report => {
                let (model, step) = (&self.program.name[..], self.step);
                tracing::warn!(target: "perihelion::check", model, step, "{message}");
                Ok(())
            }
        }
    }

    fn marker(&self) -> Option<&dyn Marker> {
        if self.settings.profiling == Profiling::Off { None } else { self.program.device().marker() }
    }

    fn log_step(&self, time: &StepTime) {
        let (model, step) = (&self.program.name[..], self.step);
        let (kernel, shapes) = (time.computed_by(), &time.shapes[..]);
        let microseconds = time.microseconds;
        tracing::trace!(target: "perihelion::kernel", model, step, microseconds, shapes, "{kernel}");
    }
}

/// Checks an output of a call: that all was written, and at the highest assert level that all is finite.
pub(crate) fn check_output(
    settings: &KernelSettings,
    watch: Option<&Watch<'_>>,
    position: usize,
    Array { dtype, shape }: Array,
    bytes: &[u8],
) -> Result<(), Error> {
    let fail = |message| Error::Output { position, message };
    if let (Some(watch), Some(mode)) = (watch, settings.uninitialized_read_check)
        && let Some(element) = find_poison(dtype, bytes)
    {
        let message = format!("element {element} of {dtype}{shape} was never written");
        watch.found_unwritten(mode, &message).map_err(fail)?;
    }
    if settings.assert_level == AssertLevel::All
        && let Some(element) = find_float(dtype, bytes, |value| !value.is_finite())
    {
        let index = coordinates(&shape, element);
        return Err(fail(format!("{dtype}{shape} is NaN or infinite at {index:?}")));
    }
    Ok(())
}

/// Logs that an op runs, at a level chosen at run time.
fn log_at(level: LogLevel, model: &str, step: usize, op: &str) {
    match level {
        LogLevel::NotSet => (),
        LogLevel::Trace => tracing::trace!(target: "perihelion::op", model, step, "{op}"),
        LogLevel::Debug => tracing::debug!(target: "perihelion::op", model, step, "{op}"),
        LogLevel::Info => tracing::info!(target: "perihelion::op", model, step, "{op}"),
        LogLevel::Warning => tracing::warn!(target: "perihelion::op", model, step, "{op}"),
        LogLevel::Error | LogLevel::Critical => {
            tracing::error!(target: "perihelion::op", model, step, "{op}");
        }
    }
}
