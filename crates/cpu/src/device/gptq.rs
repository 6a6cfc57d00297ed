//! Products with weights of GPTQ as kernels of the device.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Call, Kernel, Operand, PackError, PackedWeight};
use graph::Type;
use graph::ops::GptqMatMul;
use tensor::{Bytes, DType, Shape, Tensor, bf16, f16};

use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::convert::{Half, to_f32};
use crate::kernels::gptq::{self, Product, Weight};
use crate::kernels::linear::{self, Epilogue, Linear, PackedMatrix};
use crate::kernels::operands::{CHUNK, elements, elements_mut, view};
use crate::kernels::variant::Variant;

/// How the names of layouts begin; the size of groups follows. They are panels of `q4_0`.
pub(super) const LAYOUT: &str = "gptq.";

/// The product with codes in blocks where there are such, else with codes as they are stored.
pub(super) fn matmul(cpu: &Cpu, op: GptqMatMul, dtype: DType, exact: bool) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    match has_blocks(op) {
        true => kernel(BlocksKernel { op, dtype, exact, variant: cpu.pick(linear::VARIANTS), pool }),
        false => kernel(CodesKernel { op, dtype, variant: cpu.pick(gptq::VARIANTS), pool }),
    }
}

/// The layout of the weight.
pub(super) fn packing(op: GptqMatMul, position: usize) -> Option<String> {
    let size = op.group_size.map_or("all".to_string(), |size| size.to_string());
    (position == 1 && has_blocks(op)).then(|| format!("{LAYOUT}{size}"))
}

/// Brings codes and scales into panels of blocks.
pub(super) fn pack(pool: &Pool, layout: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
    let stored = weight.try_contiguous()?;
    let (DType::U8, &[bytes, rows]) = (stored.dtype(), &stored.shape()[..]) else {
        let found = format!("{}{}", stored.dtype(), stored.shape());
        return Err(PackError::Unfit(format!("{layout} is a layout of u8[bytes, rows], got {found}")));
    };
    let weight = weight_of(op_of(layout)?, bytes, rows, stored.bytes())?;
    let matrix = PackedMatrix::pack(&gptq::to_q4_0(pool, weight)?, pool)?;
    Ok(packed(layout, matrix))
}

/// A weight of saved panels, used where they lie.
pub(super) fn load(layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let (DType::U8, &[stored, rows]) = (ty.dtype, shape.dims()) else {
        return Err(format!("{layout} is a layout of u8[bytes, rows], got {ty}"));
    };
    let columns =
        op_of(layout)?.columns(stored).ok_or_else(|| format!("{ty} holds no whole groups of {layout}"))?;
    let matrix =
        PackedMatrix::from_panels(DType::Q4_0, rows, columns, bytes).map_err(|error| error.to_string())?;
    Ok(packed(layout, matrix))
}

fn packed(layout: &str, matrix: PackedMatrix) -> PackedWeight {
    PackedWeight { layout: layout.to_string(), bytes: matrix.bytes(), data: Arc::new(matrix) }
}

/// Whether blocks of 32 columns have one scale each, and zero points as those of `q4_0`.
fn has_blocks(op: GptqMatMul) -> bool {
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

fn weight_of(op: GptqMatMul, stored: usize, rows: usize, bytes: &[u8]) -> Result<Weight<'_>, String> {
    let columns = op.columns(stored).ok_or_else(|| {
        format!("u8[{stored}, {rows}] holds no whole groups of {:?} columns", op.group_size)
    })?;
    Ok(Weight { bytes, rows, columns, group_size: op.group_size.unwrap_or(columns) })
}

/// Weights in panels of blocks.
struct BlocksKernel {
    op: GptqMatMul,
    /// Of the input and the result.
    dtype: DType,
    exact: bool,
    variant: &'static Variant<linear::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for BlocksKernel {
    fn name(&self) -> String {
        let exact = if self.exact { ", exact" } else { "" };
        format!("gptq_matmul[q4_0{exact}].{}", self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], outputs: &[Shape]) -> usize {
        let (&columns, rows) = inputs[0].split_last().expect("the type rule asks for a last axis");
        let tokens = rows.iter().product();
        let linear = linear::scratch_bytes_for(tokens, columns, [DType::Q4_0].into_iter(), self.exact);
        let converted = match self.dtype {
            DType::F32 => 0,
            _ => Scratch::bytes(inputs[0].elements(), outputs[0].elements()),
        };
        converted + linear
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let result = &mut call.outputs[0];
        let matrix = match &call.inputs[1] {
            Operand::Packed(packed) => Cow::Borrowed(match packed.data.downcast_ref::<PackedMatrix>() {
                Some(matrix) => matrix,
                None => panic!("a weight in the layout {}, which is not the CPU's", packed.layout),
            }),
            Operand::View(view) => {
                let weight = weight_of(self.op, view.shape[0], view.shape[1], view.bytes)?;
                let blocks = gptq::to_q4_0(&self.pool, weight).map_err(|error| error.to_string())?;
                Cow::Owned(PackedMatrix::pack(&blocks, &self.pool).map_err(|error| error.to_string())?)
            }
            Operand::InResult | Operand::Buffer(_) => panic!("a weight is a value to read"),
        };
        if self.dtype == DType::F32 {
            self.multiply(&matrix, &elements(x.bytes), elements_mut(result.bytes), call.scratch);
            return Ok(());
        }
        let scratch = Scratch::cut(call.scratch, x.shape.elements(), result.shape.elements());
        widen(&self.pool, self.dtype, x.bytes, scratch.x);
        self.multiply(&matrix, scratch.x, scratch.out, scratch.rest);
        narrow(&self.pool, self.dtype, scratch.out, result.bytes);
        Ok(())
    }
}

