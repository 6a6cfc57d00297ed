//! Writes rows that are keys and values at once into their pages of the cache: the latents of multi-head latent attention
//! (DeepSeek-AI, "DeepSeek-V2", 2024).
//!
//! The cache is `[pages, layers, 1, heads, page_size · dims]` of f32, or of bf16 or f16, to which rows are then rounded.
//! In (page, layer, 0, head) lie the rows of its tokens: [page_size, dims].

use super::define::Effect;
use super::kv_store::{CacheParts, Pages, expect_cache};
use super::prelude::*;
use super::ragged::{expect_lengths, expect_page_table, tokens};

/// Operands: `cache` (changed), `rows: f32[tokens, heads, dims]`, `row_offsets`, `cache_lengths` and `page_table` of the
/// batch. No results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LatentStore {
    /// The layer of the cache.
    pub layer: usize,
}

impl Define for LatentStore {
    declare!("latent_store" { layer });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["cache", "rows", "row_offsets", "cache_lengths", "page_table"];
        let [cache, rows, row_offsets, cache_lengths, page_table] = operands(inputs, names)?;
        expect_dtype("rows", rows, &[DType::F32])?;
        expect_rank("rows", rows, 3)?;
        expect_cache(cache, self.layer, CacheParts::Rows, &rows.shape[2])?;
        refuse_if!(cache.shape[3] != rows.shape[1], "heads differ: cache {cache}, rows {rows}");
        expect_lengths(row_offsets, cache_lengths)?;
        expect_page_table(page_table, cache_lengths)?;
        Ok(vec![])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 0 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (mut cache, rows) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let [count, heads, dims] = [0, 1, 2].map(|axis| inputs[1].shape()[axis]);
        let tokens = tokens("latent_store", count, inputs[2], inputs[3])?;
        let pages = Pages::new("latent_store", inputs[0].shape(), self.layer, dims, inputs[4])?;
        for (row, &token) in tokens.iter().enumerate() {
            for (head, d) in (0..heads).flat_map(|head| (0..dims).map(move |d| (head, d))) {
                cache[pages.value(token, head, d)?] = rows[(row * heads + head) * dims + d];
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), *inputs[0].shape(), &cache)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types() {
        let batch = ["u32[b + 1]", "u32[b]", "u32[b, m]"];
        let check = |cache: &str, rows: &str, expected: &str| {
            check_types(LatentStore { layer: 1 }, &[(&[&[cache, rows], &batch[..]].concat(), expected)]);
        };
        check("mut bf16[p, 2, 1, 1, 160]", "f32[t, 1, 10]", "");
        check(
            "mut f32[p, 2, 2, 1, 160]",
            "f32[t, 1, 10]",
            "latent_store: axis 2 of cache mut f32[p, 2, 2, 1, 160] is no 1 (rows)",
        );
        check(
            "mut f32[p, 2, 1, 1, 160]",
            "f32[t, 2, 10]",
            "latent_store: heads differ: cache mut f32[p, 2, 1, 1, 160], rows f32[t, 2, 10]",
        );
        check(
            "mut f32[p, 1, 1, 1, 160]",
            "f32[t, 1, 10]",
            "latent_store: layer 1 is out of range for cache mut f32[p, 1, 1, 1, 160]",
        );
    }

    #[test]
    fn rows_lie_one_after_the_other() {
        // A token at position 17, with pages of 16 and rows of 3.
        let cache = Tensor::zeros(DType::F32, [3, 2, 1, 1, 48]);
        let rows = Tensor::from_slice([1, 1, 3], &[1.0f32, 2.0, 3.0]);
        let counts = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let table = Tensor::from_slice([1, 2], &[0u32, 2]);
        let inputs = [&cache, &rows, &counts(&[0, 1]), &counts(&[17]), &table];
        let stored = run(LatentStore { layer: 1 }, &inputs).unwrap()[0].to_f64_vec();
        let start = (2 * 2 + 1) * 48 + 3;
        assert_eq!(stored[start..start + 3], [1.0, 2.0, 3.0]);
        assert_eq!(stored.iter().filter(|value| **value != 0.0).count(), 3);
    }
}
