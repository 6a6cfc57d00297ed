//! Functions of one element: plain loops that the compiler vectorizes, and the transcendental ones in lanes.
//!
//! Bound by memory from a few hundred KiB on, but for `sin`, `cos`, `acos`, `atanh` and the logarithms, which call the C library.

use std::f32::consts::{FRAC_2_SQRT_PI, SQRT_2};
use std::sync::Arc;

use engine::{Call, Kernel};
use graph::ops::Unary;
use tensor::{DType, Element, bf16, f16};

use super::convert::Half;
use super::elementwise::{BLOCK, ElementKernel, Source, for_blocks};
use super::operands::{CHUNK, elements, elements_mut};
use super::variant::{Variant, variants};
use crate::vec::{self, LANES, Simd};
use crate::{Cpu, Pool};

/// A function from elements to as many elements.
pub type Map<T> = unsafe fn(Unary, &[T], &mut [T]);

variants! {
    /// The functions of an f32.
    pub const F32 = map_f32, (function: Unary, x: &[f32], y: &mut [f32])
}
variants! {
    /// The functions of an f16, computed as f32.
    pub const F16 = map_half, (function: Unary, x: &[f16], y: &mut [f16])
}
variants! {
    /// The functions of a bf16, computed as f32.
    pub const BF16 = map_half, (function: Unary, x: &[bf16], y: &mut [bf16])
}

/// A kernel for a function of elements of a dtype.
pub(crate) fn kernel(cpu: &Cpu, function: Unary, dtype: DType) -> Option<Arc<dyn ElementKernel>> {
    macro_rules! make {
        ($variant:expr) => {
            Some(Arc::new(UnaryKernel { function, dtype, variant: $variant, pool: Arc::clone(&cpu.pool) }))
        };
    }
    match dtype {
        DType::F32 => make!(cpu.pick(F32)),
        DType::F16 => make!(cpu.pick(F16)),
        DType::BF16 => make!(cpu.pick(BF16)),
        DType::F64 => make!(&F64),
        DType::I8 => make!(&I8),
        DType::I16 => make!(&I16),
        DType::I32 => make!(&I32),
        DType::I64 => make!(&I64),
        DType::Bool => make!(&BOOL),
        _ => None,
    }
}

struct UnaryKernel<T: 'static> {
    function: Unary,
    dtype: DType,
    variant: &'static Variant<Map<T>>,
    pool: Arc<Pool>,
}

impl<T: Element> Kernel for UnaryKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.function).name(), self.dtype, self.variant.name)
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let x = Source::<T>::new(&call.inputs[0], &call.outputs[0].shape);
        let result = elements_mut::<T>(call.outputs[0].bytes);
        self.pool.run_on_pieces(result, CHUNK, &|index, chunk| {
            let mut stage = [T::zeroed(); BLOCK];
            for_blocks(index * CHUNK, chunk, |start, block| {
                let x = x.block(start, block, &mut stage);
                // SAFETY: the variant was chosen because this machine has it.
                unsafe { (self.variant.run)(self.function, x, block) };
            });
        });
        Ok(())
    }
}

impl<T: Element> ElementKernel for UnaryKernel<T> {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (self.variant.run)(self.function, &elements(operands[0]), elements_mut(result)) };
    }
}

static F64: Variant<Map<f64>> = Variant {
    name: "portable",
    available: || true,
    run: |function, x, y| plain(x, y, |x| function.evaluate(x)),
};

static BOOL: Variant<Map<u8>> = Variant {
    name: "portable",
    available: || true,
    run: |function, x, y| match function {
        Unary::Not => plain(x, y, |x| x ^ 1),
        other => panic!("{other:?} of truth values, which the type rule refuses"),
    },
};

macro_rules! integers {
    ($($list:ident: $T:ty),*) => { $(
        static $list: Variant<Map<$T>> = Variant {
            name: "portable",
            available: || true,
            run: |function, x, y| match function {
                Unary::Abs => plain(x, y, <$T>::wrapping_abs),
                Unary::Neg => plain(x, y, <$T>::wrapping_neg),
                Unary::Relu => plain(x, y, |x| x.max(0)),
                other => panic!("{other:?} of integers, which the type rule refuses"),
            },
        };
    )* };
}

integers!(I8: i8, I16: i16, I32: i32, I64: i64);

