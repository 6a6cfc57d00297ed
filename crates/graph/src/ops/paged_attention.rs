//! `y = softmax(scale · q · Kᵀ) · V`, causal, for a ragged batch whose keys and values lie in pages of a
//! cache.

use super::define::Effect;
use super::kv_store::{CacheParts, Pages, expect_cache};
use super::prelude::*;
use super::ragged::{Token, expect_lengths, expect_page_table, tokens};
use super::softmax::softmax;

/// Attention of each token to its sequence up to itself. Operands: `q: f32[tokens, heads, head_dim]`, `cache`
/// (read; laid out as in `kv_store.rs`, with the batch's own keys and values stored already), `row_offsets`,
/// `cache_lengths` and `page_table` of the batch, and perhaps one more. Result: the type of `q`, or `f32[tokens, heads,
/// values]` if the cache keeps rows (`latent_store.rs`).
///
/// With keys and values that one is `sinks: f32[heads]` or `biases: f32[heads, positions]`. A head's sink is the score of one
/// more position, which every token sees and which has no value (Xiao et al. 2023). The bias of a position is added to the
/// score of its key, after the softcap. Biases that grow evenly with positions are ALiBi (Press et al. 2022): for a token,
/// softmax sees only how far apart its keys are. Batches have no positions beyond the biases.
///
/// With rows it is `chosen: u32[tokens, k]`. A token at position `p` then attends to `k` positions alone: the first
/// `min(p + 1, k)` entries of its row, which ascend to at most `p` (`top_positions.rs`). There are no window and no chunks.
///
/// The number of heads is a multiple of the cache's; head `h` of the queries uses head
/// `h / (heads / kv_heads)` of the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PagedAttention {
    /// The layer of the cache.
    pub layer: usize,
    /// What the products of queries and keys are multiplied by.
    pub scale: f32,
    /// How many positions a token sees, itself included; none is all.
    pub window: Option<usize>,
    /// Positions are counted off in chunks of so many, and a token sees none before its own chunk; none is one chunk.
    pub chunk: Option<usize>,
    /// Scores `s` become `softcap · tanh(s / softcap)` after scaling.
    pub softcap: Option<f32>,
    /// How many of the first dims of a row are its value, if the cache keeps rows; none is keys and values apart.
    pub values: Option<usize>,
}

impl Define for PagedAttention {
    declare!("paged_attention" { layer, scale, window, chunk, softcap, values });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (batch, more) = inputs.split_at(inputs.len().min(5));
        let names = ["q", "cache", "row_offsets", "cache_lengths", "page_table"];
        let [q, cache, row_offsets, cache_lengths, page_table] = operands(batch, names)?;
        expect_dtype("q", q, &[DType::F32])?;
        expect_rank("q", q, 3)?;
        let parts = if self.values.is_some() { CacheParts::Rows } else { CacheParts::KeysAndValues };
        expect_cache(cache, self.layer, parts, &q.shape[2])?;
        let heads = (q.shape[1].as_static(), cache.shape[3].as_static());
        refuse_if!(
            !matches!(heads, (Some(heads), Some(kv_heads)) if kv_heads > 0 && heads.is_multiple_of(kv_heads)),
            "heads of q {q} are no multiple of those of cache {cache}"
        );
        expect_lengths(row_offsets, cache_lengths)?;
        expect_page_table(page_table, cache_lengths)?;
        match (more, self.values) {
            ([], _) => {}
            ([more], None) => {
                let (name, axes) = if more.rank() == 2 { ("biases", 2) } else { ("sinks", 1) };
                expect_dtype(name, more, &[DType::F32])?;
                expect_rank(name, more, axes)?;
                refuse_if!(more.shape[0] != q.shape[1], "heads differ: q {q}, {name} {more}");
            }
            ([chosen], Some(_)) => self.expect_chosen(q, chosen)?,
            _ => return Err(type_error!("takes at most 6 operands, got {}", inputs.len())),
        }
        self.expect_attributes()?;
        let Some(values) = self.values else { return Ok(vec![q.clone()]) };
        refuse_if!(
            values == 0 || q.shape[2].as_static().is_none_or(|dims| values > dims),
            "values is {values}, expected 1 to the dims of q {q}"
        );
        Ok(vec![q.with_shape([q.shape[0].clone(), q.shape[1].clone(), Dim::from(values)])])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 1 { Effect::Read } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (q, cache) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let [count, heads, head_dim] = [0, 1, 2].map(|axis| inputs[0].shape()[axis]);
        let group = heads / inputs[1].shape()[3];
        let more = inputs.get(5).copied();
        let (more, chosen) = if self.values.is_some() { (None, more) } else { (more, None) };
        let more = more.map(|more| (more.to_f64_vec(), more.shape().get(1).copied()));
        let tokens = tokens("paged_attention", count, inputs[2], inputs[3])?;
        let pages = Pages::new("paged_attention", inputs[1].shape(), self.layer, head_dim, inputs[4])?;
        let mut result = Vec::with_capacity(outputs[0].elements());
        for (row, token) in tokens.into_iter().enumerate() {
            let seen = self.seen(token, row, chosen)?;
            for head in 0..heads {
                let q = &q[(row * heads + head) * head_dim..][..head_dim];
                let (sink, biases) = match &more {
                    None => (None, None),
                    Some((sinks, None)) => (Some(sinks[head]), None),
                    Some((biases, Some(positions))) => {
                        (None, Some(&biases[head * positions..][..*positions]))
                    }
                };
                let head = Head { kv_head: head / group, sink, biases };
                result.extend(self.attend(q, &cache, &pages, &seen, &head)?);
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &result)])
    }
}

