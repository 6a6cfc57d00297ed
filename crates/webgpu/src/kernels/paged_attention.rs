//! Causal attention to the pages of a cache: ranges of 256 positions in parallel, whose results are folded from the first to
//! the last. Each range and each sum is the CPU's, whatever the batch, the chunks of a prompt and the pages.

use std::any::Any;
use std::sync::Arc;

use engine::{FarArray, FarCall, FarKernel, NodeTypes};
use graph::ops::PagedAttention;
use tensor::{DType, Shape};

use super::operand;
use super::ragged::{Batch, LISTS, PAGES, PARAMS, RAGGED};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Positions whose scores share one maximum.
pub(super) const RANGE: usize = 256;
/// Query rows of a tile.
pub(super) const UNIT: usize = 4;
/// Threads of a workgroup that folds.
const THREADS: usize = 128;
/// The most dims of a head: queries and weights lie in the memory of a workgroup.
pub(super) const MAX_DIMS: usize = 704;
/// Names of the parameters of both shaders.
const TILE_PARAMS: [&str; 5] = ["window", "chunk", "width", "ranges", "first_tile"];
/// About the most bytes of results of ranges that wait to be folded.
const PARTIALS: usize = 32 << 20;

/// Attention to a cache, if its heads are of a known and not too large size.
pub(crate) fn paged_attention(op: PagedAttention, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let (dims, cache) = (node.inputs[0].shape[2].as_static()?, node.inputs[1].dtype);
    let is_known = matches!(cache, DType::F32 | DType::F16 | DType::BF16);
    let is_chosen = op.values.is_some() && node.inputs.len() > LISTS.len() + 2;
    (is_known && dims <= MAX_DIMS && !is_chosen)
        .then(|| Arc::new(Attention { op, cache }) as Arc<dyn FarKernel>)
}

struct Attention {
    op: PagedAttention,
    cache: DType,
}

/// The sizes of a call.
struct Sizes {
    batch: Batch,
    /// Query heads of each head of the cache.
    group: usize,
    /// Dims of a value.
    width: usize,
    /// Tiles of query rows, and how many are attended to and folded at a time.
    tiles: usize,
    tiles_at_once: usize,
    /// The most ranges that a tile sees.
    ranges: usize,
}

impl Sizes {
    fn new(op: &PagedAttention, q: &Shape, cache: &Shape, page_table: &Shape) -> Sizes {
        let batch = Batch::new(q[0], q[2], cache, page_table);
        let (group, width) = (q[1] / batch.kv_heads, op.values.unwrap_or(q[2]));
        // The tokens of a tile but its first see that many positions more.
        let more = (group + UNIT - 2) / group.max(1);
        let seen =
            [op.window, op.chunk].into_iter().flatten().map(|seen| (seen + more + RANGE - 2) / RANGE + 1);
        let ranges = seen.chain([batch.capacity().div_ceil(RANGE)]).min().unwrap_or(0);
        let tiles = batch.units(group, UNIT) * batch.kv_heads;
        let bytes = ranges * partial_len(width) * size_of::<f32>();
        let tiles_at_once = (PARTIALS / bytes.max(1)).clamp(1, tiles.max(1));
        Sizes { batch, group, width, tiles, tiles_at_once, ranges }
    }

    fn scratch(&self) -> usize {
        if self.batch.is_empty() {
            0
        } else {
            self.tiles_at_once * self.ranges * partial_len(self.width) * size_of::<f32>()
        }
    }
}

/// Elements of the result of a range: maxima, sums of weights, and values of all dims, of four rows each.
fn partial_len(width: usize) -> usize {
    UNIT * (2 + width)
}

impl Attention {
    /// Attends to ranges.
    fn attend(&self, head_dim: usize, has_biases: bool) -> Shader {
        let memory = "var<workgroup> shared_tile: QueryTile;\nvar<workgroup> starts: array<u32, 16>;\n";
        let score = if self.op.values.is_some() {
            include_str!("score_rows.wgsl")
        } else {
            include_str!("score_keys.wgsl")
        };
        let bias = bias(has_biases);
        let parts = [
            include_str!("math.wgsl"),
            RAGGED,
            PAGES,
            include_str!("query_tile.wgsl"),
            include_str!("range_lanes.wgsl"),
            memory,
            score,
            &bias,
            include_str!("attention_range.wgsl"),
        ];
        let mut bindings = vec![("q", DType::F32, Access::Memory), ("cache", self.cache, Access::Memory)];
        bindings.extend(LISTS);
        bindings.extend(has_biases.then_some(("biases", DType::F32, Access::Memory)));
        bindings.push(("partials", DType::F32, Access::Memory));
        let params = [&PARAMS[..], &TILE_PARAMS, &["scale", "softcap", "positions"]].concat();
        let constants = [("UNIT", UNIT), ("SPACE", head_dim.next_multiple_of(64))]
            .map(|(name, size)| (name, format!("{size}u")));
        Shader::new("attention_range", &bindings, &params, &constants, &parts.concat())
    }

