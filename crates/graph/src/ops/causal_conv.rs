//! `y_t = Σ_i weight_i · x_(t - width + 1 + i)`: a causal convolution of each channel over the tokens of each sequence of
//! a ragged batch, which keeps the last inputs of a sequence for the next call.

use super::define::Effect;
use super::prelude::*;
use super::sequence_state::{expect_sequences, expect_states, sequence_runs};

/// Operands: `x: f32[tokens, channels]`, `weight: f32[channels, width]`, `state` (changed; `f32[slots, layers, channels,
/// width - 1]`: the last inputs of each channel, oldest first), `row_offsets`, `cache_lengths` and `state_table` of the
/// batch, as in `sequence_state.rs`. Result: the type of `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CausalConv {
    /// The layer of the state.
    pub layer: usize,
}

impl Define for CausalConv {
    declare!("causal_conv" { layer });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["x", "weight", "state", "row_offsets", "cache_lengths", "state_table"];
        let [x, weight, state, lists @ ..] = operands(inputs, names)?;
        expect_dtype("x", x, &[DType::F32])?;
        expect_rank("x", x, 2)?;
        expect_dtype("weight", weight, &[DType::F32])?;
        expect_rank("weight", weight, 2)?;
        refuse_if!(weight.shape[0] != x.shape[1], "channels differ: x {x}, weight {weight}");
        let Some(kept) = weight.shape[1].as_static().and_then(|width| width.checked_sub(1)) else {
            return Err(type_error!("weight is {weight}, expected a width of at least 1"));
        };
        expect_states(state, self.layer, &[x.shape[1].clone(), kept.into()])?;
        expect_sequences(lists)?;
        Ok(vec![x.clone()])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 2 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [x, weight, before] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let (count, channels, width) = (outputs[0][0], outputs[0][1], inputs[1].shape()[1]);
        let kept = width - 1;
        let lists = [inputs[3], inputs[4], inputs[5]];
        let runs = sequence_runs("causal_conv", count, inputs[2].shape(), self.layer, lists)?;
        let (mut y, mut after) = (vec![0.0; x.len()], before.clone());
        for (run, channel) in runs.iter().flat_map(|run| (0..channels).map(move |channel| (run, channel))) {
            let mut inputs: Vec<f64> = match run.start {
                Some(start) => before[start + channel * kept..][..kept].to_vec(),
                None => vec![0.0; kept],
            };
            inputs.extend(run.rows.clone().map(|row| x[row * channels + channel]));
            let weight = &weight[channel * width..][..width];
            for (row, window) in run.rows.clone().zip(inputs.windows(width)) {
                y[row * channels + channel] = weight.iter().zip(window).map(|(weight, x)| weight * x).sum();
            }
            after[run.end + channel * kept..][..kept].copy_from_slice(&inputs[inputs.len() - kept..]);
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y), from_f64(DType::F32, *inputs[2].shape(), &after)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types() {
        let good = ["f32[t, 6]", "f32[6, 4]", "mut f32[slots, 2, 6, 3]", "u32[b + 1]", "u32[b]", "u32[b, 3]"];
        let with = |position: usize, ty: &'static str| {
            let mut types = good;
            types[position] = ty;
            super::super::testing::infer(CausalConv { layer: 1 }, &types)
        };
        assert_eq!(with(0, good[0]), "f32[t, 6]");
        assert_eq!(with(0, "f32[t, 5]"), "causal_conv: channels differ: x f32[t, 5], weight f32[6, 4]");
        assert_eq!(with(0, "f16[t, 6]"), "causal_conv: x is f16[t, 6], expected f32");
        assert_eq!(with(1, "f32[6, w]"), "causal_conv: weight is f32[6, w], expected a width of at least 1");
        assert_eq!(
            with(2, "mut f32[slots, 2, 6, 4]"),
            "causal_conv: state is mut f32[slots, 2, 6, 4], expected f32[slots, 2, 6, 3]"
        );
        assert_eq!(
            with(2, "mut f32[slots, 1, 6, 3]"),
            "causal_conv: layer 1 is out of range for state mut f32[slots, 1, 6, 3]"
        );
        assert_eq!(
            with(2, "f32[slots, 2, 6, 3]"),
            "causal_conv: operand 2 is f32[slots, 2, 6, 3], expected a buffer"
        );
        assert_eq!(with(5, "u32[b, 2]"), "causal_conv: state_table is u32[b, 2], expected u32[b, 3]");
        check_types(
            CausalConv { layer: 0 },
            &[(
                &["f32[1, 1]"],
                "causal_conv: takes 6 operands (x, weight, state, row_offsets, cache_lengths, state_table), got 1",
            )],
        );
    }

    /// Two channels of width 3, one sequence: the results, and the state after it in slot 1.
    fn convolve(x: &[f32], state: [f32; 4], cached: u32, counted: u32) -> (Vec<f64>, Vec<f64>) {
        let list = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let rows = x.len() / 2;
        let x = Tensor::from_slice([rows, 2], x);
        let weight = Tensor::from_slice([2, 3], &[1.0f32, 10.0, 100.0, 2.0, 0.0, -1.0]);
        let states = Tensor::from_slice([2, 1, 2, 2], &[&state[..], &[0.0; 4]].concat());
        let (offsets, cached) = (list(&[0, rows as u32]), list(&[cached]));
        let table = Tensor::from_slice([1, 3], &[0, 1, counted]);
        let results =
            run(CausalConv { layer: 0 }, &[&x, &weight, &states, &offsets, &cached, &table]).unwrap();
        let state = results[1].to_f64_vec();
        assert_eq!(state[..4], states.to_f64_vec()[..4]);
        (results[0].to_f64_vec(), state[4..].to_vec())
    }

    #[test]
    fn the_last_inputs_are_kept() {
        let state = [7.0, 8.0, 9.0, 1.0];
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let whole = convolve(&x, state, 0, 3);
        assert_eq!(whole.0, [100.0, -2.0, 310.0, -4.0, 531.0, -2.0]);
        assert_eq!(whole.1, [3.0, 5.0, 4.0, 6.0]);
        assert_eq!(convolve(&x[..2], state, 9, 1), (vec![187.0, 16.0], vec![8.0, 1.0, 1.0, 2.0]));
        // No row counts: the state is copied.
        assert_eq!(convolve(&x[..2], state, 9, 0), (vec![0.0; 2], vec![7.0, 8.0, 9.0, 1.0]));
        assert_eq!(convolve(&x, state, 0, 2).0[4..], [0.0, 0.0]);
        assert_eq!(convolve(&x, state, 0, 2).1, [1.0, 3.0, 2.0, 4.0]);
    }
}
