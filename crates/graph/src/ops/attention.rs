//! `y_t = Σ_s softmax_s(scale · q_t · k_s + mask_ts) · v_s`: attention of every token to every key, head by head.

use super::broadcast::broadcast;
use super::prelude::*;
use super::softmax::softmax;

/// Attention: `q: f32[.., tokens, heads, head_dim]`, `k: f32[.., keys, heads, head_dim]`,
/// `v: f32[.., keys, heads, value_dim]` and, if there is one, a `mask: f32` that broadcasts to
/// `[.., heads, tokens, keys]` → `f32[.., tokens, heads, value_dim]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Multiplies the products of queries and keys, usually `1 / √head_dim`.
    pub scale: f32,
}

impl Define for Attention {
    declare!("attention" { scale });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (&[q, k, v], mask) = inputs.split_at(inputs.len().min(3)) else {
            return Err(type_error!("takes 3 operands (q, k, v) and a mask, got {}", inputs.len()));
        };
        for (name, ty) in [("q", q), ("k", k), ("v", v)] {
            expect_dtype(name, ty, &[DType::F32])?;
        }
        expect_finite("scale", self.scale)?;
        let ([batch @ .., tokens, heads, dim], [k_batch @ .., keys, k_heads, k_dim]) =
            (&q.shape[..], &k.shape[..])
        else {
            return Err(type_error!("expected at least 3 axes: q {q}, k {k}"));
        };
        refuse_if!(
            (batch, heads, dim) != (k_batch, k_heads, k_dim),
            "q and k differ in more than tokens: q {q}, k {k}"
        );
        refuse_if!(
            v.rank() != k.rank() || v.shape[..v.rank() - 1] != k.shape[..k.rank() - 1],
            "k and v differ before the last axis: k {k}, v {v}"
        );
        match mask {
            [] => {}
            [mask] => expect_mask(mask, &[batch, &[heads.clone(), tokens.clone(), keys.clone()]].concat())?,
            _ => return Err(type_error!("takes one mask, got {}", mask.len())),
        }
        let last = v.shape[v.rank() - 1].clone();
        Ok(vec![q.with_shape(q.shape[..q.rank() - 1].iter().cloned().chain([last]))])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [q, k, v] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let rank = outputs[0].rank();
        let sizes = |shape: &Shape| [shape[rank - 3], shape[rank - 2], shape[rank - 1]];
        let [keys, heads, dim] = sizes(inputs[1].shape());
        let [tokens, _, width] = sizes(&outputs[0]);
        let batch = &outputs[0][..rank - 3];
        let items: usize = batch.iter().product();
        let scores = Shape::new(&[batch, &[heads, tokens, keys]].concat());
        let mask: Option<Vec<f64>> = inputs.get(3).map(|mask| {
            let values = mask.to_f64_vec();
            broadcast_positions(mask.shape(), &scores).map(|position| values[position]).collect()
        });
        let mut y = vec![0.0; outputs[0].elements()];
        for (item, head, token) in
            (0..items * heads * tokens).map(|i| (i / (heads * tokens), i / tokens % heads, i % tokens))
        {
            let row = (item * tokens + token) * heads + head;
            let score = |key: usize| {
                let k = &k[((item * keys + key) * heads + head) * dim..][..dim];
                let product: f64 = q[row * dim..][..dim].iter().zip(k).map(|(q, k)| q * k).sum();
                let mask =
                    mask.as_ref().map(|mask| mask[((item * heads + head) * tokens + token) * keys + key]);
                f64::from(self.scale) * product + mask.unwrap_or(0.0)
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            for (key, weight) in softmax(&scores).into_iter().enumerate() {
                let v = &v[((item * keys + key) * heads + head) * width..][..width];
                let y = &mut y[row * width..][..width];
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * v);
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y)])
    }
}

fn expect_mask(mask: &Type, scores: &[Dim]) -> Result<(), TypeError> {
    expect_dtype("mask", mask, &[DType::F32])?;
    refuse_if!(
        broadcast(&mask.shape, scores).is_none_or(|shape| shape != scores),
        "mask {mask} does not broadcast to {scores:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        check_types(
            Attention { scale: 0.5 },
            &[
                (&["f32[b, t, 2, 4]", "f32[b, s, 2, 4]", "f32[b, s, 2, 8]"], "f32[b, t, 2, 8]"),
                (&["f32[t, 2, 4]", "f32[s, 2, 4]", "f32[s, 2, 4]", "f32[t, s]"], "f32[t, 2, 4]"),
                (
                    &["f32[t, 2, 4]", "f32[s, 2, 4]", "f32[s, 2, 4]", "f32[s, t]"],
                    "attention: mask f32[s, t] does not broadcast to [2, t, s]",
                ),
                (
                    &["f32[t, 2, 4]", "f32[t, 1, 4]", "f32[t, 2, 4]"],
                    "attention: q and k differ in more than tokens: q f32[t, 2, 4], k f32[t, 1, 4]",
                ),
                (
                    &["f32[t, 2, 4]", "f32[s, 2, 4]", "f32[t, 2, 4]"],
                    "attention: k and v differ before the last axis: k f32[s, 2, 4], v f32[t, 2, 4]",
                ),
                (
                    &["f32[t, 4]", "f32[t, 4]", "f32[t, 4]"],
                    "attention: expected at least 3 axes: q f32[t, 4], k f32[t, 4]",
                ),
                (&["f32[t, 2, 4]"], "attention: takes 3 operands (q, k, v) and a mask, got 1"),
            ],
        );
    }

    #[test]
    fn values() {
        // One query, two keys; the scores are 1 and 3.
        let q = Tensor::from_slice([1, 1, 2], &[2.0f32, 0.0]);
        let k = Tensor::from_slice([2, 1, 2], &[1.0f32, 5.0, 3.0, 5.0]);
        let v = Tensor::from_slice([2, 1, 1], &[10.0f32, 20.0]);
        let op = Attention { scale: 0.5 };
        let share = 1.0 / (1.0 + 2f64.exp());
        assert_close(&numbers(op, &[&q, &k, &v]), &[10.0 * share + 20.0 * (1.0 - share)], 1e-6);
        let mask = Tensor::from_slice([2], &[0.0f32, f32::NEG_INFINITY]);
        assert_close(&numbers(op, &[&q, &k, &v, &mask]), &[10.0], 0.0);
    }
}
