//! A configuration in the keys of GGUF metadata: the inverse of [`Config::from_gguf`].

use graph::ops::{RopeStyle, Unary};
use weights::{MetaValue, Metadata, Strings};

use super::{not_in_llama_cpp, refusal};
use crate::checkpoint::YES_AND_NO;
use crate::key;
use crate::layers::XIELU;
use crate::rope::ENDLESS;
use crate::{
    Activation, Architecture, Checkpoint, ClassificationHead, Config, Decoder, Encoder, EncoderArchitecture,
    EncoderConfig, EncoderLayer, Error, ExpertConfig, FeedForward, GlobalHeads, LatentConfig, LoneBlock,
    Mixer, Norm, Positions, Rope, RopeConfig, Scaling, Scores, WeightTypes,
};

/// How far rotary frequencies may be off, relatively: files hold factors of them in f32.
const ROUNDING: f32 = 1e-5;

/// The metadata of a model of a Hugging Face configuration, by the GGUF name of its architecture.
///
/// # Errors
/// If GGUF cannot say what the configuration says.
pub(super) fn for_config(checkpoint: &Checkpoint, config: &Config, gguf: &str) -> Result<Metadata, Error> {
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", gguf);
    metadata.insert("general.type", "model");
    if let Some(name) = &config.name {
        metadata.insert("general.name", name.rsplit('/').next().unwrap_or(name));
    }
    checkpoint.model.text().gguf_metadata(config, gguf, checkpoint, metadata)
}

/// The names of labels; two rows that make one label are those of two tokens.
fn labels(head: &ClassificationHead) -> Strings {
    if head.log_odds { YES_AND_NO.iter().collect() } else { head.labels.iter().collect() }
}

impl Decoder {
    /// Completes the metadata of a GGUF file with what files of some decoders say otherwise than those of others, until they
    /// describe the same model.
    pub(crate) fn metadata(
        &self,
        config: &Config,
        gguf: &str,
        weights: &dyn WeightTypes,
        mut metadata: Metadata,
    ) -> Result<Metadata, Error> {
        let architecture = Architecture::from_hugging_face(&config.architecture)?;
        for (key, value) in keys(config, self.norm).into_iter().chain((architecture.gguf_keys)(config)) {
            metadata.insert(format!("{gguf}.{key}"), value);
        }
        for (place, name) in XIELU.iter().enumerate() {
            let numbers = |all: &Vec<[f32; 4]>| all.iter().map(|own| own[place]).collect::<Vec<f32>>();
            if let Some(numbers) = config.lists.xielu.as_ref().map(numbers) {
                metadata.insert(format!("xielu.{name}"), numbers);
            }
        }
        if let Some(head) = &self.head {
            metadata.insert(format!("{gguf}.classifier.output_labels"), labels(head));
        }
        // Files of Granite hold what logits are divided by. llama.cpp knows by heart which layers of most families have the
        // window, so that their files do not list them.
        let always_lists = config.attention.shared_layers > 0 || config.attention.global_heads.is_some();
        let ways = [(false, false), (true, false), (false, true), (true, true)];
        for (divides, lists) in ways.into_iter().filter(|(_, lists)| *lists || !always_lists) {
            let mut metadata = metadata.clone();
            if divides {
                metadata.insert(format!("{gguf}.logit_scale"), 1.0 / config.multipliers.logits);
            }
            if let Some(windowed) = config.lists.windowed.as_ref().filter(|_| lists) {
                metadata.insert(format!("{gguf}.attention.sliding_window_pattern"), windowed.clone());
            }
            if read_back(config, &metadata, weights)? {
                return Ok(metadata);
            }
        }
        let message = format!(
            "something in this configuration of {} has no key in GGUF files of `{gguf}`",
            config.architecture
        );
        Err(refusal(config, message))
    }
}

