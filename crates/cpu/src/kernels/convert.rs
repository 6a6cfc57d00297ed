//! Elements in another dtype: casts, and what is stored as anything read as f32. Bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use half::slice::HalfFloatSliceExt;
use tensor::{DType, Element, bf16, blocks, f16, float8};

use super::elementwise::{BLOCK, ElementKernel, for_blocks};
use super::operands::{CHUNK, elements, elements_mut, view, with_type};
use crate::Pool;
use crate::variant::{fastest, variants};
use crate::vec::Simd;

/// Converts elements to a plain dtype.
pub(crate) struct CastKernel {
    /// Of the operand.
    pub(crate) from: DType,
    /// Of the result.
    pub(crate) to: DType,
    /// Converts.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for CastKernel {
    fn name(&self) -> String {
        format!("cast[{}, {}]", self.from, self.to)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0).bytes;
        let bytes = |elements: usize| self.from.bytes_for(elements).expect("chunks are of whole blocks");
        let width = self.to.block().bytes;
        self.pool.run_on_pieces(&mut *call.outputs[0].bytes, CHUNK * width, &|index, piece| {
            let from = &x[bytes(index * CHUNK)..][..bytes(piece.len() / width)];
            self.run_on_tile(&[from], piece);
        });
        Ok(())
    }
}

impl ElementKernel for CastKernel {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        cast(self.from, self.to, operands[0], result);
    }
}

/// Converts elements to a plain dtype of whole bytes.
///
/// # Panics
/// If there are not as many in the result.
pub(crate) fn cast(from: DType, to: DType, x: &[u8], result: &mut [u8]) {
    match (from, to) {
        (DType::F16, DType::F32) => f16::widen(&elements(x), elements_mut(result)),
        (DType::BF16, DType::F32) => bf16::widen(&elements(x), elements_mut(result)),
        (DType::F32, DType::F16) => f16::narrow(&elements(x), elements_mut(result)),
        (DType::F32, DType::BF16) => bf16::narrow(&elements(x), elements_mut(result)),
        (from, to) if to.is_float8() => to_float8(from, to, x, result),
        (DType::Bool, to) => to_any::<u8>(to, x, result),
        (from, to) => with_type!(from, S => to_any::<S>(to, x, result), _ => {
            // Blocks and 8-bit floats, by way of f32, which holds them exactly.
            with_type!(to, D => through_f32::<D>(from, x, result), _ => {
                through_f32::<Truth>(from, x, result)
            })
        }),
    }
}

/// Reads elements of any dtype but `f64` and integers exactly, those rounded, as f32.
///
/// # Panics
/// If the bytes are not those of as many elements.
pub(crate) fn to_f32(dtype: DType, bytes: &[u8], values: &mut [f32]) {
    match dtype {
        DType::F16 => f16::widen(&elements(bytes), values),
        DType::BF16 => bf16::widen(&elements(bytes), values),
        DType::Bool => convert::<u8, f32>(bytes, values),
        dtype if dtype.is_float8() => {
            let table = float8::values(dtype);
            for (value, &byte) in values.iter_mut().zip(bytes) {
                *value = table[usize::from(byte)];
            }
        }
        dtype if dtype.is_block() || dtype == DType::F32 => blocks::dequantize(dtype, bytes, values),
        dtype => {
            with_type!(dtype, T => convert::<T, f32>(bytes, values), _ => unreachable!("every dtype is listed"))
        }
    }
}

/// A half-precision float, converted a slice at a time.
pub(crate) trait Half: Element {
    /// As f32.
    fn widen(from: &[Self], to: &mut [f32]);
    /// Rounded.
    fn narrow(from: &[f32], to: &mut [Self]);
}

impl Half for f16 {
    fn widen(from: &[f16], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn narrow(from: &[f32], to: &mut [f16]) {
        to.convert_from_f32_slice(from);
    }
}

impl Half for bf16 {
    fn widen(from: &[bf16], to: &mut [f32]) {
        // SAFETY: this machine has the variant.
        unsafe { (fastest(WIDEN).run)(from, to) }
    }

