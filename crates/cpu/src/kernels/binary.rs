//! Functions of two elements, with broadcasting: plain loops that the compiler vectorizes. Bound by memory, but
//! for `pow`.

use std::sync::Arc;

use engine::{Call, Kernel, Operand};
use graph::ops::Binary;
use tensor::{DType, Element, bf16, f16};

use super::convert::Half;
use super::elementwise::{BLOCK, ElementKernel, Source, for_blocks};
use super::operands::{CHUNK, elements, elements_mut};
use super::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// A function from pairs of elements to elements of the same type.
pub type Arithmetic<T> = unsafe fn(Binary, &[T], &[T], &mut [T]);
/// A function from pairs of elements to truth values.
pub type Comparison<T> = unsafe fn(Binary, &[T], &[T], &mut [u8]);

variants! {
    /// Arithmetic on f32.
    pub const ARITHMETIC_F32 = arithmetic_f32, (function: Binary, x: &[f32], y: &[f32], z: &mut [f32])
}
variants! {
    /// Arithmetic on f16, computed as f32.
    pub const ARITHMETIC_F16 = arithmetic_half, (function: Binary, x: &[f16], y: &[f16], z: &mut [f16])
}
variants! {
    /// Arithmetic on bf16, computed as f32.
    pub const ARITHMETIC_BF16 = arithmetic_half, (function: Binary, x: &[bf16], y: &[bf16], z: &mut [bf16])
}
variants! {
    /// Comparisons of f32.
    pub const COMPARISON_F32 = comparison_f32, (function: Binary, x: &[f32], y: &[f32], z: &mut [u8])
}

/// A kernel for a function of elements of a dtype; `in_place` is an operand of the result's very shape.
pub(crate) fn kernel(
    cpu: &Cpu,
    function: Binary,
    dtype: DType,
    in_place: Option<usize>,
) -> Option<Arc<dyn ElementKernel>> {
    let pool = Arc::clone(&cpu.pool);
    macro_rules! make {
        ($arithmetic:expr, $comparison:expr) => {
            if function.is_comparison() {
                Some(Arc::new(ComparisonKernel { function, dtype, variant: $comparison, pool }))
            } else {
                Some(Arc::new(ArithmeticKernel { function, dtype, variant: $arithmetic, in_place, pool }))
            }
        };
    }
    macro_rules! portable {
        ($type:ty: $run:expr) => {{
            static VARIANT: Variant<$type> = Variant { name: "portable", available: || true, run: $run };
            &VARIANT
        }};
    }
    macro_rules! integers {
        ($T:ident) => {
            make!(portable!(Arithmetic<$T>: integers::$T), portable!(Comparison<$T>: compare::<$T>))
        };
    }
    match dtype {
        DType::F32 => make!(cpu.pick(ARITHMETIC_F32), cpu.pick(COMPARISON_F32)),
        DType::F16 => make!(cpu.pick(ARITHMETIC_F16), portable!(Comparison<f16>: compare::<f16>)),
        DType::BF16 => make!(cpu.pick(ARITHMETIC_BF16), portable!(Comparison<bf16>: compare::<bf16>)),
        DType::F64 => {
            make!(portable!(Arithmetic<f64>: arithmetic_f64), portable!(Comparison<f64>: compare::<f64>))
        }
        DType::Bool | DType::U8 => integers!(u8),
        DType::I8 => integers!(i8),
        DType::U16 => integers!(u16),
        DType::I16 => integers!(i16),
        DType::U32 => integers!(u32),
        DType::I32 => integers!(i32),
        DType::U64 => integers!(u64),
        DType::I64 => integers!(i64),
        _ => None,
    }
}

struct ArithmeticKernel<T: 'static> {
    function: Binary,
    dtype: DType,
    variant: &'static Variant<Arithmetic<T>>,
    in_place: Option<usize>,
    pool: Arc<Pool>,
}