/// Whether the decoder that the metadata describe is that of the configuration, apart from the order of rows.
fn read_back(config: &Config, metadata: &Metadata, weights: &dyn WeightTypes) -> Result<bool, Error> {
    let decoder = |architecture: &Architecture, config: Config| {
        let config = config.for_length(None);
        let ropes = Rope::all(&config, RopeStyle::HalfSplit)?;
        Ok::<Decoder, Error>((architecture.decoder)(&config, ropes, weights))
    };
    let expected = decoder(Architecture::from_hugging_face(&config.architecture)?, config.clone())?;
    let mut read = Config::from_gguf(metadata, config.vocab)?;
    for (name, factors) in rope_factors(config) {
        match name {
            "rope_factors_long.weight" => read.rope.long_factors = Some(factors),
            _ => read.rope.factors = Some(read.own_factors(factors)),
        }
    }
    let mut found = decoder(Architecture::from_gguf(metadata.str("general.architecture")?)?, read)?;
    // Tensors are written in the order of such files.
    for (found, expected) in found.layers.iter_mut().zip(&expected.layers) {
        if let (Mixer::GatedDelta(found), Mixer::GatedDelta(expected)) = (&mut found.mixer, &expected.mixer) {
            found.tiled = expected.tiled;
        }
    }
    let alike = found.ropes.len() == expected.ropes.len()
        && found.ropes.iter().zip(&expected.ropes).all(|(found, expected)| is_near(found, expected));
    found.ropes.clone_from(&expected.ropes);
    Ok(alike && found == expected)
}

fn is_near(found: &Rope, expected: &Rope) -> bool {
    let near = |a: f32, b: f32| (a - b).abs() <= ROUNDING * b.abs();
    let mut pairs = found.inverse_frequencies.iter().zip(&expected.inverse_frequencies);
    found.inverse_frequencies.len() == expected.inverse_frequencies.len()
        && near(found.scale, expected.scale)
        && pairs.all(|(&found, &expected)| near(found, expected))
}

/// The keys of an architecture, without its name.
fn keys(config: &Config, norm: Norm) -> Vec<(&'static str, MetaValue)> {
    let mut keys = key::gguf_entries(config);
    keys.push(("block_count", size(config.layers + config.prediction_layers)));
    if config.prediction_layers > 0 {
        keys.push(("nextn_predict_layers", size(config.prediction_layers)));
    }
    // Only files of some families have these, though all are written with them; what is read back shows it.
    keys.extend(config.parallel_residual.map(|parallel| ("use_parallel_residual", parallel.into())));
    keys.extend(config.attention.clip_qkv.map(|limit| ("attention.clamp_kqv", limit.into())));
    let widths = match config.lists.widths.as_deref() {
        Some(widths) => sizes(widths),
        None => in_layers(config, LoneBlock::FeedForward, lone_width(config)),
    };
    keys.push(("feed_forward_length", widths));
    keys.extend(attention_keys(config));
    keys.extend(layer_keys(config));
    keys.extend(state_keys(config));
    keys.push(match norm {
        Norm::Rms { eps } | Norm::Unweighted { eps } => ("attention.layer_norm_rms_epsilon", eps.into()),
        Norm::Layer { eps, .. } => ("attention.layer_norm_epsilon", eps.into()),
    });
    keys.extend(
        config.experts.iter().flat_map(|experts| expert_keys(experts, config.lists.sparse.as_deref())),
    );
    keys.extend(key::gguf_entries(&config.multipliers));
    keys.extend(position_keys(config));
    keys
}

fn size(size: usize) -> MetaValue {
    u32::try_from(size).unwrap_or(u32::MAX).into()
}

/// The keys of rotary embeddings, and of what else depends on positions.
fn position_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let mut keys = scaling(config);
    if config.rope.dims > 0 {
        keys.push(("rope.dimension_count", size(config.rope.dims)));
        keys.push(("rope.freq_base", (config.rope.theta as f32).into()));
    }
    let local = config.local_rope.as_ref();
    keys.extend(local.map(|local| ("rope.freq_base_swa", (local.theta as f32).into())));
    let has_dims =
        |local: &&RopeConfig| local.dims != config.rope.dims && config.attention.global_heads.is_none();
    keys.extend(local.filter(has_dims).map(|local| ("rope.dimension_count_swa", size(local.dims))));
    let temperature = config.temperature;
    keys.extend(temperature.map(|temperature| ("attention.temperature_scale", temperature.growth.into())));
    keys
}

/// The width of feed-forward blocks: in layers of one block, that of experts if there are some.
fn lone_width(config: &Config) -> usize {
    match (config.experts, &config.lists.lone_blocks) {
        (Some(experts), Some(_)) => experts.width,
        _ => config.feed_forward,
    }
}

