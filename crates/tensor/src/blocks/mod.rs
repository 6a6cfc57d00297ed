//! Quantized blocks: how 32 or 256 weights share scales in a few bytes.

use crate::DType;

/// Dequantizes whole blocks: `bytes` of `dtype` into `values`.
///
/// # Panics
/// If `dtype` is neither a block format nor f32, or the lengths do not belong together.
pub fn dequantize(dtype: DType, bytes: &[u8], values: &mut [f32]) {
    assert_eq!(dtype.bytes_for(values.len()), Some(bytes.len()), "bytes of {} {dtype} weights", values.len());
    match dtype {
        DType::F32 => values.copy_from_slice(&bytemuck::pod_collect_to_vec::<u8, f32>(bytes)),
        _ => panic!("{dtype} is no block format"),
    }
}

/// The value of an 8-bit float.
///
/// # Panics
/// If `dtype` is no 8-bit float.
pub fn float8(dtype: DType, _byte: u8) -> f32 {
    panic!("{dtype} is no 8-bit float")
}
