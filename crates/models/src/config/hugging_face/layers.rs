//! What differs between the layers of a `config.json`, and what layers have in addition to their blocks.

use graph::ops::Unary;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::Additions;
use crate::key;
use crate::{GlobalHeads, StreamConfig};

/// The keys.
#[derive(Deserialize)]
pub(super) struct LayerKeys {
    global_head_dim: Option<usize>,
    num_global_key_value_heads: Option<usize>,
    vocab_size_per_layer_input: Option<usize>,
    hidden_size_per_layer_input: Option<usize>,
    laurel_rank: Option<usize>,
    activation_sparsity_pattern: Option<Value>,
}

impl LayerKeys {
    /// The heads of layers without window, if they may be others.
    pub(super) fn global_heads(&self, kv_heads: usize) -> Option<GlobalHeads> {
        let kv_heads = self.num_global_key_value_heads.unwrap_or(kv_heads);
        self.global_head_dim.map(|head_dim| GlobalHeads { kv_heads, head_dim })
    }

    /// Reads the second embedding (of `vocab` rows unless the file says it), the residual streams and the low rank.
    pub(super) fn additions(&self, vocab: usize, keys: &Map<String, Value>) -> Result<Additions, String> {
        let rows = self.vocab_size_per_layer_input.unwrap_or(vocab);
        let width = self.hidden_size_per_layer_input.filter(|&width| width > 0);
        let streams = StreamConfig { scaled: true, ..StreamConfig::default() };
        Ok(Additions {
            layer_embedding: width.map(|width| [rows, width]),
            streams: key::block_from_json(streams, keys)?,
            low_rank: self.laurel_rank,
        })
    }

    /// How many standard deviations above their mean gates begin, which files say as the share of those below.
    pub(super) fn gate_cutoffs(&self, layers: usize) -> Result<Option<Vec<Option<f32>>>, String> {
        let cutoff = |share: &Value| match share.as_f64() {
            Some(share) if share <= 0.0 => Ok(None),
            Some(share) if share < 1.0 => Ok(Some(normal_quantile(share) as f32)),
            _ => Err(format!("`activation_sparsity_pattern` has {share}, expected numbers below 1")),
        };
        match &self.activation_sparsity_pattern {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(shares)) => shares.iter().map(cutoff).collect::<Result<_, _>>().map(Some),
            Some(share) => Ok(Some(vec![cutoff(share)?; layers])),
        }
    }
}

/// Where the share `p` of a normal distribution lies below, by bisection.
fn normal_quantile(p: f64) -> f64 {
    let below = |x: f64| (1.0 + Unary::Erf.evaluate(x / std::f64::consts::SQRT_2)) / 2.0;
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        *(if below(middle) < p { &mut low } else { &mut high }) = middle;
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_deviations() {
        let read = |pattern: &str| {
            let json = format!(r#"{{"activation_sparsity_pattern": {pattern}}}"#);
            serde_json::from_str::<LayerKeys>(&json).unwrap().gate_cutoffs(2)
        };
        assert_eq!(read("null"), Ok(None));
        let cutoffs = read("[0.95, 0, 0.5]").unwrap().unwrap();
        assert!((cutoffs[0].unwrap() - 1.644_853_6).abs() < 1e-6, "{cutoffs:?}");
        assert!(cutoffs[1].is_none() && cutoffs[2].unwrap().abs() < 1e-6);
        assert_eq!(read("0.0"), Ok(Some(vec![None; 2])));
        let error = read("[1.0]").unwrap_err();
        assert_eq!(error, "`activation_sparsity_pattern` has 1.0, expected numbers below 1");
    }
}
