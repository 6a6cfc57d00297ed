//! Problems of attention, of the caches it reads and of the rotation of what it multiplies.

use tensor::{DType, Shape, Tensor};

use super::List;
use crate::Tolerance;
use crate::data::{Random, cast};
use graph::ops::*;

impl List {
    pub(super) fn dense_attention(&mut self) {
        let shapes =
            [[1, 1, 1, 1, 1, 1], [2, 15, 17, 3, 16, 8], [1, 17, 16, 2, 5, 33], [1, 3, 130, 1, 64, 64]];
        for [batch, tokens, keys, heads, dim, width] in shapes {
            let [q, k, v] = [[tokens, dim], [keys, dim], [keys, width]]
                .map(|[rows, dim]| self.random.floats([batch, rows, heads, dim], 1.0));
            let mut mask = self.random.floats([tokens, keys], 4.0).to_vec::<f32>();
            mask.iter_mut().step_by(3).skip(1).for_each(|mask| *mask = f32::NEG_INFINITY);
            let mask = Tensor::from_slice([tokens, keys], &mask);
            let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
            let op = Attention { scale: 0.25 };
            self.add("", op, vec![q.clone(), k.clone(), v.clone()], tolerance);
            self.add("", op, vec![q, k, v, mask], tolerance);
        }
    }

    pub(super) fn ragged_attention(&mut self) {
        let batches: [&[u32]; 5] = [&[0, 1], &[0, 17], &[0, 15, 15, 16, 33], &[0, 130], &[0]];
        for offsets in batches {
            let tokens = offsets[offsets.len() - 1] as usize;
            let row_offsets = Tensor::from_slice([offsets.len()], offsets);
            for (heads, dim, width, reach) in [(1, 1, 1, 0), (3, 16, 8, 7), (2, 5, 33, 128)] {
                let [q, k, v] = [dim, dim, width].map(|dim| self.random.floats([tokens, heads, dim], 2.0));
                let bias = self.random.floats([heads, 2 * reach + 1], 4.0);
                let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
                let what = format!("{} sequences", offsets.len() - 1);
                let op = RaggedAttention { scale: 0.25 };
                let inputs = vec![q, k, v, row_offsets.clone()];
                self.add(&what, op, inputs.clone(), tolerance);
                self.add(&what, op, inputs.into_iter().chain([bias]).collect(), tolerance);
            }
        }
    }

