//! How far a device's choice among kernel variants may go.

use std::fmt;

use crate::isa;

/// Instruction sets, from the one every machine has to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstructionSet {
    /// What the compiler may assume of the target.
    Portable,
    /// AVX2 with fused multiply-add and half-precision conversions, as in Haswell and Zen 1.
    Avx2,
    /// AVX-512 with what this machine has of its extensions.
    Avx512,
}

impl InstructionSet {
    /// All of them, smallest first.
    pub const ALL: &[InstructionSet] =
        &[InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512];

    /// Whether a kernel variant of this name stays within the set.
    pub(crate) fn allows(self, variant: &str) -> bool {
        match variant {
            "avx512" => self >= InstructionSet::Avx512,
            "avx2" => self >= InstructionSet::Avx2,
            _ => true,
        }
    }

    /// What this machine has of the set, in words.
    pub(crate) fn available(self) -> impl fmt::Display {
        #[cfg(target_arch = "x86_64")]
        return match self {
            InstructionSet::Avx512 if isa::has_avx512() => "avx512+vnni+bf16",
            InstructionSet::Avx512 if crate::vec::Avx512::available() => "avx512",
            InstructionSet::Avx512 | InstructionSet::Avx2 if isa::has_avx2() => "avx2+fma+f16c",
            _ => "portable",
        };
        #[cfg(not(target_arch = "x86_64"))]
        return "portable";
    }
}
