//! The `{architecture}.*` keys of a GGUF file's metadata.

use weights::Metadata;

use super::{Additions, Config, LayerLists, RopeConfig, Scaling};
use crate::key::{self, GgufKeys, MAX_LAYERS};
use crate::layers::XIELU;
use crate::{
    Activation, AttentionConfig, Error, ExpertConfig, ExpertGroups, GlobalHeads, IndexerConfig, LatentConfig,
    Scores, StateSpaceConfig, StateSpaceHeads, StreamConfig, Temperature,
};

/// What stands for the file in messages.
const SOURCE: &str = "GGUF metadata";

impl Config {
    /// Reads the keys of a GGUF file, without checks and without what its family says otherwise. `vocab` is the number of
    /// rows of the embedding, for files that do not say.
    ///
    /// # Errors
    /// If a key is missing or of the wrong kind.
    pub(crate) fn from_gguf_keys(keys: GgufKeys<'_>, vocab: usize) -> Result<Config, Error> {
        let GgufKeys { metadata, architecture } = keys;
        let rows = keys.optional("vocab_size")?.unwrap_or(vocab);
        let mut config = Config {
            source_name: SOURCE.into(),
            architecture: architecture.to_string(),
            name: metadata.optional::<&str>("general.name")?.map(str::to_string),
            vocab: rows,
            ..Config::default()
        };
        key::read_gguf(&mut config, keys)?;
        // The blocks that predict tokens further ahead count too.
        config.prediction_layers = keys.optional("nextn_predict_layers")?.unwrap_or(0);
        config.layers = keys.size("block_count")?.saturating_sub(config.prediction_layers);
        let blocks = config.layers + config.prediction_layers;
        config.norm_eps = norm_eps(keys)?;
        config.activation = activation(keys)?;
        config.state_space = state_space(keys)?;
        read_attention(&mut config, keys)?;
        read_positions(&mut config, keys)?;
        config.lists = lists(keys, config.layers, blocks)?;
        config.feed_forward = match config.lists.widths.as_deref() {
            None => feed_forward(keys)?,
            Some(widths) => widths.iter().copied().max().unwrap_or(0),
        };
        config.experts = experts(keys)?;
        config.additions = additions(keys, rows)?;
        key::read_gguf(&mut config.multipliers, keys)?;
        Ok(config)
    }
}

/// The heads, and the latents that they may share.
fn read_attention(config: &mut Config, keys: GgufKeys<'_>) -> Result<(), Error> {
    let blocks = config.layers + config.prediction_layers;
    let heads = match keys.optional_list::<usize>("attention.head_count", blocks)? {
        None => keys.size("attention.head_count")?,
        Some(listed) => listed.into_iter().max().unwrap_or(0),
    };
    // 0 says that there is no attention.
    let heads = if heads == 0 && config.state_space.is_some() { 1 } else { heads };
    if heads == 0 {
        return Err(Error::config(SOURCE, format!("`{}` is 0", keys.key("attention.head_count"))));
    }
    let global_head_dim = keys.optional("attention.key_length")?.unwrap_or(config.hidden / heads);
    let value_dim = keys.optional("attention.value_length")?.unwrap_or(global_head_dim);
    config.latent = latent(keys, value_dim)?;
    let local_head_dim = keys.optional::<usize>("attention.key_length_swa")?;
    let mut value_dims = None;
    // Keys of latents, as they are attended to, or of heads, as older files have them.
    let global_head_dim = match config.latent {
        Some(_) => keys.optional("attention.key_length_mla")?.unwrap_or(global_head_dim),
        None => {
            let values = keys.optional("attention.value_length_swa")?.or(local_head_dim);
            let local = local_head_dim.zip(values).unwrap_or((global_head_dim, value_dim));
            value_dims = fewer_dims((global_head_dim, value_dim), local)?;
            global_head_dim
        }
    };
    let kv_heads = match keys.optional_list::<usize>("attention.head_count_kv", blocks)? {
        None => keys.optional("attention.head_count_kv")?.unwrap_or(heads),
        Some(listed) => listed.into_iter().max().unwrap_or(0),
    };
    let head_dim = local_head_dim.unwrap_or(global_head_dim);
    config.attention = AttentionConfig {
        heads,
        kv_heads,
        head_dim,
        value_dim: value_dims,
        global_heads: local_head_dim.map(|_| GlobalHeads { kv_heads, head_dim: global_head_dim }),
        shared_layers: keys.optional("attention.shared_kv_layers")?.unwrap_or(0),
        // 0 says that there is none.
        window: keys.optional("attention.sliding_window")?.filter(|&window: &usize| window > 0),
        ..AttentionConfig::default()
    };
    key::read_gguf(&mut config.attention, keys)
}

