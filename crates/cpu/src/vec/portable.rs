//! The lanes as an array: for machines without a faster set, and to compare the others with.

use half::{bf16, f16};

use super::{LANES, Simd};

/// Lanes any machine has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portable;

/// Sixteen f32, aligned so that the compiler may use whole registers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Lanes([f32; LANES]);

/// An array of an expression for each lane. Written out, since compilers take long to unroll a loop for every operation
/// of every kernel.
macro_rules! lanes {
    ($lane:ident => $value:expr) => {
        lanes!($lane => $value; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($lane:ident => $value:expr; $($index:literal)*) => {
        [$({
            const $lane: usize = $index;
            $value
        }),*]
    };
}

/// [`lanes!`] of f32.
macro_rules! each {
    ($lane:ident => $value:expr) => {
        Lanes(lanes!($lane => $value))
    };
}

/// True where `a * b + c` is one instruction without asking the machine first.
const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

impl Simd for Portable {
    type F32 = Lanes;
    type Mask = [bool; LANES];

    const REGISTERS: usize = 4;
    const WIDENS_ONCE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> Lanes {
        Lanes([x; LANES])
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Lanes {
        // SAFETY: the caller vouches for sixteen values; they need no alignment.
        Lanes(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Lanes {
        let mut lanes = [0f32; LANES];
        for (i, lane) in lanes.iter_mut().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller vouches for `count` values.
            *lane = unsafe { *from.add(i) };
        }
        Lanes(lanes)
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> Lanes {
        // SAFETY: the caller vouches for sixteen values; they need no alignment.
        let values = unsafe { from.cast::<[bf16; LANES]>().read_unaligned() };
        each!(I => values[I].to_f32())
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> Lanes {
        // SAFETY: the caller vouches for sixteen values; they need no alignment.
        Lanes(widen(unsafe { from.cast::<[f16; LANES]>().read_unaligned() }))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, lanes: Lanes) {
        // SAFETY: the caller vouches for sixteen values; they need no alignment.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(lanes.0) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: Lanes, count: usize) {
        for (i, lane) in lanes.0.iter().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller vouches for `count` values.
            unsafe { *to.add(i) = *lane };
        }
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        each!(I => a.0[I] + b.0[I])
    }

    #[inline(always)]
    fn sub(self, a: Lanes, b: Lanes) -> Lanes {
        each!(I => a.0[I] - b.0[I])
    }

    #[inline(always)]
    fn mul(self, a: Lanes, b: Lanes) -> Lanes {
        each!(I => a.0[I] * b.0[I])
    }

    #[inline(always)]
    fn div(self, a: Lanes, b: Lanes) -> Lanes {
        each!(I => a.0[I] / b.0[I])
    }

    #[inline(always)]
    fn fma(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        if FUSED { each!(I => a.0[I].mul_add(b.0[I], c.0[I])) } else { fused(&a, &b, &c) }
    }

    #[inline(always)]
    fn max(self, a: Lanes, b: Lanes) -> Lanes {
        each!(I => if a.0[I] > b.0[I] { a.0[I] } else { b.0[I] })
    }

    #[inline(always)]
    fn min(self, a: Lanes, b: Lanes) -> Lanes {
        each!(I => if a.0[I] < b.0[I] { a.0[I] } else { b.0[I] })
    }

    #[inline(always)]
    fn abs(self, a: Lanes) -> Lanes {
        each!(I => a.0[I].abs())
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: Lanes, sign: Lanes) -> Lanes {
        each!(I => magnitude.0[I].copysign(sign.0[I]))
    }

    /// Adding and taking away 1.5·2²³ leaves the integer, without a call into the C library; a zero keeps its sign.
    #[inline(always)]
    fn round(self, a: Lanes) -> Lanes {
        const SHIFT: f32 = 12_582_912.0;
        each!(I => ((a.0[I] + SHIFT) - SHIFT).copysign(a.0[I]))
    }

    #[inline(always)]
    fn scale_by_power(self, a: Lanes, n: Lanes) -> Lanes {
        each!(I => {
            let n = n.0[I] as i32;
            let first = n >> 1;
            a.0[I] * power(first) * power(n - first)
        })
    }

    #[inline(always)]
    fn scale_exactly(self, a: Lanes, n: Lanes) -> Lanes {
        each!(I => f32::from_bits(a.0[I].to_bits().wrapping_add((n.0[I] as i32 as u32) << 23)))
    }

    #[inline(always)]
    fn less(self, a: Lanes, b: Lanes) -> [bool; LANES] {
        lanes!(I => a.0[I] < b.0[I])
    }

    #[inline(always)]
    fn select(self, mask: [bool; LANES], a: Lanes, b: Lanes) -> Lanes {
        each!(I => if mask[I] { a.0[I] } else { b.0[I] })
    }

    #[inline(always)]
    fn to_array(self, a: Lanes) -> [f32; LANES] {
        a.0
    }

    #[inline(never)]
    fn call(self, x: Lanes, function: impl Fn(Self, Lanes) -> Lanes) -> Lanes {
        function(self, x)
    }
}

/// `a · b + c`, rounded once, without an instruction for it. A call: a lane takes about twenty instructions.
#[inline(never)]
fn fused(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let mut sums = [0f32; LANES];
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = fused_lane(a.0[i], b.0[i], c.0[i]);
    }
    Lanes(sums)
}

/// In f64 the product is exact. Their sum is rounded to odd: a sum that is not exact becomes the neighbour whose last bit
/// is set, so that rounding it to f32 gives what rounding the exact sum gives (Boldo and Melquiond).
#[inline(always)]
fn fused_lane(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The exact sum less the rounded one (Knuth); NaN if the sum is not finite.
    let added = sum - product;
    let error = (product - (sum - added)) + (c - added);
    let bits = sum.to_bits();
    let outward = 1 - 2 * ((error.to_bits() ^ bits) >> 63) as i64;
    let even = bits & 1 == 0;
    f64::from_bits(if even && error.abs() > 0.0 { bits.wrapping_add_signed(outward) } else { bits }) as f32
}

/// `2ⁿ` for a normal result: -126..=127.
#[inline(always)]
fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// A call: without an instruction for it, a value takes thirty.
#[inline(never)]
fn widen(values: [f16; LANES]) -> [f32; LANES] {
    values.map(f16::to_f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floats of every exponent, some with few bits set, so that sums of products come near the middle of two floats.
    fn operand(state: &mut u64) -> f32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = (*state >> 32) as u32;
        match *state >> 29 & 7 {
            0 => f32::from_bits(bits & 0xff80_0001),
            1 => f32::from_bits(bits & 0xfff0_0000),
            2 => f32::from_bits((bits & 0x80ff_ffff) | 0x3f00_0000),
            3 => f32::from_bits((bits & 0x807f_ffff) | 0x3f80_0000),
            4 => [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-45, f32::MIN_POSITIVE]
                [(bits & 7) as usize],
            _ => f32::from_bits(bits),
        }
    }

    #[test]
    fn a_fused_lane_is_rounded_once() {
        let mut state = 1;
        for _ in 0..2_000_000 {
            let [a, b, mut c] = [(); 3].map(|()| operand(&mut state));
            // Often next to the product, where its lower bits count.
            if state >> 60 < 8 {
                c = -(a * b) * [1.0, 2.0, 0.5, 1.0 + f32::EPSILON][(state >> 50 & 3) as usize];
            }
            let (got, want) = (fused_lane(a, b, c), a.mul_add(b, c));
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{a:e} · {b:e} + {c:e} is {got:e}, not {want:e}");
        }
    }

    #[test]
    fn rounding_keeps_the_sign_of_zeros() {
        let round = |x: f32| Portable.to_array(Portable.round(Portable.splat(x)))[0];
        for x in [0.0f32, -0.0, 0.5, -0.5, -0.4, 1.5, -2.5, 4_194_303.5, -4_194_303.5] {
            assert_eq!(round(x).to_bits(), x.round_ties_even().to_bits(), "{x}");
        }
    }
}
