//! What a checkpoint holds: a model and its weights, named, laid out as the graph takes them, and checked.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tensor::Tensor;
use weights::{Format, QuantizationConfig, Weights};

use super::check::{check_weights, converted_vectors};
use super::description::{Description, Family, SCORES};
use super::{gptq, repacked, schemes, unused};
use crate::architectures::{Architecture, EncoderArchitecture};
use crate::layout::Layout;
use crate::names::CanonicalNames;
use crate::stored::repacked::Repacked;
use crate::stored::{Names, Stored, TensorReader};
use crate::{CenteredNorms, CheckpointOptions, Config, Error, Model, ScoreTokens};

/// A model with its weights by canonical name, which fit each other.
pub(super) struct Contents {
    pub(super) config: Config,
    pub(super) model: Model,
    pub(super) names: HashMap<String, Stored>,
    pub(super) vectors: HashMap<String, Tensor>,
    pub(super) unused: Vec<String>,
}

/// Names the weights that are repacked as they are read.
pub(super) fn gather_repacked(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: Option<&QuantizationConfig>,
    config_json: &Path,
) -> Result<(), Error> {
    match config {
        _ if weights.format() == Format::Gguf => {}
        Some(QuantizationConfig::Gptq(config)) => gptq::gather(names, weights, Some(config), config_json)?,
        Some(_) => {}
        None => gptq::gather(names, weights, None, config_json)?,
    }
    repacked::gather(names, weights, config)
}

impl Contents {
    pub(super) fn new(
        description: &Description<'_>,
        reader: TensorReader<'_>,
        in_files: &CanonicalNames,
        config_json: &Path,
        options: &CheckpointOptions,
    ) -> Result<Contents, Error> {
        let weights = reader.weights;
        let stored = in_files.stored.iter();
        let mut names = stored.map(|(name, own)| (name.clone(), Stored::Whole(own.clone()))).collect();
        gather_repacked(&mut names, weights, description.quantization()?.as_ref(), config_json)?;
        let read: HashSet<&str> =
            names.values().flat_map(Stored::repacked).flat_map(Repacked::tensors).collect();
        schemes::refuse(weights, |name| read.contains(name) || unused::is_of_other_part(name))?;
        let (config, model, centered_norms) = match description.family() {
            Family::Encoder(architecture) => encoder(architecture, description, reader, &mut names)?,
            Family::Decoder(architecture) => decoder(architecture, description, reader, &mut names, options)?,
        };
        let types = Names { reader, names: &names, dtype: options.dtype };
        let taken = check_weights(&config, &model, &types)?;
        unused::check_absent(&config, weights, in_files, &model)?;
        let unused = unused::tensors(&config, &types, in_files, &taken, &model)?;
        let vectors = converted_vectors(&types, centered_norms)?;
        Ok(Contents { config, model, names, vectors, unused })
    }
}

/// The encoder that is described, and the norms whose weights are stored less by 1.
fn encoder(
    architecture: &EncoderArchitecture,
    description: &Description<'_>,
    reader: TensorReader<'_>,
    names: &mut HashMap<String, Stored>,
) -> Result<(Config, Model, CenteredNorms), Error> {
    let types = Names { reader, names, dtype: None };
    let config = description.config(types.describe("token_embd.weight"))?;
    let own = description.encoder_config()?;
    let mut layout = Layout::new(reader.weights, names);
    layout.split_stacked_attention(&config)?;
    layout.split_stacked_gates(&config)?;
    layout.split_gates_behind(&config)?;
    if let (Some(experts), true) = (config.experts, reader.weights.format() != Format::Gguf) {
        for layer in 0..config.layers {
            layout.split_experts(&format!("blk.{layer}.ffn_up_exps.weight"), experts.count, false)?;
            layout.split_experts(&format!("blk.{layer}.ffn_down_exps.weight"), experts.count, true)?;
        }
    }
    let encoder = architecture.build(&config, &own, &Names { reader, names, dtype: None })?;
    let centered_norms = centered_norms(architecture.centered_norms, reader.weights);
    Ok((config, encoder.into(), centered_norms))
}

/// The decoder that is described, and the norms whose weights are stored less by 1.
fn decoder(
    architecture: &Architecture,
    description: &Description<'_>,
    reader: TensorReader<'_>,
    names: &mut HashMap<String, Stored>,
    options: &CheckpointOptions,
) -> Result<(Config, Model, CenteredNorms), Error> {
    let weights = reader.weights;
    let types = Names { reader, names, dtype: None };
    let mut config = description.config(types.describe("token_embd.weight"))?;
    let gguf = weights.format() == Format::Gguf;
    if gguf {
        let factors = |name: &str| -> Result<_, Error> {
            Ok(types.tensor(name)?.map(|factors| factors_of(name, &factors, weights)))
        };
        let short = factors("rope_factors_short.weight")?;
        let all = factors("rope_freqs.weight")?.or(short);
        config.rope.factors = all.map(|factors| config.own_factors(factors));
        config.rope.long_factors = factors("rope_factors_long.weight")?;
    }
    let config = config.for_length(options.max_length);
    let style = description.rope_style(architecture, &config, weights, options.gguf_rope);
    for layer in 0..config.layers {
        for stem in &config.without_bias {
            names.remove(&format!("blk.{layer}.{stem}.bias"));
        }
    }
    let mut layout = Layout::new(weights, names);
    let own = if gguf { architecture.gguf_layout } else { architecture.layout };
    own(&mut layout, &config)?;
    layout.split_stacked_attention(&config)?;
    layout.split_stacked_gates(&config)?;
    layout.gather_experts(&config)?;
    if let Some(tokens) = options.score_tokens {
        score_rows(&mut layout, tokens, config.vocab)?;
    }
    let types = Names { reader, names, dtype: None };
    let decoder = description.decoder(architecture, &config, style, options.score_tokens, &types)?;
    if decoder.logit_softcap.is_some() && options.score_tokens.is_some() {
        let message = "scores by tokens are not supported if logits have a bound (`final_logit_softcapping`)";
        return Err(Error::config(&config.source_name, message));
    }
    Ok((config, decoder.into(), centered_norms(architecture.centered_norms, weights)))
}

/// The norms whose weights files hold less 1: none in GGUF files.
fn centered_norms(of_family: CenteredNorms, weights: &Weights) -> CenteredNorms {
    if weights.format() == Format::Gguf { CenteredNorms::None } else { of_family }
}

/// Names the rows of the logits of some tokens as a head that scores texts, unless the files have that head.
///
/// # Errors
/// If there is no such token, or its row cannot be taken apart from the others.
fn score_rows(layout: &mut Layout<'_>, tokens: ScoreTokens, vocab: usize) -> Result<(), Error> {
    let tokens = std::iter::once(tokens.high).chain(tokens.low).map(|token| token as usize);
    let logits = ["output.weight", "token_embd.weight"].into_iter().find(|name| layout.has(name));
    let Some(logits) = logits.filter(|_| !layout.has(SCORES)) else { return Ok(()) };
    let mut rows = Vec::new();
    for token in tokens {
        if token >= vocab {
            let message = format!("has {vocab} rows, but texts are scored by token {token}");
            return Err(Error::Weight { name: logits.to_string(), message });
        }
        rows.push(token..token + 1);
    }
    layout.name_rows(logits, rows, SCORES)
}

/// Rope factors, or as many that change nothing where values are not at hand.
fn factors_of(name: &str, factors: &Tensor, weights: &Weights) -> Vec<f32> {
    if weights.has_value(name) { factors.to_f32_vec() } else { vec![1.0; factors.elements()] }
}
