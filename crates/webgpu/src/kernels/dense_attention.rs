//! Attention of every token to every key of its item, or of a ragged batch's to every token of its sequence: a workgroup for
//! four query rows of a head, which takes ranges of 256 keys from the first to the last.

use std::any::Any;
use std::sync::Arc;

use engine::{FarArray, FarCall, FarKernel, NodeTypes};
use graph::Type;
use tensor::{DType, Shape};

use super::operand;
use super::paged_attention::{MAX_DIMS, RANGE, UNIT};
use super::ragged::UNITS;
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Attention to all keys of an item. A mask must be the same for all items unless they lie along one axis.
pub(crate) fn attention(scale: f32, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let mask = node.inputs.get(3).map_or(0, |mask| mask.rank());
    (node.inputs[0].rank() <= 4 || mask <= 3).then(|| kernel(scale, false, node.inputs)).flatten()
}

/// Attention to all tokens of a sequence.
pub(crate) fn ragged_attention(scale: f32, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    kernel(scale, true, node.inputs)
}

fn kernel(scale: f32, is_ragged: bool, inputs: &[&Type]) -> Option<Arc<dyn FarKernel>> {
    let dims = inputs[0].shape.last()?.as_static()?;
    let width = inputs[2].shape.last()?.as_static()?;
    let is_known = (1..=MAX_DIMS).contains(&dims) && (1..=4 * RANGE).contains(&width);
    is_known.then(|| Arc::new(Attention { scale, is_ragged, dims, width }) as Arc<dyn FarKernel>)
}

struct Attention {
    scale: f32,
    is_ragged: bool,
    dims: usize,
    width: usize,
}

/// Names of the parameters of shaders.
const PARAMS: [&str; 13] = [
    "tokens",
    "batch",
    "group",
    "keys",
    "heads",
    "dims",
    "width",
    "scale",
    "distances",
    "item_stride",
    "head_stride",
    "row_stride",
    "key_stride",
];

impl Attention {
    fn shader(&self, has_biases: bool) -> Shader {
        let biases = ["x", "y", "z", "w"].map(|row| format!("biases(at.{row})")).join(", ");
        let biases = if has_biases { &biases } else { "0.0" };
        let biases = format!(
            "fn biases_of(at: vec4<u32>) -> vec4<f32> {{ return vec4<f32>({biases}); }}\n\
             struct Tile {{ item: u32, first_token: u32, first_row: u32, rows: u32, first_key: u32, keys: u32 }}\n\
             var<workgroup> shared_tile: Tile;\n"
        );
        let items = if self.is_ragged {
            [UNITS, include_str!("ragged_items.wgsl")].concat()
        } else {
            include_str!("dense_items.wgsl").to_string()
        };
        let parts = [
            include_str!("math.wgsl"),
            &biases,
            &items,
            include_str!("range_lanes.wgsl"),
            include_str!("dense_attention.wgsl"),
        ];
        let mut bindings = ["q", "k", "v"].map(|name| (name, DType::F32, Access::Memory)).to_vec();
        bindings.extend(self.is_ragged.then_some(("row_offsets", DType::U32, Access::Memory)));
        bindings.extend(has_biases.then_some(("biases", DType::F32, Access::Memory)));
        bindings.push(("y", DType::F32, Access::Memory));
        let pieces = self.width.div_ceil(RANGE);
        let constants = [("UNIT", UNIT), ("SPACE", self.dims.next_multiple_of(64)), ("PIECES", pieces)];
        let constants = constants.map(|(name, size)| (name, format!("{size}u")));
        Shader::new("dense_attention", &bindings, &PARAMS, &constants, &parts.concat())
    }
}

/// How far apart the elements of a mask are along the last four axes of scores, of which it may lack some.
fn strides(mask: &Shape) -> [usize; 4] {
    let (mut strides, mut stride) = ([0; 4], 1);
    for (axis, size) in (0..4).rev().zip(mask.iter().rev()) {
        strides[axis] = if *size == 1 { 0 } else { stride };
        stride *= size;
    }
    strides
}

impl FarKernel for Attention {
    fn name(&self) -> String {
        format!("{}attention.webgpu", if self.is_ragged { "ragged_" } else { "" })
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let arrays = (0..call.inputs.len()).map(|i| operand(call, i)).collect::<Result<Vec<_>, _>>()?;
        let y = &call.outputs[0];
        let biases: Option<&FarArray<'_>> = arrays.get(if self.is_ragged { 4 } else { 3 }).copied();
        let (items, sizes) = y.shape.split_at(y.shape.rank() - 3);
        let (tokens, heads, keys) = (sizes[0], sizes[1], arrays[1].shape[items.len()]);
        let items: usize = items.iter().product();
        let (sequences, tiles) = if self.is_ragged {
            let sequences = arrays[3].shape[0].saturating_sub(1);
            (sequences, tokens / UNIT + sequences)
        } else {
            (items, items * tokens.div_ceil(UNIT))
        };
        if y.shape.elements() == 0 {
            return Ok(());
        }
        let distances = biases.filter(|_| self.is_ragged).map_or(0, |biases| biases.shape[1]);
        let strides = biases.filter(|_| !self.is_ragged).map_or([0; 4], |mask| strides(mask.shape));
        let sizes = [
            tokens,
            sequences,
            1,
            keys,
            heads,
            self.dims,
            self.width,
            self.scale.to_bits() as usize,
            distances,
        ];
        let params: Vec<u32> = sizes.iter().chain(&strides).map(|size| *size as u32).collect();
        let mut places: Vec<Place<'_>> = arrays.iter().map(|array| Place::Memory(&array.bytes)).collect();
        places.push(Place::Memory(&y.bytes));
        let work = 2 * items * tokens * heads * keys * (self.dims + self.width);
        let shader = self.shader(biases.is_some());
        Recorder::of(recorder)?.dispatch(&shader, &places, &params, tiles * heads, work as u64)
    }
}
