//! The properties of dtypes that Python reads.

use perihelion::driver::DType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Code, name in graph text, tag of the reference, alignment in bytes, bits, and NumPy's type string (empty if NumPy has
/// no such type).
type Row = (u8, &'static str, String, usize, usize, String);

/// A row for each dtype that elements of a buffer can have.
#[pyfunction]
pub(crate) fn dtypes() -> Vec<Row> {
    let plain = DType::every().filter(|dtype| dtype.code() < DType::Q4_0.code());
    plain
        .map(|dtype| {
            let typestr = type_string(dtype).unwrap_or_default();
            (dtype.code(), dtype.name(), tag(dtype), dtype.align(), dtype.size_in_bits(), typestr)
        })
        .collect()
}

/// Bits, eps, max, min and the smallest normal value.
type Limits = (usize, f64, f64, f64, f64);

/// The limits of a float, or nothing for other dtypes.
#[pyfunction]
pub(crate) fn float_info(code: u8) -> PyResult<Option<Limits>> {
    Ok(from_code(code)?.finfo().map(|info| (info.bits, info.eps, info.max, info.min, info.tiny)))
}

pub(crate) fn from_code(code: u8) -> PyResult<DType> {
    DType::from_code(code).ok_or_else(|| PyValueError::new_err(format!("no dtype has the code {code}")))
}

/// The reference's name of the dtype in messages: `si32`, `ui8`, `i1`; floats have the same names.
pub(crate) fn tag(dtype: DType) -> String {
    match dtype {
        DType::Bool => "i1".to_string(),
        dtype if dtype.is_signed_integer() => format!("s{dtype}"),
        dtype if dtype.is_unsigned_integer() => format!("ui{}", dtype.size_in_bits()),
        dtype => dtype.to_string(),
    }
}

/// NumPy's `__array_interface__` name, `<f4`; 8-bit floats are shown as their bytes.
pub(crate) fn type_string(dtype: DType) -> Option<String> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let kind = match dtype {
        DType::Bool => 'b',
        DType::BF16 => return None,
        dtype if dtype.is_float8() => 'u',
        dtype if dtype.is_signed_integer() => 'i',
        dtype if dtype.is_unsigned_integer() => 'u',
        dtype if dtype.is_float() && !dtype.is_sub_byte() => 'f',
        _ => return None,
    };
    let bytes = dtype.size_in_bytes();
    let order = if bytes == 1 { '|' } else { order };
    Some(format!("{order}{kind}{bytes}"))
}
