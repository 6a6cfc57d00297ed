//! The `{architecture}.*` keys of a GGUF file's metadata.

use weights::{FromMeta, MetaArray, MetaValue, Metadata};

use super::{
    Config, ExpertConfig, GlobalHeads, IndexerConfig, LatentConfig, LayerMultipliers, MAX_LAYERS,
    Multipliers, RopeConfig, Scaling, StateSpaceConfig, StateSpaceHeads, StreamConfig,
};
use crate::architectures::Architecture;
use crate::{Activation, Error, ExpertGroups, Routing, Scores, Temperature};

/// The keys of a file that begin with the name of its architecture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GgufKeys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl<'a> GgufKeys<'a> {
    /// A value, if the file has it.
    ///
    /// # Errors
    /// If it is of another kind.
    pub(crate) fn optional<T: FromMeta<'a>>(&self, name: &str) -> Result<Option<T>, Error> {
        Ok(self.metadata.optional(&self.key(name))?)
    }

    /// A value for each layer, if the file lists them.
    ///
    /// # Errors
    /// If they are of another kind, or not as many.
    pub(crate) fn optional_list<T>(&self, name: &str, layers: usize) -> Result<Option<Vec<T>>, Error>
    where
        Vec<T>: FromMeta<'a>,
    {
        let Some(MetaValue::Array(_)) = self.metadata.get(&self.key(name)) else { return Ok(None) };
        let list = self.optional::<Vec<T>>(name)?;
        match list.as_ref().map(Vec::len).filter(|&count| count != layers) {
            Some(count) => {
                let message = format!("{layers} layers, but {count} in the list `{}`", self.key(name));
                Err(Error::config("GGUF metadata", message))
            }
            None => Ok(list),
        }
    }

    /// A number that must be there.
    ///
    /// # Errors
    /// If it is not, or of another kind.
    pub(crate) fn size(&self, name: &str) -> Result<usize, Error> {
        Ok(self.metadata.usize(&self.key(name))?)
    }

    /// A list of flags, if the file has it.
    pub(crate) fn flags(&self, name: &str) -> Option<Vec<bool>> {
        match self.metadata.get(&self.key(name)) {
            Some(MetaValue::Array(MetaArray::Bool(flags))) => Some(flags.clone()),
            _ => None,
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }
}