/// A size, or for each layer the size or 0, where not all layers have a block.
fn in_layers(config: &Config, block: LoneBlock, size: usize) -> MetaValue {
    let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let recurrent = config.lists.recurrent.as_ref();
    let has: Vec<bool> = match (&config.lists.lone_blocks, block, recurrent) {
        (Some(blocks), ..) => blocks.iter().map(|own| *own == block).collect(),
        (None, LoneBlock::Attention, Some(recurrent)) if config.delta.is_none() => {
            recurrent.iter().map(|recurrent| !recurrent).collect()
        }
        _ => return number(size).into(),
    };
    has.into_iter().map(|has| if has { number(size) } else { 0 }).collect::<Vec<u32>>().into()
}

/// Lists the GGUF keys of delta nets and state spaces.
fn state_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let mut keys = Vec::new();
    if let Some(delta) = &config.delta {
        keys.extend(key::gguf_entries(delta));
        keys.push(("ssm.inner_size", size(delta.value_heads * delta.value_dim)));
        let recurrent = config.lists.recurrent.clone();
        keys.extend(recurrent.map(|recurrent| ("attention.recurrent_layers", recurrent.into())));
    }
    let Some(space) = &config.state_space else { return keys };
    keys.extend(key::gguf_entries(space));
    keys.push(("ssm.time_step_rank", size(space.heads.map_or(space.step_rank, |heads| heads.count))));
    keys.extend(space.heads.map(|heads| ("ssm.group_count", size(heads.groups))));
    if config.rope.dims == 0 {
        keys.push(("rope.scaling.finetuned", false.into()));
    }
    keys
}

fn sizes(sizes: &[usize]) -> MetaValue {
    let sizes = sizes.iter().map(|&size| u32::try_from(size).unwrap_or(u32::MAX));
    sizes.collect::<Vec<u32>>().into()
}

/// The keys of attention. Layers of state spaces alone have none.
fn attention_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let mut keys = key::gguf_entries(&config.attention);
    keys.extend(config.attention.window.map(|window| ("attention.sliding_window", size(window))));
    if config.feed_forward == 0 {
        keys.push(("attention.head_count", size(0)));
        return keys;
    }
    let heads = config.lists.heads.as_deref().map_or(size(config.attention.heads), sizes);
    keys.push(("attention.head_count", heads));
    match config.latent {
        Some(latent) => keys.extend(latent_keys(config, latent)),
        None => keys.extend(head_keys(config)),
    }
    keys
}

/// Key and value heads, of which layers without window may have others.
fn head_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let Some(GlobalHeads { kv_heads, head_dim }) = config.attention.global_heads else {
        return vec![
            ("attention.head_count_kv", in_layers(config, LoneBlock::Attention, config.attention.kv_heads)),
            ("attention.key_length", size(config.attention.head_dim)),
            ("attention.value_length", size(config.attention.value_dim.unwrap_or(config.attention.head_dim))),
        ];
    };
    let of_kind = |&windowed: &bool| if windowed { config.attention.kv_heads } else { kv_heads };
    let listed: Option<Vec<usize>> =
        config.lists.windowed.as_ref().map(|layers| layers.iter().map(of_kind).collect());
    let listed = listed.filter(|_| kv_heads != config.attention.kv_heads);
    let mut keys = vec![
        ("attention.head_count_kv", listed.as_deref().map_or(size(config.attention.kv_heads), sizes)),
        ("attention.key_length", size(head_dim)),
        ("attention.value_length", size(config.attention.value_dim.unwrap_or(head_dim))),
        ("attention.key_length_swa", size(config.attention.head_dim)),
        ("attention.value_length_swa", size(config.attention.value_dim.unwrap_or(config.attention.head_dim))),
    ];
    if let Some(local) = &config.local_rope {
        keys.push(("rope.dimension_count_swa", size(local.dims)));
    }
    keys
}

/// The keys of latents, which are keys and values of one head that all query heads share.
fn latent_keys(config: &Config, latent: LatentConfig) -> Vec<(&'static str, MetaValue)> {
    let mut keys = key::gguf_entries(&latent);
    keys.extend([
        ("attention.head_count_kv", size(1)),
        ("attention.key_length", size(latent.rank + config.rope.dims)),
        ("attention.value_length", size(latent.rank)),
        ("attention.key_length_mla", size(config.attention.head_dim)),
    ]);
    keys.extend(latent.indexer.iter().flat_map(key::gguf_entries));
    keys.extend(config.lists.indexed.clone().map(|layers| ("attention.indexer.types", layers.into())));
    if let (Some(scale), Some(Scaling::Yarn { factor, .. })) =
        (config.multipliers.attention, config.rope.scaling)
    {
        let growth = (f64::from(scale) * (config.attention.head_dim as f64).sqrt()).sqrt();
        let log = (growth - 1.0) / factor.ln();
        keys.push(("rope.scaling.yarn_log_multiplier", (log as f32).into()));
    }
    keys
}