impl<T: Element + PartialOrd> Kernel for ArithmeticKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.function).name(), self.dtype, self.variant.name)
    }

    fn in_place(&self) -> Option<usize> {
        // Operand 1 is looked at before the first result is written.
        if self.is_partial() { self.in_place.filter(|&position| position == 0) } else { self.in_place }
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let result = &mut call.outputs[0];
        if self.is_partial() && !result.bytes.is_empty() {
            check::<T>(self.function, &call.inputs[1])?;
        }
        let x = Source::<T>::new(&call.inputs[0], &result.shape);
        let y = Source::<T>::new(&call.inputs[1], &result.shape);
        self.pool.run_on_pieces(elements_mut::<T>(result.bytes), CHUNK, &|index, chunk| {
            let mut stages = ([T::zeroed(); BLOCK], [T::zeroed(); BLOCK]);
            for_blocks(index * CHUNK, chunk, |start, block| {
                let x = x.block(start, block, &mut stages.0);
                let y = y.block(start, block, &mut stages.1);
                // SAFETY: the variant was chosen because this machine has it.
                unsafe { (self.variant.run)(self.function, x, y, block) };
            });
        });
        Ok(())
    }
}

impl<T: Element + PartialOrd> ElementKernel for ArithmeticKernel<T> {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        let (x, y) = (elements(operands[0]), elements(operands[1]));
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (self.variant.run)(self.function, &x, &y, elements_mut(result)) };
    }

    fn is_total(&self) -> bool {
        !self.is_partial()
    }
}

impl<T> ArithmeticKernel<T> {
    fn is_partial(&self) -> bool {
        self.function.is_partial() && self.dtype.is_integer()
    }
}

/// Refuses to divide by 0, and negative powers.
fn check<T: Element + PartialOrd>(function: Binary, operand: &Operand<'_>) -> Result<(), String> {
    let Operand::View(view) = operand else { return Ok(()) };
    let refused = |&y: &T| if function == Binary::Pow { y < T::zeroed() } else { y == T::zeroed() };
    match elements::<T>(view.bytes).iter().position(refused) {
        None => Ok(()),
        Some(i) => {
            let what = if function == Binary::Pow { "is a negative power" } else { "divides by 0" };
            Err(format!("operand 1, {}{}, {what} at element {i}", view.dtype, view.shape))
        }
    }
}

struct ComparisonKernel<T: 'static> {
    function: Binary,
    dtype: DType,
    variant: &'static Variant<Comparison<T>>,
    pool: Arc<Pool>,
}

impl<T: Element> Kernel for ComparisonKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.function).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let result = &mut call.outputs[0];
        let x = Source::<T>::new(&call.inputs[0], &result.shape);
        let y = Source::<T>::new(&call.inputs[1], &result.shape);
        self.pool.run_on_pieces(&mut *result.bytes, CHUNK, &|index, chunk| {
            let mut stages = ([T::zeroed(); BLOCK], [T::zeroed(); BLOCK]);
            for_blocks(index * CHUNK, chunk, |start, block| {
                let x = x.outside(start, block.len(), &mut stages.0);
                let y = y.outside(start, block.len(), &mut stages.1);
                // SAFETY: the variant was chosen because this machine has it.
                unsafe { (self.variant.run)(self.function, x, y, block) };
            });
        });
        Ok(())
    }
}

impl<T: Element> ElementKernel for ComparisonKernel<T> {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        let (x, y) = (elements(operands[0]), elements(operands[1]));
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (self.variant.run)(self.function, &x, &y, result) };
    }
}

#[inline(always)]
fn arithmetic_f32<S: Simd>(_s: S, function: Binary, x: &[f32], y: &[f32], z: &mut [f32]) {
    match function {
        Binary::Add => plain(x, y, z, |x, y| x + y),
        Binary::Sub => plain(x, y, z, |x, y| x - y),
        Binary::Mul => plain(x, y, z, |x, y| x * y),
        Binary::Div => plain(x, y, z, |x, y| x / y),
        // In f64, where no quotient is rounded up to a whole number.
        Binary::FloorDiv | Binary::Mod => {
            plain(x, y, z, |x, y| function.evaluate(f64::from(x), f64::from(y)) as f32);
        }
        // A comparison with a NaN in `y` is false and gives `y`; one in `x` is looked for.
        Binary::Min => plain(x, y, z, |x, y| if x < y || x.is_nan() { x } else { y }),
        Binary::Max => plain(x, y, z, |x, y| if x > y || x.is_nan() { x } else { y }),
        Binary::Pow => plain(x, y, z, |x, y| if y == 2.0 { x * x } else { x.powf(y) }),
        other => panic!("{other:?} is no arithmetic on floats, as the type rule says"),
    }
}

