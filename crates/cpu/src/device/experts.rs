//! The linear layer of a mixture of experts as a kernel of the device.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Call, Kernel, NodeTypes};
use graph::ops::ExpertLinear;
use tensor::{DType, Shape};

use super::linear::{activation, is_widened};
use super::{Cpu, kernel, panels};
use crate::Pool;
use crate::kernels::gather::Rows;
use crate::kernels::linear::{self, Epilogue, PackedMatrix};
use crate::kernels::operands::{elements, elements_mut, view};
use crate::kernels::variant::Variant;

/// Products of rows with the matrices of their experts.
pub(super) fn linear(cpu: &Cpu, op: ExpertLinear, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
    let epilogue = match op.gate {
        None => Epilogue::Plain,
        Some(gate) => Epilogue::Gate(activation(gate)?),
    };
    let dtypes = node.inputs[2..].iter().map(|weight| weight.dtype).collect();
    let (variant, pool) = (cpu.pick(linear::VARIANTS), Arc::clone(&cpu.pool));
    let exact = node.settings.exact_activations;
    kernel(ExpertKernel { op, epilogue, dtypes, exact, variant, pool })
}

/// The layout of the weights.
pub(super) fn packing(node: &NodeTypes<'_>, position: usize) -> Option<String> {
    (position > 1).then(|| panels::layout(node.inputs[position].dtype))
}

struct ExpertKernel {
    op: ExpertLinear,
    epilogue: Epilogue,
    /// Of the weights.
    dtypes: Vec<DType>,
    exact: bool,
    variant: &'static Variant<linear::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for ExpertKernel {
    fn name(&self) -> String {
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
        let gate = self.op.gate.map_or(String::new(), |gate| format!(", {}", graph::Op::from(gate).name()));
        let exact = if is_widened(self.exact, &self.dtypes) { ", exact" } else { "" };
        format!("expert_linear[{}{gate}{exact}].{}", dtypes.join("+"), self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let columns = *inputs[0].last().expect("the type rule asks for a last axis");
        let dtypes = self.dtypes.iter().map(|&dtype| panels::packed_as(dtype));
        linear::expert_scratch_bytes_for(inputs[1].elements(), columns, dtypes, self.exact)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, experts) = (view(&call, 0), view(&call, 1));
        let per_row = match experts.shape.rank() < x.shape.rank() {
            true => 1,
            false => *experts.shape.last().expect("one more axis than the rows of x"),
        };
        let weights: Vec<Cow<'_, PackedMatrix>> = call.inputs[2..]
            .iter()
            .zip(&self.dtypes)
            .map(|(weight, &dtype)| panels::packed(&self.pool, weight, dtype))
            .collect::<Result<_, _>>()?;
        let weights: Vec<&PackedMatrix> = weights.iter().map(|weight| &**weight).collect();
        let experts = Rows::new(experts, weights[0].experts(), false)?;
        linear::expert_linear_with(
            &self.variant.run,
            &self.pool,
            linear::ExpertLinear {
                input: &elements(x.bytes),
                rows: experts.len(),
                per_row,
                expert: &|row| experts.get(row),
                weights: &weights,
                epilogue: self.epilogue,
                exact: self.exact,
                output: elements_mut(call.outputs[0].bytes),
                scratch: call.scratch,
            },
        );
        Ok(())
    }
}
