//! The positions of a sequence's past that score highest for each token (DeepSeek-AI, "DeepSeek-V3.2", 2025):
//! `score(t, s) = Σ_h weight[t, h] · max(scale · q[t, h] · key[s], 0)`.

use super::define::Effect;
use super::kv_store::{CacheParts, Pages, expect_cache};
use super::prelude::*;
use super::ragged::{Token, expect_lengths, expect_page_table, tokens};

/// Picks positions up to a token's own. Operands: `q: f32[tokens, heads, dims]`, `weights: f32[tokens, heads]`, `cache`
/// (read; rows of one head, with the batch's own stored already), `row_offsets`, `cache_lengths` and `page_table` of the
/// batch. Result: `u32[tokens, k]`, ascending; of a token with fewer positions all of them, and its own again and again.
/// Of equal scores the first positions count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopPositions {
    /// The layer of the cache.
    pub layer: usize,
    /// How many positions.
    pub k: usize,
    /// What the products of queries and keys are multiplied by.
    pub scale: f32,
}

impl Define for TopPositions {
    declare!("top_positions" { layer, k, scale });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["q", "weights", "cache", "row_offsets", "cache_lengths", "page_table"];
        let [q, weights, cache, row_offsets, cache_lengths, page_table] = operands(inputs, names)?;
        expect_dtype("q", q, &[DType::F32])?;
        expect_rank("q", q, 3)?;
        expect_type("weights", weights, DType::F32, &[&q.shape[0], &q.shape[1]])?;
        expect_cache(cache, self.layer, CacheParts::Rows, &q.shape[2])?;
        refuse_if!(cache.shape[3] != Dim::from(1), "axis 3 of cache {cache} is no 1 (heads)");
        expect_lengths(row_offsets, cache_lengths)?;
        expect_page_table(page_table, cache_lengths)?;
        expect_finite("scale", self.scale)?;
        if self.k == 0 {
            return Err(TypeError::new("k is 0, expected at least 1"));
        }
        Ok(vec![q.with_shape([q.shape[0].clone(), Dim::from(self.k)]).with_dtype(DType::U32)])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 2 { Effect::Read } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [q, weights, cache] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let [count, heads, dims] = [0, 1, 2].map(|axis| inputs[0].shape()[axis]);
        let pages = Pages::new("top_positions", inputs[2].shape(), self.layer, dims, inputs[5])?;
        let mut result = Vec::with_capacity(count * self.k);
        for (row, token) in tokens("top_positions", count, inputs[3], inputs[4])?.into_iter().enumerate() {
            let mut scores = Vec::new();
            for position in 0..=token.position {
                let other = Token { position, ..token };
                let mut score = 0.0;
                for head in 0..heads {
                    let mut product = 0.0;
                    for d in 0..dims {
                        product += q[(row * heads + head) * dims + d] * cache[pages.key(other, 0, d)?];
                    }
                    score += weights[row * heads + head] * (product * f64::from(self.scale)).max(0.0);
                }
                scores.push(score);
            }
            let mut order: Vec<u32> = (0..=token.position as u32).collect();
            order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize])); // stable
            order.truncate(self.k);
            order.sort_unstable();
            order.resize(self.k, token.position as u32);
            result.extend(order);
        }
        Ok(vec![Tensor::from_slice(outputs[0], &result)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    const TOP: TopPositions = TopPositions { layer: 0, k: 2, scale: 0.5 };

    #[test]
    fn types() {
        let check = |op: TopPositions, weights: &str, cache: &str, expected: &str| {
            let operands = ["f32[t, 3, 8]", weights, cache, "u32[b + 1]", "u32[b]", "u32[b, m]"];
            check_types(op, &[(&operands, expected)]);
        };
        let cache = "mut f16[p, 1, 1, 1, 128]";
        check(TOP, "f32[t, 3]", cache, "u32[t, 2]");
        check(TOP, "f32[t, 2]", cache, "top_positions: weights is f32[t, 2], expected f32[t, 3]");
        let none = TopPositions { k: 0, ..TOP };
        check(none, "f32[t, 3]", cache, "top_positions: k is 0, expected at least 1");
        let heads = "mut f32[p, 1, 1, 2, 128]";
        check(TOP, "f32[t, 3]", heads, &format!("top_positions: axis 3 of cache {heads} is no 1 (heads)"));
    }

    #[test]
    fn values() {
        // Rows of one element at positions 0 to 3: 3, -5, 4, 4.
        let mut rows = [0.0f32; 16];
        rows[..4].copy_from_slice(&[3.0, -5.0, 4.0, 4.0]);
        let cache = Tensor::from_slice([1, 1, 1, 1, 16], &rows);
        let counts = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let of = |q: [f32; 2], weights: [f32; 2], cached: u32| {
            let tokens = 4 - cached as usize;
            let q = Tensor::from_slice([tokens, 2, 1], &q.repeat(tokens));
            let weights = Tensor::from_slice([tokens, 2], &weights.repeat(tokens));
            let table = Tensor::from_slice([1, 1], &[0u32]);
            let inputs = [&q, &weights, &cache, &counts(&[0, tokens as u32]), &counts(&[cached]), &table];
            run(TOP, &inputs).unwrap()[0].to_vec::<u32>()
        };
        assert_eq!(of([1.0, 0.0], [1.0, 1.0], 0), [0, 0, 0, 1, 0, 2, 2, 3]);
        // The second head sees what is negative.
        assert_eq!(of([1.0, -1.0], [1.0, 2.0], 3), [1, 2]);
        assert_eq!(of([1.0, -1.0], [-1.0, -1.0], 3), [0, 2]);
    }
}
