//! Linear layers: rows, normalized and rounded, times panels of weights, and what follows the products.
//!
//! 1. **Prologue** (`prepare.wgsl`): rows are normalized, and rounded to int8 for quantized weights, into scratch, once for
//!    all weights of the call.
//! 2. **Products** (`blocks.wgsl`, `floats.wgsl`): a workgroup multiplies a panel of 16 rows with up to 8 tokens, and finishes
//!    them: bias, activation, gate, residual. Weights of one dtype are multiplied in one dispatch; of two gated weights of different
//!    dtypes, the second goes first, into scratch.
//!
//! One token is bound by memory. All sums have the host's order, whatever the number of tokens.

mod layout;
mod product;

use std::sync::Arc;

use engine::{FarArray, FarBytes, FarCall, FarKernel, FarOperand, NodeTypes};
use graph::ops;
use tensor::{DType, Shape};

use self::product::{activation, record_all, record_gated};
use crate::recorder::{ALIGNMENT, Place, Recorder};
use crate::shader::{Access, Shader};

pub(super) use self::layout::{Layout, layout};
pub(super) use self::product::{AXES, Batch, Product};

/// Columns that a workgroup prepares.
const SLICE: usize = 1024;
/// Words of 32 columns that are rounded to int8.
const BLOCK_WORDS: usize = 11;

/// A linear layer and what is fused with it.
pub(super) fn kernel(op: &ops::Linear, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let dtypes = op.operands(node.inputs).weights.iter().map(|weight| weight.dtype).collect();
    kernel_of(*op, dtypes, node)
}

/// A linear layer whose weight comes as the bytes of quantized blocks.
pub(super) fn qmatmul(op: &ops::QMatMul, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    kernel_of(ops::Linear::default(), vec![op.encoding], node)
}

fn kernel_of(op: ops::Linear, dtypes: Vec<DType>, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let layouts: Vec<Layout> = dtypes.iter().map(|&dtype| layout(dtype)).collect::<Option<_>>()?;
    if let Some(function) = op.gate.or(op.activation) {
        activation(function)?;
    }
    let is_exact = node.settings.exact_activations && layouts.iter().any(Layout::is_blocks);
    (!is_exact).then(|| Arc::new(LinearKernel { op, dtypes, layouts }) as Arc<dyn FarKernel>)
}

struct LinearKernel {
    op: ops::Linear,
    /// Of the weights.
    dtypes: Vec<DType>,
    layouts: Vec<Layout>,
}

/// Where in the scratch the parts lie: rows rounded to int8, normalized rows, and the rows that are gated.
struct Parts {
    codes: usize,
    floats: usize,
    gated: usize,
}

impl LinearKernel {
    fn parts(&self, tokens: usize, columns: usize, rows: usize) -> Parts {
        let bytes = |is_needed: bool, words: usize| match is_needed {
            true => (4 * tokens * words).next_multiple_of(ALIGNMENT),
            false => 0,
        };
        let is_floats = self.op.norm.is_some() && !self.layouts.iter().all(Layout::is_blocks);
        // Blocks are packed, and two of one dtype need one dispatch.
        let is_pair = self.layouts.iter().all(Layout::is_blocks)
            && self.dtypes[0] == *self.dtypes.last().expect("a weight");
        Parts {
            codes: bytes(self.layouts.iter().any(Layout::is_blocks), columns / 32 * BLOCK_WORDS),
            floats: bytes(is_floats, columns),
            gated: bytes(self.op.gate.is_some() && !is_pair, rows),
        }
    }

    /// The weights of each dtype.
    fn siblings(&self) -> Vec<Vec<usize>> {
        let first = |index: &usize| !self.dtypes[..*index].contains(&self.dtypes[*index]);
        let alike = |index: usize| {
            (index..self.dtypes.len()).filter(|&other| self.dtypes[other] == self.dtypes[index]).collect()
        };
        (0..self.dtypes.len()).filter(first).map(alike).collect()
    }
}

impl FarKernel for LinearKernel {
    fn name(&self) -> String {
        format!("linear[{}].webgpu", self.op.label(&self.dtypes).join(", "))
    }

