//! Weights in panels, the layouts of linear layers and of the right sides of products: packed, saved, loaded.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Operand, PackError, PackedWeight};
use graph::Type;
use tensor::{AlignedBytes, Bytes, DType, Tensor};

use super::PackedMatrix;
use crate::Pool;
use crate::kernels::convert;

/// The layout of a right matrix `f32[k, n]` of a product: panels of 16 of its columns, as those of a linear layer's
/// weight `[n, k]`.
pub(crate) const COLUMNS: &str = "columns16.f32";

/// Brings the columns of a right matrix into panels.
pub(crate) fn pack_columns(pool: &Pool, right: &Tensor) -> Result<PackedWeight, PackError> {
    if right.dtype() != DType::F32 || right.shape().rank() != 2 {
        let found = format!("{}{}", right.dtype(), right.shape());
        return Err(PackError::Unfit(format!("{COLUMNS} is a layout of f32[k, n], got {found}")));
    }
    Ok(packed_weight(COLUMNS, pack_matrix(pool, &right.permute(&[1, 0]))?))
}

/// A right matrix in panels of saved bytes, used where they lie.
pub(crate) fn load_columns(ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let (DType::F32, &[k, n]) = (ty.dtype, shape.dims()) else {
        return Err(format!("{COLUMNS} is a layout of f32[k, n], got {ty}"));
    };
    let matrix = PackedMatrix::from_panels(DType::F32, n, k, bytes).map_err(|error| error.to_string())?;
    Ok(packed_weight(COLUMNS, matrix))
}

/// A matrix as the engine keeps it.
pub(crate) fn packed_weight(layout: &str, matrix: PackedMatrix) -> PackedWeight {
    PackedWeight { layout: layout.to_string(), bytes: matrix.bytes(), data: Arc::new(matrix) }
}

/// The matrix of a packed weight.
///
/// # Panics
/// If it is in a layout of another device.
pub(crate) fn packed_matrix(weight: &PackedWeight) -> &PackedMatrix {
    let matrix = weight.data.downcast_ref();
    matrix.unwrap_or_else(|| panic!("a weight in the layout {}, which is not the CPU's", weight.layout))
}

/// Brings a weight into panels.
pub(crate) fn pack(pool: &Pool, wanted: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
    let weight = &match encoding(wanted) {
        Some(encoding) if weight.dtype() == DType::U8 => as_blocks(weight, encoding)?,
        _ => weight.clone(),
    };
    let found = layout(weight.dtype());
    if found != wanted {
        let weight = format!("{}{}", weight.dtype(), weight.shape());
        return Err(PackError::Unfit(format!("{weight} packs as {found}, not as {wanted}")));
    }
    let matrix = pack_matrix(pool, weight)?;
    Ok(packed_weight(wanted, matrix))
}

/// A weight in panels as bytes: the panels alone.
pub(crate) fn save(pool: &Pool, weight: &PackedWeight) -> Result<Bytes, String> {
    let matrix: &PackedMatrix =
        weight.data.downcast_ref().ok_or_else(|| format!("{} is not a layout of the CPU", weight.layout))?;
    Ok(matrix.packed_bytes(pool).map_err(|error| error.to_string())?.clone())
}

/// A weight in panels of saved bytes, used where they lie.
pub(crate) fn load(wanted: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let (experts, rows, stored) = match *shape.dims() {
        [rows, stored] => (1, rows, stored),
        [experts, rows, stored] => (experts, rows, stored),
        _ => return Err(format!("a weight is [rows, columns] or [experts, rows, columns], got {ty}")),
    };
    let (dtype, columns) = match encoding(wanted) {
        Some(encoding) if ty.dtype == DType::U8 => (encoding, columns_of(stored, encoding)),
        _ => (ty.dtype, stored),
    };
    let found = layout(dtype);
    if found != wanted {
        return Err(format!("{ty} packs as {found}, not as {wanted}"));
    }
    let matrix = PackedMatrix::experts_from_panels(packed_as(dtype), [experts, rows, columns], bytes)
        .map_err(|error| error.to_string())?;
    Ok(packed_weight(wanted, matrix))
}

/// The name of the panels for weights of a dtype.
pub(crate) fn layout(dtype: DType) -> String {
    format!("panel16.{}", packed_as(dtype))
}

/// The dtype that panels hold: that of the weights, but for those that another holds exactly (f64, not made for
/// weights, is rounded).
pub(crate) fn packed_as(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F32,
        dtype if dtype.is_float8() => DType::BF16,
        dtype => dtype,
    }
}

fn pack_matrix(pool: &Pool, weight: &Tensor) -> Result<PackedMatrix, PackError> {
    let stored = weight.try_contiguous()?;
    let dtype = packed_as(stored.dtype());
    let weight = match dtype == stored.dtype() {
        true => stored,
        false => {
            let mut bytes = AlignedBytes::try_zeroed(stored.elements() * dtype.block().bytes)?;
            convert::cast(stored.dtype(), dtype, stored.bytes(), &mut bytes);
            Tensor::from_bytes(dtype, *stored.shape(), Bytes::new(bytes))?
        }
    };
    Ok(match weight.file() {
        Some(_) => PackedMatrix::pack_late(&weight)?,
        None => PackedMatrix::pack(&weight, pool)?,
    })
}

/// The dtype of the blocks that a layout holds.
fn encoding(layout: &str) -> Option<DType> {
    let dtype: DType = layout.strip_prefix("panel16.")?.parse().ok()?;
    dtype.is_block().then_some(dtype)
}

/// How many elements the blocks of a row of bytes hold.
fn columns_of(bytes: usize, encoding: DType) -> usize {
    bytes / encoding.block().bytes * encoding.block().elements
}

/// The blocks that bytes `u8[rows, bytes]` are.
fn as_blocks(bytes: &Tensor, encoding: DType) -> Result<Tensor, PackError> {
    let shape = bytes.shape();
    let blocks = Bytes::new(AlignedBytes::try_copy_of(bytes.try_contiguous()?.bytes())?);
    Ok(Tensor::from_bytes(encoding, [shape[0], columns_of(shape[1], encoding)], blocks)?)
}

/// A weight in panels. One that is computed, and so comes as it is, is packed for this call.
pub(crate) fn packed<'c>(
    pool: &Pool,
    weight: &'c Operand<'_>,
    dtype: DType,
) -> Result<Cow<'c, PackedMatrix>, String> {
    match weight {
        Operand::Packed(packed) => Ok(Cow::Borrowed(packed_matrix(packed))),
        Operand::View(view) => {
            let bytes = AlignedBytes::try_copy_of(view.bytes).map_err(|error| error.to_string())?;
            let bytes = Bytes::new(bytes);
            let tensor =
                Tensor::from_bytes(view.dtype, *view.shape, bytes).map_err(|error| error.to_string())?;
            let tensor = if dtype == view.dtype { tensor } else { as_blocks(&tensor, dtype)? };
            pack_matrix(pool, &tensor).map(Cow::Owned).map_err(|error| error.to_string())
        }
        Operand::InResult | Operand::Buffer(_) => panic!("a weight is a value to read"),
    }
}
