//! Variants of a kernel for different instruction sets, and the choice among them at run time.

/// One way to compute a kernel. A kernel's `VARIANTS` list them fastest first; the last is always available.
pub struct Variant<K> {
    /// The name shown in plans and benchmarks, such as `avx512`.
    pub name: &'static str,
    /// Whether this machine can run it.
    pub available: fn() -> bool,
    /// The kernel.
    pub run: K,
}

/// The first variant that this machine can run.
///
/// # Panics
/// If none is available, which a `VARIANTS` list that ends with a portable one rules out.
pub fn best<K>(variants: &[Variant<K>]) -> &Variant<K> {
    let found = variants.iter().find(|variant| (variant.available)());
    found.expect("a list of variants ends with one that is always available")
}

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