/// What layers have in addition to their blocks.
fn layer_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let mut keys = Vec::new();
    if config.attention.global_heads.is_some() || config.additions.layer_embedding.is_some() {
        let width = config.additions.layer_embedding.map_or(0, |[_, width]| width);
        keys.push(("embedding_length_per_layer_input", size(width)));
        keys.push(("attention.shared_kv_layers", size(config.attention.shared_layers)));
    }
    keys.extend(config.additions.streams.iter().flat_map(key::gguf_entries));
    let limits = [
        ("swiglu_clamp_exp", &config.lists.gate_limits),
        ("swiglu_clamp_shexp", &config.lists.shared_gate_limits),
    ];
    keys.extend(limits.into_iter().filter_map(|(key, limits)| Some((key, limits.clone()?.into()))));
    if let Some(cutoffs) = &config.lists.gate_cutoffs {
        let cutoffs = cutoffs.iter().map(|cutoff| cutoff.unwrap_or(f32::NEG_INFINITY));
        keys.push(("activation_sparsity_scale", cutoffs.collect::<Vec<f32>>().into()));
    }
    keys
}

/// The keys of shared experts and of routing.
fn expert_keys(experts: &ExpertConfig, sparse: Option<&[bool]>) -> Vec<(&'static str, MetaValue)> {
    let routing = experts.routing;
    let mut keys = key::gguf_entries(experts);
    let shared = experts.shared_width.map(|width| width.div_ceil(experts.width));
    keys.extend(shared.map(|count| ("expert_shared_count", size(count))));
    if routing.scores == Scores::Sigmoid {
        keys.push(("expert_gating_func", size(2)));
    }
    // The layers before the first one with experts, if all after it have them.
    let dense = sparse.unwrap_or_default().iter().position(|&sparse| sparse).unwrap_or(0);
    if dense > 0 && sparse.is_some_and(|sparse| sparse[dense..].iter().all(|&sparse| sparse)) {
        keys.push(("leading_dense_block_count", size(dense)));
    }
    if let Some(groups) = routing.groups {
        keys.push(("expert_group_count", size(groups.count)));
        keys.push(("expert_group_used_count", size(groups.chosen)));
    }
    keys
}

fn scaling(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let number = |number: f64| MetaValue::from(number as f32);
    let original = |context: f64| ("rope.scaling.original_context_length", MetaValue::from(context as u32));
    match config.rope.scaling {
        // A tensor holds the factors.
        None | Some(Scaling::Llama3 { .. } | Scaling::Proportional { .. }) => Vec::new(),
        Some(Scaling::Linear { factor }) => {
            vec![("rope.scaling.type", "linear".into()), ("rope.scaling.factor", number(factor))]
        }
        Some(Scaling::LongRope { original_context, attention_factor }) => {
            vec![original(original_context as f64), ("rope.scaling.attn_factor", number(attention_factor))]
        }
        Some(Scaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor, .. }) => {
            // What readers make of the factor alone.
            let scores_grow = config.latent.is_some() && config.multipliers.attention.is_some();
            let usual = if factor > 1.0 && !scores_grow { 0.1 * factor.ln() + 1.0 } else { 1.0 };
            let mut keys = vec![
                ("rope.scaling.type", "yarn".into()),
                ("rope.scaling.factor", number(factor)),
                original(original_context),
                ("rope.scaling.yarn_beta_fast", number(beta_fast)),
                ("rope.scaling.yarn_beta_slow", number(beta_slow)),
            ];
            if attention_factor != usual {
                keys.push(("rope.scaling.attn_factor", number(attention_factor / usual)));
            }
            keys
        }
    }
}

