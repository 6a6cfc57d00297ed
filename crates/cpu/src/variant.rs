//! One kernel compiled for each instruction set, and the choice among them.

/// One way to run a kernel of the function type `F`.
#[derive(Clone, Copy, Debug)]
pub struct Variant<F> {
    /// The instruction set's name: `avx512`, `avx2`, `neon`, `portable`.
    pub name: &'static str,
    /// Whether this machine can run it.
    pub available: fn() -> bool,
    /// The kernel; to call it is sound only where [`Variant::available`] is true.
    pub run: F,
}

/// The first variant that this machine can run; lists are in the order of speed.
///
/// # Panics
/// When there is none: each list ends with a portable variant.
pub fn fastest<F>(variants: &[Variant<F>]) -> &Variant<F> {
    variants
        .iter()
        .find(|variant| (variant.available)())
        .expect("every list of variants ends with a portable one")
}

/// Compiles a kernel that is generic over `Simd` once for each instruction set: a list of [`Variant`]s, fastest first.
///
/// A static: a constant's kernels would be compiled into each crate that reads it.
///
/// `variants!(/// docs pub static VARIANTS = row(x: &[f32], out: &mut [f32]));` lists `row::<S>(s, x, out)`.
macro_rules! variants {
    ($(#[$docs:meta])* $vis:vis static $list:ident = $kernel:path, ($($argument:ident: $type:ty),* $(,)?)) => {
        $(#[$docs])*
        $vis static $list: &[$crate::variant::Variant<unsafe fn($($type),*)>] = {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            unsafe fn avx512($($argument: $type),*) {
                // SAFETY: the caller asked `Variant::available`.
                $kernel(unsafe { $crate::vec::Avx512::new() }, $($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($argument: $type),*) {
                // SAFETY: the caller asked `Variant::available`.
                $kernel(unsafe { $crate::vec::Avx2::new() }, $($argument),*)
            }

            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            unsafe fn neon($($argument: $type),*) {
                // SAFETY: the caller asked `Variant::available`.
                $kernel(unsafe { $crate::vec::Neon::new() }, $($argument),*)
            }

            unsafe fn portable($($argument: $type),*) {
                $kernel($crate::vec::Portable, $($argument),*)
            }

            &[
                #[cfg(target_arch = "x86_64")]
                $crate::variant::Variant {
                    name: "avx512",
                    available: $crate::vec::Avx512::available,
                    run: avx512,
                },
                #[cfg(target_arch = "x86_64")]
                $crate::variant::Variant {
                    name: "avx2",
                    available: $crate::vec::Avx2::available,
                    run: avx2,
                },
                #[cfg(target_arch = "aarch64")]
                $crate::variant::Variant {
                    name: "neon",
                    available: $crate::vec::Neon::available,
                    run: neon,
                },
                $crate::variant::Variant { name: "portable", available: || true, run: portable },
            ]
        };
    };
}

pub(crate) use variants;
