//! How long the steps of one call took.

use std::collections::BTreeMap;
use std::fmt;

use crate::frame::Frame;
use crate::plan::{Plan, StepOperand};

/// The time of each step of one call. Prints as a table of kernels, the slowest first.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// In the order they ran.
    pub steps: Vec<StepTime>,
}

/// The time of one step.
#[derive(Debug, Clone)]
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

impl Profile {
    /// Adds the steps of a plan.
    pub(crate) fn add(&mut self, plan: &Plan, frame: &Frame, seconds: &[f64]) {
        let steps = plan.steps.iter().zip(&frame.steps).zip(seconds).map(|((step, sized), seconds)| {
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
                microseconds: seconds * 1e6,
            }
        });
        self.steps.extend(steps);
    }

    /// The sum over all steps.
    pub fn microseconds(&self) -> f64 {
        self.steps.iter().map(|step| step.microseconds).sum()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kernels: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for step in &self.steps {
            let name = step.kernel.clone().unwrap_or_else(|| format!("{} (reference)", step.op));
            let (count, sum) = kernels.entry(name).or_default();
            *count += 1;
            *sum += step.microseconds;
        }
        let mut kernels: Vec<_> = kernels.into_iter().collect();
        kernels.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
        let total = self.microseconds();
        for (name, (count, sum)) in kernels {
            writeln!(
                f,
                "{sum:>10.1} us {:>5.1} % {count:>5} x {name}",
                100.0 * sum / total.max(f64::MIN_POSITIVE)
            )?;
        }
        writeln!(f, "{total:>10.1} us in {} steps", self.steps.len())
    }
}
