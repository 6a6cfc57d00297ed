//! The problems, op by op.

mod attention;
mod control;
mod elements;
mod images;
mod moves;
mod products;
mod reductions;
mod states;

use tensor::{DType, Tensor};

use crate::data::Random;
use crate::{Problem, Tolerance};
use graph::Op;
use graph::ops::*;

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];
const INTEGERS: [DType; 8] =
    [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];

/// Every problem; the same each time.
pub fn problems() -> Vec<Problem> {
    let mut list = List { problems: Vec::new(), random: Random::new(2024) };
    list.constants();
    list.unary();
    list.binary();
    list.select_and_cast();
    list.elementwise();
    list.reductions();
    list.softmax();
    list.norms();
    list.matmul();
    list.fp8_products();
    list.split_matmul();
    list.linear();
    list.linear_variants();
    list.expert_linear();
    list.lookups();
    list.rearrangements();
    list.memory();
    list.moves();
    list.rope();
    list.attention();
    list.latent_attention();
    list.chosen_positions();
    list.control();
    list.shapes();
    list.problems.extend(images::problems());
    list.dense_attention();
    list.ragged_attention();
    list.causal_conv();
    list.selective_scan();
    list.gated_delta_rule();
    list.problems
}

struct List {
    problems: Vec<Problem>,
    random: Random,
}

impl List {
    fn add(&mut self, what: &str, op: impl Into<Op>, inputs: Vec<Tensor>, tolerance: Tolerance) {
        self.add_op(what, op.into(), inputs, tolerance);
    }

    /// Apart, so that it is compiled once and not for each op.
    fn add_op(&mut self, what: &str, op: Op, inputs: Vec<Tensor>, tolerance: Tolerance) {
        let types: Vec<String> = inputs.iter().map(|x| format!("{}{}", x.dtype(), x.shape())).collect();
        let mut name = format!("{} {}", op.name(), types.join(" "));
        if !what.is_empty() {
            name = format!("{name} {what}");
        }
        let problem = Problem::new(name, op, inputs, tolerance).unwrap_or_else(|error| panic!("{error}"));
        self.problems.push(problem);
    }
}

/// Good float kernels are within some units in the last place; halves are rounded once more.
fn rounding(dtype: DType, absolute: f64) -> Tolerance {
    match dtype {
        DType::F64 => Tolerance::Close { relative: 1e-12, absolute: 1e-300 + absolute * 1e-6 },
        // One unit of the smallest numbers.
        DType::F16 => Tolerance::Close { relative: 1.0 / 1024.0, absolute: 6e-8 + absolute },
        DType::BF16 => Tolerance::Close { relative: 1.0 / 128.0, absolute: 1e-37 + absolute },
        _ => Tolerance::Close { relative: 4e-6, absolute },
    }
}

fn unary(function: Unary, x: &Tensor) -> Tensor {
    function.reference(&[x], &[*x.shape()]).expect("arithmetic").swap_remove(0)
}

fn binary(function: Binary, x: &Tensor, y: &Tensor) -> Tensor {
    function.reference(&[x, y], &[*x.shape()]).expect("arithmetic").swap_remove(0)
}
