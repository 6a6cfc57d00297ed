//! How far a device's choice among kernel variants may go.

#[cfg(target_arch = "aarch64")]
use crate::vec::Neon;
#[cfg(target_arch = "x86_64")]
use crate::vec::{Avx2, Avx512};

/// Instruction sets, from the one every machine has to the largest of each architecture. Results are the same to the bit
/// with each of them, unless a session is reproducible on one machine only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstructionSet {
    /// What the compiler may assume of the target.
    Portable,
    /// NEON, as in every 64-bit ARM processor.
    Neon,
    /// NEON with dot products of bytes, as in Cortex-A76, Neoverse N1 and Apple M1.
    DotProduct,
    /// NEON with dot products of unsigned with signed bytes, as in Cortex-A710, Neoverse V1 and Apple M2.
    I8mm,
    /// AVX2 with fused multiply-add and half-precision conversions, as in Haswell and Zen 1.
    Avx2,
    /// AVX-512 with what this machine has of its extensions.
    Avx512,
}

impl InstructionSet {
    /// Those of this architecture, smallest first.
    #[cfg(target_arch = "x86_64")]
    pub const ALL: &[InstructionSet] =
        &[InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512];
    /// Those of this architecture, smallest first.
    #[cfg(target_arch = "aarch64")]
    pub const ALL: &[InstructionSet] =
        &[InstructionSet::Portable, InstructionSet::Neon, InstructionSet::DotProduct, InstructionSet::I8mm];
    /// Those of this architecture, smallest first.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub const ALL: &[InstructionSet] = &[InstructionSet::Portable];

    /// The largest of this architecture, which sets no limit.
    pub const LARGEST: InstructionSet = InstructionSet::ALL[InstructionSet::ALL.len() - 1];

    /// The name in settings, and of the variants of kernels.
    pub const fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Neon => "neon",
            InstructionSet::DotProduct => "dotprod",
            InstructionSet::I8mm => "i8mm",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
        }
    }

    /// The set of a name, if this architecture has it.
    pub fn named(name: &str) -> Option<InstructionSet> {
        InstructionSet::ALL.iter().copied().find(|set| set.name() == name)
    }

    /// Whether a kernel variant of this name stays within the set. In a name such as `avx512+bf16`, the set comes first.
    pub(crate) fn allows(self, variant: &str) -> bool {
        let set = variant.split('+').next().expect("a text has a first part");
        InstructionSet::named(set).is_none_or(|set| set <= self)
    }

    /// What this machine has of the set, as targets name it.
    pub(crate) fn available(self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        return match self {
            InstructionSet::Avx512 if Avx512::available() && dot_products() => "avx512+vnni",
            InstructionSet::Avx512 if Avx512::available() => "avx512",
            InstructionSet::Avx512 | InstructionSet::Avx2 if Avx2::available() => "avx2",
            _ => "portable",
        };
        #[cfg(target_arch = "aarch64")]
        return match self {
            InstructionSet::Portable => "portable",
            _ if !Neon::available() => "portable",
            set if set >= InstructionSet::I8mm && mixed_dot_products() => "neon+dotprod+i8mm",
            set if set >= InstructionSet::DotProduct && dot_products() => "neon+dotprod",
            _ => "neon",
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return "portable";
    }
}

/// Whether there are the dot products of bytes that quantized weights are multiplied with.
#[cfg(target_arch = "x86_64")]
pub(crate) fn dot_products() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

/// Whether there are dot products of signed bytes, and of unsigned ones.
#[cfg(target_arch = "aarch64")]
pub(crate) fn dot_products() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

/// Whether there are dot products of unsigned with signed bytes, and the others too.
#[cfg(target_arch = "aarch64")]
pub(crate) fn mixed_dot_products() -> bool {
    dot_products() && std::arch::is_aarch64_feature_detected!("i8mm")
}

#[cfg(test)]
mod tests {
    use std::env::consts::ARCH;

    use engine::Target;

    use super::*;
    use crate::targets::{all, covers};

    #[test]
    fn what_machines_have_is_a_target() {
        let targets = InstructionSet::ALL.iter().map(|set| Target::new(ARCH, set.available()));
        let targets: Vec<Target> = targets.collect();
        assert!(targets.iter().all(|target| all().contains(target)), "{targets:?}");
        assert!(targets.windows(2).all(|pair| covers(&pair[1], &pair[0])), "{targets:?}");
    }
}
