//! `S ← α S`, `S ← S + k ⊗ β (v - Sᵀk)`, `y = Sᵀq` for each token: linear attention whose state forgets by a gate α,
//! and replaces a part β of the value that it holds for a key (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2
//! with Delta Rule").

use super::define::Effect;
use super::prelude::*;
use super::sequence_state::{SequenceRun, expect_sequences, expect_states, sequence_runs};

/// Operands: `q: f32[tokens, key_heads, key_dim]`, `k` of the same type, `v: f32[tokens, value_heads, value_dim]`,
/// `decay: f32[tokens, value_heads]` (α), `beta` of the same type (β), `state` (changed; `f32[slots, layers, value_heads,
/// key_dim, value_dim]`), `row_offsets`, `cache_lengths` and `state_table` of the batch, as in `sequence_state.rs`.
/// Result: the type of `v`.
///
/// The number of value heads is a multiple of that of key heads; value head `h` uses key head
/// `h / (value_heads / key_heads)`, or `h mod key_heads` if they are tiled. Queries and keys are taken as they are: normalize and scale them before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GatedDeltaRule {
    /// The layer of the state.
    pub layer: usize,
    /// Whether value heads that follow each other have different key heads, and not the same.
    pub tiled: bool,
}

impl Define for GatedDeltaRule {
    declare!("gated_delta_rule" { layer, tiled });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["q", "k", "v", "decay", "beta", "state", "row_offsets", "cache_lengths", "state_table"];
        let [q, k, v, decay, beta, state, lists @ ..] = operands(inputs, names)?;
        for (name, operand) in [("q", q), ("v", v)] {
            expect_dtype(name, operand, &[DType::F32])?;
            expect_rank(name, operand, 3)?;
        }
        expect_type("k", k, DType::F32, &q.shape.iter().collect::<Vec<_>>())?;
        refuse_if!(v.shape[0] != q.shape[0], "tokens differ: q {q}, v {v}");
        let heads = (v.shape[1].as_static(), q.shape[1].as_static());
        refuse_if!(
            !matches!(heads, (Some(heads), Some(keys)) if keys > 0 && heads.is_multiple_of(keys)),
            "the heads of v {v} are not a multiple of the heads of q {q}"
        );
        for (name, operand) in [("decay", decay), ("beta", beta)] {
            expect_type(name, operand, DType::F32, &[&v.shape[0], &v.shape[1]])?;
        }
        let shape = [v.shape[1].clone(), q.shape[2].clone(), v.shape[2].clone()];
        expect_states(state, self.layer, &shape)?;
        expect_sequences(lists)?;
        Ok(vec![v.clone()])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 5 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let lists = [inputs[6], inputs[7], inputs[8]];
        let shape = inputs[5].shape();
        let runs = sequence_runs("gated_delta_rule", outputs[0][0], shape, self.layer, lists)?;
        let mut y = vec![0.0; outputs[0].elements()];
        let mut states = inputs[5].to_f64_vec();
        let rule = Rule::new(inputs, self.tiled);
        let size = shape[3] * shape[4];
        for (run, head) in runs.iter().flat_map(|run| (0..shape[2]).map(move |head| (run, head))) {
            let mut state = match run.start {
                Some(start) => states[start + head * size..][..size].to_vec(),
                None => vec![0.0; size],
            };
            rule.run(run, head, &mut state, &mut y);
            states[run.end + head * size..][..size].copy_from_slice(&state);
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y), from_f64(DType::F32, *shape, &states)])
    }
}

/// The operands that are tensors, and their sizes.
struct Rule {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    decay: Vec<f64>,
    beta: Vec<f64>,
    key_heads: usize,
    key_dim: usize,
    value_heads: usize,
    value_dim: usize,
    tiled: bool,
}

