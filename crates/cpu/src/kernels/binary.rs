//! Functions of two elements, with broadcasting: plain loops that the compiler vectorizes. Bound by memory, but
//! for `pow`.

use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand};
use graph::ops::Binary;
use tensor::{DType, Element, bf16, f16};

use super::convert::Half;
use super::elementwise::{BLOCK, ElementKernel, Source, for_blocks};
use super::operands::{CHUNK, elements, elements_mut, with_type};
use crate::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// A variant of a function from pairs of f32 to f32.
type ArithmeticF32 = unsafe fn(Binary, &[f32], &[f32], &mut [f32]);
/// A function from pairs of elements to elements of the same type.
type Arithmetic<T> = dyn Fn(&[T], &[T], &mut [T]) + Send + Sync;
/// A function from pairs of elements to truth values.
type Comparison<T> = unsafe fn(Binary, &[T], &[T], &mut [u8]);

variants! {
    /// Arithmetic on f32.
    pub static ARITHMETIC_F32 = arithmetic_f32, (function: Binary, x: &[f32], y: &[f32], z: &mut [f32])
}
variants! {
    /// Comparisons of f32.
    pub static COMPARISON_F32 = comparison_f32, (function: Binary, x: &[f32], y: &[f32], z: &mut [u8])
}

/// A kernel for a function of elements of a dtype; `in_place` is an operand of the result's very shape.
pub(crate) fn kernel(
    cpu: &Cpu,
    function: Binary,
    dtype: DType,
    in_place: Option<usize>,
) -> Option<Arc<dyn ElementKernel>> {
    match function.is_comparison() {
        true => comparison(cpu, function, dtype),
        false => arithmetic(cpu, function, dtype, in_place),
    }
}

fn arithmetic(
    cpu: &Cpu,
    function: Binary,
    dtype: DType,
    in_place: Option<usize>,
) -> Option<Arc<dyn ElementKernel>> {
    let (fastest, pool) = (cpu.pick(ARITHMETIC_F32), Arc::clone(&cpu.pool));
    macro_rules! make {
        ($T:ty, $variant:expr, $run:expr) => {{
            let run = Box::new(move |x: &[$T], y: &[$T], z: &mut [$T]| $run(function, x, y, z));
            Some(Arc::new(ArithmeticKernel::<$T> { function, dtype, variant: $variant, run, in_place, pool }))
        }};
    }
    match dtype {
        DType::F32 => make!(f32, fastest.name, |function, x, y, z| {
            // SAFETY: the variant was chosen because this machine has it.
            unsafe { (fastest.run)(function, x, y, z) }
        }),
        DType::F16 => {
            make!(f16, fastest.name, |function, x, y, z| arithmetic_half(fastest, function, x, y, z))
        }
        DType::BF16 => {
            make!(bf16, fastest.name, |function, x, y, z| arithmetic_half(fastest, function, x, y, z))
        }
        DType::F64 => make!(f64, "portable", arithmetic_f64),
        DType::Bool | DType::U8 => make!(u8, "portable", integers::u8),
        DType::I8 => make!(i8, "portable", integers::i8),
        DType::U16 => make!(u16, "portable", integers::u16),
        DType::I16 => make!(i16, "portable", integers::i16),
        DType::U32 => make!(u32, "portable", integers::u32),
        DType::I32 => make!(i32, "portable", integers::i32),
        DType::U64 => make!(u64, "portable", integers::u64),
        DType::I64 => make!(i64, "portable", integers::i64),
        _ => None,
    }
}

fn comparison(cpu: &Cpu, function: Binary, dtype: DType) -> Option<Arc<dyn ElementKernel>> {
    let (fastest, pool) = (cpu.pick(COMPARISON_F32), Arc::clone(&cpu.pool));
    if dtype == DType::F32 {
        let run = fastest.run;
        return Some(Arc::new(ComparisonKernel { function, dtype, variant: fastest.name, run, pool }));
    }
    let stored = if dtype == DType::Bool { DType::U8 } else { dtype };
    with_type!(stored, T => {
        Some(Arc::new(ComparisonKernel { function, dtype, variant: "portable", run: compare::<T>, pool }))
    }, _ => None)
}

struct ArithmeticKernel<T: 'static> {
    function: Binary,
    dtype: DType,
    variant: &'static str,
    run: Box<Arithmetic<T>>,
    in_place: Option<usize>,
    pool: Arc<Pool>,
}

impl<T: Element + PartialOrd> Kernel for ArithmeticKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.function).name(), self.dtype, self.variant)
    }

    fn in_place(&self) -> Option<usize> {
        // Operand 1 is looked at before the first result is written.
        if self.is_partial() { self.in_place.filter(|&position| position == 0) } else { self.in_place }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let result = &mut call.outputs[0];
        if self.is_partial() && !result.bytes.is_empty() {
            check::<T>(self.function, &call.inputs[1])?;
        }
        let x = Source::<T>::new(&call.inputs[0], result.shape);
        let y = Source::<T>::new(&call.inputs[1], result.shape);
        self.pool.run_on_pieces(elements_mut::<T>(result.bytes), CHUNK, &|index, chunk| {
            let mut stages = ([T::zeroed(); BLOCK], [T::zeroed(); BLOCK]);
            for_blocks(index * CHUNK, chunk, |start, block| {
                let x = x.block(start, block, &mut stages.0);
                let y = y.block(start, block, &mut stages.1);
                (self.run)(x, y, block);
            });
        });
        Ok(())
    }
}

impl<T: Element + PartialOrd> ElementKernel for ArithmeticKernel<T> {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        let (x, y) = (elements(operands[0]), elements(operands[1]));
        (self.run)(&x, &y, elements_mut(result));
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
    variant: &'static str,
    /// Chosen because this machine has it.
    run: Comparison<T>,
    pool: Arc<Pool>,
}

impl<T: Element> Kernel for ComparisonKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.function).name(), self.dtype, self.variant)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let result = &mut call.outputs[0];
        let x = Source::<T>::new(&call.inputs[0], result.shape);
        let y = Source::<T>::new(&call.inputs[1], result.shape);
        self.pool.run_on_pieces(&mut *result.bytes, CHUNK, &|index, chunk| {
            let mut stages = ([T::zeroed(); BLOCK], [T::zeroed(); BLOCK]);
            for_blocks(index * CHUNK, chunk, |start, block| {
                let x = x.outside(start, block.len(), &mut stages.0);
                let y = y.outside(start, block.len(), &mut stages.1);
                // SAFETY: the variant was chosen because this machine has it.
                unsafe { (self.run)(self.function, x, y, block) };
            });
        });
        Ok(())
    }
}

impl<T: Element> ElementKernel for ComparisonKernel<T> {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        let (x, y) = (elements(operands[0]), elements(operands[1]));
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (self.run)(self.function, &x, &y, result) };
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
fn arithmetic_half<T: Half>(
    variant: &Variant<ArithmeticF32>,
    function: Binary,
    x: &[T],
    y: &[T],
    z: &mut [T],
) {
    const PART: usize = 256;
    let mut wide = [[0f32; PART]; 3];
    for ((x, y), z) in x.chunks(PART).zip(y.chunks(PART)).zip(z.chunks_mut(PART)) {
        let [a, b, c] = &mut wide;
        let (a, b, c) = (&mut a[..x.len()], &mut b[..x.len()], &mut c[..x.len()]);
        T::widen(x, a);
        T::widen(y, b);
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (variant.run)(function, a, b, c) };
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
