//! `y_t = Σ_s softmax_s(scale · q_t · k_s + bias_(s - t)) · v_s`: attention of every token to every token of its own
//! sequence, before it and after it, for a ragged batch.

use super::prelude::*;
use super::ragged::rows;
use super::softmax::softmax;

/// Attention within each sequence, in both directions. Operands: `q: f32[tokens, heads, head_dim]`,
/// `k: f32[tokens, heads, head_dim]`, `v: f32[tokens, heads, value_dim]`, `row_offsets: u32[batch + 1]`, and, if
/// there is one, a `bias: f32[heads, 2 · reach + 1]` by relative position. Result: `f32[tokens, heads, value_dim]`.
///
/// The score of key `s` for query `t` has element `reach + (s - t)` of the head's bias added to it, distances beyond
/// `reach` counting as that far (Shaw et al. 2018, section 3.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RaggedAttention {
    /// What the products of queries and keys are multiplied by, usually `1 / √head_dim`.
    pub scale: f32,
}

impl Define for RaggedAttention {
    declare!("ragged_attention" { scale });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (&[q, k, v, row_offsets], bias) = inputs.split_at(inputs.len().min(4)) else {
            let found = inputs.len();
            return Err(type_error!("takes 4 operands (q, k, v, row_offsets) and a bias, got {found}"));
        };
        for (name, ty) in [("q", q), ("k", k), ("v", v)] {
            expect_dtype(name, ty, &[DType::F32])?;
            expect_rank(name, ty, 3)?;
        }
        refuse_if!(q.shape != k.shape, "q and k differ: q {q}, k {k}");
        refuse_if!(v.shape[..2] != k.shape[..2], "k and v differ before the last axis: k {k}, v {v}");
        expect_dtype("row_offsets", row_offsets, &[DType::U32])?;
        expect_rank("row_offsets", row_offsets, 1)?;
        expect_finite("scale", self.scale)?;
        match bias {
            [] => {}
            [bias] => expect_bias(bias, q)?,
            _ => return Err(type_error!("takes one bias, got {}", bias.len())),
        }
        Ok(vec![v.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [q, k, v] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let [count, heads, width] = [0, 1, 2].map(|axis| outputs[0][axis]);
        let dim = inputs[0].shape()[2];
        let bias = inputs.get(4).map(|bias| (bias.to_f64_vec(), bias.shape()[1]));
        let mut y = vec![0.0; outputs[0].elements()];
        for sequence in rows("ragged_attention", count, &inputs[3].to_vec::<u32>())? {
            for (token, head) in sequence.clone().flat_map(|token| (0..heads).map(move |head| (token, head)))
            {
                let score = |key: usize| {
                    let [q, k] =
                        [(&q, token), (&k, key)].map(|(x, row)| &x[(row * heads + head) * dim..][..dim]);
                    let product: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                    let bias = bias.as_ref().map(|(bias, len)| bias[head * len + entry(*len, token, key)]);
                    f64::from(self.scale) * product + bias.unwrap_or(0.0)
                };
                let scores: Vec<f64> = sequence.clone().map(score).collect();
                let y = &mut y[(token * heads + head) * width..][..width];
                for (key, weight) in sequence.clone().zip(softmax(&scores)) {
                    let v = &v[(key * heads + head) * width..][..width];
                    y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * v);
                }
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y)])
    }
}

/// Which of a head's `len` biases is that of a key for a query.
fn entry(len: usize, query: usize, key: usize) -> usize {
    (len / 2 + key).saturating_sub(query).min(len - 1)
}

