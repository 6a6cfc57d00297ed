//! Products of operands rounded to 8-bit floats: the kernels of wider floats on the rounded values, then the scales.
//!
//! Rounded values are exact in bf16 and f32, so only the sum over `k` rounds, as in a product of bf16. Weights are
//! rounded once, when they are packed.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Call, Kernel, NodeTypes, Operand, PackError, PackedWeight, View};
use graph::Type;
use graph::ops::Fp8Product;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, bf16};

use super::matmul::strides;
use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::linear::{self, Epilogue, PackedMatrix};
use crate::kernels::matmul::{self, MatmulShape, Matrix};
use crate::kernels::operands::elements_mut;
use crate::kernels::variant::Variant;

/// The layout of weights.
pub(super) const LAYOUT: &str = "panel16.bf16.scaled_f8e4m3";

/// A product of either form.
pub(super) fn product(cpu: &Cpu, op: Fp8Product) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    match op {
        Fp8Product::Linear => kernel(Fp8Linear { variant: cpu.pick(linear::VARIANTS), pool }),
        Fp8Product::MatMul => kernel(Fp8MatMul { variant: cpu.pick(matmul::VARIANTS), pool }),
    }
}

/// The layout of a weight of a linear layer.
pub(super) fn packing(op: Fp8Product, node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let is_weight = op == Fp8Product::Linear && position + 1 == node.inputs.len();
    is_weight.then(|| LAYOUT.to_string())
}

/// Rounds a weight and brings it into panels.
pub(super) fn pack(pool: &Pool, weight: &Tensor) -> Result<PackedWeight, PackError> {
    Ok(Scaled::new(pool, weight)?.packed())
}

/// The panels of a weight, then its scale.
pub(super) fn save(weight: &PackedWeight) -> Result<Bytes, String> {
    let scaled: &Scaled =
        weight.data.downcast_ref().ok_or_else(|| format!("{} is not a layout of the CPU", weight.layout))?;
    Ok(Bytes::new([scaled.matrix.packed_bytes(), &scaled.scale.to_le_bytes()[..]].concat()))
}

/// A weight of saved panels, used where they lie, and their scale.
pub(super) fn load(ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
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
    fn new(pool: &Pool, weight: &Tensor) -> Result<Scaled, PackError> {
        let (rounded, scale) = Fp8Product::round(&weight.to_f32_vec());
        let rounded: Vec<bf16> = rounded.into_iter().map(bf16::from_f32).collect();
        let rounded = Tensor::from_slice(*weight.shape(), &rounded);
        let matrix = PackedMatrix::pack(&rounded, pool)?;
        Ok(Scaled { matrix, scale })
    }

    fn packed(self) -> PackedWeight {
        PackedWeight { layout: LAYOUT.to_string(), bytes: self.matrix.bytes(), data: Arc::new(self) }
    }
}

struct Fp8Linear {
    variant: &'static Variant<linear::Kernel>,
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

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let [Operand::View(x), weight] = &*call.inputs else { panic!("operands of fp8_linear") };
        let weight: Cow<'_, Scaled> = match weight {
            Operand::Packed(packed) => {
                Cow::Borrowed(packed.data.downcast_ref().expect("a weight in this layout"))
            }
            Operand::View(view) => Cow::Owned(Scaled::new(&self.pool, &tensor(view))?),
            Operand::InResult | Operand::Buffer(_) => panic!("a weight is a value to read"),
        };
        let (input, scale) = Fp8Product::round(&tensor(x).to_f32_vec());
        let result = elements_mut::<f32>(call.outputs[0].bytes);
        linear::linear_with(
            &self.variant.run,
            &self.pool,
            linear::Linear {
                input: &input,
                tokens: x.shape[..x.shape.rank() - 1].iter().product(),
                norm: None,
                weights: &[&weight.matrix],
                biases: &[None],
                epilogue: Epilogue::Plain,
                residual: None,
                exact: false,
                outputs: &mut [&mut *result],
                scratch: call.scratch,
            },
        );
        multiply(result, scale * weight.scale);
        Ok(())
    }
}

struct Fp8MatMul {
    variant: &'static Variant<matmul::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for Fp8MatMul {
    fn name(&self) -> String {
        format!("fp8_matmul.{}", self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let [Operand::View(a), Operand::View(b)] = &*call.inputs else { panic!("operands of fp8_matmul") };
        let ((left, left_scale), (right, right_scale)) =
            (Fp8Product::round(&tensor(a).to_f32_vec()), Fp8Product::round(&tensor(b).to_f32_vec()));
        let result = &mut call.outputs[0];
        let (batch, sizes) = result.shape.split_at(result.shape.rank() - 2);
        let shape = MatmulShape { batch, m: sizes[0], k: a.shape[a.shape.rank() - 1], n: sizes[1] };
        let (a_strides, b_strides) = (strides(&a.shape, batch), strides(&b.shape, batch));
        let left = Matrix { data: &left, strides: &a_strides };
        let right = Matrix { data: &right, strides: &b_strides };
        let result = elements_mut::<f32>(result.bytes);
        matmul::matmul_with(self.variant, &self.pool, shape, left, right, result);
        multiply(result, left_scale * right_scale);
        Ok(())
    }
}

fn tensor(view: &View<'_>) -> Tensor {
    let bytes = Bytes::new(AlignedBytes::copy_of(view.bytes));
    Tensor::from_bytes(view.dtype, view.shape, bytes).expect("an operand fits its shape")
}

fn multiply(values: &mut [f32], scale: f32) {
    values.iter_mut().for_each(|value| *value *= scale);
}
