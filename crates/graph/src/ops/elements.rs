//! How references read, place and round elements: every dtype, one element at a time.

use std::cmp::Ordering;

use tensor::float8::{encode_f64, round_to_odd};
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, bf16, f16, small_float};

/// The elements of a tensor in row-major order, exactly.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Numbers {
    /// Of a float or block dtype.
    Floats(Vec<f64>),
    /// Of an integer dtype or `bool`.
    Integers(Vec<i128>),
}

impl Numbers {
    /// The elements of a tensor.
    pub(super) fn of(tensor: &Tensor) -> Numbers {
        macro_rules! widen {
            ($($dtype:ident: $rust:ty),*) => {
                match tensor.dtype() {
                    $(DType::$dtype => {
                        Numbers::Integers(tensor.to_vec::<$rust>().into_iter().map(i128::from).collect())
                    })*
                    _ => Numbers::Floats(tensor.to_f64_vec()),
                }
            };
        }
        widen!(Bool: u8, U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64)
    }

    /// Compares element `i` with element `j` of `other`; `None` if either is NaN.
    ///
    /// # Panics
    /// If one holds floats and the other integers.
    pub(super) fn compare(&self, i: usize, other: &Numbers, j: usize) -> Option<Ordering> {
        match (self, other) {
            (Numbers::Floats(a), Numbers::Floats(b)) => a[i].partial_cmp(&b[j]),
            (Numbers::Integers(a), Numbers::Integers(b)) => Some(a[i].cmp(&b[j])),
            _ => unreachable!("operands of one dtype"),
        }
    }

    /// The order of elements `i` and `j` in a sorted list: NaN is above all numbers, so it comes last where the order
    /// ascends, and first where it descends.
    pub(super) fn rank(&self, i: usize, j: usize, descending: bool) -> Ordering {
        let order = self.compare(i, self, j).unwrap_or_else(|| self.is_nan(i).cmp(&self.is_nan(j)));
        if descending { order.reverse() } else { order }
    }

    /// Whether element `i` is NaN.
    pub(super) fn is_nan(&self, i: usize) -> bool {
        matches!(self, Numbers::Floats(values) if values[i].is_nan())
    }
}

/// A tensor of floats, each rounded once, to the nearest and halves to even.
///
/// # Panics
/// If `dtype` is not a float, or elements of less than a byte do not fill whole bytes.
pub(super) fn from_f64(dtype: DType, shape: Shape, values: &[f64]) -> Tensor {
    let halves = values.iter().map(|&value| round_to_odd(value));
    match dtype {
        DType::F64 => Tensor::from_slice(shape, values),
        DType::F32 => Tensor::from_slice(shape, &values.iter().map(|&v| v as f32).collect::<Vec<_>>()),
        DType::F16 => Tensor::from_slice(shape, &halves.map(f16::from_f32).collect::<Vec<_>>()),
        DType::BF16 => Tensor::from_slice(shape, &halves.map(bf16::from_f32).collect::<Vec<_>>()),
        small if small.is_float8() => {
            let bytes: Vec<u8> = values.iter().map(|&value| encode_f64(small, value)).collect();
            from_bytes(small, shape, &bytes)
        }
        small if small.is_sub_byte() => from_bytes(small, shape, &small_float::pack(small, values)),
        other => unreachable!("{other} is no result of arithmetic"),
    }
}

/// A tensor of floats made of integers, each rounded once.
///
/// # Panics
/// As [`from_f64`].
pub(super) fn from_integers_as_floats(dtype: DType, shape: Shape, values: &[i128]) -> Tensor {
    match dtype {
        DType::F32 => Tensor::from_slice(shape, &values.iter().map(|&v| v as f32).collect::<Vec<_>>()),
        DType::F64 => Tensor::from_slice(shape, &values.iter().map(|&v| v as f64).collect::<Vec<_>>()),
        half => from_f64(half, shape, &values.iter().map(|&v| integer_round_to_odd(v)).collect::<Vec<_>>()),
    }
}

/// A tensor of integers, each wrapped around into the range of `dtype`; `bool` takes what is not 0 as true.
///
/// # Panics
/// If `dtype` is neither an integer nor `bool`.
pub(super) fn from_i128(dtype: DType, shape: Shape, values: &[i128]) -> Tensor {
    macro_rules! wrap {
        ($($dtype:ident: $rust:ty),*) => {
            match dtype {
                $(DType::$dtype => {
                    Tensor::from_slice(shape, &values.iter().map(|&v| v as $rust).collect::<Vec<_>>())
                })*
                DType::Bool => Tensor::from_bools(shape, &values.iter().map(|&v| v != 0).collect::<Vec<_>>()),
                other => unreachable!("{other} is no integer"),
            }
        };
    }
    wrap!(U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64)
}

