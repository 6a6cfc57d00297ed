//! Products of operands rounded to 8-bit floats: the kernels of wider floats on the rounded values, then the scales.
//!
//! Rounded values are exact in bf16 and f32, so only the sum over `k` rounds, as in a product of bf16. Weights are
//! rounded once, when they are packed.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Kernel, KernelCall, NodeTypes, Operand, PackError, PackedWeight, View};
use graph::Type;
use graph::ops::Fp8Product;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, bf16};

use super::convert::{Half, to_f32};
use super::linear::{self, Functions, PackedMatrix};
use super::matmul::{self, MatmulShape, Matrix, strides};
use super::operands::{elements, elements_mut};
use crate::variant::Variant;
use crate::{Cpu, Pool};

/// The layout of weights.
pub(crate) const LAYOUT: &str = "panel16.bf16.scaled_f8e4m3";

/// A product of either form.
pub(crate) fn product(cpu: &Cpu, op: Fp8Product) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    match op {
        Fp8Product::Linear => Some(Arc::new(Fp8Linear { variant: cpu.pick(linear::VARIANTS), pool })),
        Fp8Product::MatMul => Some(Arc::new(Fp8MatMul { variant: cpu.pick(matmul::VARIANTS), pool })),
    }
}

/// The layout of a weight of a linear layer.
pub(crate) fn packing(op: Fp8Product, node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let is_weight = op == Fp8Product::Linear && position + 1 == node.inputs.len();
    is_weight.then(|| LAYOUT.to_string())
}

/// Rounds a weight and brings it into panels.
pub(crate) fn pack(pool: &Pool, weight: &Tensor) -> Result<PackedWeight, PackError> {
    let weight = weight.try_contiguous()?;
    Ok(Scaled::new(pool, weight.dtype(), *weight.shape(), weight.bytes())?.packed())
}

/// The panels of a weight, then its scale.
pub(crate) fn save(pool: &Pool, weight: &PackedWeight) -> Result<Bytes, String> {
    let scaled: &Scaled =
        weight.data.downcast_ref().ok_or_else(|| format!("{} is not a layout of the CPU", weight.layout))?;
    let panels = scaled.matrix.packed_bytes(pool).map_err(|error| error.to_string())?;
    Ok(Bytes::new([panels, &scaled.scale.to_le_bytes()[..]].concat()))
}

/// A weight of saved panels, used where they lie, and their scale.
pub(crate) fn load(ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let &[rows, columns] = shape.dims() else {
        return Err(format!("a weight matrix is [rows, columns], got {ty}"));
    };
    let Some((panels, scale)) = bytes.split_last_chunk::<4>() else {
        return Err(format!("{} bytes hold no scale", bytes.len()));
    };
    let (end, scale) = (panels.len(), f32::from_le_bytes(*scale));
    let panels = bytes.slice(0..end).expect("a range of the bytes");
    let matrix = PackedMatrix::from_panels(DType::BF16, rows, columns, panels);
    Ok(Scaled { matrix: matrix.map_err(|error| error.to_string())?, scale }.packed())
}

/// A rounded weight.
#[derive(Clone)]
struct Scaled {
    matrix: PackedMatrix,
    scale: f32,
}

impl Scaled {
    fn new(pool: &Pool, dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Scaled, PackError> {
        let (rounded, scale) = round(dtype, bytes)?;
        let mut narrow = AlignedBytes::try_zeroed(rounded.len() / 2)?;
        bf16::narrow(&elements(&rounded), elements_mut(&mut narrow));
        let rounded = Tensor::from_bytes(DType::BF16, shape, Bytes::new(narrow))?;
        Ok(Scaled { matrix: PackedMatrix::pack(&rounded, pool)?, scale })
    }

    fn packed(self) -> PackedWeight {
        PackedWeight { layout: LAYOUT.to_string(), bytes: self.matrix.bytes(), data: Arc::new(self) }
    }
}

struct Fp8Linear {
    variant: &'static Variant<Functions>,
    pool: Arc<Pool>,
}

impl Kernel for Fp8Linear {
    fn name(&self) -> String {
        format!("fp8_linear.{}", self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let (&columns, rows) = inputs[0].split_last().expect("the type rule asks for a last axis");
        linear::scratch_bytes_for(rows.iter().product(), columns, std::iter::once(DType::BF16), false)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let [Operand::View(x), weight] = &*call.inputs else { panic!("operands of fp8_linear") };
        let weight: Cow<'_, Scaled> = match weight {
            Operand::Packed(packed) => {
                Cow::Borrowed(packed.data.downcast_ref().expect("a weight in this layout"))
            }
            Operand::View(view) => Cow::Owned(Scaled::new(&self.pool, view.dtype, *view.shape, view.bytes)?),
            Operand::InResult | Operand::Buffer(_) => panic!("a weight is a value to read"),
        };
        let (input, scale) = round(x.dtype, x.bytes).map_err(|error| error.to_string())?;
        let result = elements_mut::<f32>(call.outputs[0].bytes);
        let (functions, scratch) = (&self.variant.run, call.scratch);
        linear::multiply_matrix(
            functions,
            &self.pool,
            &weight.matrix,
            &elements(&input),
            false,
            result,
            scratch,
        );
        scale_by(result, scale * weight.scale);
        Ok(())
    }
}

struct Fp8MatMul {
    variant: &'static Variant<matmul::TileKernel>,
    pool: Arc<Pool>,
}

impl Kernel for Fp8MatMul {
    fn name(&self) -> String {
        format!("fp8_matmul.{}", self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let [Operand::View(a), Operand::View(b)] = &*call.inputs else { panic!("operands of fp8_matmul") };
        let rounded =
            |operand: &View<'_>| round(operand.dtype, operand.bytes).map_err(|error| error.to_string());
        let ((left, left_scale), (right, right_scale)) = (rounded(a)?, rounded(b)?);
        let (left, right) = (elements::<f32>(&left), elements::<f32>(&right));
        let result = &mut call.outputs[0];
        let (batch, sizes) = result.shape.split_at(result.shape.rank() - 2);
        let shape = MatmulShape { batch, m: sizes[0], k: a.shape[a.shape.rank() - 1], n: sizes[1] };
        let (a_strides, b_strides) = (strides(a.shape, batch), strides(b.shape, batch));
        let left = Matrix { data: &left, strides: &a_strides };
        let right = Matrix { data: &right, strides: &b_strides };
        let result = elements_mut::<f32>(result.bytes);
        matmul::matmul_with(self.variant, &self.pool, shape, left, right, result);
        scale_by(result, left_scale * right_scale);
        Ok(())
    }
}

/// Numbers over their scale, rounded, as f32; and the scale.
fn round(dtype: DType, bytes: &[u8]) -> Result<(AlignedBytes, f32), tensor::Error> {
    let count = bytes.len() / dtype.block().bytes;
    let mut values = AlignedBytes::try_zeroed(count * size_of::<f32>())?;
    to_f32(dtype, bytes, elements_mut(&mut values));
    let scale = Fp8Product::round(elements_mut(&mut values));
    Ok((values, scale))
}

fn scale_by(values: &mut [f32], scale: f32) {
    values.iter_mut().for_each(|value| *value *= scale);
}
