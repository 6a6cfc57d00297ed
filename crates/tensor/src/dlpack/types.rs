//! The protocol's element types and ours.

use super::{DLDataType, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED};
use crate::DType;

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

/// The protocol's code for each dtype it knows.
const CODES: &[(DType, u8)] = &[
    (DType::I8, INT),
    (DType::I16, INT),
    (DType::I32, INT),
    (DType::I64, INT),
    (DType::U8, UINT),
    (DType::U16, UINT),
    (DType::U32, UINT),
    (DType::U64, UINT),
    (DType::F16, FLOAT),
    (DType::F32, FLOAT),
    (DType::F64, FLOAT),
    (DType::BF16, BFLOAT),
    (DType::Bool, BOOL),
    (DType::F8E4M3, 10),
    (DType::F8E4M3Fnuz, 11),
    (DType::F8E5M2, 12),
    (DType::F8E5M2Fnuz, 13),
    (DType::F8E8M0, 14),
    (DType::F6E2M3, 15),
    (DType::F6E3M2, 16),
    (DType::F4E2M1, 17),
];

/// A dtype in the protocol's words, if it has them.
pub(super) fn to_dlpack(dtype: DType) -> Option<DLDataType> {
    let &(_, code) = CODES.iter().find(|(known, _)| *known == dtype)?;
    Some(DLDataType { code, bits: dtype.size_in_bits() as u8, lanes: 1 })
}

/// The dtype of elements; in words, why there is none.
pub(super) fn from_dlpack(dtype: DLDataType, flags: u64) -> Result<DType, String> {
    let DLDataType { code, bits, lanes } = dtype;
    if lanes != 1 {
        return Err(format!("elements of {lanes} lanes, expected 1"));
    }
    let fits = |&&(known, known_code): &&(DType, u8)| {
        known_code == code && known.size_in_bits() == usize::from(bits)
    };
    let Some(&(dtype, _)) = CODES.iter().find(fits) else {
        return Err(format!("no dtype has code {code} and {bits} bits"));
    };
    match bits < 8 && flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0 {
        true => Err(format!("elements of {bits} bits that take a byte each, expected packed ones")),
        false => Ok(dtype),
    }
}
