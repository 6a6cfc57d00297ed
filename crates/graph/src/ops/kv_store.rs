//! Writes the keys and values of new tokens into their pages of the cache.
//!
//! The cache is `[pages, layers, 2, kv_heads, page_size · head_dim]` of f32, or of bf16 or f16, to which keys and values
//! are then rounded. In (page, layer, 0, kv_head) lie the
//! keys, transposed in tiles of 16 tokens: [page_size / 16, head_dim, 16], so that scores are computed for
//! neighbouring tokens at once; in (page, layer, 1, kv_head) the values: [page_size, head_dim].
//!
//! A cache with 1 on axis 2 keeps rows that are keys and values at once ([`LatentStore`](super::LatentStore)): in (page,
//! layer, 0, kv_head) lie [page_size, head_dim].

use super::define::Effect;
use super::prelude::*;
use super::ragged::{Token, expect_lengths, expect_page_table, tokens};

/// Tokens whose keys lie together.
const TILE: usize = 16;

/// Operands: `cache` (changed), `k: f32[tokens, kv_heads, head_dim]`, `v` of the same type, `row_offsets`,
/// `cache_lengths` and `page_table` of the batch. No results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvStore {
    /// The layer of the cache.
    pub layer: usize,
}

impl Define for KvStore {
    declare!("kv_store" { layer });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["cache", "k", "v", "row_offsets", "cache_lengths", "page_table"];
        let [cache, k, v, row_offsets, cache_lengths, page_table] = operands(inputs, names)?;
        expect_dtype("k", k, &[DType::F32])?;
        expect_rank("k", k, 3)?;
        expect_type("v", v, DType::F32, &k.shape.iter().collect::<Vec<_>>())?;
        expect_cache(cache, self.layer, CacheParts::KeysAndValues, &k.shape[2])?;
        refuse_if!(cache.shape[3] != k.shape[1], "heads differ: cache {cache}, k {k}");
        expect_lengths(row_offsets, cache_lengths)?;
        expect_page_table(page_table, cache_lengths)?;
        Ok(vec![])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 0 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [mut cache, k, v] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let [count, heads, head_dim] = [0, 1, 2].map(|axis| inputs[1].shape()[axis]);
        let tokens = tokens("kv_store", count, inputs[3], inputs[4])?;
        let pages = Pages::new("kv_store", inputs[0].shape(), self.layer, head_dim, inputs[5])?;
        for (row, &token) in tokens.iter().enumerate() {
            for (head, d) in (0..heads).flat_map(|head| (0..head_dim).map(move |d| (head, d))) {
                let from = (row * heads + head) * head_dim + d;
                cache[pages.key(token, head, d)?] = k[from];
                cache[pages.value(token, head, d)?] = v[from];
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), *inputs[0].shape(), &cache)])
    }
}

/// What a cache keeps of each token and head: the size of its axis 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheParts {
    /// Rows that are both.
    Rows = 1,
    /// Keys, and values apart from them.
    KeysAndValues = 2,
}

/// Checks the cache that heads of `head_dim` elements are stored in.
pub(super) fn expect_cache(
    cache: &Type,
    layer: usize,
    parts: CacheParts,
    head_dim: &Dim,
) -> Result<(), TypeError> {
    expect_dtype("cache", cache, &[DType::F16, DType::BF16, DType::F32])?;
    expect_rank("cache", cache, 5)?;
    let meaning = match parts {
        CacheParts::Rows => "1 (rows)",
        CacheParts::KeysAndValues => "2 (keys, values)",
    };
    refuse_if!(cache.shape[2] != Dim::from(parts as usize), "axis 2 of cache {cache} is no {meaning}");
    refuse_if!(
        cache.shape[1].as_static().is_some_and(|layers| layer >= layers),
        "layer {layer} is out of range for cache {cache}"
    );
    if let (Some(elements), Some(head_dim)) = (cache.shape[4].as_static(), head_dim.as_static())
        && page_size(elements, head_dim).is_none()
    {
        return Err(type_error!("axis 4 of cache {cache} is no {PAGE_RULE} and head_dim {head_dim}"));
    }
    Ok(())
}

