//! The factors of a configuration in the weights of files whose metadata have no keys for them.

use std::ops::Range;

use tensor::Tensor;

use super::{ExportTensor, refusal};
use crate::config::LayerMultipliers;
use crate::{Checkpoint, Config, Error, Multipliers};

/// Multiplies tensors, by canonical name, by the factors on what they read and give, and gives the configuration without
/// these factors.
///
/// # Errors
/// If one matrix has two factors, as an embedding and as the head.
pub(super) fn fold(
    checkpoint: &Checkpoint,
    config: Config,
    tensors: &mut [ExportTensor],
) -> Result<Config, Error> {
    let Multipliers { embedding, logits, .. } = config.multipliers;
    if checkpoint.decoder()?.tied && (embedding, logits) != (1.0, 1.0) {
        let message = format!(
            "GGUF files hold the factors on embeddings ({embedding}) and logits ({logits}) in two matrices, but this \
             checkpoint has one"
        );
        return Err(refusal(&config, message));
    }
    for tensor in tensors {
        let factors = of_rows(&config, &tensor.name).into_iter();
        tensor.factors = factors.filter(|&(_, factor)| factor != 1.0).collect();
    }
    let multipliers = Multipliers { embedding: 1.0, logits: 1.0, ..config.multipliers };
    Ok(Config { multipliers, layer_multipliers: LayerMultipliers::default(), ..config })
}

/// Makes weights of norms that have none of the factor on queries, and gives the configuration without it.
pub(super) fn as_norms(mut config: Config) -> (Config, Vec<ExportTensor>) {
    let factor = std::mem::replace(&mut config.multipliers.queries, 1.0);
    if factor == 1.0 {
        return (config, Vec::new());
    }
    let dims = config.attention.head_dim;
    let weights = |layer| {
        [("attn_q_norm", factor), ("attn_k_norm", 1.0)].map(|(stem, value)| {
            let weight = Tensor::from_slice([dims], &vec![value; dims]);
            ExportTensor::whole(format!("blk.{layer}.{stem}.weight"), weight)
        })
    };
    let tensors = (0..config.layers).flat_map(weights).collect();
    (config, tensors)
}

/// The factors on ranges of the rows of a tensor, in the order in which llama.cpp's converter multiplies by them.
fn of_rows(config: &Config, name: &str) -> Vec<(Range<usize>, f32)> {
    let factors = config.layer_multipliers;
    let stem = name.rsplit('.').nth(1).unwrap_or_default();
    let of_all: &[f32] = match stem {
        "token_embd" => &[config.multipliers.embedding],
        "output" => &[config.multipliers.logits],
        "attn_q" | "attn_v" => &[factors.attention_input],
        "attn_k" => &[factors.key, factors.attention_input],
        "attn_output" => &[factors.attention_output],
        "ssm_in" => &[factors.state_space_input],
        "ssm_out" => &[factors.state_space_output],
        "ffn_gate" => &[factors.feed_forward[0]],
        "ffn_down" => &[factors.feed_forward[1]],
        _ => &[],
    };
    let mut found: Vec<_> = of_all.iter().map(|&factor| (0..usize::MAX, factor)).collect();
    if stem == "ssm_in" {
        found.extend(of_parts(config));
    }
    found
}

/// The factors on the parts of what the first projection of a state space gives.
fn of_parts(config: &Config) -> Vec<(Range<usize>, f32)> {
    let Some((space, heads)) = config.state_space.and_then(|space| Some((space, space.heads?))) else {
        return Vec::new();
    };
    let shared = heads.groups * space.state_dim;
    let sizes = [space.channels, space.channels, shared, shared, heads.count];
    let mut end = 0;
    let parts = sizes.into_iter().zip(config.layer_multipliers.state_space_parts);
    parts
        .map(|(size, factor)| {
            let start = end;
            end += size;
            (start..end, factor)
        })
        .collect()
}
