//! The lanes in ARM registers: four of 128 bits.

use std::arch::aarch64::*;

use half::{bf16, f16};

use super::{LANES, Simd};

/// Proof that the machine has NEON, as all 64-bit ARM processors that run an operating system do.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Neon {
    /// The proof, given on the caller's word.
    ///
    /// # Safety
    /// [`Neon::available`] is true.
    #[inline(always)]
    pub unsafe fn new() -> Neon {
        Neon(())
    }

    /// Whether this machine has it.
    pub fn available() -> bool {
        std::arch::is_aarch64_feature_detected!("neon")
    }
}

/// Sixteen f32.
type Floats = [float32x4_t; 4];

/// An array of an expression for each quarter of the lanes. Only the proof in `self` makes intrinsics callable.
macro_rules! quarters {
    ($quarter:ident => $value:expr) => {{
        // SAFETY: `self` is proof of the instruction set, and memory is the caller's promise.
        unsafe {
            [
                {
                    const $quarter: usize = 0;
                    $value
                },
                {
                    const $quarter: usize = 1;
                    $value
                },
                {
                    const $quarter: usize = 2;
                    $value
                },
                {
                    const $quarter: usize = 3;
                    $value
                },
            ]
        }
    }};
}

impl Simd for Neon {
    type F32 = Floats;
    type Mask = [uint32x4_t; 4];

    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        quarters!(I => {
            let _ = I;
            vdupq_n_f32(x)
        })
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Floats {
        quarters!(I => vld1q_f32(from.add(4 * I)))
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Floats {
        let mut lanes = [0f32; LANES];
        // SAFETY: the caller vouches for `count` values, and there are at most sixteen.
        unsafe {
            if count == LANES {
                return self.load(from);
            }
            from.copy_to_nonoverlapping(lanes.as_mut_ptr(), count.min(LANES));
            self.load(lanes.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> Floats {
        // A bf16 is the upper half of an f32.
        quarters!(I => {
            let codes = vmovl_u16(vld1_u16(from.cast::<u16>().add(4 * I)));
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(codes))
        })
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> Floats {
        quarters!(I => vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.cast::<u16>().add(4 * I)))))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, lanes: Floats) {
        for (i, quarter) in lanes.into_iter().enumerate() {
            // SAFETY: `self` is proof of the instruction set, and the caller vouches for sixteen values.
            unsafe { vst1q_f32(to.add(4 * i), quarter) };
        }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: Floats, count: usize) {
        // SAFETY: the caller vouches for `count` values, and there are at most sixteen.
        unsafe {
            if count == LANES {
                return self.store(to, lanes);
            }
            let lanes = self.to_array(lanes);
            lanes.as_ptr().copy_to_nonoverlapping(to, count.min(LANES));
        }
    }

    #[inline(always)]
    fn add(self, a: Floats, b: Floats) -> Floats {
        quarters!(I => vaddq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn sub(self, a: Floats, b: Floats) -> Floats {
        quarters!(I => vsubq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn mul(self, a: Floats, b: Floats) -> Floats {
        quarters!(I => vmulq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn div(self, a: Floats, b: Floats) -> Floats {
        quarters!(I => vdivq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn fma(self, a: Floats, b: Floats, c: Floats) -> Floats {
        quarters!(I => vfmaq_f32(c[I], a[I], b[I]))
    }

    /// A comparison, since `fmax` gives NaN if either is.
    #[inline(always)]
    fn max(self, a: Floats, b: Floats) -> Floats {
        quarters!(I => vbslq_f32(vcgtq_f32(a[I], b[I]), a[I], b[I]))
    }

    #[inline(always)]
    fn min(self, a: Floats, b: Floats) -> Floats {
        quarters!(I => vbslq_f32(vcltq_f32(a[I], b[I]), a[I], b[I]))
    }

    #[inline(always)]
    fn abs(self, a: Floats) -> Floats {
        quarters!(I => vabsq_f32(a[I]))
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: Floats, sign: Floats) -> Floats {
        quarters!(I => vbslq_f32(vdupq_n_u32(1 << 31), sign[I], magnitude[I]))
    }

    #[inline(always)]
    fn round(self, a: Floats) -> Floats {
        quarters!(I => vrndnq_f32(a[I]))
    }

    #[inline(always)]
    fn scale_by_power(self, a: Floats, n: Floats) -> Floats {
        quarters!(I => scale_by_power(a[I], n[I]))
    }

    #[inline(always)]
    fn less(self, a: Floats, b: Floats) -> [uint32x4_t; 4] {
        quarters!(I => vcltq_f32(a[I], b[I]))
    }

    #[inline(always)]
    fn select(self, mask: [uint32x4_t; 4], a: Floats, b: Floats) -> Floats {
        quarters!(I => vbslq_f32(mask[I], a[I], b[I]))
    }

    #[inline(always)]
    fn to_array(self, a: Floats) -> [f32; LANES] {
        let mut lanes = [0f32; LANES];
        // SAFETY: the array has sixteen values.
        unsafe { self.store(lanes.as_mut_ptr(), a) };
        lanes
    }
}

/// Multiplies by two powers of two, so that only the last product rounds.
#[inline]
#[target_feature(enable = "neon")]
fn scale_by_power(a: float32x4_t, n: float32x4_t) -> float32x4_t {
    let n = vcvtq_s32_f32(n);
    let first = vshrq_n_s32::<1>(n);
    let second = vsubq_s32(n, first);
    vmulq_f32(vmulq_f32(a, power(first)), power(second))
}

/// `2ⁿ` for normal results.
#[inline]
#[target_feature(enable = "neon")]
fn power(n: int32x4_t) -> float32x4_t {
    vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127))))
}
