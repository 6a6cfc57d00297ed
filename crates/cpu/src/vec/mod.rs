//! Sixteen f32 lanes, whatever the instruction set, and the arithmetic that kernels write over them.
//!
//! Every implementation of [`Simd`] has the same sixteen lanes and rounds every operation alike, so a kernel written
//! once over the trait gives the same bits on every processor. Only which NaN comes out may differ: its sign and its
//! lower bits are the processor's choice.

#[cfg(test)]
mod accuracy;
mod gelu;
mod interleave;
mod logarithm;
mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod scratch;
mod stream;
#[cfg(target_arch = "x86_64")]
mod x86;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

pub use gelu::{TAIL_SCALE, gelu, gelu_tanh, normal_tail};
pub use interleave::interleave;
pub use logarithm::{ln, ln_1p};
pub use math::{exp, sigmoid, tanh};
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use portable::Portable;
pub use scratch::with_scratch;
pub use stream::{Stream, prefetch, prefetch_line};
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

/// Lanes of every vector.
pub const LANES: usize = 16;

/// Proof that an instruction set is there, and its operations on [`LANES`] f32 lanes.
pub trait Simd: Copy {
    /// Sixteen f32 lanes.
    type F32: Copy;
    /// One truth value a lane.
    type Mask: Copy;

    /// How many `F32` values the registers hold at once: what a kernel may tile by.
    const REGISTERS: usize;

    /// Whether loads of halves take so long that values which are read often are better widened once.
    const WIDENS_ONCE: bool = false;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F32;

    /// The sixteen values from `from` on.
    ///
    /// # Safety
    /// Sixteen values are readable at `from`.
    unsafe fn load(self, from: *const f32) -> Self::F32;

    /// The first `count <= 16` values from `from` on, then zeros.
    ///
    /// # Safety
    /// `count` values are readable at `from`.
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::F32;

    /// The first sixteen of some values; then zeros, if there are fewer.
    #[inline(always)]
    fn load_slice(self, from: &[f32]) -> Self::F32 {
        // SAFETY: the slice has as many values.
        unsafe { self.load_partial(from.as_ptr(), from.len().min(LANES)) }
    }

    /// Sixteen bf16 values from `from` on, widened.
    ///
    /// # Safety
    /// Sixteen values are readable at `from`.
    unsafe fn load_bf16(self, from: *const bf16) -> Self::F32;

    /// Sixteen f16 values from `from` on, widened.
    ///
    /// # Safety
    /// Sixteen values are readable at `from`.
    unsafe fn load_f16(self, from: *const f16) -> Self::F32;

    /// Writes the sixteen lanes from `to` on.
    ///
    /// # Safety
    /// Sixteen values are writable at `to`.
    unsafe fn store(self, to: *mut f32, lanes: Self::F32);

    /// Writes the first `count <= 16` lanes from `to` on.
    ///
    /// # Safety
    /// `count` values are writable at `to`.
    unsafe fn store_partial(self, to: *mut f32, lanes: Self::F32, count: usize);

    /// Writes as many lanes as there is room for.
    #[inline(always)]
    fn store_slice(self, to: &mut [f32], lanes: Self::F32) {
        // SAFETY: the slice has as many values.
        unsafe { self.store_partial(to.as_mut_ptr(), lanes, to.len().min(LANES)) };
    }

    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a / b`.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;

    /// The larger of `a` and `b`; `b` where either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The smaller of `a` and `b`; `b` where either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `|a|`.
    fn abs(self, a: Self::F32) -> Self::F32;

    /// `|magnitude|` with the sign of `sign`.
    fn copy_sign(self, magnitude: Self::F32, sign: Self::F32) -> Self::F32;

    /// The nearest integer, ties to even, a zero with the sign of `a`; `|a|` is below 2²².
    fn round(self, a: Self::F32) -> Self::F32;

    /// `a · 2ⁿ`, rounded once; `n` is an integer in -252..=252 and `a` is in 0.5..=2 (or NaN).
    fn scale_by_power(self, a: Self::F32, n: Self::F32) -> Self::F32;

    /// `a · 2ⁿ`, which is exact: `n` is an integer, and the exponents of `a` and of the result are those of normal numbers.
    #[inline(always)]
    fn scale_exactly(self, a: Self::F32, n: Self::F32) -> Self::F32 {
        self.scale_by_power(a, n)
    }

    /// `a < b`, false where either is NaN.
    fn less(self, a: Self::F32, b: Self::F32) -> Self::Mask;

    /// `a` where the mask holds, else `b`.
    fn select(self, mask: Self::Mask, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The lanes.
    fn to_array(self, a: Self::F32) -> [f32; LANES];

    /// Lane `places[i]` of `a`, modulo 16, as lane `i`.
    #[inline(always)]
    fn permute(self, a: Self::F32, places: &[u8; LANES]) -> Self::F32 {
        let lanes = self.to_array(a);
        let permuted = places.map(|place| lanes[usize::from(place) % LANES]);
        // SAFETY: the array has sixteen values.
        unsafe { self.load(permuted.as_ptr()) }
    }

    /// `function(x)`. Where registers hold but a few lanes, it is compiled once, and not into each caller.
    #[inline(always)]
    fn call(self, x: Self::F32, function: impl Fn(Self, Self::F32) -> Self::F32) -> Self::F32 {
        function(self, x)
    }

    /// The sum of the lanes, added in halves: lane `i` to lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    #[inline(always)]
    fn sum(self, a: Self::F32) -> f32 {
        fold_halves(self.to_array(a), |a, b| a + b)
    }

    /// The largest lane, compared in the order of [`Simd::sum`].
    #[inline(always)]
    fn largest(self, a: Self::F32) -> f32 {
        fold_halves(self.to_array(a), |a, b| if a > b { a } else { b })
    }
}

/// Lane `i` with lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`: a vector at a time, as each step is an array.
#[inline(always)]
fn fold_halves(lanes: [f32; LANES], both: impl Fn(f32, f32) -> f32) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| both(lanes[i], lanes[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| both(eight[i], eight[i + 4]));
    let two = [both(four[0], four[2]), both(four[1], four[3])];
    both(two[0], two[1])
}

/// An element type that loads as f32 lanes.
pub trait Scalar: Copy + Send + Sync + 'static {
    /// The type's name in messages.
    const NAME: &'static str;

