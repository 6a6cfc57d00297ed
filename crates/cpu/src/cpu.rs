//! The CPU: its threads, and the choice among the variants of a kernel.

use std::sync::Arc;

use crate::kernels::variant::Variant;
use crate::{InstructionSet, Pool};

/// The CPU: a pool of threads and the instruction set that its kernels may use.
pub struct Cpu {
    pub(crate) pool: Arc<Pool>,
    pub(crate) limit: InstructionSet,
}

impl Cpu {
    /// The CPU with `threads` threads, the caller's among them; 0 means one per core that this process may use.
    pub fn new(threads: usize) -> Cpu {
        Cpu::with_instruction_set(threads, InstructionSet::LARGEST)
    }

    /// As [`Cpu::new`], with kernels for at most an instruction set: to compare them, or to compute the same on
    /// every machine.
    pub fn with_instruction_set(threads: usize, limit: InstructionSet) -> Cpu {
        Cpu { pool: Arc::new(Pool::new(threads)), limit }
    }

    /// The threads.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
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
