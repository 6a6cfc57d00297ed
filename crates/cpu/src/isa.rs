//! What this machine's instruction set has, and the choice among variants of a kernel at run time.

pub use crate::kernels::variant::{Variant, fastest as best};

/// AVX-512 as in Zen 4 and Sapphire Rapids: with byte dot products (VNNI) and bf16 dot products.
#[cfg(target_arch = "x86_64")]
pub fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512bf16")
}

/// AVX2 with fused multiply-add and half-precision conversions, as in Haswell and Zen 1.
#[cfg(target_arch = "x86_64")]
pub fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}