    fn narrow(from: &[f32], to: &mut [bf16]) {
        // SAFETY: this machine has the variant.
        unsafe { (fastest(NARROW).run)(from, to) }
    }
}

variants! {
    /// Widens bf16.
    static WIDEN = widen, (from: &[bf16], to: &mut [f32])
}
variants! {
    /// Rounds to bf16.
    static NARROW = narrow, (from: &[f32], to: &mut [bf16])
}

/// A plain loop, which the compiler vectorizes.
#[inline(always)]
fn widen<S: Simd>(_s: S, from: &[bf16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// A plain loop, which the compiler vectorizes.
#[inline(always)]
fn narrow<S: Simd>(_s: S, from: &[f32], to: &mut [bf16]) {
    for (to, from) in to.iter_mut().zip(from) {
        let bits = from.to_bits();
        // To the nearest, halves to even. A NaN must not lose its last bit set.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        *to = bf16::from_bits(if from.is_nan() { quiet } else { rounded } as u16);
    }
}

fn convert<S: Element + To<D>, D: Copy>(bytes: &[u8], values: &mut [D]) {
    for (value, &x) in values.iter_mut().zip(elements::<S>(bytes).iter()) {
        *value = x.to();
    }
}

fn to_any<S>(to: DType, from: &[u8], result: &mut [u8])
where
    S: Element + To<f16> + To<bf16> + To<f32> + To<f64> + To<Truth>,
    S: To<u8> + To<i8> + To<u16> + To<i16> + To<u32> + To<i32> + To<u64> + To<i64>,
{
    let from = elements::<S>(from);
    with_type!(to, D => one_by_one::<S, D>(&from, elements_mut(result)), _ => {
        one_by_one::<S, Truth>(&from, elements_mut(result))
    });
}

fn one_by_one<S: To<D>, D>(from: &[S], to: &mut [D]) {
    for (slot, &x) in to.iter_mut().zip(from) {
        *slot = x.to();
    }
}

fn through_f32<D: bytemuck::Pod>(dtype: DType, from: &[u8], result: &mut [u8])
where
    f32: To<D>,
{
    let bytes = |elements: usize| dtype.bytes_for(elements).expect("chunks are of whole blocks");
    let mut stage = [0f32; BLOCK];
    for_blocks(0, elements_mut::<D>(result), |start, block| {
        let stage = &mut stage[..block.len()];
        to_f32(dtype, &from[bytes(start)..][..bytes(block.len())], stage);
        one_by_one(stage, block);
    });
}

fn to_float8(from: DType, to: DType, x: &[u8], result: &mut [u8]) {
    with_type!(from, S => {
        for (slot, &x) in result.iter_mut().zip(elements::<S>(x).iter()) {
            *slot = float8::encode_f64(to, To::<f64>::to(x));
        }
    }, _ => {
        // Truth values, blocks and 8-bit floats, by way of f32, which holds them exactly.
        let bytes = |elements: usize| from.bytes_for(elements).expect("chunks are of whole blocks");
        let mut stage = [0f32; BLOCK];
        for_blocks(0, result, |start, block| {
            let stage = &mut stage[..block.len()];
            to_f32(from, &x[bytes(start)..][..bytes(block.len())], stage);
            block.iter_mut().zip(stage).for_each(|(slot, x)| *slot = float8::encode(to, *x));
        });
    });
}

/// A `bool` in memory.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Truth(u8);

/// Conversion as `cast` defines it: to floats rounded once, to integers towards 0 and within the range,
/// between integers wrapped around, to `bool` whether it is not 0.
trait To<D>: Copy {
    fn to(self) -> D;
}

macro_rules! to_primitives {
    ($S:ty: $($D:ty),*) => { $(
        impl To<$D> for $S {
            #[inline(always)]
            fn to(self) -> $D {
                self as $D
            }
        }
    )* };
}

macro_rules! primitives {
    ($($S:ty => $odd:expr),*) => { $(
        to_primitives!($S: f32, f64, u8, i8, u16, i16, u32, i32, u64, i64);

        impl To<f16> for $S {
            #[inline(always)]
            fn to(self) -> f16 {
                f16::from_f32($odd(self))
            }
        }

        impl To<bf16> for $S {
            #[inline(always)]
            fn to(self) -> bf16 {
                bf16::from_f32($odd(self))
            }
        }

        impl To<Truth> for $S {
            #[inline(always)]
            fn to(self) -> Truth {
                Truth(u8::from(self != 0 as $S))
            }
        }
    )* };
}

primitives!(
    f32 => |x| x, f64 => round_to_odd, u8 => |x| x as f32, i8 => |x| x as f32, u16 => |x| x as f32,
    i16 => |x| x as f32, u32 => |x| round_to_odd(f64::from(x)), i32 => |x| round_to_odd(f64::from(x)),
    u64 => |x| integer_round_to_odd(x, false), i64 => |x: i64| integer_round_to_odd(x.unsigned_abs(), x < 0)
);

macro_rules! halves {
    ($($S:ty: $($D:ty),*;)*) => { $($(
        impl To<$D> for $S {
            #[inline(always)]
            fn to(self) -> $D {
                self.to_f32().to()
            }
        }
    )*)* };
}

halves! {
    f16: f16, bf16, f32, f64, u8, i8, u16, i16, u32, i32, u64, i64, Truth;
    bf16: f16, bf16, f32, f64, u8, i8, u16, i16, u32, i32, u64, i64, Truth;
}

/// `x` where an f32 holds it, else the neighbour whose last bit is odd: so rounding the result to a shorter type
/// is the same as rounding `x` itself (Boldo and Melquiond).
pub(crate) fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let error = f64::from(near) - x;
    if error == 0.0 || !near.is_finite() && x.is_infinite() || x.is_nan() {
        return near;
    }
    let down = if near.is_sign_positive() == (error > 0.0) { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(down | 1)
}

/// As [`round_to_odd`], of an integer and its sign.
fn integer_round_to_odd(magnitude: u64, negative: bool) -> f32 {
    // The low 11 bits do not fit in an f64; whether any is set does.
    let kept = if magnitude >> 53 == 0 {
        magnitude
    } else {
        magnitude & !0x7ff | u64::from(magnitude & 0x7ff != 0) << 11
    };
    let rounded = round_to_odd(kept as f64);
    if negative { -rounded } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_odd_keeps_later_roundings_right() {
        let just_above_a_tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16::from_f32(just_above_a_tie as f32), f16::from_f32(1.0));
        assert_eq!(f16::from_f32(round_to_odd(just_above_a_tie)), f16::from_f32(1.0 + 2f32.powi(-10)));
        assert_eq!(f16::from_f32(round_to_odd(-just_above_a_tie)), f16::from_f32(-1.0 - 2f32.powi(-10)));
        let just_below = 1.0 + 3.0 * 2f64.powi(-11) - 2f64.powi(-40);
        assert_eq!(f16::from_f32(round_to_odd(just_below)), f16::from_f32(1.0 + 2f32.powi(-10)));
        for exact in [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(round_to_odd(exact).to_bits(), (exact as f32).to_bits());
        }
        assert!(round_to_odd(f64::NAN).is_nan());
        assert_eq!(f16::from_f32(round_to_odd(1e300)), f16::INFINITY);
        let tie = (1u64 << 62) + (1 << 54);
        assert_eq!(bf16::from_f32(integer_round_to_odd(tie, false)).to_f32(), 2f32.powi(62));
        assert_eq!(
            bf16::from_f32(integer_round_to_odd(tie + 1, true)).to_f32(),
            -2f32.powi(62) - 2f32.powi(55)
        );
    }
}
