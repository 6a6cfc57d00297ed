//! The `{architecture}.*` keys of a GGUF file's metadata.

use weights::{MetaArray, MetaValue, Metadata};

use super::{Config, ExpertConfig, MAX_LAYERS, Multipliers, RopeConfig, Scaling};
use crate::{Error, Temperature};

impl Config {
    /// Reads a GGUF file's metadata. `vocab` is the number of rows of the embedding, for files that do not say.
    ///
    /// # Errors
    /// If a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_gguf(metadata: &Metadata, vocab: usize) -> Result<Config, Error> {
        let architecture = metadata.str("general.architecture")?.to_string();
        let key = |name: &str| format!("{architecture}.{name}");
        let size = |name: &str| metadata.usize(&key(name));
        let optional_size = |name: &str| metadata.optional::<usize>(&key(name));
        let optional_number = |name: &str| metadata.optional::<f32>(&key(name));
        let heads = size("attention.head_count")?;
        let hidden = size("embedding_length")?;
        if heads == 0 {
            return Err(Error::config("GGUF metadata", format!("`{}` is 0", key("attention.head_count"))));
        }
        let head_dim = optional_size("attention.key_length")?.unwrap_or(hidden / heads);
        let value_dim = optional_size("attention.value_length")?.unwrap_or(head_dim);
        if value_dim != head_dim {
            let message = format!("keys of {head_dim} and values of {value_dim} dims are not supported");
            return Err(Error::config("GGUF metadata", message));
        }
        // The first files of Gemma 2 leave out what other families had no need of.
        let of_gemma2 = |number: f32| (architecture == "gemma2").then_some(number);
        let layers = size("block_count")?;
        // 0 says that there is none.
        let window =
            optional_size("attention.sliding_window")?.or(of_gemma2(4096.0).map(|window| window as usize));
        let window = window.filter(|&window| window > 0);
        let rope = RopeConfig {
            theta: optional_number("rope.freq_base")?.unwrap_or(10000.0).into(),
            dims: optional_size("rope.dimension_count")?.unwrap_or(head_dim),
            scaling: scaling(metadata, &architecture)?,
            // Tensors hold them.
            factors: None,
            long_factors: None,
        };
        Config {
            source_name: "GGUF metadata".into(),
            name: metadata.optional::<&str>("general.name")?.map(str::to_string),
            vocab: optional_size("vocab_size")?.unwrap_or(vocab),
            hidden,
            layers,
            heads,
            kv_heads: optional_size("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            feed_forward: size("feed_forward_length")?,
            experts: experts(metadata, &architecture)?,
            // The weights show them.
            sparse_layers: None,
            context_length: Scaling::reach(rope.scaling, size("context_length")?),
            norm_eps: norm_eps(metadata, &architecture)?,
            activation: None,
            local_rope: window.and(local_rope(metadata, &architecture, &rope)?),
            temperature: temperature(rope.scaling, optional_number("attention.temperature_scale")?),
            rope,
            rotated_layers: None,
            window,
            windowed_layers: windowed_layers(metadata, &architecture, layers)?,
            multipliers: multipliers(metadata, &architecture)?,
            attention_softcap: optional_number("attn_logit_softcapping")?.or(of_gemma2(50.0)),
            logit_softcap: optional_number("final_logit_softcapping")?.or(of_gemma2(30.0)),
            tied: None,
            architecture,
        }
        .checked()
    }
}

/// The rotary embedding of layers that have the window. Which families have another there, files do not say.
fn local_rope(
    metadata: &Metadata,
    architecture: &str,
    rope: &RopeConfig,
) -> Result<Option<RopeConfig>, Error> {
    let usual = match architecture {
        "gemma3" => Some(10000.0),
        // OLMo 3, whose files call themselves so, stretches the others alone.
        "olmo2" => Some(rope.theta),
        _ => None,
    };
    let said = metadata.optional::<f32>(&format!("{architecture}.rope.freq_base_swa"))?;
    let theta = said.map(f64::from).or(usual);
    let local = theta.map(|theta| RopeConfig {
        theta,
        dims: rope.dims,
        scaling: None,
        factors: None,
        long_factors: None,
    });
    Ok(local.filter(|local| local != rope))
}

