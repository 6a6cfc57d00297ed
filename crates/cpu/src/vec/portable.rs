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
        if FUSED { each!(I => a.0[I].mul_add(b.0[I], c.0[I])) } else { each!(I => a.0[I] * b.0[I] + c.0[I]) }
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

    /// Adding and taking away 1.5·2²³ leaves the integer, without a call into the C library.
    #[inline(always)]
    fn round(self, a: Lanes) -> Lanes {
        const SHIFT: f32 = 12_582_912.0;
        each!(I => (a.0[I] + SHIFT) - SHIFT)
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