/// Dims of values, if they have fewer than keys, of the dims of both in layers without and with a window.
fn fewer_dims(global: (usize, usize), local: (usize, usize)) -> Result<Option<usize>, Error> {
    let fewer = |(keys, values): (usize, usize)| (keys != values).then_some(values);
    if fewer(global) == fewer(local) && [global, local].iter().all(|(keys, values)| keys >= values) {
        return Ok(fewer(global));
    }
    let [(keys, values), (local_keys, local_values)] = [global, local];
    let message = format!(
        "keys of {keys} and values of {values} dims, and of {local_keys} and {local_values} with a window, are not supported"
    );
    Err(Error::config(SOURCE, message))
}

/// The rotary embeddings, and how far they reach.
fn read_positions(config: &mut Config, keys: GgufKeys<'_>) -> Result<(), Error> {
    let scaling = scaling(keys.metadata, keys.architecture)?;
    let dims = keys.optional("rope.dimension_count")?;
    // Tensors hold the factors.
    config.rope = RopeConfig {
        theta: keys.optional::<f32>("rope.freq_base")?.unwrap_or(10000.0).into(),
        dims: dims.unwrap_or(config.attention.global_head_dim()),
        scaling,
        ..RopeConfig::default()
    };
    let has_window = config.attention.window.is_some();
    config.local_rope = local_rope(keys, &config.rope)?.filter(|_| has_window);
    config.temperature = temperature(scaling, keys.optional("attention.temperature_scale")?);
    config.context_length = Scaling::reach(scaling, config.context_length);
    Ok(())
}

/// What differs between layers. Lists may go on with the blocks that predict tokens further ahead.
fn lists(keys: GgufKeys<'_>, layers: usize, blocks: usize) -> Result<LayerLists, Error> {
    let mut widths = keys.optional_list::<usize>("feed_forward_length", blocks)?;
    widths.iter_mut().for_each(|widths| widths.truncate(layers));
    let mut heads = keys.optional_list::<usize>("attention.head_count", blocks)?;
    heads.iter_mut().for_each(|heads| heads.truncate(layers));
    let mut recurrent = keys.flags("attention.recurrent_layers");
    recurrent.iter_mut().filter(|flags| flags.len() == blocks).for_each(|flags| flags.truncate(layers));
    let recurrent = match recurrent {
        Some(layers) => Some(layers),
        None => without_heads(keys, blocks)?,
    };
    Ok(LayerLists {
        indexed: keys.flags("attention.indexer.types"),
        heads,
        widths,
        xielu: xielu(keys.metadata)?,
        gate_cutoffs: gate_cutoffs(keys, layers)?,
        gate_limits: gate_limits(keys, "swiglu_clamp_exp", [layers, blocks])?,
        shared_gate_limits: gate_limits(keys, "swiglu_clamp_shexp", [layers, blocks])?,
        recurrent,
        windowed: windowed_layers(keys, layers, blocks)?,
        ..LayerLists::default()
    })
}