#[inline(always)]
fn map_f32<S: Simd>(s: S, function: Unary, x: &[f32], y: &mut [f32]) {
    match function {
        Unary::Abs => plain(x, y, f32::abs),
        Unary::Acos => plain(x, y, f32::acos),
        // The library's formula cancels for negative numbers.
        Unary::Atanh => plain(x, y, |x| x.abs().atanh().copysign(x)),
        Unary::Ceil => plain(x, y, f32::ceil),
        Unary::Cos => plain(x, y, f32::cos),
        Unary::Erf => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| erf(s, x),
        ),
        Unary::Exp => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| vec::exp(s, x),
        ),
        Unary::Floor => plain(x, y, f32::floor),
        Unary::Gelu => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| vec::gelu(s, x),
        ),
        Unary::GeluTanh => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| vec::gelu_tanh(s, x),
        ),
        Unary::GeluQuick => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| s.mul(x, vec::sigmoid(s, s.mul(x, s.splat(1.702)))),
        ),
        Unary::Log => plain(x, y, f32::ln),
        Unary::Log1p => plain(x, y, f32::ln_1p),
        Unary::Neg => plain(x, y, |x| -x),
        Unary::Not => panic!("`not` of floats, which the type rule refuses"),
        Unary::Reciprocal => plain(x, y, |x| 1.0 / x),
        Unary::Relu => plain(x, y, |x| if x < 0.0 { 0.0 } else { x }),
        Unary::Round => plain(x, y, f32::round_ties_even),
        Unary::Rsqrt => plain(x, y, |x| 1.0 / x.sqrt()),
        Unary::Sigmoid => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| vec::sigmoid(s, x),
        ),
        Unary::Silu => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| s.mul(x, vec::sigmoid(s, x)),
        ),
        Unary::Sin => plain(x, y, f32::sin),
        Unary::Sqrt => plain(x, y, f32::sqrt),
        Unary::Tanh => lanes(
            s,
            x,
            y,
            #[inline(always)]
            |x| vec::tanh(s, x),
        ),
        Unary::Trunc => plain(x, y, f32::trunc),
    }
}

/// One element at a time; vectorized by the compiler where the function allows.
#[inline(always)]
fn plain<T: Copy>(x: &[T], y: &mut [T], function: impl Fn(T) -> T) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = function(x);
    }
}

/// Sixteen elements at a time.
#[inline(always)]
fn lanes<S: Simd>(s: S, x: &[f32], y: &mut [f32], function: impl Fn(S::F32) -> S::F32) {
    let (groups, tail) = x.as_chunks::<LANES>();
    let (results, rest) = y.as_chunks_mut::<LANES>();
    for (x, y) in groups.iter().zip(results) {
        // SAFETY: both are arrays of sixteen values.
        unsafe { s.store(y.as_mut_ptr(), function(s.load(x.as_ptr()))) };
    }
    let count = tail.len().min(rest.len());
    // SAFETY: both have at least `count` values, fewer than sixteen.
    unsafe { s.store_partial(rest.as_mut_ptr(), function(s.load_partial(tail.as_ptr(), count)), count) };
}

#[inline(always)]
fn map_half<S: Simd, T: Half>(s: S, function: Unary, x: &[T], y: &mut [T]) {
    const PART: usize = 256;
    let (mut wide, mut results) = ([0f32; PART], [0f32; PART]);
    for (x, y) in x.chunks(PART).zip(y.chunks_mut(PART)) {
        let (wide, results) = (&mut wide[..x.len()], &mut results[..x.len()]);
        T::widen(x, wide);
        map_f32(s, function, wide, results);
        T::narrow(results, y);
    }
}

/// `1 - 2·Φ(-√2·|x|)` with the sign of `x`; where that cancels, a polynomial that interpolates `erf(x) / x` in
/// `x²` on 0..1 at Chebyshev nodes, with a relative error of 6e-8.
#[inline(always)]
fn erf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let p = [FRAC_2_SQRT_PI, -0.376_123_43, 0.112_803_17, -0.026_715_055, 0.004_921_762, -0.000_564_806];
    let square = s.mul(x, x);
    let mut sum = s.splat(0.0);
    for &coefficient in p.iter().rev() {
        sum = s.fma(sum, square, s.splat(coefficient));
    }
    let tail = vec::normal_tail(s, s.mul(x, s.splat(SQRT_2)));
    let large = s.copy_sign(s.fma(tail, s.splat(-2.0), s.splat(1.0)), x);
    s.select(s.less(square, s.splat(1.0)), s.mul(x, sum), large)
}
