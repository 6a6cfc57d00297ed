//! How long the steps of one call took.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::frame::FrameStep;
use crate::plan::{PlanStep, StepOperand};

/// The time of each step of one call. Prints as a table of kernels, the slowest first.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Profile {
    /// In the order they ran.
    pub steps: Vec<StepTime>,
}

/// The time of one step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepTime {
    /// The op's name.
    pub op: &'static str,
    /// The kernel's name, or `None` for an op's reference.
    pub kernel: Option<String>,
    /// The operands and results, as in `f32[1, 64], q4_k[256, 64] → f32[1, 256]`.
    pub shapes: String,
    /// The time it took.
    pub microseconds: f64,
}

impl StepTime {
    pub(crate) fn new(step: &PlanStep, sized: &FrameStep, duration: Duration) -> StepTime {
        let operands = sized.operands.iter().zip(&step.operands).map(|(operand, planned)| {
            let packed = if let StepOperand::Packed(_) = planned { " packed" } else { "" };
            format!("{}{}{packed}", operand.array.dtype, operand.array.shape)
        });
        let results = sized.results.iter().map(|array| format!("{}{}", array.dtype, array.shape));
        let (operands, results): (Vec<_>, Vec<_>) = (operands.collect(), results.collect());
        StepTime {
            op: step.work.op_name(),
            kernel: step.work.kernel_name(),
            shapes: format!("{} → {}", operands.join(", "), results.join(", ")),
            microseconds: duration.as_secs_f64() * 1e6,
        }
    }

    /// The name of what computed it; an op's reference is marked so.
    pub(crate) fn computed_by(&self) -> String {
        self.kernel.clone().unwrap_or_else(|| format!("{} (reference)", self.op))
    }
}

impl Profile {
    /// The sum over all steps.
    pub fn microseconds(&self) -> f64 {
        self.steps.iter().map(|step| step.microseconds).sum()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut totals = Totals::default();
        self.steps.iter().for_each(|step| totals.add(step));
        totals.fmt(f)
    }
}

/// How often each kernel ran, and how long in all. Prints as a table, the slowest first.
#[derive(Debug, Clone, Default)]
pub struct Totals(BTreeMap<String, (usize, f64)>);

impl Totals {
    pub(crate) fn add(&mut self, step: &StepTime) {
        let (count, sum) = self.0.entry(step.computed_by()).or_default();
        *count += 1;
        *sum += step.microseconds;
    }

    /// The kernels in the order of their names: name, how often it ran, microseconds in all.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize, f64)> {
        self.0.iter().map(|(name, &(count, sum))| (&name[..], count, sum))
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kernels: Vec<_> = self.iter().collect();
        kernels.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
        let steps: usize = kernels.iter().map(|(_, count, _)| count).sum();
        let total: f64 = kernels.iter().map(|(_, _, sum)| sum).sum();
        for (name, count, sum) in kernels {
            let share = 100.0 * sum / total.max(f64::MIN_POSITIVE);
            writeln!(f, "{sum:>10.1} us {share:>5.1} % {count:>5} x {name}")?;
        }
        writeln!(f, "{total:>10.1} us in {steps} steps")
    }
}