#[inline(always)]
fn comparison_f32<S: Simd>(_s: S, function: Binary, x: &[f32], y: &[f32], z: &mut [u8]) {
    compare(function, x, y, z);
}

#[inline(always)]
fn compare<T: Copy + PartialOrd>(function: Binary, x: &[T], y: &[T], z: &mut [u8]) {
    match function {
        Binary::Equal => plain(x, y, z, |x, y| u8::from(x == y)),
        Binary::NotEqual => plain(x, y, z, |x, y| u8::from(x != y)),
        Binary::Less => plain(x, y, z, |x, y| u8::from(x < y)),
        Binary::LessEqual => plain(x, y, z, |x, y| u8::from(x <= y)),
        Binary::Greater => plain(x, y, z, |x, y| u8::from(x > y)),
        Binary::GreaterEqual => plain(x, y, z, |x, y| u8::from(x >= y)),
        other => panic!("{other:?} is no comparison"),
    }
}

fn arithmetic_f64(function: Binary, x: &[f64], y: &[f64], z: &mut [f64]) {
    plain(x, y, z, |x, y| function.evaluate(x, y));
}

/// Computes as f32 and rounds.
#[inline(always)]
fn arithmetic_half<S: Simd, T: Half>(s: S, function: Binary, x: &[T], y: &[T], z: &mut [T]) {
    const PART: usize = 256;
    let mut wide = [[0f32; PART]; 3];
    for ((x, y), z) in x.chunks(PART).zip(y.chunks(PART)).zip(z.chunks_mut(PART)) {
        let [a, b, c] = &mut wide;
        let (a, b, c) = (&mut a[..x.len()], &mut b[..x.len()], &mut c[..x.len()]);
        T::widen(x, a);
        T::widen(y, b);
        arithmetic_f32(s, function, a, b, c);
        T::narrow(c, z);
    }
}

/// Arithmetic on integers, which wraps around, and logic on truth values, which are 0 or 1.
mod integers {
    use graph::ops::Binary;

    use super::plain;

    macro_rules! integers {
        ($($T:ident),*) => { $(
            pub(super) fn $T(function: Binary, x: &[$T], y: &[$T], z: &mut [$T]) {
                match function {
                    Binary::Add => plain(x, y, z, $T::wrapping_add),
                    Binary::Sub => plain(x, y, z, $T::wrapping_sub),
                    Binary::Mul => plain(x, y, z, $T::wrapping_mul),
                    Binary::Div => plain(x, y, z, $T::wrapping_div),
                    Binary::FloorDiv => plain(x, y, z, |x, y| {
                        let rest = x.wrapping_rem(y);
                        let above = rest != 0 && is_negative(rest) != is_negative(y);
                        x.wrapping_div(y).wrapping_sub($T::from(above))
                    }),
                    Binary::Mod => plain(x, y, z, |x, y| {
                        let rest = x.wrapping_rem(y);
                        if rest != 0 && is_negative(rest) != is_negative(y) { rest.wrapping_add(y) } else { rest }
                    }),
                    Binary::Pow => plain(x, y, z, |x, y| {
                        let (mut power, mut left, mut result) = (x, y, 1);
                        while left > 0 {
                            if left & 1 == 1 {
                                result = $T::wrapping_mul(result, power);
                            }
                            (power, left) = (power.wrapping_mul(power), left >> 1);
                        }
                        result
                    }),
                    Binary::Min => plain(x, y, z, $T::min),
                    Binary::Max => plain(x, y, z, $T::max),
                    Binary::And => plain(x, y, z, |x, y| x & y),
                    Binary::Or => plain(x, y, z, |x, y| x | y),
                    Binary::Xor => plain(x, y, z, |x, y| x ^ y),
                    other => panic!("{other:?} is no arithmetic on integers, as the type rule says"),
                }
            }
        )* };
    }

    integers!(u8, i8, u16, i16, u32, i32, u64, i64);

    fn is_negative<T: Default + PartialOrd>(x: T) -> bool {
        x < T::default()
    }
}

#[inline(always)]
fn plain<T: Copy, R>(x: &[T], y: &[T], z: &mut [R], function: impl Fn(T, T) -> R) {
    for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
        *z = function(x, y);
    }
}
