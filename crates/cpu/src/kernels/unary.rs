//! Functions of one element: plain loops that the compiler vectorizes, and the transcendental ones in lanes.
//!
//! Bound by memory from a few hundred KiB on, but for `sin`, `cos`, `acos` and `atanh`, which call the C library.

use std::f32::consts::{FRAC_2_SQRT_PI, SQRT_2};
use std::sync::Arc;

use engine::{Kernel, KernelCall};
use graph::ops::Unary;
use tensor::{DType, Element, bf16, f16};

use super::convert::Half;
use super::elementwise::{BLOCK, ElementKernel, Source, for_blocks};
use super::operands::{CHUNK, elements, elements_mut};
use crate::variant::{Variant, variants};
use crate::vec::{self, LANES, Simd};
use crate::{Cpu, Pool};

variants! {
    /// The functions of an f32.
    pub static F32 = map_f32, (function: Unary, x: &[f32], y: &mut [f32])
}

/// A variant of a function of f32.
pub type MapF32 = unsafe fn(Unary, &[f32], &mut [f32]);
/// A function from elements to elements of the same type.
type Map<T> = dyn Fn(&[T], &mut [T]) + Send + Sync;

/// A kernel for a function of elements of a dtype.
pub(crate) fn kernel(cpu: &Cpu, function: Unary, dtype: DType) -> Option<Arc<dyn ElementKernel>> {
    let (fastest, pool) = (cpu.pick(F32), Arc::clone(&cpu.pool));
    macro_rules! make {
        ($T:ty, $variant:expr, $run:expr) => {{
            let run = Box::new(move |x: &[$T], y: &mut [$T]| $run(function, x, y));
            Some(Arc::new(UnaryKernel::<$T> { function, dtype, variant: $variant, run, pool }))
        }};
    }
    match dtype {
        DType::F32 => make!(f32, fastest.name, |function, x, y| {
            // SAFETY: the variant was chosen because this machine has it.
            unsafe { (fastest.run)(function, x, y) }
        }),
        DType::F16 => make!(f16, fastest.name, |function, x, y| map_half(fastest, function, x, y)),
        DType::BF16 => make!(bf16, fastest.name, |function, x, y| map_half(fastest, function, x, y)),
        DType::F64 => make!(f64, "portable", map_f64),
        DType::I8 => make!(i8, "portable", integers::i8),
        DType::I16 => make!(i16, "portable", integers::i16),
        DType::I32 => make!(i32, "portable", integers::i32),
        DType::I64 => make!(i64, "portable", integers::i64),
        DType::Bool => make!(u8, "portable", map_bool),
        _ => None,
    }
}

struct UnaryKernel<T: 'static> {
    function: Unary,
    dtype: DType,
    variant: &'static str,
    run: Box<Map<T>>,
    pool: Arc<Pool>,
}

impl<T: Element> Kernel for UnaryKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.function).name(), self.dtype, self.variant)
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = Source::<T>::new(&call.inputs[0], call.outputs[0].shape);
        let result = elements_mut::<T>(call.outputs[0].bytes);
        self.pool.run_on_pieces(result, CHUNK, &|index, chunk| {
            let mut stage = [T::zeroed(); BLOCK];
            for_blocks(index * CHUNK, chunk, |start, block| {
                (self.run)(x.block(start, block, &mut stage), block);
            });
        });
        Ok(())
    }
}

impl<T: Element> ElementKernel for UnaryKernel<T> {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        (self.run)(&elements(operands[0]), elements_mut(result));
    }
}

fn map_f64(function: Unary, x: &[f64], y: &mut [f64]) {
    plain(x, y, |x| function.evaluate(x));
}

fn map_bool(function: Unary, x: &[u8], y: &mut [u8]) {
    match function {
        Unary::Not => plain(x, y, |x| x ^ 1),
        other => panic!("{other:?} of truth values, which the type rule refuses"),
    }
}

mod integers {
    use graph::ops::Unary;

    use super::plain;

    macro_rules! integers {
        ($($T:ident),*) => { $(
            pub(super) fn $T(function: Unary, x: &[$T], y: &mut [$T]) {
                match function {
                    Unary::Abs => plain(x, y, <$T>::wrapping_abs),
                    Unary::Neg => plain(x, y, <$T>::wrapping_neg),
                    Unary::Relu => plain(x, y, |x| x.max(0)),
                    other => panic!("{other:?} of integers, which the type rule refuses"),
                }
            }
        )* };
    }

    integers!(i8, i16, i32, i64);
}

#[inline(always)]
fn map_f32<S: Simd>(s: S, function: Unary, x: &[f32], y: &mut [f32]) {
    macro_rules! vector {
        ($x:ident => $value:expr) => {
            lanes(
                s,
                x,
                y,
                #[inline(always)]
                |$x| $value,
            )
        };
    }
    match function {
        Unary::Abs => plain(x, y, f32::abs),
        Unary::Acos => plain(x, y, f32::acos),
        // The library's formula cancels for negative numbers.
        Unary::Atanh => plain(x, y, |x| x.abs().atanh().copysign(x)),
        Unary::Ceil => plain(x, y, f32::ceil),
        Unary::Cos => plain(x, y, f32::cos),
        Unary::Erf => vector!(x => erf(s, x)),
        Unary::Exp => vector!(x => vec::exp(s, x)),
        Unary::Floor => plain(x, y, f32::floor),
        Unary::Gelu => vector!(x => vec::gelu(s, x)),
        Unary::GeluTanh => vector!(x => vec::gelu_tanh(s, x)),
        Unary::GeluQuick => vector!(x => s.mul(x, vec::sigmoid(s, s.mul(x, s.splat(1.702))))),
        Unary::Log => plain(x, y, vec::ln),
        Unary::Log1p => plain(x, y, vec::ln_1p),
        Unary::Neg => plain(x, y, |x| -x),
        Unary::Not => panic!("`not` of floats, which the type rule refuses"),
        Unary::Reciprocal => plain(x, y, |x| 1.0 / x),
        Unary::Relu => plain(x, y, |x| if x < 0.0 { 0.0 } else { x }),
        Unary::Round => plain(x, y, f32::round_ties_even),
        Unary::Rsqrt => plain(x, y, |x| 1.0 / x.sqrt()),
        Unary::Sigmoid => vector!(x => vec::sigmoid(s, x)),
        Unary::Silu => vector!(x => s.mul(x, vec::sigmoid(s, x))),
        Unary::Sin => plain(x, y, f32::sin),
        Unary::Sqrt => plain(x, y, f32::sqrt),
        Unary::Tanh => vector!(x => vec::tanh(s, x)),
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
    s.store_slice(rest, function(s.load_slice(tail)));
}

/// Computes as f32 and rounds.
fn map_half<T: Half>(variant: &Variant<MapF32>, function: Unary, x: &[T], y: &mut [T]) {
    const PART: usize = 256;
    let (mut wide, mut results) = ([0f32; PART], [0f32; PART]);
    for (x, y) in x.chunks(PART).zip(y.chunks_mut(PART)) {
        let (wide, results) = (&mut wide[..x.len()], &mut results[..x.len()]);
        T::widen(x, wide);
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (variant.run)(function, wide, results) };
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
    let size = s.min(s.splat(14.0), s.mul(s.abs(x), s.splat(SQRT_2)));
    let tail = vec::normal_tail(s, size);
    let large = s.copy_sign(s.fma(tail, s.splat(-2.0 / vec::TAIL_SCALE), s.splat(1.0)), x);
    s.select(s.less(square, s.splat(1.0)), s.mul(x, sum), large)
}
