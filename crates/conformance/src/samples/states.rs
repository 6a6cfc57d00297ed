//! Problems of ops that keep a state of each sequence.

use tensor::Tensor;

use super::attention::ragged;
use super::{List, unary};
use crate::Tolerance;
use graph::ops::*;

/// Batches of sequences: (cached, new, new ones that count).
const BATCHES: [&[(usize, usize, usize)]; 6] = [
    &[(0, 1, 1)],
    &[(0, 17, 17)],
    &[(40, 1, 1), (3, 1, 1), (0, 1, 1), (16, 1, 0)],
    &[(0, 5, 2), (0, 0, 0), (17, 16, 16), (31, 2, 1)],
    &[(0, 40, 39), (1, 70, 70)],
    &[],
];

impl List {
    pub(super) fn causal_conv(&mut self) {
        let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
        for (number, sequences) in BATCHES.into_iter().enumerate() {
            let tokens = sequences.iter().map(|&(_, new, _)| new).sum::<usize>();
            for (channels, width) in [(1, 2), (15, 3), (16, 4), (17, 5), (130, 4), (33, 1)] {
                let x = self.random.floats([tokens, channels], 2.0);
                let weight = self.random.floats([channels, width], 1.0);
                let ([offsets, lengths, table], slots) = self.state_lists(sequences);
                let states = self.random.floats([slots, 3, channels, width - 1], 2.0);
                let what = format!("batch {number}");
                let inputs = vec![x, weight, states, offsets, lengths, table];
                self.add(&what, CausalConv { layer: 1 }, inputs, tolerance);
            }
        }
    }

    pub(super) fn selective_scan(&mut self) {
        let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
        for (number, sequences) in BATCHES.into_iter().enumerate() {
            let tokens = sequences.iter().map(|&(_, new, _)| new).sum::<usize>();
            for (heads, head_dim, groups, state_dim) in
                [(1, 1, 1, 1), (4, 15, 2, 16), (6, 17, 1, 5), (3, 64, 3, 31), (1, 130, 1, 4)]
            {
                let x = self.random.floats([tokens, heads, head_dim], 2.0);
                let [b, c] = [0, 1].map(|_| self.random.floats([tokens, groups, state_dim], 1.0));
                let ([offsets, lengths, table], slots) = self.state_lists(sequences);
                let state = self.random.floats([slots, 3, heads, state_dim, head_dim], 2.0);
                let rest = [b, c, state, offsets, lengths, table];
                let of_heads = [self.random.floats([tokens, heads], 1.0), self.random.floats([heads], 1.0)];
                let of_elements = [
                    self.random.floats([tokens, heads, head_dim], 1.0),
                    self.random.floats([heads, state_dim, head_dim], 1.0),
                ];
                // Steps above 0 and rates below.
                for [dt, a] in [of_heads, of_elements] {
                    let dt = unary(Unary::Abs, &dt);
                    let a = unary(Unary::Neg, &unary(Unary::Abs, &a));
                    let inputs = [x.clone(), dt, a].into_iter().chain(rest.clone()).collect();
                    let what = format!("batch {number}");
                    self.add(&what, SelectiveScan { layer: 2 }, inputs, tolerance);
                }
            }
        }
    }

    pub(super) fn gated_delta_rule(&mut self) {
        let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
        for (number, sequences) in BATCHES.into_iter().enumerate() {
            let tokens = sequences.iter().map(|&(_, new, _)| new).sum::<usize>();
            for (key_heads, key_dim, value_heads, value_dim) in
                [(1, 1, 1, 1), (2, 15, 4, 17), (3, 16, 3, 32), (2, 33, 6, 65), (1, 128, 2, 128)]
            {
                // Keys no longer than 1, so that states do not grow.
                let reach = 1.0 / (key_dim as f32).sqrt();
                let [q, k] = [(); 2].map(|()| self.random.floats([tokens, key_heads, key_dim], reach));
                let v = self.random.floats([tokens, value_heads, value_dim], 2.0);
                let [decay, beta] = [(); 2].map(|()| {
                    let gates = self.random.floats([tokens, value_heads], 4.0);
                    unary(Unary::Sigmoid, &gates)
                });
                let ([offsets, lengths, table], slots) = self.state_lists(sequences);
                let states = self.random.floats([slots, 2, value_heads, key_dim, value_dim], 2.0);
                let tiled = value_heads == 6;
                let inputs = vec![q, k, v, decay, beta, states, offsets, lengths, table];
                self.add(&format!("batch {number}"), GatedDeltaRule { layer: 1, tiled }, inputs, tolerance);
            }
        }
    }

    /// Row offsets, cache lengths and state table of sequences, and how many slots there are. Some sequences write the
    /// slot they read, all that read another one read the same.
    fn state_lists(&mut self, sequences: &[(usize, usize, usize)]) -> ([Tensor; 3], usize) {
        let rows: Vec<(usize, usize)> = sequences.iter().map(|&(cached, new, _)| (cached, new)).collect();
        let [offsets, lengths] = ragged(&rows);
        let slots = sequences.len() + 2;
        let shuffled = self.random.shuffled(slots);
        let mut table = Vec::new();
        for (sequence, &(_, _, counted)) in sequences.iter().enumerate() {
            let written = shuffled[sequence];
            let read = if sequence % 3 == 2 { written } else { shuffled[slots - 1] };
            table.extend([read, written, counted as u32]);
        }
        ([offsets, lengths, Tensor::from_slice([sequences.len(), 3], &table)], slots)
    }
}