impl Config {
    /// Reads a GGUF file's metadata. `vocab` is the number of rows of the embedding, for files that do not say.
    ///
    /// # Errors
    /// If a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_gguf(metadata: &Metadata, vocab: usize) -> Result<Config, Error> {
        let family = Architecture::from_gguf(metadata.str("general.architecture")?).ok();
        Config::from_gguf_as(metadata, vocab, family)
    }

    /// As [`Config::from_gguf`], of a family that its reader knows.
    pub(crate) fn from_gguf_as(
        metadata: &Metadata,
        vocab: usize,
        family: Option<&Architecture>,
    ) -> Result<Config, Error> {
        let architecture = metadata.str("general.architecture")?;
        let keys = GgufKeys { metadata, architecture };
        let state_space = state_space(keys)?;
        let heads = keys.size("attention.head_count")?;
        let hidden = keys.size("embedding_length")?;
        // 0 says that there is no attention.
        let heads = if heads == 0 && state_space.is_some() { 1 } else { heads };
        if heads == 0 {
            let message = format!("`{}` is 0", keys.key("attention.head_count"));
            return Err(Error::config("GGUF metadata", message));
        }
        // The blocks that predict tokens further ahead count too.
        let prediction_layers = keys.optional::<usize>("nextn_predict_layers")?.unwrap_or(0);
        let layers = keys.size("block_count")?.saturating_sub(prediction_layers);
        let global_head_dim = keys.optional::<usize>("attention.key_length")?.unwrap_or(hidden / heads);
        let value_dim = keys.optional::<usize>("attention.value_length")?.unwrap_or(global_head_dim);
        let latent = latent(keys, value_dim)?;
        // Keys of latents, as they are attended to, or of heads, as older files have them.
        let global_head_dim = match latent {
            Some(_) => keys.optional("attention.key_length_mla")?.unwrap_or(global_head_dim),
            None => global_head_dim,
        };
        let local_head_dim = keys.optional::<usize>("attention.key_length_swa")?;
        let local_value_dim = keys.optional("attention.value_length_swa")?.or(local_head_dim);
        for (keys, values) in [(Some(global_head_dim), Some(value_dim)), (local_head_dim, local_value_dim)] {
            if let (None, Some(keys), Some(values)) = (latent, keys, values)
                && keys != values
            {
                let message = format!("keys of {keys} and values of {values} dims are not supported");
                return Err(Error::config("GGUF metadata", message));
            }
        }
        let blocks = layers + prediction_layers;
        let kv_heads = match keys.optional_list::<usize>("attention.head_count_kv", blocks)? {
            None => keys.optional("attention.head_count_kv")?.unwrap_or(heads),
            Some(listed) => listed.into_iter().max().unwrap_or(0),
        };
        let mut layer_widths = keys.optional_list::<usize>("feed_forward_length", blocks)?;
        layer_widths.iter_mut().for_each(|widths| widths.truncate(layers));
        let mut recurrent_layers = keys.flags("attention.recurrent_layers");
        recurrent_layers
            .iter_mut()
            .filter(|flags| flags.len() == blocks)
            .for_each(|flags| flags.truncate(layers));
        let feed_forward = match layer_widths.as_deref() {
            None => feed_forward(keys)?,
            Some(widths) => widths.iter().copied().max().unwrap_or(0),
        };
        let head_dim = local_head_dim.unwrap_or(global_head_dim);
        // 0 says that there is none.
        let window = keys.optional::<usize>("attention.sliding_window")?.filter(|&window| window > 0);
        let rope = RopeConfig {
            theta: keys.optional::<f32>("rope.freq_base")?.unwrap_or(10000.0).into(),
            dims: keys.optional::<usize>("rope.dimension_count")?.unwrap_or(global_head_dim),
            scaling: scaling(metadata, architecture)?,
            // Tensors hold them.
            factors: None,
            long_factors: None,
        };
        let mut config = Config {
            source_name: "GGUF metadata".into(),
            architecture: architecture.to_string(),
            name: metadata.optional::<&str>("general.name")?.map(str::to_string),
            vocab: keys.optional("vocab_size")?.unwrap_or(vocab),
            hidden,
            layers,
            prediction_layers,
            heads,
            kv_heads,
            head_dim,
            global_heads: local_head_dim.map(|_| GlobalHeads { kv_heads, head_dim: global_head_dim }),
            // The weights show it.
            keys_as_values: None,
            shared_layers: keys.optional("attention.shared_kv_layers")?.unwrap_or(0),
            latent,
            indexed_layers: keys.flags("attention.indexer.types"),
            feed_forward,
            layer_widths,
            gate_cutoffs: gate_cutoffs(keys, layers)?,
            layer_embedding: layer_embedding(keys, keys.optional("vocab_size")?.unwrap_or(vocab))?,
            streams: streams(keys)?,
            low_rank: None,
            experts: experts(keys)?,
            gate_limit: None,
            delta: None,
            short_convolution: keys.optional("shortconv.l_cache")?,
            state_space,
            layer_multipliers: LayerMultipliers::default(),
            lone_blocks: None,
            recurrent_layers: match recurrent_layers {
                Some(layers) => Some(layers),
                None => without_heads(keys, blocks)?,
            },
            // The weights show them.
            sparse_layers: None,
            experts_per_token: None,
            context_length: Scaling::reach(rope.scaling, keys.size("context_length")?),
            norm_eps: norm_eps(keys)?,
            activation: activation(keys)?,
            local_rope: local_rope(keys, &rope)?.filter(|_| window.is_some()),
            rope_style: None,
            rope_sections: None,
            temperature: temperature(rope.scaling, keys.optional("attention.temperature_scale")?),
            alibi: false,
            rope,
            rotated_layers: None,
            window,
            windowed_layers: windowed_layers(keys, layers)?,
            parallel_residual: None,
            clip_qkv: None,
            unit_queries: false,
            multipliers: multipliers(keys)?,
            attention_softcap: keys.optional("attn_logit_softcapping")?.filter(|&cap| cap != 0.0),
            logit_softcap: keys.optional("final_logit_softcapping")?.filter(|&cap| cap != 0.0),
            scores_fall: false,
            tied: None,
            without_bias: Vec::new(),
            ignored_keys: Vec::new(),
        };
        if let Some(family) = family {
            (family.gguf_quirks)(&keys, &mut config)?;
        }
        config.checked()
    }
}

