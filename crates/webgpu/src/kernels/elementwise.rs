//! Computes functions of elements, alone or fused into a program: one shader reads each operand once and writes the result once.
//!
//! Each step rounds to its own dtype, as the CPU does.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel, NodeTypes};
use graph::Type;
use graph::ops::{ElementFunction, ElementSource, ElementStep, Elementwise};
use graph::{Dim, Op};
use tensor::DType;

use super::axes::Axes;
use super::elements::{ElementShader, OPERANDS, wgsl_type};
use super::functions::expression;
use super::operand;
use crate::recorder::{Place, Recorder};

/// Step names that a kernel's name shows.
const SHOWN: usize = 8;
/// About how many operations a step takes.
const WORK: u64 = 16;

/// The kernel of a program, or of the one function of an op.
pub(super) fn kernel(node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let program = match node.op {
        Op::Elementwise(program) => program.clone(),
        op => alone(ElementFunction::of(op)?, node.inputs.len()),
    };
    let operands: Vec<DType> = node.inputs.iter().map(|ty| ty.dtype).collect();
    let steps: Vec<DType> = program.types(node.inputs).ok()?.iter().map(|ty| ty.dtype).collect();
    let (result, shape) = (*steps.last()?, &node.outputs[0].shape);
    let moves = |axis| node.inputs.iter().map(move |ty| moves_along(&ty.shape, shape, axis));
    let axes = Axes::new(shape, |axis, next| moves(axis).eq(moves(next)));
    let moving = node.inputs.iter().map(|ty| moving(&ty.shape, shape, &axes)).collect();
    let in_place = node.inputs.iter().position(|ty| is_alike(ty, node.outputs[0]));
    let name = name(node.op, &program, operands[0]);
    let kernel = ElementwiseKernel { name, program, operands, steps, axes, moving, in_place };
    wgsl_type(result)?;
    (kernel.operands.len() <= OPERANDS && kernel.body().is_some())
        .then(|| Arc::new(kernel) as Arc<dyn FarKernel>)
}

/// A program of one step.
fn alone(function: ElementFunction, operands: usize) -> Elementwise {
    let operands = (0..operands).map(ElementSource::Operand).collect();
    Elementwise { program: vec![ElementStep { function, operands }] }
}

/// Whether an operand's elements change along an axis of the result.
fn moves_along(operand: &[Dim], result: &[Dim], axis: usize) -> bool {
    let own = (axis + operand.len()).checked_sub(result.len());
    own.is_some_and(|own| operand[own].as_static() != Some(1))
}

/// The groups of axes along which an operand's elements change.
fn moving(operand: &[Dim], result: &[Dim], axes: &Axes) -> Vec<usize> {
    let first = axes.iter().map(|axes| axes.first());
    let along =
        first.enumerate().filter(|(_, axis)| axis.is_some_and(|&axis| moves_along(operand, result, axis)));
    along.map(|(group, _)| group).collect()
}

fn is_alike(operand: &Type, result: &Type) -> bool {
    operand.shape == result.shape && operand.dtype == result.dtype
}

/// Such as `mul[f32].webgpu` and `elementwise[mul, add].webgpu`.
fn name(op: &Op, program: &Elementwise, dtype: DType) -> String {
    let functions = program.program.iter().take(SHOWN).map(|step| step.function.to_string());
    let mut functions: Vec<String> = functions.collect();
    if program.program.len() > SHOWN {
        functions.push(format!("{} more", program.program.len() - SHOWN));
    }
    match op {
        Op::Elementwise(_) => format!("elementwise[{}].webgpu", functions.join(", ")),
        op => format!("{}[{dtype}].webgpu", op.name()),
    }
}

struct ElementwiseKernel {
    name: String,
    program: Elementwise,
    operands: Vec<DType>,
    /// The dtype of each step's result.
    steps: Vec<DType>,
    axes: Axes,
    /// For each operand, the groups of axes along which its elements change.
    moving: Vec<Vec<usize>>,
    in_place: Option<usize>,
}

impl ElementwiseKernel {
    /// The function of the number of an element; `None` if the host computes a step.
    fn body(&self) -> Option<String> {
        let mut text =
            format!("fn value(i: u32) -> {} {{\n{}", wgsl_type(*self.steps.last()?)?, self.axes.indices());
        for (position, moving) in self.moving.iter().enumerate() {
            text += &format!("let v{position} = x{position}({});\n", self.index(moving));
        }
        for (number, (step, &dtype)) in self.program.program.iter().zip(&self.steps).enumerate() {
            let (names, dtypes): (Vec<String>, Vec<DType>) =
                step.operands.iter().map(|&source| self.value(source)).unzip();
            text += &format!("let t{number} = {};\n", expression(step.function, &dtypes, dtype, &names)?);
        }
        Some(text + &format!("return t{};\n}}\n", self.steps.len() - 1))
    }

    /// Gives the variable that holds an operand or the result of a step, and its dtype.
    fn value(&self, source: ElementSource) -> (String, DType) {
        match source {
            ElementSource::Operand(i) => (format!("v{i}"), self.operands[i]),
            ElementSource::Step(i) => (format!("t{i}"), self.steps[i]),
        }
    }

    /// The place of an element of an operand that changes along some groups of axes.
    fn index(&self, moving: &[usize]) -> String {
        if moving.len() == self.axes.len() {
            return "i".to_string();
        }
        let mut groups = moving.iter();
        let first = groups.next().map_or("0u".to_string(), |group| format!("a{group}"));
        groups.fold(first, |outer, group| format!("({outer}) * p.n{group} + a{group}"))
    }

    fn is_of_floats(&self) -> bool {
        self.operands.iter().chain(&self.steps).any(|dtype| wgsl_type(*dtype) == Some("f32"))
    }
}

impl FarKernel for ElementwiseKernel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let result = &call.outputs[0];
        let body = self.body().ok_or_else(|| format!("{} is the host's", self.name))?;
        let math = if self.is_of_floats() { include_str!("math.wgsl") } else { "" };
        let names: Vec<String> = (0..self.operands.len()).map(|i| format!("x{i}")).collect();
        let operands: Vec<(&str, DType)> =
            names.iter().map(String::as_str).zip(self.operands.iter().copied()).collect();
        let params = self.axes.params();
        let params: Vec<&str> = params.iter().map(String::as_str).collect();
        let text = format!("{math}{}{body}", include_str!("elementwise.wgsl"));
        let (name, to) = (&self.name[..], result.dtype);
        let shader = ElementShader { name, operands: &operands, result: to, params: &params, text: &text };
        let arrays = (0..call.inputs.len()).map(|i| operand(call, i)).chain([Ok(result)]);
        let places =
            arrays.map(|array| Ok(Place::Memory(&array?.bytes))).collect::<Result<Vec<_>, String>>()?;
        let work = (result.shape.elements(), WORK * self.steps.len() as u64);
        let sizes = self.axes.sizes(result.shape);
        shader.dispatch(Recorder::of(recorder)?, &places, &sizes[1..], work)
    }
}
