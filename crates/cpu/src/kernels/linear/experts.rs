//! The linear layer of a mixture of experts: rows, grouped by their experts, times panels of the experts' matrices.
//!
//! 1. **Grouping**: rows are put in the order of their experts, those of one expert in the order they came, and each
//!    expert's rows are cut into tiles.
//! 2. **Prologue, products, epilogue** as in a dense layer, but that a tile meets the panels of its expert alone. Rows
//!    are gathered as they are converted, and results are scattered as they are stored: no copy of either is made.
//!
//! One token is bound by memory: only matrices of experts that have rows are read. Many are bound by the dot-product
//! unit, as long as each expert has some tiles.
//!
//! Results depend on a row and its expert alone, since a row's bits are the same in any tile.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use engine::{Kernel, KernelCall, NodeTypes, View};
use graph::ops;
use tensor::{DType, Shape};

use super::kernel::{activation, is_widened, variant};
use super::prepare::Rows;
use super::products::{LinearProducts, multiply_panels, prepare_all};
use super::{
    CHUNK_TIME, Epilogue, Functions, INPUT_BLOCK, PackedMatrix, forms, input_of, place, scratch_bytes_for,
    weights,
};
use crate::kernels::gather;
use crate::kernels::operands::{elements, elements_mut, view};
use crate::threads::SendPointer;
use crate::variant::Variant;
use crate::{Cpu, Pool};

/// One call: rows times the matrices of their experts.
pub struct ExpertLinear<'a> {
    /// [rows / per_row, columns]
    pub input: &'a [f32],
    /// The number of result rows.
    pub rows: usize,
    /// How many result rows in a row come from one input row.
    pub per_row: usize,
    /// The expert of each result row, which the weights have.
    pub expert: &'a dyn Fn(usize) -> usize,
    /// The experts' matrices; with a gate exactly two, of equal experts and rows.
    pub weights: &'a [&'a PackedMatrix],
    /// What follows the products: nothing or a gate.
    pub epilogue: Epilogue,
    /// Whether quantized weights are multiplied with the input as it is, rather than with int8 codes of it.
    pub exact: bool,
    /// [rows, rows of a matrix]
    pub output: &'a mut [f32],
    /// At least [`expert_scratch_bytes_for`].
    pub scratch: &'a mut [u8],
}

/// The scratch that a call needs: room for the converted input, and for the order of rows.
pub fn expert_scratch_bytes_for(
    rows: usize,
    columns: usize,
    dtypes: impl Iterator<Item = DType>,
    exact: bool,
) -> usize {
    scratch_bytes_for(rows, columns, dtypes, exact) + 2 * order_bytes(rows)
}

/// Computes the linear layer of a mixture of experts.
///
/// # Panics
/// If sizes do not belong together, an expert is none of the weights', or this machine cannot run the variant.
pub fn expert_linear_with(functions: &Functions, pool: &Pool, call: ExpertLinear) {
    assert!((functions.available)(), "expert_linear: this machine cannot run the variant");
    check(&call);
    let (rows, columns) = (call.rows, call.weights[0].columns());
    if call.output.is_empty() {
        return;
    }
    call.weights.iter().for_each(|matrix| matrix.prepare(rows, pool));
    let start = call.scratch.as_ptr().align_offset(64);
    let (orders, converted) = call.scratch[start..].split_at_mut(2 * order_bytes(rows));
    let (order, sources) = orders.split_at_mut(order_bytes(rows));
    let [order, sources] =
        [order, sources].map(|bytes| &mut bytemuck::cast_slice_mut::<u8, usize>(bytes)[..rows]);
    let ends = group(call.expert, call.weights[0].experts(), order);
    sources.iter_mut().zip(&*order).for_each(|(source, row)| *source = row / call.per_row);
    let forms = place(&forms(functions, call.weights, call.exact), rows, columns, converted);
    let size = functions.tile(&forms);
    let tiles = tiles(&ends, size);
    let converted = Rows { input: call.input, columns, sources: Some(sources), norm: None, forms: &forms };
    let tile = |index: usize| tiles[index].rows.clone();
    prepare_all(functions, pool, &converted, rows, tiles.len(), &tile);
    let job = LinearProducts {
        functions,
        weights: call.weights,
        biases: &[],
        epilogue: call.epilogue,
        residual: None,
        exact: call.exact,
        tile: &tile,
        order: Some(order),
        inputs: call.weights.iter().map(|matrix| input_of(functions, matrix, call.exact, &forms)).collect(),
        outputs: &[SendPointer(call.output.as_mut_ptr())],
    };
    multiply_all(pool, &job, &tiles, size);
}

fn check(call: &ExpertLinear) {
    let (rows, weights) = (call.rows, call.weights);
    let first = weights.first().expect("expert_linear: no weights");
    let gate = matches!(call.epilogue, Epilogue::Gate(_));
    assert_eq!(weights.len(), 1 + usize::from(gate), "expert_linear: a gate takes two");
    let sizes = |matrix: &PackedMatrix| [matrix.experts(), matrix.rows(), matrix.columns()];
    assert!(weights.iter().all(|matrix| sizes(matrix) == sizes(first)), "expert_linear: sizes of weights");
    assert!(rows == 0 || call.per_row > 0 && rows.is_multiple_of(call.per_row), "expert_linear: rows");
    let read = if rows == 0 { 0 } else { rows / call.per_row };
    assert!(call.input.len() >= read * first.columns(), "expert_linear: input of {read} rows");
    assert_eq!(call.output.len(), rows * first.rows(), "expert_linear: output of {rows} rows");
    let dtypes = weights.iter().map(|matrix| matrix.dtype());
    let needed = expert_scratch_bytes_for(rows, first.columns(), dtypes, call.exact);
    let got = call.scratch.len();
    assert!(got >= needed, "expert_linear: scratch of {got} bytes, {needed} needed");
}