/// The function of the feed-forward block, which files of some encoders name.
fn activation(keys: GgufKeys<'_>) -> Result<Option<Activation>, Error> {
    let name = keys.optional::<&str>("hidden_activation")?;
    let activation = name.map(Activation::from_hugging_face).transpose();
    activation.map_err(|message| Error::config("GGUF metadata", message))
}

/// The rotary embedding of layers that have the window, if the file says that they have another.
fn local_rope(keys: GgufKeys<'_>, rope: &RopeConfig) -> Result<Option<RopeConfig>, Error> {
    let theta = keys.optional::<f32>("rope.freq_base_swa")?.map(f64::from);
    let dims = keys.optional::<usize>("rope.dimension_count_swa")?;
    if theta.is_none() && dims.is_none() {
        return Ok(None);
    }
    let (theta, dims) = (theta.unwrap_or(rope.theta), dims.unwrap_or(rope.dims));
    let local = RopeConfig { theta, dims, scaling: None, ..rope.clone() };
    Ok(Some(local).filter(|local| local != rope))
}

/// Minus infinity stands for gates as they are.
fn gate_cutoffs(keys: GgufKeys<'_>, layers: usize) -> Result<Option<Vec<Option<f32>>>, Error> {
    let cutoffs = keys.optional_list::<f32>("activation_sparsity_scale", layers)?;
    let finite = |cutoff: f32| (cutoff != f32::NEG_INFINITY).then_some(cutoff);
    Ok(cutoffs.map(|cutoffs| cutoffs.into_iter().map(finite).collect()))
}

/// Rows and width of the second embedding; 0 says that there is none.
fn layer_embedding(keys: GgufKeys<'_>, vocab: usize) -> Result<Option<[usize; 2]>, Error> {
    let width = keys.optional::<usize>("embedding_length_per_layer_input")?.filter(|&width| width > 0);
    Ok(width.map(|width| [vocab, width]))
}

fn streams(keys: GgufKeys<'_>) -> Result<Option<StreamConfig>, Error> {
    let Some(count) = keys.optional("altup.num_inputs")? else { return Ok(None) };
    let active = keys.optional("altup.active_idx")?.unwrap_or(0);
    Ok(Some(StreamConfig { count, active, scaled: true }))
}

/// The latents that all heads share, if there are some.
fn latent(keys: GgufKeys<'_>, value_dim: usize) -> Result<Option<LatentConfig>, Error> {
    let Some(rank) = keys.optional("attention.kv_lora_rank")? else { return Ok(None) };
    let query_rank = keys.optional("attention.q_lora_rank")?.filter(|&rank| rank > 0);
    let value_dims = keys.optional("attention.value_length_mla")?.unwrap_or(value_dim);
    let indexer = match keys.optional("attention.indexer.head_count")? {
        None => None,
        Some(heads) => Some(IndexerConfig {
            heads,
            dims: keys.size("attention.indexer.key_length")?,
            positions: keys.size("attention.indexer.top_k")?,
        }),
    };
    Ok(Some(LatentConfig { rank, query_rank, value_dims, indexer }))
}

