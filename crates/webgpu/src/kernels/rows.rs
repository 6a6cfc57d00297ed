//! What kernels of rows and other lanes along an axis have in common.

use tensor::{DType, Shape};

/// Folds over the lanes of a workgroup of 64.
pub(super) const LANES: &str = include_str!("lanes.wgsl");
/// Sums of rows, in those lanes.
pub(super) const ROW_SUMS: &str = include_str!("row_sums.wgsl");
/// The order of elements.
pub(super) const ORDER: &str = include_str!("order.wgsl");
/// Threads of a workgroup whose threads know nothing of each other.
pub(super) const THREADS: usize = 256;

/// The shape of an array around an axis: `[outer, n, inner]`.
pub(super) fn around(shape: &Shape, axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}

/// Whether shaders compute with elements of a dtype.
pub(super) fn is_number(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F32
            | DType::F16
            | DType::BF16
            | DType::I32
            | DType::U32
            | DType::I16
            | DType::U16
            | DType::I8
            | DType::U8
    )
}

/// What [`ORDER`] computes with: whether the smallest element is the best, whether both zeros are one, and the key of NaN.
pub(super) fn order_constants(is_smallest: bool, is_one_zero: bool, nan_key: &str) -> String {
    format!("const SMALLEST = {is_smallest};\nconst ONE_ZERO = {is_one_zero};\nconst NAN_KEY = {nan_key};\n")
}
