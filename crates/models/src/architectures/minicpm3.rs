//! MiniCPM 3: Llama with latent attention, and factors on embeddings, residuals and logits.

use graph::ops::RopeStyle;
use serde_json::json;
use weights::MetaValue;

use super::Architecture;
use super::deepseek::{DEEPSEEK_V2, deepseek, latent};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::{Config, Decoder, Error, Rope, WeightTypes};

/// OpenBMB's MiniCPM 3.
pub(crate) const MINICPM3: Architecture = Architecture {
    hugging_face: "MiniCPM3ForCausalLM",
    examples: &["openbmb/MiniCPM3-4B"],
    gguf: Some("minicpm3"),
    model_type: "minicpm3",
    keys: &[
        "attention_bias",
        "dim_model_base",
        "hidden_act",
        "kv_lora_rank",
        "mlp_bias",
        "num_key_value_heads",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "rms_norm_eps",
        "scale_depth",
        "scale_emb",
        "v_head_dim",
    ],
    complete,
    gguf_quirks,
    gguf_keys,
    gguf_joins_latents: true,
    rope: RopeStyle::HalfSplit,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: minicpm3,
    ..DEEPSEEK_V2
};

/// The factor on embeddings of the published model. GGUF files have no keys for this and the next two.
const EMBEDDING: f64 = 12.0;
/// What is divided by the root of the number of layers for the factor on residuals.
const DEPTH: f64 = 1.4;
/// What is divided by the width of the model for the factor on logits.
const WIDTH: f64 = 256.0;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 73448, "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,
        "num_attention_heads": 40, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "kv_lora_rank": 256,
        "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "scale_emb": EMBEDDING, "scale_depth": DEPTH,
        "dim_model_base": WIDTH, "tie_word_embeddings": true,
    }));
    let number = |key: &str| keys.number(key).ok_or(format!("`{key}` is not a number"));
    let [hidden, layers, heads, embedding] = [
        number("hidden_size")?,
        number("num_hidden_layers")?,
        number("num_attention_heads")?,
        number("scale_emb")?,
    ];
    let residual = keys.number("scale_depth").map_or(1.0, |depth| depth / layers.sqrt());
    let logits = keys.number("dim_model_base").map_or(1.0, |width| width / hidden);
    if !keys.has("v_head_dim") {
        keys.set("v_head_dim", (hidden / heads) as usize);
    }
    keys.set("embedding_multiplier", embedding);
    keys.set("residual_multiplier", residual);
    keys.set("logit_scale", logits);
    latent(keys)
}

/// Files have the dims of heads in place of those of latents, and no factors.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.attention.head_dim = keys.size("attention.key_length")?;
    if let (Some(latent), None) = (&mut config.latent, keys.optional::<usize>("attention.value_length")?) {
        latent.value_dims = config.hidden / config.attention.heads;
    }
    config.multipliers.embedding = EMBEDDING as f32;
    config.multipliers.residual = (DEPTH / (config.layers as f64).sqrt()) as f32;
    config.multipliers.logits = (WIDTH / config.hidden as f64) as f32;
    Ok(())
}

fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let size = |size: usize| MetaValue::from(u32::try_from(size).unwrap_or(u32::MAX));
    let values = config.latent.map_or(config.attention.head_dim, |latent| latent.value_dims);
    vec![
        ("attention.head_count_kv", size(config.attention.kv_heads)),
        ("attention.key_length", size(config.attention.head_dim)),
        ("attention.value_length", size(values)),
    ]
}

fn minicpm3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = deepseek(config, ropes, weights);
    decoder.layers.iter_mut().for_each(|layer| layer.residual.scale = config.multipliers.residual);
    Decoder {
        embedding_scale: config.multipliers.embedding,
        logit_scale: config.multipliers.logits,
        ..decoder
    }
}
