//! Elements in other places: slices, splits, transposes, broadcasts, reshapes, flips, tiles, paddings, and what is loaded from
//! and stored to buffers. One walk through strides serves all.

use std::any::Any;
use std::sync::Arc;

use engine::{FarArray, FarCall, FarKernel, FarOperand, NodeTypes};
use graph::ops::{Pad, PadMode, Slice};
use graph::{Dim, Op};
use tensor::{DType, MAX_RANK, Shape};

use super::axes::Axes;
use super::elements::{ElementShader, moved_as, wgsl_type};
use super::operand;
use crate::recorder::{Place, Recorder};

/// The kernel of an op that moves elements.
pub(super) fn kernel(node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let (op, x) = (node.op, node.inputs.last()?);
    let source = if let Op::Pad(_) = op { node.inputs[0] } else { x };
    // A split has results of several sizes.
    let shape = match op {
        Op::Split(_) | Op::Store(_) => &source.shape,
        _ => &node.outputs[0].shape,
    };
    let dtype = moved_as(source.dtype)?;
    let axes = Axes::new(shape, |axis, next| joins(op, &source.shape, shape, [axis, next]));
    Some(Arc::new(MoveKernel { op: op.clone(), dtype, axes }))
}

/// Whether an axis of the result and the next one are walked as one.
fn joins(op: &Op, from: &[Dim], to: &[Dim], [axis, next]: [usize; 2]) -> bool {
    let both = |is: &dyn Fn(usize) -> bool| is(axis) == is(next);
    let neither = |is: &dyn Fn(usize) -> bool| !is(axis) && !is(next);
    match op {
        Op::Slice(Slice { axis: cut, .. }) => !(axis..=next).contains(cut),
        Op::Split(split) => !(axis..=next).contains(&split.axis),
        Op::Transpose(transpose) => transpose.order[axis] + 1 == transpose.order[next],
        Op::Broadcast(_) => both(&|axis| is_repeated(from, to, axis)),
        Op::Flip(flip) => both(&|axis| flip.axes.contains(&axis)),
        Op::Tile(tile) => neither(&|axis| tile.repeats[axis].as_static() != Some(1)),
        Op::Pad(pad) => neither(&|axis| is_padded(pad, axis)),
        _ => true,
    }
}

/// Whether a broadcast repeats along an axis of the result.
fn is_repeated(from: &[Dim], to: &[Dim], axis: usize) -> bool {
    let own = (axis + from.len()).checked_sub(to.len());
    own.is_none_or(|own| from[own].as_static() == Some(1))
}

fn is_padded(pad: &Pad, axis: usize) -> bool {
    pad.before[axis] + pad.after[axis] > 0
}

struct MoveKernel {
    op: Op,
    /// As what elements are moved.
    dtype: DType,
    /// Of the result.
    axes: Axes,
}

/// Where the elements of a result come from: those of index 0 along each axis from `offset`, others at strides. An index goes
/// through the map of its axis first.
struct Walk {
    offset: usize,
    strides: [isize; MAX_RANK],
}

impl FarKernel for MoveKernel {
    fn name(&self) -> String {
        match &self.op {
            Op::Reshape(_) | Op::Load(_) | Op::Store(_) => format!("{}[copy].webgpu", self.op.name()),
            Op::Pad(pad) => format!("pad[{}].webgpu", pad.mode.name()),
            op => format!("{}.webgpu", op.name()),
        }
    }

    fn in_place(&self) -> Option<usize> {
        matches!(self.op, Op::Reshape(_)).then_some(0)
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        if matches!(call.inputs[0], FarOperand::InResult) {
            return Ok(());
        }
        let recorder = Recorder::of(recorder)?;
        if let Op::Store(_) = self.op {
            let (to, x) = (operand(call, 0)?, operand(call, 1)?);
            let whole = Walk { offset: 0, strides: x.shape.row_major_strides() };
            return self.copy(recorder, [x, to], None, &whole);
        }
        let x = operand(call, 0)?;
        let fill = self.is_filled().then(|| operand(call, 1)).transpose()?;
        let mut start = 0;
        for result in &call.outputs {
            let walk = self.walk(x.shape, result.shape, start)?;
            self.copy(recorder, [x, result], fill, &walk)?;
            start += if let Op::Split(split) = &self.op { result.shape[split.axis] } else { 0 };
        }
        Ok(())
    }
}

impl MoveKernel {
    /// Whether operand 1 is what comes from nowhere.
    fn is_filled(&self) -> bool {
        matches!(&self.op, Op::Pad(pad) if pad.mode == PadMode::Constant)
    }

