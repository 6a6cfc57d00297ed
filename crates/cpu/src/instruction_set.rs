//! How far a device's choice among kernel variants may go.

use std::fmt;

#[cfg(target_arch = "x86_64")]
use crate::vec::{Avx2, Avx512};

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
            InstructionSet::Avx512 if Avx512::available() && dot_products() => "avx512+vnni",
            InstructionSet::Avx512 if Avx512::available() => "avx512",
            InstructionSet::Avx512 | InstructionSet::Avx2 if Avx2::available() => "avx2+fma+f16c",
            _ => "portable",
        };
        #[cfg(not(target_arch = "x86_64"))]
        return "portable";
    }

    /// Whether what this machine has of the set covers that of another, as [`InstructionSet::available`] words it.
    pub(crate) fn covers(self, other: &str) -> bool {
        let place = |words: &str| WORDS.iter().position(|known| *known == words);
        place(other).is_some_and(|other| Some(other) <= place(&self.available().to_string()))
    }
}

/// What machines may have, each covering those before it.
const WORDS: &[&str] = &["portable", "avx2+fma+f16c", "avx512", "avx512+vnni"];

/// Whether there are the dot products of bytes that quantized weights are multiplied with.
#[cfg(target_arch = "x86_64")]
pub(crate) fn dot_products() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_sets_cover_smaller_ones() {
        for (i, small) in InstructionSet::ALL.iter().enumerate() {
            for large in &InstructionSet::ALL[i..] {
                assert!(large.covers(&small.available().to_string()), "{large:?} covers {small:?}");
            }
        }
        assert!(!InstructionSet::Avx512.covers("sve2"));
        assert!(!InstructionSet::Portable.covers("avx2+fma+f16c"));
        let best = InstructionSet::Avx512.available().to_string();
        assert!(WORDS.contains(&&best[..]), "{best} is known");
    }
}
