//! `s_t = e^(dt_t · a) · s_(t-1) + dt_t · x_t ⊗ b_t`, `y_t = s_t · c_t`: the state space of Mamba (Gu and Dao 2023) and Mamba 2
//! (Dao and Gu 2024), token by token, over each sequence of a ragged batch.

use super::define::Effect;
use super::prelude::*;
use super::sequence_state::{SequenceRun, expect_sequences, expect_states, sequence_runs};

/// Operands: `x: f32[tokens, heads, head_dim]`; `dt`, the steps, and `a`, the rates at which states decay (below 0), either
/// one of each head, `f32[tokens, heads]` and `f32[heads]` (Mamba 2), or one of each element, `f32[tokens, heads, head_dim]`
/// and `f32[heads, state_dim, head_dim]` (Mamba); `b` and `c`: `f32[tokens, groups, state_dim]`, each group for
/// `heads / groups` heads that follow each other; `state` (changed; `f32[slots, layers, heads, state_dim, head_dim]`),
/// `row_offsets`, `cache_lengths` and `state_table` of the batch, as in `sequence_state.rs`. Result: the type of `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SelectiveScan {
    /// The layer of the state.
    pub layer: usize,
}

impl Define for SelectiveScan {
    declare!("selective_scan" { layer });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["x", "dt", "a", "b", "c", "state", "row_offsets", "cache_lengths", "state_table"];
        let [x, dt, a, b, c, state, lists @ ..] = operands(inputs, names)?;
        expect_dtype("x", x, &[DType::F32])?;
        expect_rank("x", x, 3)?;
        expect_dtype("b", b, &[DType::F32])?;
        expect_rank("b", b, 3)?;
        expect_type("c", c, DType::F32, &b.shape.iter().collect::<Vec<_>>())?;
        let ([tokens, heads, head_dim], [b_tokens, groups, state_dim]) = (&x.shape[..], &b.shape[..]) else {
            unreachable!("three axes each")
        };
        refuse_if!(tokens != b_tokens, "tokens differ: x {x}, b {b}");
        let shared = (heads.as_static(), groups.as_static());
        refuse_if!(
            !matches!(shared, (Some(heads), Some(groups)) if groups > 0 && heads.is_multiple_of(groups)),
            "heads of x {x} are no multiple of the groups of b {b}"
        );
        if dt.rank() == 2 {
            expect_type("dt", dt, DType::F32, &[tokens, heads])?;
            expect_type("a", a, DType::F32, &[heads])?;
        } else {
            expect_type("dt", dt, DType::F32, &[tokens, heads, head_dim])?;
            expect_type("a", a, DType::F32, &[heads, state_dim, head_dim])?;
        }
        expect_states(state, self.layer, &[heads.clone(), state_dim.clone(), head_dim.clone()])?;
        expect_sequences(lists)?;
        Ok(vec![x.clone()])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 5 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [_, heads, head_dim] = [0, 1, 2].map(|axis| outputs[0][axis]);
        let [_, groups, state_dim] = [0, 1, 2].map(|axis| inputs[3].shape()[axis]);
        let [x, dt, a, b, c, mut states] = [0, 1, 2, 3, 4, 5].map(|i| inputs[i].to_f64_vec());
        let lists = [inputs[6], inputs[7], inputs[8]];
        let runs = sequence_runs("selective_scan", outputs[0][0], inputs[5].shape(), self.layer, lists)?;
        let (before, of_heads) = (states.clone(), inputs[1].shape().rank() == 2);
        let mut y = vec![0.0; x.len()];
        for (SequenceRun { rows, start, end }, head) in
            runs.iter().flat_map(|run| (0..heads).map(move |head| (run, head)))
        {
            for (n, p) in (0..state_dim).flat_map(|n| (0..head_dim).map(move |p| (n, p))) {
                let place = (head * state_dim + n) * head_dim + p;
                let mut state = start.map_or(0.0, |start| before[start + place]);
                for row in rows.clone() {
                    let at = row * heads + head;
                    let (dt, a) =
                        if of_heads { (dt[at], a[head]) } else { (dt[at * head_dim + p], a[place]) };
                    let shared = (row * groups + head / (heads / groups)) * state_dim + n;
                    state = (dt * a).exp() * state + dt * x[at * head_dim + p] * b[shared];
                    y[at * head_dim + p] += state * c[shared];
                }
                states[end + place] = state;
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y), from_f64(DType::F32, *inputs[5].shape(), &states)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, infer, run};
    use super::*;

