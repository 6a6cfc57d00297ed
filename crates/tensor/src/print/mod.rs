//! Arrays as text: what the print op writes, and how buffers show their values.
//!
//! | function | `t` of twenty times 1.12345 in f32 |
//! |---|---|
//! | [`format_compact`] | `t = tensor([[1.1235, 1.1235, 1.1235, ..., 1.1235, 1.1235, 1.1235]], dtype=f32, shape=[20])` |
//! | [`format_full`] with 2 digits | `t = tensor<20xf32> [1.12e+00, 1.12e+00, ` and so on, to the last |
//!
//! Further axes nest as NumPy's do.

mod floats;
mod nest;

use std::fmt;

use nest::{Lines, Nest};

use crate::{Scalar, Tensor};

/// Elements shown at either end of an axis that is cut short.
const EDGE: usize = 3;
/// A buffer of more elements than this is cut short.
const SUMMARIZED_ABOVE: usize = 1000;
/// Where lines of values end, in characters.
const LINE_WIDTH: usize = 75;
/// More digits than any f64 has.
const MAX_PRECISION: usize = 1000;

/// One line for a value or a vector, several for more axes: four decimals, and axes of more than six elements cut to
/// three at either end. A vector prints as a matrix of one row.
pub fn format_compact(label: &str, tensor: &Tensor) -> String {
    let start = format!("{label} = tensor(");
    let elements = Elements::of(tensor);
    let mut dims = tensor.shape().to_vec();
    let row = dims.len() == 1;
    if row {
        dims.insert(0, 1);
    }
    let nest =
        Nest { dims: &dims, separator: ", ", edge: Some(EDGE), lines: Lines::Rows { indent: width(&start) } };
    let values = nest.write(&mut |index| match elements.get(if row { &index[1..] } else { index }) {
        Scalar::Float(value) => floats::fixed(value, 4),
        other => plain(other),
    });
    format!("{start}{values}, dtype={}, shape={})", tensor.dtype(), tensor.shape())
}

/// All elements on one line, floats in scientific notation with `precision` digits behind the point.
pub fn format_full(label: &str, tensor: &Tensor, precision: usize) -> String {
    let precision = precision.min(MAX_PRECISION);
    let elements = Elements::of(tensor);
    let nest = Nest { dims: tensor.shape(), separator: ", ", edge: None, lines: Lines::One };
    let values = nest.write(&mut |index| match elements.get(index) {
        Scalar::Float(value) => floats::scientific(value, precision),
        other => plain(other),
    });
    let dims: String = tensor.shape().iter().map(|dim| format!("{dim}x")).collect();
    format!("{label} = tensor<{dims}{}> {values}", tensor.dtype())
}

/// The values as NumPy's `str` shows them, in columns; beyond 1000 elements, three at either end of each axis.
/// Lines after the first start with `indent` spaces.
pub(crate) fn format_values(elements: &Elements<'_>, indent: usize) -> String {
    let dims = &elements.dims[..];
    let count: usize = dims.iter().product();
    let edge = (count > SUMMARIZED_ABOVE).then_some(EDGE);
    let nest = Nest { dims, separator: " ", edge, lines: Lines::Wrapped { indent, width: LINE_WIDTH } };
    let mut shown = Vec::new();
    nest.visit(&mut |index| shown.push(elements.get(index)));
    let is_float = shown.iter().any(|value| matches!(value, Scalar::Float(_)));
    let texts = match is_float {
        true => floats::columns(&shown, elements.dtype, dims.is_empty()),
        false => nest::right_aligned(shown.into_iter().map(plain).collect()),
    };
    let mut texts = texts.into_iter();
    nest.write(&mut |_| texts.next().expect("as many as were visited"))
}

/// The values in columns as NumPy shows them, summarized beyond 1000; dtype and shape.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = format_values(&Elements::of(self), "Tensor(".len());
        write!(f, "Tensor({values}, dtype={}, shape={})", self.dtype(), self.shape())
    }
}

