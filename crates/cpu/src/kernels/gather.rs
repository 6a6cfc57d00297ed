//! Slabs of a table by index. Bound by memory.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Kernel, KernelCall, View};
use tensor::{DType, MAX_RANK, Shape};

use super::operands::{elements, view};
use crate::Pool;

/// Takes indices of an axis, as NumPy's `take` does: negative ones count from the end.
pub(crate) struct GatherKernel {
    /// The axis.
    pub(crate) axis: usize,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for GatherKernel {
    fn name(&self) -> String {
        "gather".to_string()
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[1])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        Rows::new(inputs[1], inputs[0].shape[self.axis], true).map(drop)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (table, ids) = (view(&call, 0), view(&call, 1));
        let limit = table.shape[self.axis];
        let rows = Rows::new(ids, limit, true)?;
        let result = &mut *call.outputs[0].bytes;
        if result.is_empty() {
            return Ok(());
        }
        let outer: usize = table.shape[..self.axis].iter().product();
        let slab = table.bytes.len() / (outer * limit);
        let per_chunk = (super::copy::CHUNK_BYTES / slab).max(1);
        self.pool.run_on_pieces(result, per_chunk * slab, &|index, piece| {
            for (i, slot) in piece.chunks_exact_mut(slab).enumerate() {
                let position = index * per_chunk + i;
                let from = position / rows.len() * limit + rows.get(position % rows.len());
                slot.copy_from_slice(&table.bytes[from * slab..][..slab]);
            }
        });
        Ok(())
    }
}

/// Indices that have been checked against the size of their axis.
pub(crate) struct Rows<'m> {
    ids: Ids<'m>,
    limit: usize,
}

/// Indices of any dtype, as they are stored.
pub(crate) enum Ids<'m> {
    /// u32.
    U32(Cow<'m, [u32]>),
    /// i32.
    I32(Cow<'m, [i32]>),
    /// i64.
    I64(Cow<'m, [i64]>),
}

impl<'m> Rows<'m> {
    /// The indices in an operand of dtype u32, i32 or i64, `from_end` where negative ones count from the end.
    ///
    /// # Errors
    /// If one is not within the axis.
    pub(crate) fn new(ids: View<'m>, limit: usize, from_end: bool) -> Result<Rows<'m>, String> {
        let shape = ids.shape;
        let rows = Rows { ids: Ids::of(ids), limit };
        let end = i64::try_from(limit).unwrap_or(i64::MAX);
        let allowed = if from_end { -end..end } else { 0..end };
        match (0..rows.len()).find(|&i| !allowed.contains(&rows.value(i))) {
            None => Ok(rows),
            Some(i) => {
                let (position, value) = (coordinates(shape, i), rows.value(i));
                Err(format!("operand 1 at {position:?} is {value}, which is out of range for {limit} rows"))
            }
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// An index, counted from the start.
    pub(crate) fn get(&self, i: usize) -> usize {
        let value = self.value(i);
        if value < 0 { self.limit - value.unsigned_abs() as usize } else { value as usize }
    }

    fn value(&self, i: usize) -> i64 {
        self.ids.get(i)
    }
}

impl<'m> Ids<'m> {
    /// The indices in an operand.
    ///
    /// # Panics
    /// If it is of no dtype of indices.
    pub(crate) fn of(ids: View<'m>) -> Ids<'m> {
        match ids.dtype {
            DType::U32 => Ids::U32(elements(ids.bytes)),
            DType::I32 => Ids::I32(elements(ids.bytes)),
            DType::I64 => Ids::I64(elements(ids.bytes)),
            other => panic!("indices of type {other}, which the type rule refuses"),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Ids::U32(ids) => ids.len(),
            Ids::I32(ids) => ids.len(),
            Ids::I64(ids) => ids.len(),
        }
    }

    /// An index as it is stored.
    pub(crate) fn get(&self, i: usize) -> i64 {
        match self {
            Ids::U32(ids) => ids[i].into(),
            Ids::I32(ids) => ids[i].into(),
            Ids::I64(ids) => ids[i],
        }
    }
}

/// The index along each axis of an element.
pub(crate) fn coordinates(shape: &Shape, element: usize) -> Vec<usize> {
    let mut index = [0; MAX_RANK];
    let mut rest = element;
    for axis in (0..shape.rank()).rev() {
        index[axis] = rest % shape[axis];
        rest /= shape[axis];
    }
    index[..shape.rank()].to_vec()
}