impl Rule {
    fn new(inputs: &[&Tensor], tiled: bool) -> Rule {
        let [q, k, v, decay, beta] = [0, 1, 2, 3, 4].map(|i| inputs[i].to_f64_vec());
        let ([_, key_heads, key_dim], [_, value_heads, value_dim]) =
            (axes(inputs[0].shape()), axes(inputs[2].shape()));
        Rule { q, k, v, decay, beta, key_heads, key_dim, value_heads, value_dim, tiled }
    }

    /// One head of a sequence: changes its `state` [key_dim, value_dim], and fills its part of the results.
    fn run(&self, run: &SequenceRun, head: usize, state: &mut [f64], y: &mut [f64]) {
        let columns = self.value_dim;
        let key_head =
            if self.tiled { head % self.key_heads } else { head / (self.value_heads / self.key_heads) };
        for row in run.rows.clone() {
            let start = (row * self.key_heads + key_head) * self.key_dim;
            let [q, k] = [&self.q, &self.k].map(|x| &x[start..start + self.key_dim]);
            let place = row * self.value_heads + head;
            let (decay, beta) = (self.decay[place], self.beta[place]);
            state.iter_mut().for_each(|state| *state *= decay);
            for column in 0..columns {
                let product = |state: &[f64], x: &[f64]| -> f64 {
                    x.iter().enumerate().map(|(i, x)| x * state[i * columns + column]).sum()
                };
                let change = beta * (self.v[place * columns + column] - product(state, k));
                for (i, k) in k.iter().enumerate() {
                    state[i * columns + column] += k * change;
                }
                y[place * columns + column] = product(state, q);
            }
        }
    }
}

