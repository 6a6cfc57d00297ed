//! Indices out of range brought into it, at the assert levels where they are no error.

use std::borrow::Cow;

use graph::Op;
use tensor::{DType, Shape};

use crate::{AssertLevel, Operand, View};

/// Which operand of an op holds indices, and what they count.
struct Indices {
    /// The operand that holds them.
    operand: usize,
    /// The operand and the axis they index.
    table: usize,
    axis: usize,
    /// Whether negative ones count from the end.
    from_end: bool,
}

fn indices(op: &Op) -> Option<Indices> {
    match op {
        Op::Gather(gather) => Some(Indices { operand: 1, table: 0, axis: gather.axis, from_end: true }),
        Op::Embedding(_) => Some(Indices { operand: 1, table: 0, axis: 0, from_end: false }),
        _ => None,
    }
}

/// The indices of a call to use instead of those given, and their position among the operands, if some of them are out
/// of range and the level does not make that an error.
pub(crate) fn clamp(level: AssertLevel, op: &Op, operands: &[Operand<'_>]) -> Option<(usize, Vec<u8>)> {
    if level >= AssertLevel::Safe {
        return None;
    }
    let Indices { operand, table, axis, from_end } = indices(op)?;
    let limit = i64::try_from(shape(&operands[table])?[axis]).ok()?;
    // Nothing is in range.
    if limit == 0 {
        return None;
    }
    let Operand::View(View { dtype, bytes, .. }) = &operands[operand] else { return None };
    let lowest = if from_end { -limit } else { 0 };
    let mut clamped = Cow::Borrowed(*bytes);
    let width = dtype.bytes_for(1)?;
    let mut count = 0usize;
    for (i, index) in bytes.chunks_exact(width).enumerate() {
        let value = read(*dtype, index)?;
        if !(lowest..limit).contains(&value) {
            // The nearest row: the first for what is too negative.
            let nearest = value.clamp(0, limit - 1).to_le_bytes();
            clamped.to_mut()[i * width..][..width].copy_from_slice(&nearest[..width]);
            count += 1;
        }
    }
    if level == AssertLevel::Warn && count > 0 {
        let op = op.name();
        tracing::warn!(target: "perihelion::check", op, count, limit, "indices out of range were clamped");
    }
    match clamped {
        Cow::Borrowed(_) => None,
        Cow::Owned(bytes) => Some((operand, bytes)),
    }
}

fn shape(operand: &Operand<'_>) -> Option<Shape> {
    match operand {
        Operand::View(view) => Some(view.shape),
        Operand::Buffer(view) => Some(view.shape),
        Operand::InResult | Operand::Packed(_) => None,
    }
}

fn read(dtype: DType, bytes: &[u8]) -> Option<i64> {
    match dtype {
        DType::U32 => Some(u32::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::I32 => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::I64 => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}