/// Elements by their index.
pub(crate) struct Elements<'a> {
    pub(crate) dtype: crate::DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) read: Read<'a>,
}

/// The element at an index within the dims.
pub(crate) type Read<'a> = Box<dyn Fn(&[usize]) -> Scalar + 'a>;

impl<'a> Elements<'a> {
    /// Of a tensor; what shares bytes is unpacked first.
    pub(crate) fn of(tensor: &'a Tensor) -> Elements<'a> {
        let (dtype, shape) = (tensor.dtype(), *tensor.shape());
        let size = dtype.block().bytes;
        let read: Read<'_> = if dtype.block().elements == 1 {
            Box::new(move |index| Scalar::read(dtype, &tensor.element_bytes(index)[..size]))
        } else {
            let (values, strides) = (tensor.to_f32_vec(), shape.row_major_strides());
            Box::new(move |index| {
                let position: usize = index.iter().zip(strides).map(|(i, stride)| i * stride as usize).sum();
                Scalar::Float(values[position].into())
            })
        };
        Elements { dtype, dims: shape.to_vec(), read }
    }

    fn get(&self, index: &[usize]) -> Scalar {
        (self.read)(index)
    }
}

/// What is no float.
fn plain(value: Scalar) -> String {
    match value {
        Scalar::Bool(true) => "True".to_string(),
        Scalar::Bool(false) => "False".to_string(),
        other => other.to_string(),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Shape, bf16, f16};

    #[test]
    fn twenty_floats_print_as_tools_expect() {
        let tensor = Tensor::from_slice([20], &[1.12345f32; 20]);
        assert_eq!(
            format_compact("t", &tensor),
            "t = tensor([[1.1235, 1.1235, 1.1235, ..., 1.1235, 1.1235, 1.1235]], dtype=f32, shape=[20])"
        );
        let all = vec!["1.12e+00"; 20].join(", ");
        assert_eq!(format_full("t", &tensor, 2), format!("t = tensor<20xf32> [{all}]"));
        assert_eq!(format_full("t", &Tensor::scalar(1f64), 0), "t = tensor<f64> 1e+00");
        assert!(format_full("t", &Tensor::scalar(1f64), usize::MAX).ends_with("0e+00"));
    }

    #[test]
    fn compact_nests_and_cuts_every_axis() {
        let check = |tensor: &Tensor, text: &str| assert_eq!(format_compact("t", tensor), text);
        check(&Tensor::scalar(-2.5f32), "t = tensor(-2.5000, dtype=f32, shape=[])");
        check(&Tensor::from_slice([0], &[0u8; 0]), "t = tensor([[]], dtype=u8, shape=[0])");
        check(
            &Tensor::from_slice([6], &[1i32, 2, 3, 4, 5, -6]),
            "t = tensor([[1, 2, 3, 4, 5, -6]], dtype=i32, shape=[6])",
        );
        check(&Tensor::from_bools([2], &[true, false]), "t = tensor([[True, False]], dtype=bool, shape=[2])");
        check(
            &Tensor::from_slice([2, 2], &[1f32, f32::NAN, f32::INFINITY, -0.0]),
            "t = tensor([[1.0000, nan],\n            [inf, -0.0000]], dtype=f32, shape=[2, 2])",
        );
        let numbers: Vec<u32> = (0..16).collect();
        check(
            &Tensor::from_slice([8, 1, 2], &numbers),
            "t = tensor([[[0, 1]],\n\n            [[2, 3]],\n\n            [[4, 5]],\n\n            ...,\n\n            \
             [[10, 11]],\n\n            [[12, 13]],\n\n            [[14, 15]]], dtype=u32, shape=[8, 1, 2])",
        );
        let transposed =
            Tensor::from_slice([2, 2], &[f16::ONE, f16::ZERO, f16::NEG_ONE, f16::MAX]).permute(&[1, 0]);
        check(
            &transposed,
            "t = tensor([[1.0000, -1.0000],\n            [0.0000, 65504.0000]], dtype=f16, shape=[2, 2])",
        );
    }

    #[test]
    fn full_prints_every_element_on_one_line() {
        let matrix = Tensor::from_slice([2, 2], &[1f32, -1e30, f32::NEG_INFINITY, 1.5e-7]);
        assert_eq!(
            format_full("m", &matrix, 6),
            "m = tensor<2x2xf32> [[1.000000e+00, -1.000000e+30], [-inf, 1.500000e-07]]"
        );
        assert_eq!(
            format_full("i", &Tensor::from_slice([2], &[1i64, i64::MIN]), 3),
            format!("i = tensor<2xi64> [1, {}]", i64::MIN)
        );
        assert_eq!(format_full("e", &Tensor::zeros(DType::F32, [0, 3]), 3), "e = tensor<0x3xf32> []");
        assert_eq!(format_full("e", &Tensor::zeros(DType::F32, [2, 0]), 3), "e = tensor<2x0xf32> [[], []]");
        let blocks = Tensor::zeros(DType::Q8_0, [1, 32]);
        assert!(format_full("q", &blocks, 1).starts_with("q = tensor<1x32xq8_0> [[0.0e+00, "));
    }

    fn shown(tensor: &Tensor) -> String {
        format_values(&Elements::of(tensor), 0)
    }

    #[test]
    fn values_stand_in_columns() {
        assert_eq!(shown(&Tensor::from_slice([3], &[1f32, 2.5, -3.0])), "[ 1.   2.5 -3. ]");
        assert_eq!(shown(&Tensor::from_slice([2, 2], &[1i32, 20, 300, 4])), "[[  1  20]\n [300   4]]");
        assert_eq!(shown(&Tensor::from_slice([2], &[1e10f64, 2.5])), "[1.0e+10 2.5e+00]");
        assert_eq!(shown(&Tensor::from_slice([2], &[1e8f64, 3e8])), "[1.e+08 3.e+08]");
        assert_eq!(shown(&Tensor::from_slice([3], &[0.1f32, f32::NAN, -f32::INFINITY])), "[ 0.1  nan -inf]");
        assert_eq!(shown(&Tensor::from_slice([2], &[f16::from_f32(0.1), f16::ONE])), "[0.1 1. ]");
        assert_eq!(shown(&Tensor::from_slice([2], &[bf16::from_f32(0.3), bf16::ZERO])), "[0.3 0. ]");
        assert_eq!(shown(&Tensor::from_slice([1], &[1.0f64 / 3.0])), "[0.33333333]");
        assert_eq!(shown(&Tensor::from_bools([2], &[true, false])), "[ True False]");
        assert_eq!(shown(&Tensor::scalar(1f32)), "1.0");
        assert_eq!(shown(&Tensor::zeros(DType::F32, [2, 0])), "[]");
    }

    #[test]
    fn long_rows_wrap_and_large_arrays_are_cut() {
        let numbers: Vec<u32> = (0..1000).collect();
        let text = shown(&Tensor::from_slice([1000], &numbers));
        assert!(text.lines().all(|line| line.len() <= LINE_WIDTH));
        assert!(
            text.starts_with("[  0   1   2") && text.contains("\n  18  19") && text.ends_with(" 998 999]")
        );
        let many = Tensor::from_slice([1001], &vec![1u8; 1001]);
        assert_eq!(shown(&many), "[1 1 1 ... 1 1 1]");
        let square = Tensor::from_slice(Shape::new(&[40, 40]), &vec![1f32; 1600]);
        let row = "[1. 1. 1. ... 1. 1. 1.]";
        assert_eq!(shown(&square), format!("[{row}\n {row}\n {row}\n ...\n {row}\n {row}\n {row}]"));
    }
}