    /// The parameters that both shaders have, for the tiles from `first` on.
    fn params(&self, sizes: &Sizes, first: usize) -> Vec<u32> {
        let [window, chunk] = [self.op.window, self.op.chunk]
            .map(|limit| limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX));
        let tiles = [window, chunk, sizes.width as u32, sizes.ranges as u32, first as u32];
        [&sizes.batch.params(self.op.layer, sizes.group)[..], &tiles].concat()
    }

    /// Folds the results of ranges.
    fn fold(has_sinks: bool) -> Shader {
        let sink = if has_sinks { "sinks(head)" } else { "0.0" };
        let sink =
            format!("const HAS_SINKS = {has_sinks};\nfn sink(head: u32) -> f32 {{ return {sink}; }}\n");
        let parts = [
            include_str!("math.wgsl"),
            RAGGED,
            include_str!("query_tile.wgsl"),
            &sink,
            include_str!("attention_fold.wgsl"),
        ];
        let mut bindings = LISTS[..2].to_vec();
        bindings.push(("partials", DType::F32, Access::Memory));
        bindings.extend(has_sinks.then_some(("sinks", DType::F32, Access::Memory)));
        bindings.push(("y", DType::F32, Access::Memory));
        let params = [&PARAMS[..], &TILE_PARAMS, &["tiles"]].concat();
        let constants = [("UNIT", format!("{UNIT}u"))];
        Shader::new("attention_fold", &bindings, &params, &constants, &parts.concat())
    }
}

/// The function that gives the biases of four heads.
fn bias(has_biases: bool) -> String {
    let bias = |row| format!("biases(heads.{row} * p.positions + min(position, p.positions - 1u))");
    let biases = ["x", "y", "z", "w"].map(|row| if has_biases { bias(row) } else { "0.0".to_string() });
    let result = "vec4<f32>";
    format!(
        "fn bias(heads: vec4<u32>, position: u32) -> {result} {{ return {result}({}); }}\n",
        biases.join(", ")
    )
}

impl FarKernel for Attention {
    fn name(&self) -> String {
        format!("paged_attention[{}].webgpu", self.cache)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        Sizes::new(&self.op, &inputs[0], &inputs[1], &inputs[4]).scratch()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let arrays = (0..call.inputs.len()).map(|i| operand(call, i)).collect::<Result<Vec<_>, _>>()?;
        let sizes = Sizes::new(&self.op, arrays[0].shape, arrays[1].shape, arrays[4].shape);
        let Some(partials) = call.scratch.as_ref().filter(|_| !sizes.batch.is_empty()) else { return Ok(()) };
        let more = arrays.get(5).copied();
        let [sinks, biases] = [1, 2].map(|rank| more.filter(|more| more.shape.rank() == rank));
        let (attend, fold) =
            (self.attend(sizes.batch.head_dim, biases.is_some()), Attention::fold(sinks.is_some()));
        let [mut attended, mut folded] = [&arrays[..5], &arrays[2..4]].map(places);
        attended.extend(biases.map(|biases| Place::Memory(&biases.bytes)));
        attended.push(Place::Memory(partials));
        folded.push(Place::Memory(partials));
        folded.extend(sinks.map(|sinks| Place::Memory(&sinks.bytes)));
        folded.push(Place::Memory(&call.outputs[0].bytes));
        let factors = [self.op.scale, self.op.softcap.unwrap_or(0.0)].map(f32::to_bits);
        let positions = biases.map_or(0, |biases| biases.shape[1]) as u32;
        let recorder = Recorder::of(recorder)?;
        for first in (0..sizes.tiles).step_by(sizes.tiles_at_once) {
            let tiles = sizes.tiles_at_once.min(sizes.tiles - first);
            let common = self.params(&sizes, first);
            let params = [&common[..], &factors, &[positions]].concat();
            let (groups, row) = (tiles * sizes.ranges, UNIT * sizes.width);
            let work = 4 * groups * UNIT * RANGE * (sizes.batch.head_dim + sizes.width);
            recorder.dispatch(&attend, &attended, &params, groups, work as u64)?;
            let params = [&common[..], &[tiles as u32]].concat();
            let work = 32 * groups * row;
            recorder.dispatch(&fold, &folded, &params, (tiles * row).div_ceil(THREADS), work as u64)?;
        }
        Ok(())
    }
}

fn places<'a>(arrays: &[&'a FarArray<'_>]) -> Vec<Place<'a>> {
    arrays.iter().map(|array| Place::Memory(&array.bytes)).collect()
}
