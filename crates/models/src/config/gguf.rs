//! The `{architecture}.*` keys of a GGUF file's metadata.

use weights::Metadata;

use super::{Config, Multipliers, Scaling};
use crate::Error;

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
        let rope_scaling = scaling(metadata, &architecture)?;
        Config {
            source_name: "GGUF metadata".into(),
            name: metadata.optional::<&str>("general.name")?.map(str::to_string),
            vocab: optional_size("vocab_size")?.unwrap_or(vocab),
            hidden,
            layers: size("block_count")?,
            heads,
            kv_heads: optional_size("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            feed_forward: size("feed_forward_length")?,
            context_length: Scaling::usable_context(rope_scaling, size("context_length")?),
            norm_eps: metadata.f32(&key("attention.layer_norm_rms_epsilon"))?,
            rope_theta: metadata.optional::<f32>(&key("rope.freq_base"))?.unwrap_or(10000.0).into(),
            rope_dims: optional_size("rope.dimension_count")?.unwrap_or(head_dim),
            rope_scaling,
            // A tensor holds them.
            rope_factors: None,
            rotated_layers: None,
            // 0 says that there is none.
            window: optional_size("attention.sliding_window")?.filter(|&window| window > 0),
            full_layers: 0,
            multipliers: multipliers(metadata, &architecture)?,
            architecture,
        }
        .checked()
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
    // Files made before the keys were grouped say only by how much positions are shrunk.
    let legacy = metadata.optional::<f32>(&format!("{architecture}.rope.scale_linear"))?;
    let Some(factor) = metadata.optional::<f32>(&key("factor"))?.or(legacy).map(f64::from) else {
        let original = metadata.optional::<usize>(&key("original_context_length"))?;
        let attention_factor = metadata.optional::<f32>(&key("attn_factor"))?.unwrap_or(1.0).into();
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
            let original = metadata.usize(&key("original_context_length"))? as f64;
            let number = |name: &str, default: f64| {
                metadata.optional::<f32>(&key(name)).map(|value| value.map_or(default, f64::from))
            };
            Ok(Some(Scaling::Yarn {
                factor,
                original_context: original,
                beta_fast: number("yarn_beta_fast", 32.0)?,
                beta_slow: number("yarn_beta_slow", 1.0)?,
                attention_factor: number("attn_factor", 1.0)? * (0.1 * factor.ln() + 1.0),
            }))
        }
        Some(other) => {
            Err(error(format!("rope scaling `{other}` is not supported; known: none, linear, yarn")))
        }
    }
}
