//! Products with weights as GPTQ stores them: repacked into blocks, which are weights of a linear layer.
//!
//! A weight alone is repacked once, when the model is initialized. A permutation of its columns and zero points are
//! operands of their own, which packing does not see, so with those it is repacked in every call, and inputs stay f32.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand, PackError, PackedWeight};
use graph::Type;
use graph::ops::GptqMatMul;
use tensor::blocks::GptqMatrix;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, f16};

use super::floats;
use super::linear::weights::{self, packed_weight};
use super::linear::{self, Functions, PackedMatrix, multiply_matrix};
use super::operands::{elements, view};
use crate::variant::Variant;
use crate::{Cpu, Pool};

/// How the names of layouts begin; the size of groups follows. They are panels of `q4_0`.
pub(crate) const LAYOUT: &str = "gptq.";
/// What zero points are stored less by.
const ONES: u32 = 0x1111_1111;

/// The product with weights in blocks.
pub(crate) fn kernel_for(cpu: &Cpu, op: GptqMatMul, exact: bool) -> Option<Arc<dyn Kernel>> {
    let (variant, pool) = (cpu.pick(linear::VARIANTS), Arc::clone(&cpu.pool));
    Some(Arc::new(GptqKernel { op, exact: exact || !is_alone(op), variant, pool }))
}

/// The layout of the weight.
pub(crate) fn packing(op: GptqMatMul, position: usize) -> Option<String> {
    let size = op.group_size.map_or("all".to_string(), |size| size.to_string());
    (position == 1 && is_alone(op)).then(|| format!("{LAYOUT}{size}"))
}

/// Brings codes and scales into panels of blocks.
pub(crate) fn pack(pool: &Pool, layout: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
    let stored = weight.try_contiguous()?;
    let (DType::U8, &[length, rows]) = (stored.dtype(), &stored.shape()[..]) else {
        let found = format!("{}{}", stored.dtype(), stored.shape());
        return Err(PackError::Unfit(format!("{layout} is a layout of u8[bytes, rows], got {found}")));
    };
    let matrix = repack(pool, op_of(layout)?, [length, rows], stored.bytes(), None, None)?;
    Ok(packed_weight(layout, matrix))
}

/// A weight of saved panels, used where they lie.
pub(crate) fn load(layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let (DType::U8, &[stored, rows]) = (ty.dtype, shape.dims()) else {
        return Err(format!("{layout} is a layout of u8[bytes, rows], got {ty}"));
    };
    let columns =
        op_of(layout)?.columns(stored).ok_or_else(|| format!("{ty} holds no whole groups of {layout}"))?;
    let matrix =
        PackedMatrix::from_panels(DType::Q4_0, rows, columns, bytes).map_err(|error| error.to_string())?;
    Ok(packed_weight(layout, matrix))
}

/// Whether no other operand says what the weights are.
fn is_alone(op: GptqMatMul) -> bool {
    op.sym && !op.desc_act
}

fn op_of(layout: &str) -> Result<GptqMatMul, String> {
    let unknown = || format!("{layout} is no layout of the CPU");
    let whole = |size: &usize| *size > 0 && size.is_multiple_of(32);
    let group_size = match layout.strip_prefix(LAYOUT).ok_or_else(unknown)? {
        "all" => None,
        size => Some(size.parse().ok().filter(whole).ok_or_else(unknown)?),
    };
    Ok(GptqMatMul { group_size, ..GptqMatMul::default() })
}

/// The weights in panels, with columns in the order of `order`. `zeros` are less by 1, as they are stored.
fn repack(
    pool: &Pool,
    op: GptqMatMul,
    [stored, rows]: [usize; 2],
    bytes: &[u8],
    order: Option<&[i32]>,
    zeros: Option<&[i32]>,
) -> Result<PackedMatrix, PackError> {
    let columns = op.columns(stored).ok_or_else(|| {
        format!("u8[{stored}, {rows}] holds no whole groups of {:?} columns", op.group_size)
    })?;
    let size = op.group_size.unwrap_or(columns);
    let (codes, scales) = bytes.split_at(columns / 2 * rows);
    let groups: Vec<u32> = (0..columns / 32).map(|block| (32 * block / size) as u32).collect();
    let order: Option<Vec<u32>> = match order {
        Some(order) => {
            Some(GptqMatMul::order(order, columns)?.into_iter().map(|column| column as u32).collect())
        }
        None => None,
    };
    // Each number of a word goes from 15 to 0, and not to its neighbour.
    let one_more = |word: u32| ((word & !(8 * ONES)) + ONES) ^ (word & (8 * ONES));
    let zeros: Option<Vec<u32>> =
        zeros.map(|zeros| zeros.iter().map(|&word| one_more(word as u32)).collect());
    let matrix = GptqMatrix {
        codes,
        scales: &elements::<f16>(scales),
        zeros: zeros.as_deref(),
        rows,
        groups: &groups,
        order: order.as_deref(),
    };
    let mut blocks = AlignedBytes::try_zeroed(rows * matrix.row_bytes())?;
    pool.run_on_pieces(&mut blocks, GptqMatrix::ROWS * matrix.row_bytes(), &|tile, blocks| {
        matrix.repack(tile * GptqMatrix::ROWS, blocks);
    });
    let blocks = Tensor::from_bytes(matrix.dtype(), [rows, columns], Bytes::new(blocks))?;
    Ok(PackedMatrix::pack(&blocks, pool)?)
}

struct GptqKernel {
    op: GptqMatMul,
    exact: bool,
    variant: &'static Variant<Functions>,
    pool: Arc<Pool>,
}

impl GptqKernel {
    /// Of the blocks.
    fn block_dtype(&self) -> DType {
        if self.op.sym { DType::Q4_0 } else { DType::Gptq }
    }
}

impl Kernel for GptqKernel {
    fn name(&self) -> String {
        let order = if self.op.desc_act { ", permuted" } else { "" };
        let exact = if self.exact { ", exact" } else { "" };
        format!("gptq_matmul[{}{order}{exact}].{}", self.block_dtype(), self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let (&columns, rows) = inputs[0].split_last().expect("the type rule asks for a last axis");
        linear::scratch_bytes_for(
            rows.iter().product(),
            columns,
            [self.block_dtype()].into_iter(),
            self.exact,
        )
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = floats::read(view(&call, 0))?;
        let matrix = match &call.inputs[1] {
            Operand::Packed(packed) => Cow::Borrowed(weights::packed_matrix(packed)),
            _ => {
                let weight = view(&call, 1);
                let order = self.op.desc_act.then(|| elements(view(&call, 2).bytes));
                let zeros = (!self.op.sym).then(|| elements(view(&call, self.op.arity() - 1).bytes));
                let (order, zeros) = (order.as_deref(), zeros.as_deref());
                let sizes = [weight.shape[0], weight.shape[1]];
                Cow::Owned(repack(&self.pool, self.op, sizes, weight.bytes, order, zeros)?)
            }
        };
        floats::write(&mut call.outputs[0], |out| {
            multiply_matrix(&self.variant.run, &self.pool, &matrix, &x, self.exact, out, call.scratch);
        })?;
        Ok(())
    }
}