const PAGE_RULE: &str = "page_size · head_dim with a power of two of at least 16";

/// How many tokens a page of so many elements holds, if that is a legal number.
fn page_size(elements: usize, head_dim: usize) -> Option<usize> {
    let size = elements.checked_div(head_dim)?;
    (size * head_dim == elements && size.is_power_of_two() && size >= 16).then_some(size)
}

/// Where the elements of tokens lie in the cache.
pub(super) struct Pages {
    op: &'static str,
    cache: Shape,
    layer: usize,
    head_dim: usize,
    page_size: usize,
    /// [batch, max_pages]
    table: Vec<u32>,
    max_pages: usize,
}

impl Pages {
    /// The pages of a batch in one layer of the cache.
    pub(super) fn new(
        op: &'static str,
        cache: &Shape,
        layer: usize,
        head_dim: usize,
        table: &Tensor,
    ) -> Result<Pages, Error> {
        let illegal = || format!("axis 4 of cache {cache} is no {PAGE_RULE} and head_dim {head_dim}");
        let page_size = page_size(cache[4], head_dim).ok_or_else(|| Error::evaluation(op, illegal()))?;
        let (max_pages, table) = (table.shape()[1], table.to_vec());
        Ok(Pages { op, cache: *cache, layer, head_dim, page_size, table, max_pages })
    }

    /// The position in the cache of element `d` of the key of a token.
    pub(super) fn key(&self, token: Token, head: usize, d: usize) -> Result<usize, Error> {
        if self.cache[2] == CacheParts::Rows as usize {
            return self.value(token, head, d);
        }
        let (page, slot) = self.slot(token)?;
        Ok(self.block(page, 0, head) + (slot / TILE * self.head_dim + d) * TILE + slot % TILE)
    }

    /// The position in the cache of element `d` of the value of a token.
    pub(super) fn value(&self, token: Token, head: usize, d: usize) -> Result<usize, Error> {
        let (page, slot) = self.slot(token)?;
        Ok(self.block(page, self.cache[2] - 1, head) + slot * self.head_dim + d)
    }

    fn slot(&self, token: Token) -> Result<(usize, usize), Error> {
        let Token { sequence, position } = token;
        let (index, slot) = (position / self.page_size, position % self.page_size);
        let fail = |message: String| Err(Error::evaluation(self.op, message));
        if index >= self.max_pages {
            let reach = self.max_pages * self.page_size;
            return fail(format!("position {position} of sequence {sequence} is beyond its {reach} slots"));
        }
        let page = self.table[sequence * self.max_pages + index] as usize;
        if page >= self.cache[0] {
            return fail(format!(
                "page {page} of sequence {sequence} is out of range for {} pages",
                self.cache[0]
            ));
        }
        if self.layer >= self.cache[1] {
            return fail(format!("layer {} is out of range for {} layers", self.layer, self.cache[1]));
        }
        Ok((page, slot))
    }