    pub(super) fn rope(&mut self) {
        let tolerance = Tolerance::Close { relative: 1e-6, absolute: 1e-6 };
        for (tokens, pairs, head_dim) in [(1, 1, 2), (15, 16, 32), (17, 15, 40), (3, 64, 128), (0, 4, 8)] {
            let positions = self.random.indices([tokens], 100_000);
            let powers = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32));
            let frequencies = Tensor::from_slice([pairs], &powers.collect::<Vec<_>>());
            self.add("", RopeTable::default(), vec![positions.clone(), frequencies.clone()], tolerance);
            self.add(
                "scaled",
                RopeTable { scale: 1.25 },
                vec![positions.clone(), frequencies.clone()],
                tolerance,
            );
            let shape = Shape::new(&[tokens, 2, pairs]);
            let table =
                RopeTable::default().reference(&[&positions, &frequencies], &[shape]).expect("a table");
            for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
                let x = self.random.floats([tokens, 3, head_dim], 2.0);
                self.add(style.name(), Rope { style }, vec![x, table[0].clone()], tolerance);
            }
        }
    }

    pub(super) fn attention(&mut self) {
        let batches: [&[(usize, usize)]; 5] = [
            &[(0, 1)],
            &[(0, 17)],
            &[(40, 1), (3, 1), (15, 1), (16, 1)],
            &[(0, 5), (0, 0), (17, 16), (31, 2)],
            &[],
        ];
        for (number, sequences) in batches.into_iter().enumerate() {
            let [offsets, lengths] = ragged(sequences);
            let tokens = sequences.iter().map(|&(_, new)| new).sum::<usize>();
            let ids = self.random.indices([tokens], 1000);
            let what = format!("batch {number}");
            self.add(&what, RaggedPositions, vec![ids, offsets.clone(), lengths.clone()], Tolerance::Exact);
            for (heads, kv_heads, head_dim, page_size) in
                [(1, 1, 4, 16), (4, 2, 16, 16), (6, 2, 24, 32), (8, 8, 64, 16)]
            {
                let (table, pages) = self.page_table(sequences, page_size);
                let dtype = [DType::F32, DType::BF16, DType::F16][(number + head_dim / 8) % 3];
                let shape = [pages, 2, 2, kv_heads, page_size * head_dim];
                let cache = self.random.tensor(dtype, shape, 2.0);
                let heads_of =
                    |random: &mut Random, heads: usize| random.floats([tokens, heads, head_dim], 2.0);
                let [k, v, q] = [kv_heads, kv_heads, heads].map(|heads| heads_of(&mut self.random, heads));
                let what = format!("batch {number} pages of {page_size}");
                let inputs = vec![cache.clone(), k, v, offsets.clone(), lengths.clone(), table.clone()];
                self.add(&what, KvStore { layer: 1 }, inputs, Tolerance::Exact);
                let sinks = self.random.floats([heads], 2.0);
                let biases = self.random.floats([heads, 64], 4.0);
                for (rule, window, chunk, softcap) in [
                    ("", None, None, None),
                    ("window", Some(7), None, None),
                    ("softcap", Some(20), None, Some(3.0)),
                    ("chunk", None, Some(9), None),
                    ("sinks", Some(20), None, None),
                    ("biases", None, None, None),
                ] {
                    let op = PagedAttention { layer: 1, scale: 0.25, window, chunk, softcap, values: None };
                    let mut inputs =
                        vec![q.clone(), cache.clone(), offsets.clone(), lengths.clone(), table.clone()];
                    inputs.extend((rule == "sinks").then(|| sinks.clone()));
                    inputs.extend((rule == "biases").then(|| biases.clone()));
                    self.add(
                        &format!("{what} {rule}"),
                        op,
                        inputs,
                        Tolerance::Close { relative: 1e-5, absolute: 1e-5 },
                    );
                }
            }
        }
    }

    pub(super) fn latent_attention(&mut self) {
        let batches: [&[(usize, usize)]; 4] =
            [&[(0, 1)], &[(300, 1), (3, 1), (255, 2)], &[(0, 17), (0, 0), (31, 30)], &[]];
        for (number, sequences) in batches.into_iter().enumerate() {
            let [offsets, lengths] = ragged(sequences);
            let tokens = sequences.iter().map(|&(_, new)| new).sum::<usize>();
            for (heads, kv_heads, dims, width, page_size) in
                [(1, 1, 4, 1, 16), (5, 1, 19, 16, 16), (13, 1, 40, 33, 32), (4, 2, 64, 64, 16)]
            {
                let (table, pages) = self.page_table(sequences, page_size);
                let dtype = [DType::F32, DType::BF16, DType::F16][(number + heads) % 3];
                let cache = self.random.tensor(dtype, [pages, 2, 1, kv_heads, page_size * dims], 2.0);
                let [rows, q] = [kv_heads, heads].map(|heads| self.random.floats([tokens, heads, dims], 1.0));
                let what = format!("batch {number} pages of {page_size}");
                let inputs = vec![cache.clone(), rows, offsets.clone(), lengths.clone(), table.clone()];
                self.add(&what, LatentStore { layer: 1 }, inputs, Tolerance::Exact);
                let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
                for (rule, window, softcap) in [("", None, None), ("bounded", Some(7), Some(3.0))] {
                    let values = Some(width);
                    let op = PagedAttention { layer: 1, scale: 0.25, window, chunk: None, softcap, values };
                    let inputs =
                        vec![q.clone(), cache.clone(), offsets.clone(), lengths.clone(), table.clone()];
                    self.add(&format!("{what} {rule}"), op, inputs, tolerance);
                }
            }
        }
    }

    pub(super) fn chosen_positions(&mut self) {
        let batches: [&[(usize, usize)]; 3] = [&[(0, 3)], &[(300, 1), (3, 1), (255, 2)], &[(0, 40), (31, 5)]];
        for (number, sequences) in batches.into_iter().enumerate() {
            let [offsets, lengths] = ragged(sequences);
            let tokens = sequences.iter().map(|&(_, new)| new).sum::<usize>();
            for (heads, dims, width, k) in [(1, 4, 3, 1), (5, 19, 16, 7), (13, 40, 33, 270)] {
                let (table, pages) = self.page_table(sequences, 16);
                let dtype = [DType::F32, DType::BF16, DType::F16][(number + heads) % 3];
                let batch = [&offsets, &lengths, &table].map(Tensor::clone);
                // Whole numbers, so that no rounding turns scores around.
                let mut whole = |shape: &[usize], dtype: DType| {
                    let shape = Shape::new(shape);
                    let values = self.random.indices(shape, 9).to_f32_vec();
                    let values: Vec<f32> = values.into_iter().map(|value| value - 4.0).collect();
                    cast(&Tensor::from_slice(shape, &values), dtype)
                };
                let keys = whole(&[pages, 2, 1, 1, 16 * dims], dtype);
                let [q, weights] =
                    [&[tokens, heads, dims][..], &[tokens, heads]].map(|shape| whole(shape, DType::F32));
                let op = TopPositions { layer: 1, k, scale: 0.5 };
                let inputs = [vec![q, weights, keys], batch.to_vec()].concat();
                let types: Vec<&Tensor> = inputs.iter().collect();
                let chosen = op.reference(&types, &[Shape::new(&[tokens, k])]).expect("positions").remove(0);
                let what = format!("batch {number}, {k} positions");
                self.add(&what, op, inputs, Tolerance::Exact);
                let cache = self.random.tensor(dtype, [pages, 2, 1, 1, 16 * dims], 2.0);
                let q = self.random.floats([tokens, heads, dims], 1.0);
                let [offsets, lengths, table] = batch;
                let inputs = vec![q, cache, offsets, lengths, table, chosen];
                let (softcap, values) = (Some(3.0), Some(width));
                let (window, chunk) = (None, None);
                let op = PagedAttention { layer: 1, scale: 0.25, window, chunk, softcap, values };
                self.add(&what, op, inputs, Tolerance::Close { relative: 1e-5, absolute: 1e-5 });
            }
        }
    }

    /// Pages in random order for sequences of (cached, new) tokens, unused entries of the table being 0, and
    /// how many pages there are.
    fn page_table(&mut self, sequences: &[(usize, usize)], page_size: usize) -> (Tensor, usize) {
        let needed: Vec<usize> =
            sequences.iter().map(|&(cached, new)| (cached + new).div_ceil(page_size)).collect();
        let max_pages = needed.iter().copied().max().unwrap_or(0) + 1;
        let pages = needed.iter().sum::<usize>() + 2;
        let mut free = self.random.shuffled(pages).into_iter();
        let mut table = vec![0u32; sequences.len() * max_pages];
        for (row, &count) in table.chunks_exact_mut(max_pages).zip(&needed) {
            row[..count].fill_with(|| free.next().expect("enough pages"));
        }
        (Tensor::from_slice([sequences.len(), max_pages], &table), pages)
    }
}

/// Row offsets and cache lengths of sequences of (cached, new) tokens.
pub(super) fn ragged(sequences: &[(usize, usize)]) -> [Tensor; 2] {
    let mut offsets = vec![0u32];
    offsets.extend(sequences.iter().scan(0, |end, &(_, new)| {
        *end += new as u32;
        Some(*end)
    }));
    let lengths: Vec<u32> = sequences.iter().map(|&(cached, _)| cached as u32).collect();
    [Tensor::from_slice([offsets.len()], &offsets), Tensor::from_slice([lengths.len()], &lengths)]
}