fn axes(shape: &Shape) -> [usize; 3] {
    [0, 1, 2].map(|axis| shape[axis])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, infer, run};
    use super::*;

    #[test]
    fn types() {
        let good = [
            "f32[t, 2, 3]",
            "f32[t, 2, 3]",
            "f32[t, 4, 5]",
            "f32[t, 4]",
            "f32[t, 4]",
            "mut f32[slots, 2, 4, 3, 5]",
            "u32[b + 1]",
            "u32[b]",
            "u32[b, 3]",
        ];
        let with = |position: usize, ty: &'static str| {
            let mut types = good;
            types[position] = ty;
            infer(GatedDeltaRule { layer: 1, tiled: false }, &types)
        };
        assert_eq!(with(0, good[0]), "f32[t, 4, 5]");
        assert_eq!(with(1, "f32[t, 2, 4]"), "gated_delta_rule: k is f32[t, 2, 4], expected f32[t, 2, 3]");
        assert_eq!(
            with(2, "f32[u, 4, 5]"),
            "gated_delta_rule: tokens differ: q f32[t, 2, 3], v f32[u, 4, 5]"
        );
        assert_eq!(
            with(2, "f32[t, 3, 5]"),
            "gated_delta_rule: the heads of v f32[t, 3, 5] are not a multiple of the heads of q f32[t, 2, 3]"
        );
        assert_eq!(with(3, "f32[t, 2]"), "gated_delta_rule: decay is f32[t, 2], expected f32[t, 4]");
        assert_eq!(with(4, "f16[t, 4]"), "gated_delta_rule: beta is f16[t, 4], expected f32[t, 4]");
        assert_eq!(
            with(5, "mut f32[slots, 2, 4, 5, 3]"),
            "gated_delta_rule: state is mut f32[slots, 2, 4, 5, 3], expected f32[slots, 2, 4, 3, 5]"
        );
        assert_eq!(
            with(5, "mut f32[slots, 1, 4, 3, 5]"),
            "gated_delta_rule: layer 1 is out of range for state mut f32[slots, 1, 4, 3, 5]"
        );
        assert_eq!(with(8, "u32[b, 2]"), "gated_delta_rule: state_table is u32[b, 2], expected u32[b, 3]");
        let names = "q, k, v, decay, beta, state, row_offsets, cache_lengths, state_table";
        let count = format!("gated_delta_rule: takes 9 operands ({names}), got 1");
        check_types(GatedDeltaRule { layer: 0, tiled: false }, &[(&["f32[1, 1, 1]"], &count)]);
    }

    /// A query, a key and the values of two heads.
    type Row = ([f32; 2], [f32; 2], [f32; 2]);

    /// One sequence with one key head of 2 dims and two value heads of 1: the results, and the state in slot 1 after it.
    fn apply(rows: &[Row], state: [f32; 4], cached: u32) -> (Vec<f64>, Vec<f64>) {
        let list = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let count = rows.len();
        let of = |shape: [usize; 3], part: &dyn Fn(&Row) -> [f32; 2]| {
            Tensor::from_slice(shape, &rows.iter().flat_map(part).collect::<Vec<_>>())
        };
        let (q, k) = (of([count, 1, 2], &|row| row.0), of([count, 1, 2], &|row| row.1));
        let v = of([count, 2, 1], &|row| row.2);
        let gates = |gates: [f32; 2]| Tensor::from_slice([count, 2], &gates.repeat(count));
        let states = Tensor::from_slice([2, 1, 2, 2, 1], &[&state[..], &[f32::NAN; 4]].concat());
        let (offsets, cached) = (list(&[0, count as u32]), list(&[cached]));
        let table = Tensor::from_slice([1, 3], &[0, 1, count as u32]);
        let (decay, beta) = (gates([0.5, 1.0]), gates([1.0, 0.25]));
        let inputs = [&q, &k, &v, &decay, &beta, &states, &offsets, &cached, &table];
        let results = run(GatedDeltaRule { layer: 0, tiled: false }, &inputs).unwrap();
        (results[0].to_f64_vec(), results[1].to_f64_vec()[4..].to_vec())
    }

    #[test]
    fn values_are_written_for_keys_and_read_for_queries() {
        let zeros = [f32::NAN; 4];
        let first = ([2.0, 3.0], [1.0, 0.0], [8.0, 4.0]);
        // Of the second head's value a quarter is written.
        assert_eq!(apply(&[first], zeros, 0), (vec![16.0, 2.0], vec![8.0, 0.0, 1.0, 0.0]));
        // The first head forgets half, and replaces all that it holds for the key; the second one keeps all.
        let second = ([1.0, 1.0], [0.6, 0.8], [10.0, 5.0]);
        let (y, state) = apply(&[second], [8.0, 0.0, 1.0, 0.0], 1);
        let changes = [10.0 - 0.6 * 4.0, 0.25 * (5.0 - 0.6)];
        let expected = [4.0 + 0.6 * changes[0], 0.8 * changes[0], 1.0 + 0.6 * changes[1], 0.8 * changes[1]];
        assert_close(&state, &expected, 1e-6);
        assert_close(&y, &[expected[0] + expected[1], expected[2] + expected[3]], 1e-6);
        let (both, after) = apply(&[first, second], zeros, 0);
        assert_close(&both, &[&[16.0, 2.0], &y[..]].concat(), 1e-6);
        assert_close(&after, &expected, 1e-6);
    }

    /// The numbers of the key heads that value heads read.
    fn key_heads(tiled: bool) -> Vec<f64> {
        let ones = |shape: [usize; 3]| Tensor::from_slice(shape, &vec![1f32; shape.iter().product()]);
        let list = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let (k, gates) = (ones([1, 2, 1]), Tensor::from_slice([1, 6], &[1f32; 6]));
        let q = Tensor::from_slice([1, 2, 1], &[0f32, 1.0]);
        let states = Tensor::zeros(DType::F32, [1, 1, 6, 1, 1]);
        let table = Tensor::from_slice([1, 3], &[0u32, 0, 1]);
        let inputs = [&q, &k, &ones([1, 6, 1]), &gates, &gates, &states, &list(&[0, 1]), &list(&[0]), &table];
        run(GatedDeltaRule { layer: 0, tiled }, &inputs).unwrap()[0].to_f64_vec()
    }

    #[test]
    fn value_heads_share_key_heads() {
        assert_eq!(key_heads(false), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!(key_heads(true), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    }
}