impl PagedAttention {
    fn expect_chosen(&self, q: &Type, chosen: &Type) -> Result<(), TypeError> {
        expect_rank("chosen", chosen, 2)?;
        expect_type("chosen", chosen, DType::U32, &[&q.shape[0], &chosen.shape[1]])?;
        refuse_if!(chosen.shape[1] == Dim::from(0), "chosen is {chosen}, expected at least 1 position");
        let all_seen = self.window.is_none() && self.chunk.is_none();
        refuse_if!(!all_seen, "chosen {chosen} excludes windows and chunks");
        Ok(())
    }

    fn expect_attributes(&self) -> Result<(), TypeError> {
        expect_finite("scale", self.scale)?;
        for (name, size) in [("window", self.window), ("chunk", self.chunk)] {
            refuse_if!(size == Some(0), "{name} is 0, expected at least 1");
        }
        match self.softcap {
            Some(cap) if !cap.is_finite() || cap <= 0.0 => {
                Err(type_error!("softcap is {cap}, expected a finite number above 0"))
            }
            _ => Ok(()),
        }
    }

    /// The first position that the token at a position sees.
    pub fn first_seen(&self, position: usize) -> usize {
        let of_window = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        self.chunk.map_or(of_window, |chunk| of_window.max(position / chunk * chunk))
    }

    /// What a token attends to.
    fn seen(&self, token: Token, row: usize, chosen: Option<&Tensor>) -> Result<Vec<Token>, Error> {
        let of = |position: usize| Token { position, ..token };
        let Some(chosen) = chosen else {
            return Ok((self.first_seen(token.position)..=token.position).map(of).collect());
        };
        let k = chosen.shape()[1];
        let positions = chosen.to_vec::<u32>();
        let positions = &positions[row * k..][..k.min(token.position + 1)];
        let ascend = positions.is_sorted_by(|a, b| a < b);
        match positions.last() {
            Some(&last) if ascend && last as usize <= token.position => {
                Ok(positions.iter().map(|&position| of(position as usize)).collect())
            }
            _ => {
                let own = token.position;
                let message =
                    format!("the positions chosen for row {row} do not ascend to at most its own, {own}");
                Err(Error::evaluation("paged_attention", message))
            }
        }
    }

    /// One head of one token.
    fn attend(
        &self,
        q: &[f64],
        cache: &[f64],
        pages: &Pages,
        seen: &[Token],
        head: &Head<'_>,
    ) -> Result<Vec<f64>, Error> {
        let mut scores = Vec::new();
        for &other in seen {
            let mut score = 0.0;
            for (d, q) in q.iter().enumerate() {
                score += q * cache[pages.key(other, head.kv_head, d)?];
            }
            score *= f64::from(self.scale);
            let score = self.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
            scores.push(score + head.bias(other.position)?);
        }
        scores.extend(head.sink);
        let mut result = vec![0.0; self.values.unwrap_or(q.len())];
        for (&other, weight) in seen.iter().zip(softmax(&scores)) {
            for (d, result) in result.iter_mut().enumerate() {
                *result += weight * cache[pages.value(other, head.kv_head, d)?];
            }
        }
        Ok(result)
    }
}

/// A head of the queries.
struct Head<'a> {
    /// Its head of the cache.
    kv_head: usize,
    sink: Option<f64>,
    /// Of each position.
    biases: Option<&'a [f64]>,
}