    #[test]
    fn types() {
        let good = [
            "f32[t, 4, 6]",
            "f32[t, 4]",
            "f32[4]",
            "f32[t, 2, 5]",
            "f32[t, 2, 5]",
            "mut f32[slots, 2, 4, 5, 6]",
            "u32[b + 1]",
            "u32[b]",
            "u32[b, 3]",
        ];
        let with = |changes: &[(usize, &'static str)]| {
            let mut types = good;
            changes.iter().for_each(|&(position, ty)| types[position] = ty);
            infer(SelectiveScan { layer: 1 }, &types)
        };
        assert_eq!(with(&[]), "f32[t, 4, 6]");
        assert_eq!(with(&[(1, "f32[t, 4, 6]"), (2, "f32[4, 5, 6]")]), "f32[t, 4, 6]");
        assert_eq!(with(&[(1, "f32[t, 4, 6]")]), "selective_scan: a is f32[4], expected f32[4, 5, 6]");
        assert_eq!(with(&[(2, "f32[5]")]), "selective_scan: a is f32[5], expected f32[4]");
        assert_eq!(
            with(&[(3, "f32[t, 3, 5]"), (4, "f32[t, 3, 5]")]),
            "selective_scan: heads of x f32[t, 4, 6] are no multiple of the groups of b f32[t, 3, 5]"
        );
        assert_eq!(with(&[(4, "f32[t, 2, 6]")]), "selective_scan: c is f32[t, 2, 6], expected f32[t, 2, 5]");
        assert_eq!(
            with(&[(3, "f32[s, 2, 5]"), (4, "f32[s, 2, 5]")]),
            "selective_scan: tokens differ: x f32[t, 4, 6], b f32[s, 2, 5]"
        );
        assert_eq!(
            with(&[(5, "mut f32[slots, 2, 4, 6, 5]")]),
            "selective_scan: state is mut f32[slots, 2, 4, 6, 5], expected f32[slots, 2, 4, 5, 6]"
        );
    }

    /// Two heads of one element each, of which both have the same two elements of state to choose from.
    #[test]
    fn states_decay_and_grow() {
        let list = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let rows = |shape: [usize; 3], values: &[f32]| Tensor::from_slice(shape, values);
        let x = rows([2, 2, 1], &[3.0, 5.0, 7.0, 11.0]);
        let [b, c] = [[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 1.0, 1.0]].map(|values| rows([2, 1, 2], &values));
        let ln2 = std::f32::consts::LN_2;
        let dt = Tensor::from_slice([2, 2], &[1.0f32, 2.0, 1.0, 0.0]);
        let a = Tensor::from_slice([2], &[-ln2, -ln2]);
        let state = Tensor::from_slice([1, 1, 2, 2, 1], &[8.0f32, 16.0, 32.0, 64.0]);
        let lists = [list(&[0, 2]), list(&[1]), Tensor::from_slice([1, 3], &[0u32, 0, 2])];
        // The first head: 8 / 2 + 3, 16 / 2 + 6, and then 7 / 2 + 21, 14 / 2 + 28. The second does not change the last time.
        let y = [7.0, 32.0 / 4.0 + 10.0, 24.5 + 35.0, 18.0 + 36.0];
        let after = [24.5, 35.0, 18.0, 36.0];
        let scan = |dt: &Tensor, a: &Tensor| {
            let [offsets, lengths, table] = &lists;
            let inputs = [&x, dt, a, &b, &c, &state, offsets, lengths, table];
            let results = run(SelectiveScan { layer: 0 }, &inputs).unwrap();
            assert_close(&results[0].to_f64_vec(), &y, 1e-6);
            assert_close(&results[1].to_f64_vec(), &after, 1e-6);
        };
        scan(&dt, &a);
        scan(&dt.reshape([2, 2, 1]), &rows([2, 2, 1], &[-ln2; 4]));
    }
}
