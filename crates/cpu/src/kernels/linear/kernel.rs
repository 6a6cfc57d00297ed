//! Linear layers as kernels of the device.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{DeviceSettings, Kernel, KernelCall, NodeTypes, Operand, Reproducible};
use graph::ops::{self, Unary};
use tensor::{DType, Shape};

use super::matrix::form;
use super::prepare::InputFormat;
use super::weights::{layout, packed, packed_as};
use super::{
    Activation, Epilogue, Functions, Linear, Norm, PackedMatrix, ROUNDING_VARIANTS, VARIANTS, linear_with,
    scratch_bytes_for,
};
use crate::kernels::operands::{elements, elements_mut};
use crate::variant::Variant;
use crate::{Cpu, Pool};

/// A linear layer and what is fused with it.
pub(crate) fn kernel_for(cpu: &Cpu, op: &ops::Linear, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
    let epilogue = match (op.gate, op.activation) {
        (None, None) => Epilogue::Plain,
        (None, Some(function)) => Epilogue::Activate(activation(function)?),
        (Some(gate), _) => Epilogue::Gate(activation(gate)?),
    };
    let dtypes: Vec<DType> = op.operands(node.inputs).weights.iter().map(|weight| weight.dtype).collect();
    let (variant, pool) = (variant(cpu, &dtypes, &node.settings), Arc::clone(&cpu.pool));
    let exact = node.settings.exact_activations;
    Some(Arc::new(LinearKernel { op: *op, epilogue, dtypes, exact, variant, pool }))
}

/// A linear layer whose weight comes as the bytes of quantized blocks.
pub(crate) fn qmatmul(cpu: &Cpu, encoding: DType, exact: bool) -> Option<Arc<dyn Kernel>> {
    let (op, epilogue, dtypes) = (ops::Linear::default(), Epilogue::Plain, vec![encoding]);
    let (variant, pool) = (cpu.pick(VARIANTS), Arc::clone(&cpu.pool));
    Some(Arc::new(LinearKernel { op, epilogue, dtypes, exact, variant, pool }))
}

/// The fastest variant for weights of these dtypes that the settings allow.
pub(super) fn variant(cpu: &Cpu, dtypes: &[DType], settings: &DeviceSettings) -> &'static Variant<Functions> {
    let is_bf16 = dtypes.iter().any(|&dtype| packed_as(dtype) == DType::BF16);
    let may_round = settings.reproducible == Reproducible::Machine && !settings.exact_activations;
    let rounding = if is_bf16 && may_round { cpu.find(ROUNDING_VARIANTS) } else { None };
    rounding.unwrap_or_else(|| cpu.pick(VARIANTS))
}

/// The layout of a weight of a linear layer.
pub(crate) fn packing(op: &ops::Linear, node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let first = 1 + usize::from(op.norm.is_some());
    let is_weight = (first..first + op.weights).contains(&position);
    is_weight.then(|| layout(node.inputs[position].dtype))
}

pub(crate) fn activation(function: Unary) -> Option<Activation> {
    match function {
        Unary::Relu => Some(Activation::Relu),
        Unary::Silu => Some(Activation::Silu),
        Unary::GeluTanh => Some(Activation::GeluTanh),
        Unary::Gelu => Some(Activation::GeluErf),
        Unary::GeluQuick => Some(Activation::GeluQuick),
        Unary::Sigmoid => Some(Activation::Sigmoid),
        Unary::Tanh => Some(Activation::Tanh),
        _ => None,
    }
}

struct LinearKernel {
    op: ops::Linear,
    epilogue: Epilogue,
    /// Of the weights.
    dtypes: Vec<DType>,
    exact: bool,
    variant: &'static Variant<Functions>,
    pool: Arc<Pool>,
}

impl Kernel for LinearKernel {
    fn name(&self) -> String {
        let mut parts = self.op.label(&self.dtypes);
        parts.extend(is_widened(self.exact, &self.dtypes).then(|| "exact".to_string()));
        format!("linear[{}].{}", parts.join(", "), self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let (&columns, rows) = inputs[0].split_last().expect("the type rule asks for a last axis");
        let dtypes = self.dtypes.iter().map(|&dtype| packed_as(dtype));
        scratch_bytes_for(rows.iter().product(), columns, dtypes, self.exact)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let roles = self.op.operands(&*call.inputs);
        let input = floats(roles.x);
        let tokens = tokens(roles.x);
        let weights: Vec<Cow<'_, PackedMatrix>> = roles
            .weights
            .iter()
            .zip(&self.dtypes)
            .map(|(weight, &dtype)| packed(&self.pool, weight, dtype))
            .collect::<Result<_, _>>()?;
        let weights: Vec<&PackedMatrix> = weights.iter().map(|weight| &**weight).collect();
        let norm = roles.norm.map(floats);
        let biases: Vec<Cow<'_, [f32]>> = roles.biases.iter().map(floats).collect();
        let biases: Vec<Option<&[f32]>> = biases.iter().map(|bias| Some(&**bias)).collect();
        let residual = roles.residual.map(floats);
        let mut outputs: Vec<&mut [f32]> =
            call.outputs.iter_mut().map(|result| elements_mut(result.bytes)).collect();
        let norm = norm.as_deref().zip(self.op.norm).map(|(weight, eps)| Norm { weight, eps });
        linear_with(
            &self.variant.run,
            &self.pool,
            Linear {
                input: &input,
                tokens,
                norm,
                weights: &weights,
                biases: &biases,
                epilogue: self.epilogue,
                residual: residual.as_deref(),
                exact: self.exact,
                outputs: &mut outputs,
                scratch: call.scratch,
            },
        );
        Ok(())
    }
}

/// Whether weights of any of the dtypes would be multiplied with int8 codes of the input, but are not.
pub(crate) fn is_widened(exact: bool, dtypes: &[DType]) -> bool {
    exact && dtypes.iter().any(|&dtype| form(packed_as(dtype), false) != InputFormat::F32)
}

pub(crate) fn floats<'c>(operand: &'c Operand<'_>) -> Cow<'c, [f32]> {
    match operand {
        Operand::View(view) => elements(view.bytes),
        _ => panic!("the input, norm, biases and residual of a product are values to read"),
    }
}

/// How many rows an operand [.., columns] has.
pub(crate) fn tokens(operand: &Operand<'_>) -> usize {
    match operand {
        Operand::View(view) => view.shape[..view.shape.rank() - 1].iter().product(),
        _ => panic!("the input of a linear layer is a value to read"),
    }
}