/// The tensors that hold what frequencies are divided by.
pub(super) fn rope_factors(config: &Config) -> Vec<(&'static str, Vec<f32>)> {
    let rope = &config.rope;
    if let Some(Scaling::Llama3 { .. }) = rope.scaling {
        let plain = RopeConfig { scaling: None, ..rope.clone() };
        let frequencies = |rope: &RopeConfig| rope.frequencies();
        let pairs = frequencies(&plain).into_iter().zip(frequencies(rope));
        let mut factors: Vec<f32> = pairs.map(|(plain, scaled)| (plain / scaled) as f32).collect();
        let widest = config.local_rope.as_ref().map_or(0, |local| local.dims / 2);
        factors.resize(factors.len().max(widest), 1.0);
        return vec![("rope_freqs.weight", factors)];
    }
    if let Some(Scaling::Proportional { pairs, factor }) = rope.scaling {
        let of_pair = |pair| if pair < pairs { factor as f32 } else { ENDLESS };
        return vec![("rope_freqs.weight", (0..rope.dims / 2).map(of_pair).collect())];
    }
    let named =
        [("rope_factors_short.weight", &rope.factors), ("rope_factors_long.weight", &rope.long_factors)];
    named.into_iter().filter_map(|(name, factors)| Some((name, factors.clone()?))).collect()
}

/// The keys that only encoders have.
fn encoder_keys(encoder: &Encoder, config: &Config, gguf: &str) -> Vec<(&'static str, MetaValue)> {
    let mut keys = Vec::new();
    // Of a number of layers, the first has no window.
    let windows = encoder.layers.iter().map(|layer| layer.attention.window.is_some());
    let next = windows.clone().skip(1).position(|is_windowed| !is_windowed).map(|place| place + 1);
    if windows.clone().next() == Some(false) && windows.clone().any(|is_windowed| is_windowed) {
        let every = next.unwrap_or(encoder.layers.len());
        keys.push(("attention.sliding_window_pattern", u32::try_from(every).unwrap_or(u32::MAX).into()));
    }
    if let (Some(Activation::Unary(unary)), "modern-bert") = (config.activation, gguf) {
        keys.push(("hidden_activation", if unary == Unary::Silu { "silu" } else { "gelu" }.into()));
    }
    if let Some(head) = encoder.head.as_ref().filter(|_| gguf == "modern-bert") {
        keys.push(("classifier.pooling_type", u32::from(if head.mean { 1u8 } else { 2 }).into()));
    }
    keys
}

impl Encoder {
    /// Completes the metadata of a GGUF file.
    pub(crate) fn metadata(
        &self,
        config: &Config,
        gguf: &str,
        weights: &dyn WeightTypes,
        mut metadata: Metadata,
    ) -> Result<Metadata, Error> {
        let known = EncoderArchitecture::from_gguf(gguf).filter(|architecture| architecture.in_llama_cpp);
        let architecture = known.ok_or_else(|| not_in_llama_cpp(config))?;
        if let Some(problem) = self.gguf_problem(gguf) {
            return Err(refusal(config, problem));
        }
        // Positions start with the first that is used.
        let dims = if self.ropes.is_empty() { 0 } else { config.rope.dims };
        let rope = RopeConfig { dims, ..config.rope.clone() };
        let config = Config { rope, context_length: self.context_length, ..config.clone() };
        let own = encoder_keys(self, &config, gguf);
        for (key, value) in keys(&config, self.layers[0].norm).into_iter().chain(own) {
            metadata.insert(format!("{gguf}.{key}"), value);
        }
        metadata.insert(format!("{gguf}.attention.causal"), false);
        metadata.insert("tokenizer.ggml.token_type_count", self.token_types.unwrap_or(1) as u32);
        if let Some(head) = &self.head {
            metadata.insert(format!("{gguf}.classifier.output_labels"), labels(head));
        }
        let read = Config::from_gguf(&metadata, config.vocab)?;
        let found = architecture.build(&read, &EncoderConfig::from_gguf(&metadata)?, weights)?;
        let positions = self.positions.map(|_| Positions { rows: self.context_length, first: 0 });
        if found != (Encoder { positions, ..self.clone() }) {
            let message = format!(
                "something in this configuration of {} has no key in GGUF files",
                config.architecture
            );
            return Err(refusal(&config, message));
        }
        Ok(metadata)
    }

    /// Why no GGUF file of an architecture holds this encoder, as far as its weights tell.
    fn gguf_problem(&self, gguf: &str) -> Option<&'static str> {
        if self.layers.iter().any(|layer| matches!(layer.feed_forward, FeedForward::Experts { .. })) {
            return Some("GGUF files have no place for the bias of an encoder's experts");
        }
        let has_bias = |layer: &EncoderLayer| {
            layer.attention.bias || matches!(layer.norm, Norm::Layer { bias: true, .. })
        };
        let has_biases = self.layers.iter().any(has_bias) || self.head.as_ref().is_some_and(|head| head.bias);
        (gguf == "modern-bert" && has_biases).then_some("GGUF files of `modern-bert` have no biases")
    }
}