/// Steps and rates of files with groups are those of heads, whose number is in the place of the rank.
fn state_space(keys: GgufKeys<'_>) -> Result<Option<StateSpaceConfig>, Error> {
    let Some(state_dim) = keys.optional("ssm.state_size")? else { return Ok(None) };
    let groups = keys.optional("ssm.group_count")?;
    let rank = keys.size("ssm.time_step_rank")?;
    Ok(Some(StateSpaceConfig {
        channels: keys.size("ssm.inner_size")?,
        heads: groups.map(|groups| StateSpaceHeads { count: rank, groups }),
        step_rank: if groups.is_some() { 0 } else { rank },
        state_dim,
        conv_width: keys.size("ssm.conv_kernel")?,
        step_limit: [0.0, f32::INFINITY],
        gate_last: false,
    }))
}

/// Which layers have no key and value heads, if some have none.
fn without_heads(keys: GgufKeys<'_>, blocks: usize) -> Result<Option<Vec<bool>>, Error> {
    let listed = keys.optional_list::<usize>("attention.head_count_kv", blocks)?.unwrap_or_default();
    Ok(listed.contains(&0).then(|| listed.iter().map(|&heads| heads == 0).collect()))
}

/// A flag for each layer, or every how many layers one has no window.
fn windowed_layers(keys: GgufKeys<'_>, layers: usize) -> Result<Option<Vec<bool>>, Error> {
    let key = "attention.sliding_window_pattern";
    if let Some(windowed) = keys.flags(key) {
        return Ok(Some(windowed));
    }
    let every = keys.optional::<usize>(key)?;
    let windowed = |index: usize, every: usize| every != 0 && !(index + 1).is_multiple_of(every);
    Ok(every.map(|every| (0..layers.min(MAX_LAYERS)).map(|index| windowed(index, every)).collect()))
}

/// The width of a dense block, or that of experts in files of models that have none.
fn feed_forward(keys: GgufKeys<'_>) -> Result<usize, Error> {
    match keys.optional("feed_forward_length")?.or(keys.optional("expert_feed_forward_length")?) {
        Some(width) => Ok(width),
        None => keys.size("feed_forward_length"),
    }
}

/// Files of dense models may count 0 experts. Only some say the width of each, and whether shares sum to 1.
fn experts(keys: GgufKeys<'_>) -> Result<Option<ExpertConfig>, Error> {
    let Some(count) = keys.optional("expert_count")?.filter(|&count| count > 0) else { return Ok(None) };
    let width = keys.optional("expert_feed_forward_length")?.filter(|&width| width > 0);
    let width = width.map_or_else(|| keys.size("feed_forward_length"), Ok)?;
    let shared: Option<usize> = keys.optional("expert_shared_feed_forward_length")?;
    let shared =
        shared.or(keys.optional("expert_shared_count")?.map(|count: usize| count.saturating_mul(width)));
    Ok(Some(ExpertConfig {
        count,
        per_token: keys.size("expert_used_count")?,
        width,
        shared_width: shared.filter(|&width| width > 0),
        latent: keys.optional("moe_latent_size")?,
        routing: routing(keys)?,
    }))
}

