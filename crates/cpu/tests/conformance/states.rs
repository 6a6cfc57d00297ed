//! Ops that keep a state of each sequence.

use graph::Op;
use graph::ops::{CausalConv, GatedDeltaRule, SelectiveScan, Unary};
use tensor::{DType, Tensor};

use crate::problem::{Solve, Tolerance, check, check_refused, on_each_device, reference, tame, wild};

fn list(values: &[u32]) -> Tensor {
    Tensor::from_slice([values.len()], values)
}

/// The operands of an op, in order: rows, weights, more rows, and states. The lists of the batch follow.
#[derive(Clone)]
struct Case {
    op: Op,
    /// `[tokens, ..]`
    rows: Vec<Tensor>,
    weights: Vec<Tensor>,
    /// `[tokens, ..]`
    more_rows: Vec<Tensor>,
    states: Tensor,
}

impl Case {
    fn inputs(&self, offsets: &[u32], lengths: &[u32], table: &[[u32; 3]]) -> Vec<Tensor> {
        let lists =
            [list(offsets), list(lengths), Tensor::from_slice([table.len(), 3], table.as_flattened())];
        let operands = self.rows.iter().chain(&self.weights).chain(&self.more_rows).chain([&self.states]);
        operands.cloned().chain(lists).collect()
    }

    /// Runs the rows from `rows.start` on, as one sequence in slot 0, from the states that there are to those there are
    /// afterwards.
    fn step(&mut self, solve: Solve<'_>, rows: std::ops::Range<usize>, padding: usize) -> Vec<f32> {
        let end = self.rows[0].shape()[0].min(rows.end + padding);
        let (count, cached) = ((end - rows.start) as u32, rows.start as u32);
        let of = |whole: &[Tensor]| whole.iter().map(|x| x.narrow(0, rows.start..end).contiguous()).collect();
        let part = Case { rows: of(&self.rows), more_rows: of(&self.more_rows), ..self.clone() };
        let inputs = part.inputs(&[0, count], &[cached], &[[0, 0, rows.len() as u32]]);
        let [result, states] = &solve(self.op.clone(), &inputs)[..] else { panic!("a result and states") };
        self.states = states.clone();
        let width = result.shape().elements() / count as usize;
        let result = result.to_vec::<f32>();
        assert!(result[rows.len() * width..].iter().all(|&x| x == 0.0), "padding gives zeros");
        result[..rows.len() * width].to_vec()
    }

    /// Chunks of every size give the same results and the same state as the whole.
    fn check_chunks(self) {
        on_each_device(&|solve| {
            let tokens = self.rows[0].shape()[0];
            let mut case = self.clone();
            let whole = case.step(solve, 0..tokens, 0);
            let state = case.states.to_vec::<f32>();
            for (chunk, padding) in [(1, 0), (2, 3), (3, 1), (5, 0), (16, 7)] {
                let (mut case, mut results) = (self.clone(), Vec::new());
                for start in (0..tokens).step_by(chunk) {
                    results.extend(case.step(solve, start..tokens.min(start + chunk), padding));
                }
                assert!(results == whole, "other bits in chunks of {chunk}");
                assert!(case.states.to_vec::<f32>() == state, "another state after chunks of {chunk}");
            }
        });
    }
}

fn convolution(channels: usize, width: usize, tokens: usize) -> Case {
    Case {
        op: CausalConv { layer: 1 }.into(),
        rows: vec![tame(DType::F32, &[tokens, channels], 1)],
        weights: vec![tame(DType::F32, &[channels, width], 2)],
        more_rows: Vec::new(),
        states: tame(DType::F32, &[4, 2, channels, width - 1], 3),
    }
}

#[test]
fn causal_conv() {
    for (channels, width) in [(3, 4), (64, 2), (65, 5), (2000, 4)] {
        let mut case = convolution(channels, width, 30);
        let inputs =
            |case: &Case| case.inputs(&[0, 9, 10, 30], &[0, 300, 1], &[[9, 2, 9], [3, 0, 1], [3, 1, 15]]);
        check(CausalConv { layer: 1 }, &inputs(&case), Tolerance::Near { relative: 1e-5, absolute: 1e-5 });
        // Infinities and NaN reach those rows that see them. One tap alone, since sums of huge numbers may overflow.
        if width == 4 {
            case = convolution(channels, 1, 30);
            case.rows[0] = wild(DType::F32, &[30, channels], 4);
            let tolerance = Tolerance::Near { relative: 1e-6, absolute: 1e-44 };
            check(CausalConv { layer: 1 }, &inputs(&case), tolerance);
        }
    }
}

#[test]
fn chunks_of_convolutions_have_the_bits_of_the_whole() {
    convolution(37, 4, 50).check_chunks();
    convolution(3, 2, 50).check_chunks();
}

/// Steps above 0 and rates below, of heads or of each element.
fn scan(heads: usize, head_dim: usize, groups: usize, state_dim: usize, of_heads: bool) -> Case {
    let tokens = 30;
    let size = |x: Tensor, factor: f32| {
        let values: Vec<f32> = x.to_vec::<f32>().into_iter().map(|x| x.abs() * factor).collect();
        Tensor::from_slice(*x.shape(), &values)
    };
    let (dt, a) = if of_heads {
        (vec![tokens, heads], vec![heads])
    } else {
        (vec![tokens, heads, head_dim], vec![heads, state_dim, head_dim])
    };
    let of_groups = |seed| tame(DType::F32, &[tokens, groups, state_dim], seed);
    Case {
        op: SelectiveScan { layer: 1 }.into(),
        rows: vec![tame(DType::F32, &[tokens, heads, head_dim], 1), size(tame(DType::F32, &dt, 2), 0.25)],
        weights: vec![size(tame(DType::F32, &a, 3), -0.5)],
        more_rows: vec![of_groups(4), of_groups(5)],
        states: tame(DType::F32, &[4, 2, heads, state_dim, head_dim], 6),
    }
}

