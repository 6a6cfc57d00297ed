//! The guards of type rules: how many operands, of which dtype, rank and shape, in messages that name both
//! facts.

use tensor::DType;

use crate::{Dim, Type, TypeError};

/// The floating-point types that references compute with.
pub(super) const FLOATS: &[DType] = &[DType::F16, DType::BF16, DType::F32, DType::F64];
/// The types of indices.
pub(super) const INDICES: &[DType] = &[DType::U32, DType::I32, DType::I64];

/// The operands by name.
pub(super) fn operands<'a, const N: usize>(
    inputs: &[&'a Type],
    names: [&str; N],
) -> Result<[&'a Type; N], TypeError> {
    <[&Type; N]>::try_from(inputs).map_err(|_| {
        let plural = if N == 1 { "" } else { "s" };
        let names = if N == 0 { String::new() } else { format!(" ({})", names.join(", ")) };
        type_error!("takes {N} operand{plural}{names}, got {}", inputs.len())
    })
}

/// Refuses an operand of a dtype that is not listed.
pub(super) fn expect_dtype(name: &str, ty: &Type, allowed: &[DType]) -> Result<(), TypeError> {
    refuse_if!(!allowed.contains(&ty.dtype), "{name} is {ty}, expected {}", alternatives(allowed));
    Ok(())
}

/// Refuses an operand that is neither a float (of the four plain ones) nor an integer.
pub(super) fn expect_number(name: &str, ty: &Type) -> Result<(), TypeError> {
    refuse_if!(
        !(FLOATS.contains(&ty.dtype) || ty.dtype.is_integer()),
        "{name} is {ty}, expected a float or an integer"
    );
    Ok(())
}

/// Refuses an operand whose elements are stored in quantized blocks.
pub(super) fn expect_plain(name: &str, ty: &Type) -> Result<(), TypeError> {
    refuse_if!(ty.dtype.is_block(), "{name} is {ty}, whose blocks have no single elements");
    Ok(())
}

/// Refuses a second operand of another dtype than the first.
pub(super) fn expect_same_dtype((a, x): (&str, &Type), (b, y): (&str, &Type)) -> Result<(), TypeError> {
    refuse_if!(x.dtype != y.dtype, "dtypes differ: {a} {x}, {b} {y}");
    Ok(())
}

/// Refuses an operand with another number of axes.
pub(super) fn expect_rank(name: &str, ty: &Type, rank: usize) -> Result<(), TypeError> {
    let plural = if rank == 1 { "axis" } else { "axes" };
    refuse_if!(ty.rank() != rank, "{name} is {ty}, expected {rank} {plural}");
    Ok(())
}

/// Refuses an operand that is not exactly `dtype` and `shape`.
pub(super) fn expect_type(name: &str, ty: &Type, dtype: DType, shape: &[&Dim]) -> Result<(), TypeError> {
    refuse_if!(
        !(ty.dtype == dtype && ty.shape.iter().eq(shape.iter().copied())),
        "{name} is {ty}, expected {dtype}{shape:?}"
    );
    Ok(())
}

/// The size of an axis that must be there.
pub(super) fn expect_axis<'a>(name: &str, ty: &'a Type, axis: usize) -> Result<&'a Dim, TypeError> {
    let missing = || type_error!("{name} {ty} has no axis {axis}");
    ty.shape.get(axis).ok_or_else(missing)
}

/// The size of the last axis, which must be there.
pub(super) fn last_axis<'a>(name: &str, ty: &'a Type) -> Result<&'a Dim, TypeError> {
    let missing = || type_error!("{name} is {ty}, expected at least 1 axis");
    ty.shape.last().ok_or_else(missing)
}

/// Refuses what is no matrix of floats or of blocks: a weight.
pub(super) fn expect_weight(name: &str, ty: &Type) -> Result<(), TypeError> {
    expect_matrices(name, ty, 2)
}

/// Refuses what are no matrices [experts, rows, columns] of floats or of blocks: the weights of experts.
pub(super) fn expect_experts(name: &str, ty: &Type) -> Result<(), TypeError> {
    expect_matrices(name, ty, 3)
}

/// Refuses what is not `rank` axes of floats or of blocks, the last of whole blocks.
fn expect_matrices(name: &str, ty: &Type, rank: usize) -> Result<(), TypeError> {
    refuse_if!(
        !DType::ALL.contains(&ty.dtype) || !ty.dtype.is_float() && !ty.dtype.is_block(),
        "{name} is {ty}, expected a float or block dtype"
    );
    expect_rank(name, ty, rank)?;
    let block = ty.dtype.block().elements;
    match ty.shape[rank - 1].as_static() {
        Some(columns) if columns.is_multiple_of(block) => Ok(()),
        None if block == 1 => Ok(()),
        _ => Err(type_error!("{name} is {ty}, whose rows do not divide into blocks of {block}")),
    }
}

/// Refuses an attribute that is no finite number of at least 0.
pub(super) fn expect_eps(eps: f32) -> Result<(), TypeError> {
    refuse_if!(!(eps.is_finite() && eps >= 0.0), "eps is {eps}, expected a finite number of at least 0");
    Ok(())
}

/// Refuses an attribute that is no finite number.
pub(super) fn expect_finite(name: &str, value: f32) -> Result<(), TypeError> {
    refuse_if!(!value.is_finite(), "{name} is {value}, expected a finite number");
    Ok(())
}

fn alternatives(dtypes: &[DType]) -> String {
    let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