    /// The walk over an operand; `start` is where a split begins.
    fn walk(&self, from: &Shape, to: &Shape, start: usize) -> Result<Walk, String> {
        let own = from.row_major_strides();
        let mut walk = Walk { offset: 0, strides: own };
        match &self.op {
            Op::Slice(slice) => {
                walk.offset = slice.range(from[slice.axis])?.0 * own[slice.axis] as usize;
                walk.strides[slice.axis] *= slice.step as isize;
            }
            Op::Split(split) => walk.offset = start * own[split.axis] as usize,
            Op::Transpose(transpose) => {
                transpose.order.iter().zip(&mut walk.strides).for_each(|(&axis, stride)| *stride = own[axis]);
            }
            Op::Broadcast(_) => {
                let missing = to.rank() - from.rank();
                walk.strides = [0; MAX_RANK];
                for axis in (0..from.rank()).filter(|&axis| from[axis] == to[missing + axis]) {
                    walk.strides[missing + axis] = own[axis];
                }
            }
            Op::Flip(flip) => {
                for &axis in &flip.axes {
                    walk.offset += from[axis].saturating_sub(1) * own[axis] as usize;
                    walk.strides[axis] = -own[axis];
                }
            }
            Op::Pad(pad) => (0..from.rank()).try_for_each(|axis| pad.check(axis, from[axis]))?,
            // The elements keep their order, whatever the shapes.
            Op::Reshape(_) => walk.strides = to.row_major_strides(),
            _ => {}
        }
        Ok(walk)
    }

    /// Records the copy of one operand to one result.
    fn copy(
        &self,
        recorder: &mut Recorder,
        [x, y]: [&FarArray<'_>; 2],
        fill: Option<&FarArray<'_>>,
        walk: &Walk,
    ) -> Result<(), String> {
        let mut params = vec![walk.offset];
        params.extend(&self.axes.sizes(y.shape)[1..]);
        for axes in self.axes.iter() {
            // Below 0 it wraps around, as sums do then.
            let last = axes.iter().rfind(|&&axis| y.shape[axis] != 1);
            params.push(last.map_or(0, |&axis| walk.strides[axis] as u32 as usize));
            params.extend(self.map_params(axes, x.shape));
        }
        let names = self.params();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let operands = [("x", self.dtype), ("fill", self.dtype)];
        let operands = &operands[..1 + usize::from(fill.is_some())];
        let (name, text) = (&self.name()[..], &self.text()[..]);
        let shader = ElementShader { name, operands, result: self.dtype, params: &names, text };
        let arrays = [x].into_iter().chain(fill).chain([y]);
        let places: Vec<Place<'_>> = arrays.map(|array| Place::Memory(&array.bytes)).collect();
        shader.dispatch(recorder, &places, &params, (y.shape.elements(), 1))
    }

    /// The names of what the shader reads, in the order in which [`MoveKernel::copy`] gives them.
    fn params(&self) -> Vec<String> {
        let mut names = vec!["offset".to_string()];
        names.extend(self.axes.params());
        for (group, axes) in self.axes.iter().enumerate() {
            names.push(format!("s{group}"));
            if self.map(axes, group).is_some() {
                names.extend([format!("m{group}"), format!("b{group}")]);
            }
        }
        names
    }

    /// The size of the operand along an axis with a map, and what the map adds.
    fn map_params(&self, axes: &[usize], from: &Shape) -> Vec<usize> {
        if self.map(axes, 0).is_none() {
            return Vec::new();
        }
        let size = from[axes[0]];
        let Op::Pad(pad) = &self.op else { return vec![size, 0] };
        let before = pad.before[axes[0]];
        if pad.mode == PadMode::Reflect {
            // There and back again.
            let period = (2 * size.saturating_sub(1)).max(1);
            return vec![period, (period - before % period) % period];
        }
        vec![size, before]
    }

    /// The index along an axis of the operand, by that of the result, `None` if they are the same.
    fn map(&self, axes: &[usize], group: usize) -> Option<String> {
        let &axis = axes.first()?;
        let (index, size, before) = (format!("a{group}"), format!("p.m{group}"), format!("p.b{group}"));
        match &self.op {
            Op::Tile(tile) if tile.repeats[axis].as_static() != Some(1) => Some(format!("{index} % {size}")),
            Op::Pad(pad) if is_padded(pad, axis) => Some(match pad.mode {
                // Those before wrap around.
                PadMode::Constant => format!("{index} - {before}"),
                PadMode::Edge => format!("min(max({index}, {before}) - {before}, {size} - 1u)"),
                PadMode::Reflect => {
                    let around = format!("({index} + {before}) % {size}");
                    format!("min({around}, {size} - {around})")
                }
            }),
            _ => None,
        }
    }

    fn text(&self) -> String {
        let ty = wgsl_type(self.dtype).expect("a dtype to move as");
        let mut text = format!("fn value(i: u32) -> {ty} {{\n{}var at = p.offset;\n", self.axes.indices());
        for (group, axes) in self.axes.iter().enumerate() {
            let map = self.map(axes, group);
            if map.is_some() && self.is_filled() {
                text += &format!("if (a{group} - p.b{group} >= p.m{group}) {{ return fill(0u); }}\n");
            }
            let index = map.unwrap_or_else(|| format!("a{group}"));
            text += &format!("at += ({index}) * p.s{group};\n");
        }
        text + "return x(at);\n}\n"
    }
}