impl BlocksKernel {
    fn multiply(&self, matrix: &PackedMatrix, input: &[f32], out: &mut [f32], scratch: &mut [u8]) {
        let tokens = input.len() / matrix.columns();
        linear::linear_with(
            &self.variant.run,
            &self.pool,
            Linear {
                input,
                tokens,
                norm: None,
                weights: &[matrix],
                biases: &[],
                epilogue: Epilogue::Plain,
                residual: None,
                exact: self.exact,
                outputs: &mut [out],
                scratch,
            },
        );
    }
}

/// Weights as they are stored.
struct CodesKernel {
    op: GptqMatMul,
    /// Of the input and the result.
    dtype: DType,
    variant: &'static Variant<gptq::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for CodesKernel {
    fn name(&self) -> String {
        let order = if self.op.desc_act { "permuted" } else { "zeros" };
        format!("gptq_matmul[{order}].{}", self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], outputs: &[Shape]) -> usize {
        Scratch::bytes(inputs[0].elements(), outputs[0].elements())
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, weight) = (view(&call, 0), view(&call, 1));
        let weight = weight_of(self.op, weight.shape[0], weight.shape[1], weight.bytes)?;
        let order = match self.op.desc_act {
            true => Some(GptqMatMul::order(&elements::<i32>(view(&call, 2).bytes), weight.columns)?),
            false => None,
        };
        let zeros = (!self.op.sym).then(|| elements::<i32>(view(&call, self.op.arity() - 1).bytes));
        let result = &mut call.outputs[0];
        let scratch = Scratch::cut(call.scratch, x.shape.elements(), result.shape.elements());
        widen(&self.pool, self.dtype, x.bytes, scratch.x);
        let mut group_of: Vec<u32> = (0..weight.columns).map(|j| (j / weight.group_size) as u32).collect();
        if let Some(order) = order {
            group_of = scatter(&group_of, &order);
            self.pool.run_on_pieces(scratch.x, weight.columns, &|_, row| {
                let stored = scatter(row, &order);
                row.copy_from_slice(&stored);
            });
        }
        let product = Product { weight, zeros: zeros.as_deref(), group_of: &group_of, x: scratch.x };
        match self.dtype {
            DType::F32 => gptq::multiply(self.variant, &self.pool, &product, elements_mut(result.bytes)),
            _ => {
                gptq::multiply(self.variant, &self.pool, &product, scratch.out);
                narrow(&self.pool, self.dtype, scratch.out, result.bytes);
            }
        }
        Ok(())
    }
}

/// Item `j` at the place `order[j]`.
fn scatter<T: Copy + Default>(items: &[T], order: &[usize]) -> Vec<T> {
    let mut scattered = vec![T::default(); items.len()];
    for (&item, &place) in items.iter().zip(order) {
        scattered[place] = item;
    }
    scattered
}

/// Halves (or f32) as f32.
fn widen(pool: &Pool, dtype: DType, bytes: &[u8], values: &mut [f32]) {
    let width = dtype.block().bytes;
    pool.run_on_pieces(values, CHUNK, &|index, piece| {
        to_f32(dtype, &bytes[index * CHUNK * width..][..piece.len() * width], piece);
    });
}

/// Values rounded to a half.
fn narrow(pool: &Pool, dtype: DType, values: &[f32], bytes: &mut [u8]) {
    match dtype {
        DType::F16 => narrow_to::<f16>(pool, values, elements_mut(bytes)),
        DType::BF16 => narrow_to::<bf16>(pool, values, elements_mut(bytes)),
        other => unreachable!("results are halves or f32, not {other}"),
    }
}

fn narrow_to<T: Half>(pool: &Pool, values: &[f32], to: &mut [T]) {
    pool.run_on_pieces(to, CHUNK, &|index, piece| {
        T::narrow(&values[index * CHUNK..][..piece.len()], piece);
    });
}

/// The parts of a call's scratch: what of the input and the results is not f32 already, and the rest.
struct Scratch<'a> {
    x: &'a mut [f32],
    out: &'a mut [f32],
    rest: &'a mut [u8],
}

impl<'a> Scratch<'a> {
    fn bytes(x: usize, out: usize) -> usize {
        [x, out].map(|elements| (4 * elements).next_multiple_of(64)).iter().sum()
    }

    fn cut(memory: &'a mut [u8], x: usize, out: usize) -> Scratch<'a> {
        let (first, rest) = memory.split_at_mut((4 * x).next_multiple_of(64));
        let (second, rest) = rest.split_at_mut((4 * out).next_multiple_of(64));
        Scratch { x: elements_mut(&mut first[..4 * x]), out: elements_mut(&mut second[..4 * out]), rest }
    }
}
