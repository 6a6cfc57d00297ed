//! What of a checkpoint is of another form in GGUF files.

use std::collections::HashMap;
use std::ops::Range;

use tensor::Tensor;

use super::Checkpoint;
use super::description::SCORES;
use crate::stored::{Stored, view};

impl Checkpoint {
    /// What the files call weights, by canonical name.
    pub(crate) fn canonical_names(&self) -> &HashMap<String, String> {
        &self.in_files.stored
    }

    /// How a tensor of the files becomes one of a GGUF file: whether its two axes change places, and the ranges of rows
    /// that follow each other there, if they are not all rows in their order. GGUF files have all queries before all keys,
    /// and those before all values.
    pub(crate) fn gguf_rows(&self, canonical: &str) -> (bool, Vec<Range<usize>>) {
        fn place(stored: &Stored) -> (bool, &[Range<usize>]) {
            match stored {
                Stored::Transposed(inner) => (true, place(inner).1),
                Stored::Part { ranges, .. } => (false, ranges),
                _ => (false, &[]),
            }
        }
        if let Some(stored) = self.names.get(canonical) {
            return (place(stored).0, Vec::new());
        }
        let parts = ["attn_q", "attn_k", "attn_v"].map(|part| canonical.replace("attn_qkv", part));
        let places: Vec<_> = parts.iter().filter_map(|part| self.names.get(part)).map(place).collect();
        let is_transposed = places.first().is_some_and(|(is_transposed, _)| *is_transposed);
        (is_transposed, places.into_iter().flat_map(|(_, ranges)| ranges.to_vec()).collect())
    }

    /// The gates of experts and what they multiply, of a tensor of the files that holds both; by canonical name.
    pub(crate) fn gate_views(&self, canonical: &str) -> Vec<(String, Tensor)> {
        let parts =
            ["gate", "up"].map(|part| canonical.replace("ffn_gate_up_exps", &format!("ffn_{part}_exps")));
        let parts = parts.into_iter().filter(|part| part != canonical);
        let views = parts.filter_map(|part| {
            let tensor = view((&*self.weights).into(), self.names.get(&part)?).ok()??;
            Some((part, tensor))
        });
        views.collect()
    }

    /// The weights by which GGUF files hold parts of a tensor that files of this checkpoint have in another layout, and the
    /// rows of each.
    pub(crate) fn gguf_parts(&self, canonical: &str) -> Vec<(String, &[Range<usize>])> {
        const PARTS: &[(&str, &[&str])] = &[
            (".ssm_in.weight", &["attn_qkv", "attn_gate"]),
            (".ffn_gate_up_shexp.weight", &["ffn_gate_shexp", "ffn_up_shexp", "ffn_gate", "ffn_up"]),
        ];
        let known = PARTS.iter().find_map(|(name, parts)| Some((canonical.strip_suffix(name)?, *parts)));
        let Some((prefix, parts)) = known else { return Vec::new() };
        let ranges = |name: String| match self.names.get(&name) {
            Some(Stored::Part { ranges, .. }) => Some((name, &ranges[..])),
            _ => None,
        };
        parts.iter().filter_map(|stem| ranges(format!("{prefix}.{stem}.weight"))).collect()
    }

    /// The tensor that holds the rows of a head that scores texts, and these rows, if it holds others too.
    pub(crate) fn score_rows(&self) -> Option<(&str, &[Range<usize>])> {
        match self.names.get(SCORES) {
            Some(Stored::Part { name, ranges, .. }) => Some((name, ranges)),
            _ => None,
        }
    }

    /// Whether the files hold the logarithms of what a weight is below 0.
    pub(crate) fn is_logarithm(&self, canonical: &str) -> bool {
        matches!(self.names.get(canonical), Some(Stored::NegativeExp(_)))
    }
}