    fn scratch(&self, inputs: &[Shape], outputs: &[Shape]) -> usize {
        let (tokens, columns) = sizes(&inputs[0]);
        let Parts { codes, floats, gated } = self.parts(tokens, columns, sizes(&outputs[0]).1);
        codes + floats + gated
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn std::any::Any) -> Result<(), String> {
        let recorder = Recorder::of(recorder)?;
        let roles = self.op.operands(&call.inputs);
        let x = array(roles.x)?;
        let (tokens, columns) = sizes(x.shape);
        let parts = self.parts(tokens, columns, sizes(call.outputs[0].shape).1);
        let [codes, floats, gated] = cut(call, [parts.codes, parts.floats, parts.gated]);
        let norm = roles.norm.map(array).transpose()?;
        let rows = Rows { x, norm: norm.zip(self.op.norm), tokens, columns };
        rows.prepare(recorder, codes.as_ref(), true)?;
        rows.prepare(recorder, floats.as_ref(), false)?;
        let product = |index: usize| -> Result<Product<'_>, String> {
            let (weight, layout) = (&roles.weights[index], self.layouts[index]);
            let bias = roles.biases.get(index).map(array).transpose()?;
            let (x, dtype) = match layout {
                Layout::Blocks { .. } => (codes.as_ref(), DType::U32),
                Layout::Floats(_) => (floats.as_ref(), DType::F32),
            };
            let x = (x.unwrap_or(&rows.x.bytes), dtype);
            let result = &call.outputs[if self.op.gate.is_some() { 0 } else { index }];
            let sizes = [tokens, columns, sizes(result.shape).1];
            Ok(Product { bias, ..Product::new(weight, layout, x, sizes, &result.bytes) })
        };
        let residual = roles.residual.map(array).transpose()?;
        let is_packed = roles.weights.iter().all(|weight| matches!(weight, FarOperand::Packed(_)));
        match self.op.gate {
            Some(_) if is_packed && self.dtypes[0] == self.dtypes[1] => {
                let gate = Product { function: self.op.gate, residual, ..product(0)? };
                record_gated(&gate, &product(1)?, recorder)
            }
            Some(_) => {
                // Without scratch there are no results.
                let Some(between) = &gated else { return Ok(()) };
                Product { result: between, ..product(1)? }.record(recorder)?;
                let (function, gated) = (self.op.gate, gated.as_ref());
                Product { function, gated, residual, ..product(0)? }.record(recorder)
            }
            None => {
                let all = |index| Ok(Product { function: self.op.activation, residual, ..product(index)? });
                let products: Vec<Product<'_>> =
                    (0..self.op.weights).map(all).collect::<Result<_, String>>()?;
                if !is_packed {
                    return products.iter().try_for_each(|product| product.record(recorder));
                }
                self.siblings().iter().try_for_each(|siblings| {
                    record_all(&siblings.iter().map(|&index| &products[index]).collect::<Vec<_>>(), recorder)
                })
            }
        }
    }
}

/// The rows of an array, and the length of one.
fn sizes(shape: &Shape) -> (usize, usize) {
    let (&columns, rows) = shape.split_last().expect("the type rule asks for a last axis");
    (rows.iter().product(), columns)
}

fn array<'c>(operand: &'c FarOperand<'_>) -> Result<&'c FarArray<'c>, String> {
    match operand {
        FarOperand::View(array) => Ok(array),
        FarOperand::Packed(weight) => Err(format!("an operand in the layout {}", weight.layout)),
        FarOperand::InResult | FarOperand::Buffer(_) => Err("an operand is a value to read".to_string()),
    }
}

/// Cuts parts of these sizes off the scratch; those of no bytes are none.
fn cut<const N: usize>(call: &FarCall<'_>, sizes: [usize; N]) -> [Option<FarBytes>; N] {
    let mut start = 0;
    sizes.map(|len| {
        let scratch = call.scratch.as_ref().filter(|_| len > 0)?;
        let part = FarBytes { memory: Arc::clone(&scratch.memory), start: scratch.start + start, len };
        start += len;
        Some(part)
    })
}

/// The rows of the input.
struct Rows<'c> {
    x: &'c FarArray<'c>,
    /// The weight of the norm, and what keeps rows of zeros finite.
    norm: Option<(&'c FarArray<'c>, f32)>,
    tokens: usize,
    columns: usize,
}

impl Rows<'_> {
    /// Normalizes the rows, and rounds them to int8 or not.
    fn prepare(&self, recorder: &mut Recorder, to: Option<&FarBytes>, is_codes: bool) -> Result<(), String> {
        let Some(to) = to else { return Ok(()) };
        let mut bindings = vec![("x", DType::F32, Access::Memory), ("result", DType::U32, Access::Memory)];
        let mut places = vec![Place::Memory(&self.x.bytes), Place::Memory(to)];
        let mut value = "x(at)";
        if let Some((norm, _)) = self.norm {
            bindings.push(("norm", DType::F32, Access::Memory));
            places.push(Place::Memory(&norm.bytes));
            value = "x(at) * factor * norm(column)";
        }
        let text = format!(
            "{}fn normalized(at: u32, column: u32, factor: f32) -> f32 {{ return {value}; }}\n",
            include_str!("prepare.wgsl")
        );
        let constants = [("NORM", self.norm.is_some().to_string()), ("CODES", is_codes.to_string())];
        let shader = Shader::new("linear.prepare", &bindings, &["columns", "eps"], &constants, &text);
        let eps = self.norm.map_or(0.0, |(_, eps)| eps);
        let groups = self.tokens * self.columns.div_ceil(SLICE);
        let work = (groups * (SLICE + self.columns)) as u64;
        recorder.dispatch(&shader, &places, &[self.columns as u32, eps.to_bits()], groups, work)
    }
}