impl Head<'_> {
    fn bias(&self, position: usize) -> Result<f64, Error> {
        let Some(biases) = self.biases else { return Ok(0.0) };
        let beyond = || format!("position {position} has no bias; there are {}", biases.len());
        biases.get(position).copied().ok_or_else(|| Error::evaluation("paged_attention", beyond()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers, run};
    use super::super::{KvStore, LatentStore};
    use super::*;

    const PLAIN: PagedAttention =
        PagedAttention { layer: 0, scale: 0.5, window: None, chunk: None, softcap: None, values: None };

    #[test]
    fn types() {
        let others = ["u32[b + 1]", "u32[b]", "u32[b, m]"];
        let check = |op: PagedAttention, q: &str, cache: &str, expected: &str| {
            check_types(op, &[(&[&[q, cache], &others[..]].concat(), expected)]);
        };
        let cache = "mut f32[p, 1, 2, 2, 128]";
        check(PLAIN, "f32[t, 6, 8]", cache, "f32[t, 6, 8]");
        let message = "paged_attention: heads of q f32[t, 3, 8] are no multiple of those of cache mut f32[p, 1, 2, 2, 128]";
        check(PLAIN, "f32[t, 3, 8]", cache, message);
        let tensor = "paged_attention: operand 1 is f32[p, 1, 2, 2, 128], expected a buffer";
        check(PLAIN, "f32[t, 6, 8]", &cache[4..], tensor);
        let cases = [
            (PagedAttention { window: Some(0), ..PLAIN }, "window is 0, expected at least 1"),
            (PagedAttention { chunk: Some(0), ..PLAIN }, "chunk is 0, expected at least 1"),
            (
                PagedAttention { softcap: Some(0.0), ..PLAIN },
                "softcap is 0, expected a finite number above 0",
            ),
            (PagedAttention { scale: f32::NAN, ..PLAIN }, "scale is NaN, expected a finite number"),
        ];
        for (op, message) in cases {
            check(op, "f32[t, 6, 8]", cache, &format!("paged_attention: {message}"));
        }
        let with = |more: &'static str| [&["f32[t, 6, 8]", cache], &others[..], &[more]].concat();
        let cases = [
            ("f32[6]", "f32[t, 6, 8]"),
            ("f32[2]", "paged_attention: heads differ: q f32[t, 6, 8], sinks f32[2]"),
            ("f32[6, 99]", "f32[t, 6, 8]"),
            ("f32[2, 99]", "paged_attention: heads differ: q f32[t, 6, 8], biases f32[2, 99]"),
        ];
        for (more, expected) in cases {
            check_types(PLAIN, &[(&with(more), expected)]);
        }
    }

    #[test]
    fn rows_are_keys_and_values() {
        let batch = ["u32[b + 1]", "u32[b]", "u32[b, m]"];
        let check = |values: usize, cache: &str, expected: &str| {
            let op = PagedAttention { values: Some(values), ..PLAIN };
            check_types(op, &[(&[&["f32[t, 6, 8]", cache], &batch[..]].concat(), expected)]);
        };
        let cache = "mut bf16[p, 1, 1, 1, 128]";
        check(5, cache, "f32[t, 6, 5]");
        check(9, cache, "paged_attention: values is 9, expected 1 to the dims of q f32[t, 6, 8]");
        check(0, cache, "paged_attention: values is 0, expected 1 to the dims of q f32[t, 6, 8]");
        let other = "mut f32[p, 1, 2, 1, 128]";
        check(5, other, &format!("paged_attention: axis 2 of cache {other} is no 1 (rows)"));
        // The same rows as keys and values of a cache that keeps both, and as rows.
        let [q, rows] = [(2, 0.1), (1, 0.2)].map(|(heads, seed)| noise([20, heads, 3], seed));
        let counts = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let (offsets, lengths) = (counts(&[0, 20]), counts(&[0]));
        let table = Tensor::from_slice([1, 2], &[1u32, 0]);
        let both = Tensor::zeros(DType::F32, [2, 1, 2, 1, 48]);
        let both = run(KvStore { layer: 0 }, &[&both, &rows, &rows, &offsets, &lengths, &table]).unwrap();
        let once = Tensor::zeros(DType::F32, [2, 1, 1, 1, 48]);
        let once = run(LatentStore { layer: 0 }, &[&once, &rows, &offsets, &lengths, &table]).unwrap();
        let attend = |op, cache| numbers(op, &[&q, cache, &offsets, &lengths, &table]);
        let expected = attend(PLAIN, &both[0]);
        let expected: Vec<f64> = expected.chunks(3).flat_map(|row| row[..2].to_vec()).collect();
        assert_eq!(attend(PagedAttention { values: Some(2), ..PLAIN }, &once[0]), expected);
    }

    #[test]
    fn chosen_positions_are_seen_alone() {
        let counts = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let [q, rows] = [0.1, 0.2].map(|seed| noise([3, 1, 4], seed));
        let cache = Tensor::zeros(DType::F32, [1, 1, 1, 1, 64]);
        let table = Tensor::from_slice([1, 1], &[0u32]);
        let batch = [&counts(&[0, 3]), &counts(&[0]), &table];
        let stored = run(LatentStore { layer: 0 }, &[&cache, &rows, batch[0], batch[1], batch[2]]).unwrap();
        let op = PagedAttention { values: Some(4), ..PLAIN };
        let of = |chosen: [u32; 6]| {
            let chosen = Tensor::from_slice([3, 2], &chosen);
            run(op, &[&q, &stored[0], batch[0], batch[1], batch[2], &chosen])
        };
        let attended = of([0, 9, 0, 1, 0, 2]).unwrap()[0].to_f64_vec();
        let all = numbers(op, &[&q, &stored[0], batch[0], batch[1], batch[2]]);
        assert_eq!(attended[..8], all[..8]);
        let row = |x: &Tensor, row: usize| x.to_f64_vec()[row * 4..][..4].to_vec();
        let score = |other: usize| -> f64 {
            row(&q, 2).iter().zip(row(&rows, other)).map(|(a, b)| a * b).sum::<f64>() * 0.5
        };
        let [a, b] = [0, 2].map(|other| score(other).exp());
        let both = row(&rows, 0).into_iter().zip(row(&rows, 2));
        let expected: Vec<f64> = both.map(|(x, y)| (a * x + b * y) / (a + b)).collect();
        assert_close(&attended[8..], &expected, 1e-6);
        for wrong in [[0, 9, 1, 0, 0, 2], [0, 9, 0, 1, 0, 3], [0, 9, 0, 1, 2, 2]] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains("do not ascend to at most its own"), "{error}");
        }
        let operands =
            ["f32[t, 1, 4]", "mut f32[p, 1, 1, 1, 64]", "u32[b + 1]", "u32[b]", "u32[b, m]", "u32[t, 2]"];
        check_types(op, &[(&operands, "f32[t, 1, 4]")]);
        let message = "paged_attention: chosen u32[t, 2] excludes windows and chunks";
        check_types(PagedAttention { window: Some(1), ..op }, &[(&operands, message)]);
    }

    /// Scores that are biases alone make weights of these; the first token of the batch is the second of its sequence.
    #[test]
    fn biases_belong_to_the_positions_of_keys() {
        let counts = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let (offsets, lengths, table) = (counts(&[0, 2]), counts(&[1]), Tensor::from_slice([1, 1], &[0u32]));
        let values = |values: &[f32]| Tensor::from_slice([values.len(), 1, 1], values);
        let empty = Tensor::zeros(DType::F32, [1, 1, 2, 1, 16]);
        let (all, none) = ([counts(&[0, 3]), counts(&[0])], values(&[0.0; 3]));
        let stored = [&empty, &none, &values(&[1.0, 2.0, 4.0]), &all[0], &all[1], &table];
        let cache = run(KvStore { layer: 0 }, &stored).unwrap().swap_remove(0);
        let q = Tensor::zeros(DType::F32, [2, 2, 1]);
        let of = |positions: usize, biases: &[f32]| {
            let biases = Tensor::from_slice([2, positions], biases);
            run(PLAIN, &[&q, &cache, &offsets, &lengths, &table, &biases])
        };
        let (two, three) = (2f32.ln(), 3f32.ln());
        let attended = of(3, &[0.0, three, two, -1.0, -1.0, -1.0]).unwrap()[0].to_f64_vec();
        assert_close(&attended, &[7.0 / 4.0, 1.5, 15.0 / 6.0, 7.0 / 3.0], 1e-6);
        let error = of(2, &[0.0; 4]).unwrap_err().to_string();
        assert_eq!(error, "paged_attention: position 2 has no bias; there are 2");
    }

    /// Attention of the last `new` of the rows of `q` to all rows of `k` and `v`, each [tokens][head_dim].
    fn plain(
        op: &PagedAttention,
        q: &[Vec<f64>],
        k: &[Vec<f64>],
        v: &[Vec<f64>],
        new: usize,
        sink: Option<f64>,
    ) -> Vec<Vec<f64>> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let attend = |(position, q): (usize, &Vec<f64>)| {
            let mut weights: Vec<f64> = (0..k.len())
                .map(|other| {
                    let score = dot(q, &k[other]) * f64::from(op.scale);
                    let score =
                        op.softcap.map_or(score, |cap| (score / f64::from(cap)).tanh() * f64::from(cap));
                    let of_chunk = op.chunk.is_none_or(|chunk| position / chunk == other / chunk);
                    let of_window = |window: usize| position.wrapping_sub(other) < window;
                    let seen = other <= position && of_chunk && op.window.is_none_or(of_window);
                    if seen { score.exp() } else { 0.0 }
                })
                .collect();
            let sum: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, f64::exp);
            weights.iter_mut().for_each(|weight| *weight /= sum);
            (0..q.len()).map(|d| weights.iter().zip(v).map(|(weight, v)| weight * v[d]).sum()).collect()
        };
        q.iter().enumerate().skip(q.len() - new).map(attend).collect()
    }

    /// Numbers without pattern, f32 each.
    fn noise(shape: [usize; 3], seed: f64) -> Tensor {
        let value = |i: usize| ((i as f64 + seed) * 12.9898).sin() as f32 * 2.0;
        Tensor::from_slice(shape, &(0..shape.iter().product()).map(value).collect::<Vec<_>>())
    }

    /// The rows of one head.
    fn head(x: &Tensor, rows: std::ops::Range<usize>, head: usize) -> Vec<Vec<f64>> {
        let (values, [_, heads, size]) = (x.to_f64_vec(), [0, 1, 2].map(|axis| x.shape()[axis]));
        rows.map(|row| values[(row * heads + head) * size..][..size].to_vec()).collect()
    }

    #[test]
    fn pages_change_nothing() {
        let (heads, kv_heads, size) = (4, 2, 3);
        // Two sequences of 20 and 3 tokens: first 15 and 3 are stored, then 5 and 0 more, which attend.
        let lengths = [20, 3];
        let [q, k, v] =
            [(heads, 0.1), (kv_heads, 0.2), (kv_heads, 0.3)].map(|(h, seed)| noise([23, h, size], seed));
        let table = Tensor::from_slice([2, 2], &[3u32, 0, 1, 9]);
        let rows = |x: &Tensor, rows: &[usize]| {
            let (values, row) = (x.to_vec::<f32>(), x.shape()[1] * size);
            let picked: Vec<f32> = rows.iter().flat_map(|&i| values[i * row..][..row].to_vec()).collect();
            Tensor::from_slice([rows.len(), x.shape()[1], size], &picked)
        };
        let counts = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let first: Vec<usize> = (0..15).chain(20..23).collect();
        let then: Vec<usize> = (15..20).collect();
        let empty = Tensor::from_slice([4, 1, 2, kv_heads, 16 * size], &[f32::NAN; 4 * 2 * 2 * 48]);
        let store = |cache: &Tensor, tokens: &[usize], offsets: &[u32], cached: &[u32]| {
            let inputs =
                [cache, &rows(&k, tokens), &rows(&v, tokens), &counts(offsets), &counts(cached), &table];
            run(KvStore { layer: 0 }, &inputs).unwrap().swap_remove(0)
        };
        let cache = store(&empty, &first, &[0, 15, 18], &[0, 0]);
        let cache = store(&cache, &then, &[0, 5, 5], &[15, 3]);
        let sinks = [0.5f32, -1.0, 3.0, 1.0];
        for (window, chunk, softcap, sunk) in [
            (None, None, None, false),
            (Some(4), None, None, false),
            (Some(100), None, Some(1.5), true),
            (Some(1), None, None, false),
            (None, Some(7), None, true),
            (Some(3), Some(18), None, false),
        ] {
            let op = PagedAttention { window, chunk, softcap, ..PLAIN };
            let (queries, sinks_of_heads) = (rows(&q, &then), Tensor::from_slice([heads], &sinks));
            let (offsets, cached) = (counts(&[0, 5, 5]), counts(&[15, 3]));
            let mut inputs = vec![&queries, &cache, &offsets, &cached, &table];
            inputs.extend(sunk.then_some(&sinks_of_heads));
            let got = numbers(op, &inputs);
            let by_head: Vec<Vec<Vec<f64>>> = (0..heads)
                .map(|h| {
                    let all = 0..lengths[0];
                    plain(
                        &op,
                        &head(&q, all.clone(), h),
                        &head(&k, all.clone(), h / 2),
                        &head(&v, all, h / 2),
                        5,
                        sunk.then(|| f64::from(sinks[h])),
                    )
                })
                .collect();
            let expected: Vec<f64> =
                (0..5).flat_map(|row| by_head.iter().flat_map(move |rows| rows[row].clone())).collect();
            assert_close(&got, &expected, 1e-6);
        }
    }
}