    /// This value, widened.
    fn to_f32(self) -> f32;

    /// `x`, rounded to nearest even.
    fn from_f32(x: f32) -> Self;

    /// The same values, where they are f32 already.
    #[inline(always)]
    fn as_f32(_: &[Self]) -> Option<&[f32]> {
        None
    }

    /// Widens `from` into as many values of `to`.
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.to_f32();
        }
    }

    /// Rounds `from` into as many values of `to`.
    #[inline(always)]
    fn narrow(from: &[f32], to: &mut [Self]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = Self::from_f32(*from);
        }
    }

    /// The sixteen values from `from` on, widened.
    ///
    /// # Safety
    /// Sixteen values are readable at `from`.
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::F32;

    /// The first `count <= 16` values from `from` on, widened, then zeros.
    ///
    /// # Safety
    /// `count` values are readable at `from`.
    #[inline(always)]
    unsafe fn load_partial<S: Simd>(s: S, from: *const Self, count: usize) -> S::F32 {
        let mut lanes = [0f32; LANES];
        for (i, lane) in lanes.iter_mut().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller vouches for `count` values.
            *lane = unsafe { *from.add(i) }.to_f32();
        }
        // SAFETY: the array has sixteen values.
        unsafe { s.load(lanes.as_ptr()) }
    }
}

impl Scalar for f32 {
    const NAME: &'static str = "f32";

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn as_f32(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::F32 {
        // SAFETY: the caller's promise is the same.
        unsafe { s.load(from) }
    }

    #[inline(always)]
    unsafe fn load_partial<S: Simd>(s: S, from: *const Self, count: usize) -> S::F32 {
        // SAFETY: the caller's promise is the same.
        unsafe { s.load_partial(from, count) }
    }
}

impl Scalar for bf16 {
    const NAME: &'static str = "bf16";

    #[inline(always)]
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::F32 {
        // SAFETY: the caller's promise is the same.
        unsafe { s.load_bf16(from) }
    }
}

impl Scalar for f16 {
    const NAME: &'static str = "f16";

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        f16::from_f32(x)
    }

    /// Asks once, not for every value, whether the machine has the instruction.
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(&mut to[..from.len()]);
    }

    /// Asks once, as [`Scalar::widen`] does.
    fn narrow(from: &[f32], to: &mut [Self]) {
        to[..from.len()].convert_from_f32_slice(from);
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::F32 {
        // SAFETY: the caller's promise is the same.
        unsafe { s.load_f16(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floats whose roundings differ: ties, values next to them, subnormals, the ends of the range, and NaN.
    fn floats() -> Vec<f32> {
        let near = |x: f32| [-1i32, 0, 1].map(|step| f32::from_bits(x.to_bits().wrapping_add_signed(step)));
        let halves = (0..=u16::MAX).flat_map(|bits| {
            let (half, brain) = (f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32());
            // The middle between a half and the next one, where its last bits are those of an f32.
            let ties = [half.to_bits() | 0x1000, brain.to_bits() | 0x8000].map(f32::from_bits);
            [half, brain, ties[0], ties[1], half + 2f32.powi(-25)].map(near).concat()
        });
        halves.collect()
    }

    fn check_narrow<T: Scalar>(bits: fn(T) -> u16, exact: fn(f32) -> T) {
        let floats = floats();
        for from in floats.chunks(1013) {
            let mut to = vec![exact(0.0); from.len()];
            T::narrow(from, &mut to);
            for (x, got) in from.iter().zip(to) {
                let want = exact(*x);
                assert_eq!(bits(got), bits(want), "{} of {x:e}, {:#x}", T::NAME, x.to_bits());
            }
        }
    }

    #[test]
    fn slices_are_rounded_as_single_values_are() {
        // Computed without instructions of the processor.
        check_narrow(f16::to_bits, f16::from_f32_const);
        check_narrow(bf16::to_bits, bf16::from_f32_const);
    }

    #[test]
    fn lanes_are_folded_in_halves() {
        let mut lanes: [f32; LANES] = std::array::from_fn(|i| 1.1f32.powi(i as i32 * 7 - 40));
        lanes[5] = -lanes[5];
        let lanes_of = |half: usize, x: &[f32]| (0..half).map(|i| x[i] + x[i + half]).collect::<Vec<_>>();
        let mut want = lanes.to_vec();
        for half in [8, 4, 2, 1] {
            want = lanes_of(half, &want);
        }
        assert_eq!(Portable.sum(Portable.splat(0.5)), 8.0);
        // SAFETY: the array has sixteen values.
        let vector = unsafe { Portable.load(lanes.as_ptr()) };
        assert_eq!(Portable.sum(vector).to_bits(), want[0].to_bits());
        assert_eq!(Portable.largest(vector), lanes[15]);
    }
}