/// A flag for each layer, or every how many layers one has no window.
fn windowed_layers(
    metadata: &Metadata,
    architecture: &str,
    layers: usize,
) -> Result<Option<Vec<bool>>, Error> {
    let key = format!("{architecture}.attention.sliding_window_pattern");
    if let Some(MetaValue::Array(MetaArray::Bool(windowed))) = metadata.get(&key) {
        return Ok(Some(windowed.clone()));
    }
    let every = metadata.optional::<usize>(&key)?;
    let windowed = |index: usize, every: usize| every != 0 && !(index + 1).is_multiple_of(every);
    Ok(every.map(|every| (0..layers.min(MAX_LAYERS)).map(|index| windowed(index, every)).collect()))
}

/// Files of dense models may count 0 experts. Only some say the width of each, and whether shares sum to 1.
fn experts(metadata: &Metadata, architecture: &str) -> Result<Option<ExpertConfig>, Error> {
    let key = |name: &str| format!("{architecture}.{name}");
    let size = |name: &str| metadata.optional::<usize>(&key(name));
    let Some(count) = size("expert_count")?.filter(|&count| count > 0) else { return Ok(None) };
    let width = size("expert_feed_forward_length")?.filter(|&width| width > 0);
    let normalized = metadata.optional::<bool>(&key("expert_weights_norm"))?;
    Ok(Some(ExpertConfig {
        count,
        per_token: metadata.usize(&key("expert_used_count"))?,
        width: width.map_or_else(|| metadata.usize(&key("feed_forward_length")), Ok)?,
        shared_width: size("expert_shared_feed_forward_length")?.filter(|&width| width > 0),
        normalized: normalized.unwrap_or(!matches!(architecture, "qwen2moe" | "olmoe")),
    }))
}

/// Only stretched models have one, which counts by their original context.
fn temperature(scaling: Option<Scaling>, growth: Option<f32>) -> Option<Temperature> {
    let growth = growth.filter(|&growth| growth != 0.0)?;
    let Some(Scaling::Yarn { original_context, .. }) = scaling else { return None };
    Some(Temperature { growth, context: original_context as usize })
}

/// That of RMS norms, or else of layer norms.
fn norm_eps(metadata: &Metadata, architecture: &str) -> Result<f32, Error> {
    let layer_norm = metadata.optional::<f32>(&format!("{architecture}.attention.layer_norm_epsilon"))?;
    let rms_norm = format!("{architecture}.attention.layer_norm_rms_epsilon");
    match layer_norm {
        Some(eps) if metadata.get(&rms_norm).is_none() => Ok(eps),
        _ => Ok(metadata.f32(&rms_norm)?),
    }
}

fn multipliers(metadata: &Metadata, architecture: &str) -> Result<Multipliers, Error> {
    let number = |name: &str| metadata.optional::<f32>(&format!("{architecture}.{name}"));
    Ok(Multipliers {
        embedding: number("embedding_scale")?.unwrap_or(1.0),
        attention: number("attention.scale")?,
        residual: number("residual_scale")?.unwrap_or(1.0),
        logit_divisor: number("logit_scale")?.unwrap_or(1.0),
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
        assert_eq!(cancelled.temperature, Some(Temperature { growth: 0.5, context: 1024 }));
        let expected = Some(Scaling::LongRope { original_context: 1024, attention_factor: 1.0 });
        assert_eq!(read("phi3", &[original()]).unwrap().rope.scaling, expected);
        let unknown = [("rope.scaling.type", "magic".into()), ("rope.scaling.factor", 2.0f32.into())];
        let error = read("llama", &unknown).unwrap_err().to_string();
        assert!(error.contains("rope scaling `magic` is not supported"), "{error}");
    }
}