fn expect_bias(bias: &Type, q: &Type) -> Result<(), TypeError> {
    expect_dtype("bias", bias, &[DType::F32])?;
    expect_rank("bias", bias, 2)?;
    refuse_if!(bias.shape[0] != q.shape[1], "heads differ: q {q}, bias {bias}");
    match bias.shape[1].as_static() {
        Some(len) if len % 2 == 1 => Ok(()),
        _ => Err(type_error!("bias is {bias}, expected an odd number of distances")),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::Attention;
    use super::super::testing::{assert_close, check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        check_types(
            RaggedAttention { scale: 0.5 },
            &[
                (&["f32[t, 2, 4]", "f32[t, 2, 4]", "f32[t, 2, 8]", "u32[b + 1]"], "f32[t, 2, 8]"),
                (
                    &["f32[t, 2, 4]", "f32[t, 2, 4]", "f32[t, 2, 4]", "u32[b + 1]", "f32[2, 7]"],
                    "f32[t, 2, 4]",
                ),
                (
                    &["f32[t, 2, 4]", "f32[s, 2, 4]", "f32[s, 2, 4]", "u32[b + 1]"],
                    "ragged_attention: q and k differ: q f32[t, 2, 4], k f32[s, 2, 4]",
                ),
                (
                    &["f32[t, 2, 4]", "f32[t, 2, 4]", "f32[t, 1, 4]", "u32[b + 1]"],
                    "ragged_attention: k and v differ before the last axis: k f32[t, 2, 4], v f32[t, 1, 4]",
                ),
                (
                    &["f32[t, 2, 4]", "f32[t, 2, 4]", "f32[t, 2, 4]", "u32[b + 1]", "f32[3, 7]"],
                    "ragged_attention: heads differ: q f32[t, 2, 4], bias f32[3, 7]",
                ),
                (
                    &["f32[t, 2, 4]", "f32[t, 2, 4]", "f32[t, 2, 4]", "u32[b + 1]", "f32[2, 6]"],
                    "ragged_attention: bias is f32[2, 6], expected an odd number of distances",
                ),
                (
                    &["f32[t, 2, 4]"],
                    "ragged_attention: takes 4 operands (q, k, v, row_offsets) and a bias, got 1",
                ),
            ],
        );
    }

    /// Each sequence is what dense attention makes of it alone.
    #[test]
    fn sequences_do_not_see_each_other() {
        let values = |rows: usize, seed: usize| -> Vec<f32> {
            (0..rows * 4).map(|i| ((i * 7 + seed) % 11) as f32 / 5.0 - 1.0).collect()
        };
        let [q, k, v] = [1, 2, 3].map(|seed| Tensor::from_slice([5, 2, 2], &values(5, seed)));
        let offsets = Tensor::from_slice([4], &[0u32, 2, 2, 5]);
        let got = numbers(RaggedAttention { scale: 0.5 }, &[&q, &k, &v, &offsets]);
        let dense = |rows: Range<usize>| {
            let [q, k, v] = [&q, &k, &v].map(|x| x.narrow(0, rows.clone()));
            numbers(Attention { scale: 0.5 }, &[&q, &k, &v])
        };
        assert_close(&got, &[dense(0..2), dense(2..5)].concat(), 1e-7);
    }

    #[test]
    fn far_keys_have_the_last_bias() {
        let zeros = Tensor::zeros(DType::F32, [4, 1, 1]);
        let v = Tensor::from_slice([4, 1, 1], &[1.0f32, 2.0, 3.0, 4.0]);
        let offsets = Tensor::from_slice([2], &[0u32, 4]);
        // Of a key before, the same, and one behind; the others have no share.
        let none = f32::NEG_INFINITY;
        for (bias, expected) in [
            ([none, 0.0, none], [1.0, 2.0, 3.0, 4.0]),
            ([0.0, none, none], [f64::NAN, 1.0, 1.5, 2.0]),
            ([none, none, 0.0], [3.0, 3.5, 4.0, f64::NAN]),
        ] {
            let bias = Tensor::from_slice([1, 3], &bias);
            let got = numbers(RaggedAttention { scale: 1.0 }, &[&zeros, &zeros, &v, &offsets, &bias]);
            assert_close(&got, &expected, 1e-7);
        }
    }

    #[test]
    fn offsets_cover_the_tokens() {
        let x = Tensor::zeros(DType::F32, [3, 1, 1]);
        for (offsets, message) in [(&[0u32, 2][..], "[0, 2]"), (&[], "[]"), (&[1, 3], "[1, 3]")] {
            let offsets = Tensor::from_slice([offsets.len()], offsets);
            let error = run(RaggedAttention { scale: 1.0 }, &[&x, &x, &x, &offsets]).unwrap_err().to_string();
            assert!(error.ends_with(&format!("must rise from 0 to the 3 rows, got {message}")), "{error}");
        }
    }
}
