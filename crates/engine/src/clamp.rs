//! Indices out of range brought into it, at the assert levels where they are no error.

use std::borrow::Cow;

use graph::Op;
use tensor::{DType, Shape};

use crate::{AssertLevel, Operand, View, ViewMut};

/// Which operand of an op holds indices, and what they count.
struct Indices {
    /// The operand that holds them.
    operand: usize,
    /// What they count, one after another and then from the first again.
    axes: Vec<Axis>,
    /// Whether negative ones count from the end.
    from_end: bool,
}

/// What an index counts.
struct Axis {
    size: i64,
    /// The largest index that is no error; less than 0 if there is none.
    highest: i64,
}

impl Axis {
    /// Any element of an axis.
    fn of(size: usize) -> Option<Axis> {
        let size = i64::try_from(size).ok()?;
        Some(Axis { size, highest: size - 1 })
    }

    /// Where `count` elements, `step` apart, may start.
    fn start(size: usize, count: usize, step: i64) -> Option<Axis> {
        let (size, count) = (i64::try_from(size).ok()?, i64::try_from(count).ok()?);
        let reach = match count {
            0 => 0,
            _ => (count - 1).checked_mul(step)?.checked_add(1)?,
        };
        Some(Axis { size, highest: size - reach })
    }

    /// The nearest index in range, if this one is not.
    fn nearest(&self, index: i64, from_end: bool) -> Option<i64> {
        let from_start = if index < 0 && from_end { index.saturating_add(self.size) } else { index };
        let nearest = from_start.clamp(0, self.highest);
        (nearest != from_start).then_some(nearest)
    }
}

fn indices(op: &Op, operands: &[Operand<'_>], results: &[ViewMut<'_>]) -> Option<Indices> {
    let each = |operand: usize, sizes: &[usize]| {
        let axes = sizes.iter().map(|&size| Axis::of(size)).collect::<Option<_>>()?;
        Some(Indices { operand, axes, from_end: true })
    };
    let boxes = |operand: usize, part: &Shape, steps: &[usize]| {
        let whole = shape(&operands[0])?;
        let axis = |axis: usize| Axis::start(whole[axis], part[axis], i64::try_from(steps[axis]).ok()?);
        let axes = (0..whole.rank()).map(axis).collect::<Option<_>>()?;
        Some(Indices { operand, axes, from_end: true })
    };
    match op {
        Op::Gather(gather) => each(1, &[shape(&operands[0])?[gather.axis]]),
        Op::Embedding(_) => Some(Indices { from_end: false, ..each(1, &shape(&operands[0])?[..1])? }),
        Op::GatherNd(gather) => {
            let depth = *shape(&operands[1])?.last()?;
            each(1, &shape(&operands[0])?[gather.batch_dims..][..depth])
        }
        // The result, as the operand of its shape may be in its place already.
        Op::Scatter(scatter) => each(2, &[results[0].shape[scatter.axis]]),
        Op::ScatterNd(_) => each(2, &results[0].shape[..*shape(&operands[2])?.last()?]),
        Op::LoadSlice(slice) => boxes(1, results[0].shape, &slice.steps),
        Op::StoreSlice(slice) => boxes(2, shape(&operands[1])?, &slice.steps),
        Op::DynamicSlice(slice) if operands.len() == 3 => {
            let Operand::View(step) = &operands[2] else { return None };
            // A step that cannot be is an error at all levels.
            let step = read(step.dtype, step.bytes).filter(|&step| step > 0)?;
            let (size, count) = (shape(&operands[0])?[slice.axis], results[0].shape[slice.axis]);
            Some(Indices { operand: 1, axes: vec![Axis::start(size, count, step)?], from_end: true })
        }
        _ => None,
    }
}

/// The indices of a call to use instead of those given, and their position among the operands, if some of them are out
/// of range and the level does not make that an error.
pub(crate) fn clamp(
    level: AssertLevel,
    op: &Op,
    operands: &[Operand<'_>],
    results: &[ViewMut<'_>],
) -> Option<(usize, Vec<u8>)> {
    if level >= AssertLevel::Safe {
        return None;
    }
    let Indices { operand, axes, from_end } = indices(op, operands, results)?;
    // Where nothing is in range, there is nothing to read.
    if axes.iter().any(|axis| axis.highest < 0) {
        return None;
    }
    let Operand::View(View { dtype, bytes, .. }) = &operands[operand] else { return None };
    let mut clamped = Cow::Borrowed(*bytes);
    let width = dtype.bytes_for(1)?;
    let mut count = 0usize;
    for ((i, index), axis) in bytes.chunks_exact(width).enumerate().zip(axes.iter().cycle()) {
        if let Some(nearest) = axis.nearest(read(*dtype, index)?, from_end) {
            clamped.to_mut()[i * width..][..width].copy_from_slice(&nearest.to_le_bytes()[..width]);
            count += 1;
        }
    }
    if level == AssertLevel::Warn && count > 0 {
        let op = op.name();
        tracing::warn!(target: "perihelion::check", op, count, "indices out of range were clamped");
    }
    match clamped {
        Cow::Borrowed(_) => None,
        Cow::Owned(bytes) => Some((operand, bytes)),
    }
}

fn shape<'m>(operand: &Operand<'m>) -> Option<&'m Shape> {
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
