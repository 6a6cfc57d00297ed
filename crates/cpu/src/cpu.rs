//! The CPU: its threads, and the choice among the variants of a kernel.

use std::sync::Arc;

use engine::Target;

use crate::targets::ChosenTarget;
use crate::variant::Variant;
use crate::{InstructionSet, Pool};

/// The CPU: a pool of threads and the instruction set that its kernels may use.
pub struct Cpu {
    pub(crate) pool: Arc<Pool>,
    pub(crate) limit: InstructionSet,
    /// The target that a session chose; `None` compiles for this machine.
    pub(crate) chosen: Option<ChosenTarget>,
}

impl Cpu {
    /// The CPU with `threads` threads, the caller's among them; 0 means one per core that this process may use.
    pub fn new(threads: usize) -> Cpu {
        Cpu::with_instruction_set(threads, InstructionSet::LARGEST)
    }

    /// As [`Cpu::new`], with kernels for at most an instruction set: to compare them, or to compute the same on
    /// every machine.
    pub fn with_instruction_set(threads: usize, limit: InstructionSet) -> Cpu {
        Cpu { pool: Arc::new(Pool::new(threads)), limit, chosen: None }
    }

    /// The threads.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The target that it compiles for: what this machine has within the limit, or another that was chosen.
    pub(crate) fn compiles_for(&self) -> Target {
        match &self.chosen {
            Some(chosen) => chosen.target.clone(),
            None => Target::new(std::env::consts::ARCH, self.limit.available()),
        }
    }

    /// Whether models that it compiles run on this machine.
    pub(crate) fn is_here(&self) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.is_here)
    }

    /// The instruction set whose kernels read the weights that this device packs.
    pub(crate) fn packs_for<F>(&self, variants: &'static [Variant<F>]) -> String {
        match &self.chosen {
            Some(chosen) if !chosen.is_here => {
                let set = chosen.target.instruction_set();
                set.split('+').next().unwrap_or(set).to_string()
            }
            _ => self.pick(variants).name.to_string(),
        }
    }

    /// The fastest variant that this machine has and the limit allows.
    pub(crate) fn pick<F>(&self, variants: &'static [Variant<F>]) -> &'static Variant<F> {
        self.find(variants).expect("every list of variants ends with a portable one")
    }

    /// As [`Cpu::pick`], from a list without a portable variant.
    pub(crate) fn find<F>(&self, variants: &'static [Variant<F>]) -> Option<&'static Variant<F>> {
        variants.iter().find(|variant| self.limit.allows(variant.name) && (variant.available)())
    }
}
