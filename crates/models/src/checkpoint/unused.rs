//! Tensors that the architecture does not use: a sign that a file is of another architecture than it says, or damaged.

use std::collections::HashSet;

use weights::Weights;

use crate::names::CanonicalNames;
use crate::stored::Names;
use crate::{Config, Error, Model};

/// In names of tensors that follow from the configuration: rotary tables, masks, positions that are counted. (GGUF's
/// factors of frequencies are read with the configuration; GPTQ's groups of columns with the layer.)
const DERIVED: &[&str] = &[
    "rotary_emb.",
    "rope_freqs.",
    "rope_factors_",
    "masked_bias",
    ".attn.bias",
    ".attention.bias",
    "position_ids",
    ".g_idx",
    // Of caches of 8 bits, and of activations.
    ".k_scale",
    ".v_scale",
    ".output_scale",
    ".input_scale",
    "_extra_state",
];
/// In names of tensors of the parts of a model that see and hear, of which we run the other one.
const SEEING: &[&str] = &[
    "vision_tower.",
    "vision_model.",
    "multi_modal_projector.",
    "mm_projector.",
    "audio_tower.",
    "embed_vision.",
    "embed_audio.",
    "vision_embedder.",
    "visual.",
    "vit_large_projector.",
    "vision_adapter.",
    "vision_projection.",
    "model.connector.",
    "image_newline",
    "mlp1.",
];
/// What names of heads that predict tokens further ahead begin with.
const PREDICTING: &[&str] = &["mtp.", "model.mtp."];

/// The tensors of the files that are neither among the weights that are `taken`, by canonical name, nor known to mean
/// nothing here; sorted.
///
/// # Errors
/// If one of them is a bias of a matrix that is taken: the model would compute something else without it.
pub(super) fn tensors(
    config: &Config,
    types: &Names<'_>,
    in_files: &CanonicalNames,
    taken: &HashSet<String>,
    model: &Model,
) -> Result<Vec<String>, Error> {
    let idle = |name: &str| is_idle(name, model) || predicts_further(name, config);
    let others = model.text().idle_weights();
    let known = taken.iter().chain(&others).filter_map(|name| types.names.get(name));
    let taken: HashSet<&str> = known.flat_map(|stored| stored.tensors()).collect();
    let stored = types.reader.weights.tensors().map(|(name, _)| name);
    let mut unused: Vec<String> =
        stored.filter(|name| !taken.contains(name) && !idle(name)).map(str::to_string).collect();
    unused.sort_unstable();
    let is_missed = |name: &&String| {
        let stem = name.strip_suffix(".bias").or_else(|| name.strip_suffix("_bias"));
        let is_of = |stem: &str, other: &str| {
            other.strip_prefix(stem).is_some_and(|leaf| leaf.is_empty() || leaf.starts_with('.'))
        };
        stem.is_some_and(|stem| taken.iter().any(|other| is_of(stem, other)))
            && !is_left_out(name, config, in_files)
            && types.reader.weights.has_value(name)
            && types.reader.weights.get(name).is_some_and(|bias| bias.to_f32_vec().iter().any(|&x| x != 0.0))
    };
    match unused.iter().find(is_missed) {
        None => Ok(unused),
        Some(bias) => {
            let message = format!("{} has no place for this bias, which is not zero", config.architecture);
            Err(Error::Weight { name: bias.clone(), message })
        }
    }
}

/// Whether the configuration says that a bias is not used.
fn is_left_out(name: &str, config: &Config, in_files: &CanonicalNames) -> bool {
    let own = in_files.canonical(name).unwrap_or_default();
    let stem = own.strip_suffix(".bias").and_then(|own| own.rsplit('.').next());
    stem.is_some_and(|stem| config.without_bias.contains(&stem))
}

/// Checks that the model needs none of the tensors that an index lists and the files lack. One that is optional would
/// otherwise be left out in silence.
///
/// # Errors
/// If it needs one.
pub(super) fn check_absent(
    config: &Config,
    weights: &Weights,
    in_files: &CanonicalNames,
    model: &Model,
) -> Result<(), Error> {
    let others = model.text().idle_weights();
    let is_head = |own: &str| own == "output.weight" && config.tied == Some(true);
    let is_needed = |name: &&str| {
        let own = in_files.canonical(name).filter(|own| !others.contains(own) && !is_head(own));
        own.is_some() && !is_idle(name, model) && !predicts_further(name, config)
    };
    match weights.absent().find(is_needed) {
        None => Ok(()),
        Some(name) => {
            let message = weights.reason_of_absence(name).unwrap_or_default();
            Err(Error::Weight { name: in_files.canonical(name).unwrap_or_default(), message })
        }
    }
}

/// Whether a tensor is of a part of the model that we do not run, whose weights may be stored in any way.
pub(super) fn is_of_other_part(name: &str) -> bool {
    SEEING.iter().any(|part| name.contains(part)) || PREDICTING.iter().any(|start| name.starts_with(start))
}

/// Whether a tensor that is not taken is known to mean nothing here.
fn is_idle(name: &str, model: &Model) -> bool {
    is_of_other_part(name)
        || DERIVED.iter().any(|part| name.contains(part))
        || model.text().is_of_other_head(name)
}

/// Whether a tensor is of a layer that predicts tokens further ahead. These follow the others.
fn predicts_further(name: &str, config: &Config) -> bool {
    let layers = config.layers..config.layers.saturating_add(config.prediction_layers);
    let number = ["blk.", "layers."].iter().find_map(|stem| {
        let (_, rest) = name.split_once(stem)?;
        rest.split_once('.')?.0.parse::<usize>().ok()
    });
    number.is_some_and(|number| layers.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_eyes_are_other_parts() {
        for name in ["mtp.layers.0.mlp.up_proj.weight_scale_inv", "model.visual.blocks.0.attn.qkv.weight"] {
            assert!(is_of_other_part(name), "{name}");
        }
        assert!(!is_of_other_part("model.layers.0.mlp.up_proj.weight"));
    }

    #[test]
    fn layers_after_the_last_one_predict_further() {
        let config = Config { prediction_layers: 1, ..crate::config::tests::small() };
        for name in ["model.layers.2.eh_proj.weight", "blk.2.nextn.enorm.weight"] {
            assert!(predicts_further(name, &config), "{name}");
        }
        for name in ["model.layers.1.mlp.weight", "blk.3.attn_q.weight", "layers.x.enorm", "norm.weight"] {
            assert!(!predicts_further(name, &config), "{name}");
        }
    }
}