/// The function of the feed-forward block, which files of some encoders name.
fn activation(keys: GgufKeys<'_>) -> Result<Option<Activation>, Error> {
    let name = keys.optional::<&str>("hidden_activation")?;
    let activation = name.map(Activation::from_hugging_face).transpose();
    activation.map_err(|message| Error::config(SOURCE, message))
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

/// The numbers of activations, whose keys do not begin with the name of the architecture.
fn xielu(metadata: &Metadata) -> Result<Option<Vec<[f32; 4]>>, Error> {
    let mut lists = Vec::new();
    for name in XIELU {
        lists.extend(metadata.optional::<Vec<f32>>(&format!("xielu.{name}"))?);
    }
    let [alpha_p, alpha_n, beta, eps] = &lists[..] else { return Ok(None) };
    if lists.iter().any(|list| list.len() != alpha_p.len()) {
        return Err(Error::config(SOURCE, "the lists `xielu.alpha_p` and so on are not equally long"));
    }
    Ok(Some((0..alpha_p.len()).map(|layer| [alpha_p, alpha_n, beta, eps].map(|list| list[layer])).collect()))
}

/// Minus infinity stands for gates as they are.
fn gate_cutoffs(keys: GgufKeys<'_>, layers: usize) -> Result<Option<Vec<Option<f32>>>, Error> {
    let cutoffs = keys.optional_list::<f32>("activation_sparsity_scale", layers)?;
    let finite = |cutoff: f32| (cutoff != f32::NEG_INFINITY).then_some(cutoff);
    Ok(cutoffs.map(|cutoffs| cutoffs.into_iter().map(finite).collect()))
}

fn gate_limits(
    keys: GgufKeys<'_>,
    key: &str,
    [layers, blocks]: [usize; 2],
) -> Result<Option<Vec<f32>>, Error> {
    let mut limits = keys.optional_list::<f32>(key, blocks)?;
    limits.iter_mut().for_each(|limits| limits.truncate(layers));
    Ok(limits)
}

/// What layers have in addition to their blocks.
fn additions(keys: GgufKeys<'_>, vocab: usize) -> Result<Additions, Error> {
    // 0 says that there is none.
    let width = keys.optional::<usize>("embedding_length_per_layer_input")?.filter(|&width| width > 0);
    let streams = StreamConfig { scaled: true, ..StreamConfig::default() };
    Ok(Additions {
        layer_embedding: width.map(|width| [vocab, width]),
        streams: key::block_from_gguf(streams, keys)?,
        low_rank: None,
    })
}

/// The latents that all heads share, if there are some.
fn latent(keys: GgufKeys<'_>, value_dims: usize) -> Result<Option<LatentConfig>, Error> {
    let latent = key::block_from_gguf(LatentConfig { value_dims, ..LatentConfig::default() }, keys)?;
    let indexer = key::block_from_gguf(IndexerConfig::default(), keys)?;
    Ok(latent.map(|latent| LatentConfig { indexer, ..latent }))
}

/// Steps and rates of files with groups are those of heads, whose number is in the place of the rank.
fn state_space(keys: GgufKeys<'_>) -> Result<Option<StateSpaceConfig>, Error> {
    let defaults = StateSpaceConfig {
        channels: 0,
        heads: None,
        step_rank: 0,
        state_dim: 0,
        conv_width: 0,
        step_limit: [0.0, f32::INFINITY],
        gate_last: false,
        norm_eps: None,
    };
    let Some(mut space) = key::block_from_gguf(defaults, keys)? else { return Ok(None) };
    let rank = keys.size("ssm.time_step_rank")?;
    match keys.optional("ssm.group_count")? {
        Some(groups) => space.heads = Some(StateSpaceHeads { count: rank, groups }),
        None => space.step_rank = rank,
    }
    Ok(Some(space))
}

/// Which layers have no key and value heads, if some have none.
fn without_heads(keys: GgufKeys<'_>, blocks: usize) -> Result<Option<Vec<bool>>, Error> {
    let listed = keys.optional_list::<usize>("attention.head_count_kv", blocks)?.unwrap_or_default();
    Ok(listed.contains(&0).then(|| listed.iter().map(|&heads| heads == 0).collect()))
}

/// A flag for each layer, or every how many layers one has no window.
fn windowed_layers(keys: GgufKeys<'_>, layers: usize, blocks: usize) -> Result<Option<Vec<bool>>, Error> {
    let key = "attention.sliding_window_pattern";
    if let Some(mut windowed) = keys.flags(key) {
        if windowed.len() == blocks {
            windowed.truncate(layers);
        }
        return Ok(Some(windowed));
    }
    if let Some(numbers) = keys.optional_list::<usize>(key, blocks)? {
        return Ok(Some(numbers.iter().take(layers).map(|&windowed| windowed != 0).collect()));
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

/// Only some files say the width of each expert, and whether shares sum to 1.
fn experts(keys: GgufKeys<'_>) -> Result<Option<ExpertConfig>, Error> {
    // Files of Nemotron-H have a list in its place, and the width of experts under a key of its own.
    let width = keys.optional("feed_forward_length").unwrap_or_default().unwrap_or(0);
    let Some(mut experts) = key::block_from_gguf(ExpertConfig { width, ..ExpertConfig::default() }, keys)?
    else {
        return Ok(None);
    };
    if experts.width == 0 {
        experts.width = keys.size("feed_forward_length")?;
    }
    let shared = keys.optional::<usize>("expert_shared_count")?;
    let shared = shared.map(|count| count.saturating_mul(experts.width)).filter(|&width| width > 0);
    experts.shared_width = experts.shared_width.or(shared);
    if experts.routing.scale == 0.0 {
        experts.routing.scale = 1.0;
    }
    experts.routing.scores = scores(keys)?;
    // Files say how many groups there are, and not how they are ranked.
    let best = if experts.routing.scores == Scores::Sigmoid { 2 } else { 1 };
    let groups = (keys.optional("expert_group_count")?, keys.optional("expert_group_used_count")?);
    experts.routing.groups = ExpertGroups::from_config(groups, best);
    Ok(Some(experts))
}

fn scores(keys: GgufKeys<'_>) -> Result<Scores, Error> {
    match keys.optional::<usize>("expert_gating_func")? {
        // 3 is the softmax of a token's experts alone, which is that of all divided by their sum.
        None | Some(0 | 1 | 3) => Ok(Scores::Softmax),
        Some(2) => Ok(Scores::Sigmoid),
        Some(other) => {
            let message = format!("`{}` is {other}, expected 1 to 3", keys.key("expert_gating_func"));
            Err(Error::config(SOURCE, message))
        }
    }
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

fn scaling(metadata: &Metadata, architecture: &str) -> Result<Option<Scaling>, Error> {
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    let error = |message: String| Error::config(SOURCE, message);
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
    use weights::MetaValue;

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
                .map(|c| c.lists.windowed)
        };
        let counted = layers(3u32.into()).unwrap().unwrap();
        assert_eq!(counted, [true, true, false, true, true, false]);
        let listed = vec![true, false, false, false, false, true];
        assert_eq!(layers(listed.clone().into()).unwrap(), Some(listed));
        let error = layers(vec![true].into()).unwrap_err().to_string();
        assert_eq!(error, "GGUF metadata: 6 layers, but 1 in the list of windowed ones");
        assert_eq!(read("gemma3", &[window()]).unwrap().lists.windowed, None);
    }

    #[test]
    fn heads_may_differ_between_layers_and_between_keys_and_values() {
        let dims = |keys: u32, values: u32| {
            let keys = [("attention.key_length", keys.into()), ("attention.value_length", values.into())];
            read("llama", &keys).map(|config| config.attention.value_dim)
        };
        assert_eq!((dims(16, 12).unwrap(), dims(16, 16).unwrap()), (Some(12), None));
        let error = dims(12, 16).unwrap_err().to_string();
        assert!(error.contains("keys of 12 and values of 16 dims"), "{error}");
        let heads = |heads: Vec<u32>| {
            let kv_heads = ("attention.head_count_kv", 2u32.into());
            read("laguna", &[kv_heads, ("attention.head_count", heads.into())])
        };
        let config = heads(vec![4, 8, 4, 2, 4, 6]).unwrap();
        assert_eq!((config.attention.heads, config.lists.heads), (8, Some(vec![4, 8, 4, 2, 4, 6])));
        let error = heads(vec![4, 8, 4, 3, 4, 4]).unwrap_err().to_string();
        assert_eq!(error, "GGUF metadata: 3 heads of a layer cannot share 2 key-value heads evenly");
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
        // Layers without a window rotate half as many dims.
        let step = read("step35", &scaled[..2]).unwrap();
        let local = step.local_rope.unwrap();
        assert_eq!((step.rope.theta, step.rope.dims, local.theta, local.dims), (1e6, 8, 1e6, 16));
        let sizes =
            [("attention.kv_lora_rank", 8u32), ("attention.key_length", 24), ("rope.dimension_count", 8)];
        let minicpm3 = read("minicpm3", &sizes.map(|(key, size)| (key, size.into()))).unwrap();
        assert_eq!(minicpm3.latent.map(|latent| (latent.rank, latent.value_dims)), Some((8, 16)));
        let factors = minicpm3.multipliers;
        assert_eq!(
            (factors.embedding, factors.residual, factors.logits),
            (12.0, (1.4 / 6f64.sqrt()) as f32, 4.0)
        );
        let gemma2 = read("gemma2", &[]).unwrap();
        assert_eq!(
            (gemma2.attention.window, gemma2.attention.softcap, gemma2.logit_softcap),
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
        assert_eq!(next.lists.recurrent.unwrap(), [true, true, true, false, true, true]);
        assert!(sizes("qwen35", 60).unwrap().delta.unwrap().tiled);
        // The last block predicts tokens further ahead.
        let listed = |flags: &[bool]| {
            let sizes = ["conv_kernel", "group_count", "state_size", "time_step_rank", "inner_size"];
            let sizes = sizes.map(|key| (format!("ssm.{key}"), MetaValue::from(4u32)));
            let mut keys: Vec<(&str, MetaValue)> =
                sizes.iter().map(|(key, size)| (&key[..], size.clone())).collect();
            keys.push(("nextn_predict_layers", 1u32.into()));
            keys.push(("attention.recurrent_layers", flags.to_vec().into()));
            read("qwen35", &keys).map(|config| (config.layers, config.lists.recurrent.unwrap()))
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
        assert_eq!(config.lists.lone_blocks.unwrap(), [space, feed, LoneBlock::Attention, space, feed]);
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
