//! The keys of a `config.json` that say which projections have biases.

use serde::Deserialize;

/// The keys. One that is `false` says that biases in the files are not used; what files have is used if none is.
#[derive(Deserialize)]
pub(super) struct BiasKeys {
    attention_bias: Option<bool>,
    /// Of Seed-OSS, whose other key is not about outputs.
    attention_out_bias: Option<bool>,
    qkv_bias: Option<bool>,
    use_qkv_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_bias: Option<bool>,
}

/// The names of the keys.
pub(super) const KEYS: &[&str] =
    &["attention_bias", "attention_out_bias", "mlp_bias", "qkv_bias", "use_bias", "use_qkv_bias"];

const QUERIES: &[&str] = &["attn_qkv", "attn_q", "attn_k", "attn_v", "attn_q_a", "attn_kv_a_mqa"];
const OUTPUT: &[&str] = &["attn_output"];
const FEED_FORWARD: &[&str] = &["ffn_gate", "ffn_up", "ffn_down"];

impl BiasKeys {
    /// The projections without a bias, by the stems of their canonical names.
    pub(super) fn absent(&self) -> Vec<&'static str> {
        let groups = [
            (self.attention_bias.or(self.use_bias).or(self.qkv_bias).or(self.use_qkv_bias), QUERIES),
            (self.attention_out_bias.or(self.attention_bias).or(self.use_bias), OUTPUT),
            (self.mlp_bias.or(self.use_bias), FEED_FORWARD),
        ];
        groups
            .into_iter()
            .filter(|(has, _)| *has == Some(false))
            .flat_map(|(_, stems)| stems)
            .copied()
            .collect()
    }
}