/// The smallest and the largest value of an integer dtype.
///
/// # Panics
/// If `dtype` is no integer.
pub(super) fn integer_range(dtype: DType) -> (i128, i128) {
    assert!(dtype.is_integer(), "{dtype} is no integer");
    let bits = 8 * dtype.block().bytes as u32;
    if dtype.is_signed_integer() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// The elements at row-major positions of a tensor, under another shape.
///
/// # Panics
/// If there are not as many positions as the shape has elements, or one lies outside.
pub(super) fn take(x: &Tensor, shape: Shape, positions: impl IntoIterator<Item = usize>) -> Tensor {
    let x = x.contiguous();
    let size = x.dtype().block().bytes;
    let bytes: Vec<u8> = positions
        .into_iter()
        .flat_map(|position| x.bytes()[position * size..][..size].iter().copied())
        .collect();
    from_bytes(x.dtype(), shape, &bytes)
}

/// A tensor over a copy of bytes.
///
/// # Panics
/// If there are not exactly as many bytes as needed.
pub(super) fn from_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Tensor {
    let bytes = Bytes::new(AlignedBytes::copy_of(bytes));
    Tensor::from_bytes(dtype, shape, bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// For each element of `to`, in row-major order, the position of the element of `from` that is broadcast to
/// it.
pub(super) fn broadcast_positions(from: &Shape, to: &Shape) -> impl Iterator<Item = usize> {
    let (from, to) = (*from, *to);
    let strides = from.row_major_strides();
    let missing = to.rank() - from.rank();
    (0..to.elements()).map(move |mut position| {
        let mut source = 0;
        for axis in (0..to.rank()).rev() {
            let index = position % to[axis];
            position /= to[axis];
            if axis >= missing && from[axis - missing] != 1 {
                source += index * strides[axis - missing] as usize;
            }
        }
        source
    })
}

/// A shape seen from one axis: the element at `index` along it is at `(outer * len + index) * inner + k`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes {
    /// The product of the sizes before the axis.
    pub(super) outer: usize,
    /// The size of the axis.
    pub(super) len: usize,
    /// The product of the sizes after the axis.
    pub(super) inner: usize,
}

impl Lanes {
    /// A shape seen from `axis`.
    pub(super) fn of(shape: &Shape, axis: usize) -> Lanes {
        let product = |sizes: &[usize]| sizes.iter().product();
        Lanes { outer: product(&shape[..axis]), len: shape[axis], inner: product(&shape[axis + 1..]) }
    }

    /// The positions along the axis, for every lane in row-major order. There may be any number of lanes without
    /// elements, so those are passed over.
    pub(super) fn iter(self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        Lanes { outer: if self.len > 0 { self.outer } else { 0 }, ..self }.all()
    }

    /// The positions along the axis, for every lane in row-major order.
    pub(super) fn all(self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let Lanes { outer, len, inner } = self;
        (0..outer).flat_map(move |o| {
            (0..inner).map(move |k| (0..len).map(move |index| (o * len + index) * inner + k))
        })
    }
}

/// As [`round_to_odd`] for an integer: all but 53 bits collapse into whether any of them is set.
fn integer_round_to_odd(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let excess = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let lost = magnitude & ((1 << excess) - 1) != 0;
    let kept = ((magnitude >> excess) | u128::from(lost)) << excess;
    if value < 0 { -(kept as f64) } else { kept as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_once() {
        // Between two neighbours, a hair above the middle: rounding through f32 would make it a tie.
        let (even, odd) = (1.0 + 2.0 / 1024.0, 1.0 + 3.0 / 1024.0);
        let above = (even + odd) / 2.0 + 1e-12;
        assert_eq!(from_f64(DType::F16, [1].into(), &[above]).to_f64_vec(), [odd]);
        let huge = [1e300, -1e300, f64::INFINITY, 65519.99, 65520.0, -0.0, 1e-300];
        let infinity = f64::INFINITY;
        let expected = [infinity, -infinity, infinity, 65504.0, infinity, 0.0, 0.0];
        assert_eq!(from_f64(DType::F16, [7].into(), &huge).to_f64_vec(), expected);
        assert!(from_f64(DType::BF16, [1].into(), &[f64::NAN]).to_f64_vec()[0].is_nan());
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(from_i128(DType::I8, [2].into(), &[128, -129]).to_vec::<i8>(), [-128, 127]);
        assert_eq!(integer_range(DType::U64), (0, u64::MAX.into()));
        assert_eq!(integer_range(DType::I8), (-128, 127));
    }
}
