//! The targets that graphs can be compiled for: processors of this architecture and of others.

use std::env::consts::ARCH;
use std::sync::Arc;

use engine::{Kernel, KernelCall, Target, View};
use tensor::Shape;

use crate::InstructionSet;

/// Architectures with vector kernels, and what their processors have, each set covering those before it.
const TARGETS: &[(&str, &[&str])] = &[
    ("x86_64", &["portable", "avx2", "avx512", "avx512+vnni"]),
    ("aarch64", &["portable", "neon", "neon+dotprod", "neon+dotprod+i8mm"]),
];

/// A target that a device was made for.
#[derive(Clone)]
pub(crate) struct ChosenTarget {
    pub(crate) target: Target,
    /// Whether this machine runs what is compiled for it.
    pub(crate) is_here: bool,
}

/// All targets that are known, smallest first for each architecture; this machine's architecture is always among them.
pub(crate) fn all() -> Vec<Target> {
    let of = |(architecture, sets): &(&str, &[&str])| {
        sets.iter().map(|set| Target::new(architecture, set)).collect::<Vec<_>>()
    };
    let mut targets: Vec<Target> = TARGETS.iter().flat_map(of).collect();
    if !TARGETS.iter().any(|(architecture, _)| *architecture == ARCH) {
        targets.push(Target::new(ARCH, "portable"));
    }
    targets
}

/// Whether a processor of one target has all that another needs.
pub(crate) fn covers(one: &Target, other: &Target) -> bool {
    let targets = all();
    let place = |target: &Target| targets.iter().position(|known| known == target);
    one.architecture() == other.architecture() && place(other).is_some_and(|other| Some(other) <= place(one))
}

/// The smallest limit that allows the kernels of an instruction set of this architecture.
pub(crate) fn limit(target: &Target) -> InstructionSet {
    let last = target.instruction_set().rsplit('+').find_map(InstructionSet::named);
    last.unwrap_or(InstructionSet::Portable)
}

/// A kernel of a plan for another machine, which chooses its variant when it loads the plan.
pub(crate) struct PlannedKernel {
    /// The portable variant, which needs as much scratch memory as the others.
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) target: Target,
}

impl Kernel for PlannedKernel {
    fn name(&self) -> String {
        let name = self.kernel.name();
        name.strip_suffix(".portable").map_or(name.clone(), str::to_string)
    }

    fn scratch(&self, inputs: &[Shape], outputs: &[Shape]) -> usize {
        self.kernel.scratch(inputs, outputs)
    }

    fn in_place(&self) -> Option<usize> {
        self.kernel.in_place()
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        self.kernel.sizes(inputs)
    }

    fn run(&self, _call: KernelCall<'_, '_>) -> Result<(), String> {
        Err(format!("{} is for {}, which this machine is not", self.name(), self.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_sets_cover_smaller_ones_of_their_architecture() {
        for (i, one) in all().iter().enumerate() {
            for (j, other) in all().iter().enumerate() {
                let expected = one.architecture() == other.architecture() && j <= i;
                assert_eq!(covers(one, other), expected, "{one} covers {other}");
            }
        }
        assert!(!covers(&Target::new("aarch64", "neon"), &Target::new("aarch64", "sve2")));
        assert!(!covers(&Target::new("aarch64", "sve2"), &Target::new("aarch64", "neon")));
    }

    #[test]
    fn limits_allow_what_targets_have() {
        for target in all().iter().filter(|target| target.architecture() == ARCH) {
            let limit = limit(target);
            assert!(target.instruction_set().split('+').all(|set| limit.allows(set)), "{target}");
            assert_eq!(limit == InstructionSet::Portable, target.instruction_set() == "portable");
        }
    }
}