    fn block(&self, page: usize, part: usize, head: usize) -> usize {
        (((page * self.cache[1] + self.layer) * self.cache[2] + part) * self.cache[3] + head) * self.cache[4]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types() {
        let good = [
            "mut f32[pages, 2, 2, 4, 128]",
            "f32[t, 4, 8]",
            "f32[t, 4, 8]",
            "u32[b + 1]",
            "u32[b]",
            "u32[b, m]",
        ];
        let with = |position: usize, ty: &'static str| {
            let mut types = good;
            types[position] = ty;
            super::super::testing::infer(KvStore { layer: 1 }, &types)
        };
        let power = "with a power of two of at least 16 and head_dim 8";
        let page =
            |cache: &str| format!("kv_store: axis 4 of cache {cache} is no page_size · head_dim {power}");
        for cache in [good[0], "mut bf16[pages, 2, 2, 4, 128]", "mut f16[pages, 2, 2, 4, 128]"] {
            assert_eq!(with(0, cache), "");
        }
        assert_eq!(
            with(0, "mut f64[p, 2, 2, 4, 128]"),
            "kv_store: cache is mut f64[p, 2, 2, 4, 128], expected f16, bf16 or f32"
        );
        assert_eq!(
            with(0, "f32[pages, 2, 2, 4, 128]"),
            "kv_store: operand 0 is f32[pages, 2, 2, 4, 128], expected a buffer"
        );
        assert_eq!(with(0, "mut f32[p, 2, 2, 4, 64]"), page("mut f32[p, 2, 2, 4, 64]"));
        assert_eq!(with(0, "mut f32[p, 2, 2, 4, 192]"), page("mut f32[p, 2, 2, 4, 192]"));
        assert_eq!(
            with(0, "mut f32[p, 1, 2, 4, 128]"),
            "kv_store: layer 1 is out of range for cache mut f32[p, 1, 2, 4, 128]"
        );
        assert_eq!(
            with(0, "mut f32[p, 2, 3, 4, 128]"),
            "kv_store: axis 2 of cache mut f32[p, 2, 3, 4, 128] is no 2 (keys, values)"
        );
        assert_eq!(
            with(0, "mut f32[p, 2, 2, 8, 128]"),
            "kv_store: heads differ: cache mut f32[p, 2, 2, 8, 128], k f32[t, 4, 8]"
        );
        assert_eq!(with(2, "f32[t, 4, 9]"), "kv_store: v is f32[t, 4, 9], expected f32[t, 4, 8]");
        assert_eq!(with(5, "u32[c, m]"), "kv_store: page_table is u32[c, m], expected u32[b, m]");
        check_types(
            KvStore { layer: 0 },
            &[(
                &["mut f32[1, 1, 2, 1, 16]"],
                "kv_store: takes 6 operands (cache, k, v, row_offsets, cache_lengths, page_table), got 1",
            )],
        );
    }

    /// A token at position 17 of the second sequence, with pages of 16 and heads of 2.
    fn store(dtype: DType, page: u32, position: u32) -> Result<Vec<f64>, Error> {
        let cache = Tensor::zeros(dtype, [3, 2, 2, 1, 32]);
        let rows = |values: [f32; 2]| Tensor::from_slice([1, 1, 2], &values);
        let (k, v) = (rows([1.0, 2.0]), rows([3.0, 4.0 + 3.0 / 64.0]));
        let offsets = Tensor::from_slice([3], &[0u32, 0, 1]);
        let lengths = Tensor::from_slice([2], &[0, position]);
        let table = Tensor::from_slice([2, 2], &[0, 0, 0, page]);
        run(KvStore { layer: 1 }, &[&cache, &k, &v, &offsets, &lengths, &table])
            .map(|results| results[0].to_f64_vec())
    }

    #[test]
    fn keys_lie_transposed_and_values_do_not() {
        let cache = store(DType::F32, 2, 17).unwrap();
        // Page 2, layer 1: the keys of 16 slots for each of 2 dims, then the values of 2 dims for each slot.
        let keys = ((2 * 2 + 1) * 2) * 32;
        let values = keys + 32;
        let mut expected = vec![0.0; cache.len()];
        (expected[keys + 1], expected[keys + 16 + 1]) = (1.0, 2.0);
        (expected[values + 2], expected[values + 3]) = (3.0, 4.0 + 3.0 / 64.0);
        assert_eq!(cache, expected);
        // In the middle of 4 + 2/64 and 4 + 4/64, which bf16 has: to the even one of the two.
        expected[values + 3] = 4.0 + 4.0 / 64.0;
        assert_eq!(store(DType::BF16, 2, 17).unwrap(), expected);
    }

    #[test]
    fn pages_must_exist() {
        let message = |page, position| store(DType::F32, page, position).unwrap_err().to_string();
        assert_eq!(message(3, 17), "kv_store: page 3 of sequence 1 is out of range for 3 pages");
        assert_eq!(message(2, 32), "kv_store: position 32 of sequence 1 is beyond its 32 slots");
    }
}