#[test]
fn selective_scan() {
    for (heads, head_dim, groups, state_dim) in [(4, 33, 2, 7), (80, 64, 1, 128), (1, 2000, 1, 16)] {
        for of_heads in [true, false] {
            let case = scan(heads, head_dim, groups, state_dim, of_heads);
            let inputs = case.inputs(&[0, 9, 10, 30], &[0, 300, 1], &[[9, 2, 9], [3, 0, 1], [3, 1, 15]]);
            check(SelectiveScan { layer: 1 }, &inputs, Tolerance::OfLargest(1e-5));
        }
    }
}

#[test]
fn chunks_of_scans_have_the_bits_of_the_whole() {
    for of_heads in [true, false] {
        scan(3, 5, 1, 9, of_heads).check_chunks();
        scan(2, 35, 2, 16, of_heads).check_chunks();
    }
}

fn delta_rule(heads: [usize; 2], dims: [usize; 2], tokens: usize) -> Case {
    let ([key_heads, value_heads], [key_dim, value_dim]) = (heads, dims);
    let rows = |heads: usize, dim: usize, seed: u64| tame(DType::F32, &[tokens, heads, dim], seed);
    // Keys no longer than 1, so that states do not grow.
    let keys = |seed: u64| {
        let values = rows(key_heads, key_dim, seed).to_vec::<f32>();
        let shorter: Vec<f32> = values.iter().map(|x| x / 4.0 / (key_dim as f32).sqrt()).collect();
        Tensor::from_slice([tokens, key_heads, key_dim], &shorter)
    };
    let gates =
        |seed: u64| reference(Unary::Sigmoid, &[tame(DType::F32, &[tokens, value_heads], seed)]).remove(0);
    Case {
        op: GatedDeltaRule { layer: 1, tiled: tokens.is_multiple_of(2) }.into(),
        rows: vec![keys(1), keys(2), rows(value_heads, value_dim, 3), gates(4), gates(5)],
        weights: Vec::new(),
        more_rows: Vec::new(),
        states: tame(DType::F32, &[4, 2, value_heads, key_dim, value_dim], 6),
    }
}

#[test]
fn gated_delta_rule() {
    for (heads, dims) in [([2, 4], [64, 48]), ([3, 3], [7, 33]), ([1, 5], [16, 100]), ([2, 6], [128, 128])] {
        for (tokens, offsets) in [(30, [0, 9, 10, 30]), (31, [0, 9, 11, 31])] {
            let case = delta_rule(heads, dims, tokens);
            let inputs = case.inputs(&offsets, &[0, 300, 1], &[[9, 2, 9], [3, 0, 1], [3, 1, 15]]);
            check(case.op.clone(), &inputs, Tolerance::Near { relative: 1e-5, absolute: 2e-5 });
        }
    }
    let none = delta_rule([2, 4], [8, 8], 0);
    check(none.op.clone(), &none.inputs(&[0, 0], &[5], &[[3, 0, 0]]), Tolerance::Exact);
    check(none.op.clone(), &none.inputs(&[0], &[], &[]), Tolerance::Exact);
}

#[test]
fn chunks_of_delta_rules_have_the_bits_of_the_whole() {
    delta_rule([2, 4], [24, 40], 50).check_chunks();
    delta_rule([1, 3], [5, 3], 49).check_chunks();
}

#[test]
fn tables_that_do_not_fit_delta_rules_are_refused() {
    let case = delta_rule([1, 2], [3, 5], 6);
    let refused = |table: &[[u32; 3]], words: &[&str]| {
        check_refused(case.op.clone(), &case.inputs(&[0, 3, 6], &[1, 1], table), words);
    };
    refused(&[[0, 0, 3], [1, 4, 3]], &["slot 4", "sequence 1", "4 slots"]);
    refused(&[[0, 0, 4], [1, 1, 3]], &["4 rows", "sequence 0", "has 3"]);
    refused(&[[0, 0, 3], [0, 1, 3]], &["sequence 0 writes slot 0", "sequence 1 uses"]);
}

/// Two sequences with 3 rows each.
#[test]
fn tables_that_do_not_fit_are_refused() {
    let refused = |offsets: &[u32], lengths: &[u32], table: &[[u32; 3]], words: &[&str]| {
        let case = convolution(5, 3, 6);
        check_refused(CausalConv { layer: 1 }, &case.inputs(offsets, lengths, table), words);
    };
    let (offsets, table) = (&[0, 3, 6], [[0, 0, 3], [1, 1, 3]]);
    refused(&[0, 3, 5], &[1, 1], &table, &["operand 3", "0 to 5", "6 tokens"]);
    refused(offsets, &[1, 1], &[table[0], [1, 4, 3]], &["slot 4", "sequence 1", "4 slots"]);
    refused(offsets, &[1, 1], &[[4, 0, 3], table[1]], &["slot 4", "sequence 0", "4 slots"]);
    refused(offsets, &[1, 1], &[[0, 0, 4], table[1]], &["4 rows", "sequence 0", "has 3"]);
    refused(offsets, &[0, 0], &[table[0], [0, 0, 3]], &["writes slot 0", "sequence 1"]);
    refused(offsets, &[1, 1], &[[1, 0, 3], table[1]], &["sequence 1 writes slot 1", "sequence 0 uses"]);
}