fn routing(keys: GgufKeys<'_>) -> Result<Routing, Error> {
    let scores = match keys.optional::<usize>("expert_gating_func")? {
        // 3 is the softmax of a token's experts alone, which is that of all divided by their sum.
        None | Some(0 | 1 | 3) => Scores::Softmax,
        Some(2) => Scores::Sigmoid,
        Some(other) => {
            let message = format!("`{}` is {other}, expected 1 to 3", keys.key("expert_gating_func"));
            return Err(Error::config("GGUF metadata", message));
        }
    };
    // Files say how many there are, and not how they are ranked.
    let best = if scores == Scores::Sigmoid { 2 } else { 1 };
    let groups = (keys.optional("expert_group_count")?, keys.optional("expert_group_used_count")?);
    Ok(Routing {
        scores,
        bias: false,
        correction: false,
        groups: ExpertGroups::of(groups, best),
        normalized: keys.optional("expert_weights_norm")?.unwrap_or(true),
        scale: keys.optional("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0),
    })
}

/// Only stretched models have one, which counts by their original context.
fn temperature(scaling: Option<Scaling>, growth: Option<f32>) -> Option<Temperature> {
    let growth = growth.filter(|&growth| growth != 0.0)?;
    let Some(Scaling::Yarn { original_context, .. }) = scaling else { return None };
    Some(Temperature { growth, context: original_context as usize, offset: 0 })
}

/// That of RMS norms, or else of layer norms.
fn norm_eps(keys: GgufKeys<'_>) -> Result<f32, Error> {
    let rms_norm = "attention.layer_norm_rms_epsilon";
    match (keys.optional(rms_norm)?, keys.optional("attention.layer_norm_epsilon")?) {
        (Some(eps), _) | (None, Some(eps)) => Ok(eps),
        (None, None) => Ok(keys.metadata.required::<f32>(&keys.key(rms_norm))?),
    }
}

fn multipliers(keys: GgufKeys<'_>) -> Result<Multipliers, Error> {
    Ok(Multipliers {
        embedding: keys.optional("embedding_scale")?.unwrap_or(1.0),
        attention: keys.optional("attention.scale")?,
        residual: keys.optional("residual_scale")?.unwrap_or(1.0),
        logits: keys.optional("logit_scale")?.unwrap_or(1.0),
    })
}

fn scaling(metadata: &Metadata, architecture: &str) -> Result<Option<Scaling>, Error> {
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    let error = |message: String| Error::config("GGUF metadata", message);
    let kind = metadata.optional::<&str>(&key("type"))?;
    let original = metadata.optional::<usize>(&key("original_context_length"))?;
    let attention_factor = f64::from(metadata.optional::<f32>(&key("attn_factor"))?.unwrap_or(1.0));
    // Files made before the keys were grouped say only by how much positions are shrunk.
    let legacy = metadata.optional::<f32>(&format!("{architecture}.rope.scale_linear"))?;
    let Some(factor) = metadata.optional::<f32>(&key("factor"))?.or(legacy).map(f64::from) else {
        return match (kind, original) {
            (None | Some("longrope"), Some(original_context)) => {
                Ok(Some(Scaling::LongRope { original_context, attention_factor }))
            }
            (None | Some("none"), _) => Ok(None),
            (Some(kind), _) => Err(error(format!("rope scaling `{kind}` lacks `{}`", key("factor")))),
        };
    };
    if !(factor.is_finite() && factor > 0.0) {
        return Err(error(format!("`{}` is {factor}, expected a positive number", key("factor"))));
    }
    match kind {
        Some("none") => Ok(None),
        None | Some("linear") => Ok(Some(Scaling::Linear { factor })),
        Some("yarn") => {
            let original_context = metadata.usize(&key("original_context_length"))? as f64;
            let number = |name: &str, default: f64| {
                metadata.optional::<f32>(&key(name)).map(|value| value.map_or(default, f64::from))
            };
            let grown = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
            Ok(Some(Scaling::Yarn {
                factor,
                original_context,
                beta_fast: number("yarn_beta_fast", 32.0)?,
                beta_slow: number("yarn_beta_slow", 1.0)?,
                truncate: true,
                attention_factor: attention_factor * grown(1.0) / grown(number("yarn_log_multiplier", 0.0)?),
            }))
        }
        // Its factors say all that this one does.
        Some("longrope") => {
            let original_context = metadata.usize(&key("original_context_length"))?;
            Ok(Some(Scaling::LongRope { original_context, attention_factor }))
        }
        Some(other) => Err(error(format!(
            "rope scaling `{other}` is not supported; known: none, linear, yarn, longrope"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoneBlock;

    /// A small model of a family, with keys of its own.
    fn read(family: &str, keys: &[(&str, MetaValue)]) -> Result<Config, Error> {
        let mut metadata = Metadata::default();
        metadata.insert("general.architecture", family);
        for (key, size) in [
            ("block_count", 6u32),
            ("context_length", 4096),
            ("embedding_length", 64),
            ("feed_forward_length", 96),
            ("attention.head_count", 4),
        ] {
            metadata.insert(format!("{family}.{key}"), size);
        }
        metadata.insert(format!("{family}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        for (key, value) in keys {
            metadata.insert(format!("{family}.{key}"), value.clone());
        }
        Config::from_gguf(&metadata, 32)
    }

    #[test]
    fn layers_with_a_window_may_be_listed_or_counted() {
        let window = || ("attention.sliding_window", MetaValue::from(512u32));
        let layers = |pattern: MetaValue| {
            read("gemma3", &[window(), ("attention.sliding_window_pattern", pattern)])
                .map(|c| c.windowed_layers)
        };
        let counted = layers(3u32.into()).unwrap().unwrap();
        assert_eq!(counted, [true, true, false, true, true, false]);
        let listed = vec![true, false, false, false, false, true];
        assert_eq!(layers(listed.clone().into()).unwrap(), Some(listed));
        let error = layers(vec![true].into()).unwrap_err().to_string();
        assert_eq!(error, "GGUF metadata: 6 layers, but 1 in the list of windowed ones");
        assert_eq!(read("gemma3", &[window()]).unwrap().windowed_layers, None);
    }

    #[test]
    fn families_differ_in_what_files_leave_out() {
        let scaled = [
            ("attention.sliding_window", MetaValue::from(512u32)),
            ("rope.freq_base", 1e6f32.into()),
            ("rope.scaling.type", "linear".into()),
            ("rope.scaling.factor", 8.0f32.into()),
        ];
        let gemma3 = read("gemma3", &scaled).unwrap();
        assert_eq!((gemma3.rope.theta, gemma3.rope.scaling), (1e6, Some(Scaling::Linear { factor: 8.0 })));
        let local = gemma3.local_rope.unwrap();
        assert_eq!((local.theta, local.scaling), (1e4, None));
        assert_eq!(read("olmo2", &scaled).unwrap().local_rope.unwrap().theta, 1e6);
        assert_eq!(read("phi3", &scaled).unwrap().local_rope, None);
        assert_eq!(read("gemma3", &scaled[1..]).unwrap().local_rope, None);
        let gemma2 = read("gemma2", &[]).unwrap();
        assert_eq!(
            (gemma2.window, gemma2.attention_softcap, gemma2.logit_softcap),
            (Some(4096), Some(50.0), Some(30.0))
        );
    }

    #[test]
    fn delta_nets_say_their_sizes_in_words_of_state_spaces() {
        let sizes = |family: &str, inner: u32| {
            let keys = [("conv_kernel", 4), ("group_count", 2), ("state_size", 8), ("time_step_rank", 6)];
            let keys = keys.map(|(key, size)| (format!("ssm.{key}"), MetaValue::from(size as u32)));
            let mut keys: Vec<(&str, MetaValue)> =
                keys.iter().map(|(key, size)| (&key[..], size.clone())).collect();
            keys.push(("ssm.inner_size", inner.into()));
            read(family, &keys)
        };
        let next = sizes("qwen3next", 60).unwrap();
        let delta = next.delta.unwrap();
        assert_eq!((delta.key_heads, delta.key_dim, delta.value_heads, delta.value_dim), (2, 8, 6, 10));
        assert_eq!((delta.conv_width, delta.tiled), (4, false));
        assert_eq!(next.recurrent_layers.unwrap(), [true, true, true, false, true, true]);
        assert!(sizes("qwen35", 60).unwrap().delta.unwrap().tiled);
        // The last block predicts tokens further ahead.
        let listed = |flags: &[bool]| {
            let sizes = ["conv_kernel", "group_count", "state_size", "time_step_rank", "inner_size"];
            let sizes = sizes.map(|key| (format!("ssm.{key}"), MetaValue::from(4u32)));
            let mut keys: Vec<(&str, MetaValue)> =
                sizes.iter().map(|(key, size)| (&key[..], size.clone())).collect();
            keys.push(("nextn_predict_layers", 1u32.into()));
            keys.push(("attention.recurrent_layers", flags.to_vec().into()));
            read("qwen35", &keys).map(|config| (config.layers, config.recurrent_layers.unwrap()))
        };
        let flags = [true, false, true, true, false, false];
        assert_eq!(listed(&flags).unwrap(), (5, flags[..5].to_vec()));
        let error = listed(&[true; 7]).unwrap_err().to_string();
        assert_eq!(error, "GGUF metadata: 5 layers, but 7 in the list of recurrent ones");
        let error = sizes("qwen35moe", 61).unwrap_err().to_string();
        assert_eq!(error, "GGUF metadata: 6 value heads of delta nets cannot share 61 dims evenly");
        assert!(read("qwen35", &[]).is_err());
    }

    /// The last block predicts tokens further ahead, with attention and experts.
    #[test]
    fn nemotron_lists_what_each_layer_has() {
        let heads = vec![0u32, 0, 2, 0, 0, 2];
        let widths = vec![0u32, 12, 0, 0, 12, 12];
        let mut keys = vec![
            ("nextn_predict_layers", MetaValue::from(1u32)),
            ("attention.head_count_kv", heads.into()),
            ("feed_forward_length", widths.into()),
            ("expert_count", 8u32.into()),
            ("expert_used_count", 3u32.into()),
            ("expert_feed_forward_length", 12u32.into()),
            ("moe_latent_size", 20u32.into()),
        ];
        for key in ["ssm.conv_kernel", "ssm.group_count", "ssm.state_size", "ssm.time_step_rank"] {
            keys.push((key, 4u32.into()));
        }
        keys.push(("ssm.inner_size", 8u32.into()));
        let config = read("nemotron_h_moe", &keys).unwrap();
        let (space, feed) = (LoneBlock::StateSpace, LoneBlock::FeedForward);
        assert_eq!(config.lone_blocks.unwrap(), [space, feed, LoneBlock::Attention, space, feed]);
        let experts = config.experts.unwrap();
        assert_eq!((experts.latent, experts.routing.scores), (Some(20), Scores::Sigmoid));
    }

    #[test]
    fn scalings() {
        let original = || ("rope.scaling.original_context_length", MetaValue::from(1024u32));
        let yarn = |keys: &[(&'static str, MetaValue)]| {
            let common =
                [original(), ("rope.scaling.type", "yarn".into()), ("rope.scaling.factor", 16.0f32.into())];
            read("mistral3", &[&common, keys].concat()).unwrap()
        };
        let attention_factor = |config: &Config| match config.rope.scaling {
            Some(Scaling::Yarn { attention_factor, .. }) => attention_factor,
            other => panic!("{other:?}"),
        };
        let plain = yarn(&[]);
        assert_eq!((plain.context_length, plain.temperature), (16 * 1024, None));
        assert_eq!(attention_factor(&plain), 0.1 * 16f64.ln() + 1.0);
        let cancelled = yarn(&[
            ("rope.scaling.yarn_log_multiplier", 1.0f32.into()),
            ("attention.temperature_scale", 0.5f32.into()),
        ]);
        assert_eq!(attention_factor(&cancelled), 1.0);
        assert_eq!(cancelled.temperature, Some(Temperature { growth: 0.5, context: 1024, offset: 0 }));
        let expected = Some(Scaling::LongRope { original_context: 1024, attention_factor: 1.0 });
        assert_eq!(read("phi3", &[original()]).unwrap().rope.scaling, expected);
        let unknown = [("rope.scaling.type", "magic".into()), ("rope.scaling.factor", 2.0f32.into())];
        let error = read("llama", &unknown).unwrap_err().to_string();
        assert!(error.contains("rope scaling `magic` is not supported"), "{error}");
    }
}