/// The bytes of a list of rows.
fn order_bytes(rows: usize) -> usize {
    (rows * size_of::<usize>()).next_multiple_of(64)
}

/// Puts rows in the order of their experts, and gives the end of each expert's rows. A counting sort, which is stable.
fn group(expert: &dyn Fn(usize) -> usize, experts: usize, order: &mut [usize]) -> Vec<usize> {
    let mut ends = vec![0; experts];
    (0..order.len()).for_each(|row| ends[expert(row)] += 1);
    let mut start = 0;
    for end in &mut ends {
        (start, *end) = (start + *end, start);
    }
    for row in 0..order.len() {
        let next = &mut ends[expert(row)];
        order[*next] = row;
        *next += 1;
    }
    ends
}

/// Some rows, in their order, of one expert.
struct ExpertTile {
    expert: usize,
    rows: Range<usize>,
}

/// Each expert's rows, cut into tiles whose sizes differ by at most one.
fn tiles(ends: &[usize], size: usize) -> Vec<ExpertTile> {
    let mut tiles = Vec::new();
    let mut start = 0;
    for (expert, &end) in ends.iter().enumerate() {
        let (rows, count) = (end - start, (end - start).div_ceil(size));
        let cut = |index: usize| start + index * rows / count;
        tiles.extend((0..count).map(|index| ExpertTile { expert, rows: cut(index)..cut(index + 1) }));
        start = end;
    }
    tiles
}

/// Multiplies all tiles with the panels of their experts, in chunks of some panels times some tiles of one expert.
fn multiply_all(pool: &Pool, job: &LinearProducts, tiles: &[ExpertTile], size: usize) {
    let panels = job.weights[0].panels();
    let blocks = blocks(job.inputs[0].1 * size, tiles);
    let tokens = tiles.last().map_or(0, |tile| tile.rows.end).div_ceil(blocks.len());
    let time: usize = job.weights.iter().map(|matrix| job.panel_time(matrix, tokens)).sum();
    let share = blocks.len() * panels / (4 * pool.threads());
    let at_a_time = (CHUNK_TIME / time).min(share).clamp(1, panels);
    let groups = panels.div_ceil(at_a_time);
    pool.run(blocks.len() * groups, &|chunk| {
        let (block, group) = (&blocks[chunk / groups], chunk % groups);
        let panels = group * at_a_time..panels.min((group + 1) * at_a_time);
        multiply_panels(job, 0, tiles[block.start].expert, panels, block.clone());
    });
}

/// Tiles of one expert, of up to so many bytes each, that stay in the nearer caches together.
fn blocks(tile_bytes: usize, tiles: &[ExpertTile]) -> Vec<Range<usize>> {
    let limit = (INPUT_BLOCK / tile_bytes.max(1)).max(1);
    let mut blocks = Vec::new();
    let mut start = 0;
    for tiles in tiles.chunk_by(|a, b| a.expert == b.expert) {
        let count = tiles.len().div_ceil(limit);
        let cut = |index: usize| start + index * tiles.len() / count;
        blocks.extend((0..count).map(|index| cut(index)..cut(index + 1)));
        start += tiles.len();
    }
    blocks
}

/// Products of rows with the matrices of their experts.
pub(crate) fn expert_kernel(
    cpu: &Cpu,
    op: ops::ExpertLinear,
    node: &NodeTypes<'_>,
) -> Option<Arc<dyn Kernel>> {
    let epilogue = match op.gate {
        None => Epilogue::Plain,
        Some(gate) => Epilogue::Gate(activation(gate)?),
    };
    let dtypes: Vec<DType> = node.inputs[2..].iter().map(|weight| weight.dtype).collect();
    let (variant, pool) = (variant(cpu, &dtypes, &node.settings), Arc::clone(&cpu.pool));
    let exact = node.settings.exact_activations;
    Some(Arc::new(ExpertKernel { op, epilogue, dtypes, exact, variant, pool }))
}

/// The layout of the weights.
pub(crate) fn expert_packing(node: &NodeTypes<'_>, position: usize) -> Option<String> {
    (position > 1).then(|| weights::layout(node.inputs[position].dtype))
}

struct ExpertKernel {
    op: ops::ExpertLinear,
    epilogue: Epilogue,
    /// Of the weights.
    dtypes: Vec<DType>,
    exact: bool,
    variant: &'static Variant<Functions>,
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
        let dtypes = self.dtypes.iter().map(|&dtype| weights::packed_as(dtype));
        expert_scratch_bytes_for(inputs[1].elements(), columns, dtypes, self.exact)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[1])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        gather::Rows::new(inputs[1], inputs[2].shape[0], false).map(drop)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, experts) = (view(&call, 0), view(&call, 1));
        let per_row = match experts.shape.rank() < x.shape.rank() {
            true => 1,
            false => *experts.shape.last().expect("one more axis than the rows of x"),
        };
        let weights: Vec<Cow<'_, PackedMatrix>> = call.inputs[2..]
            .iter()
            .zip(&self.dtypes)
            .map(|(weight, &dtype)| weights::packed(&self.pool, weight, dtype))
            .collect::<Result<_, _>>()?;
        let weights: Vec<&PackedMatrix> = weights.iter().map(|weight| &**weight).collect();
        let experts = gather::Rows::new(experts, weights[0].experts(), false)?;
        expert_linear_with(
            &self.variant.run,
            &self.pool,
            ExpertLinear {
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
