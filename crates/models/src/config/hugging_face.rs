//! `config.json` of a Hugging Face folder.

use serde::Deserialize;
use serde_json::Value;

use super::{Config, MAX_LAYERS, Multipliers, Scaling};
use crate::Error;

/// The key that says what the others mean.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    architectures: Vec<String>,
}

/// The keys we read. Absent ones have the defaults that `transformers` gives a Llama.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "_name_or_path")]
    name: Option<String>,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    #[serde(default = "default_context")]
    max_position_embeddings: usize,
    #[serde(default = "default_eps")]
    rms_norm_eps: f32,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    original_max_position_embeddings: Option<usize>,
    no_rope_layers: Option<Vec<u32>>,
    no_rope_layer_interval: Option<usize>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    embedding_multiplier: Option<f32>,
    attention_multiplier: Option<f32>,
    residual_multiplier: Option<f32>,
    logits_scaling: Option<f32>,
}

fn default_context() -> usize {
    2048
}

fn default_eps() -> f32 {
    1e-6
}

impl Config {
    /// The architecture that a `config.json` names, whatever else is in it.
    ///
    /// # Errors
    /// If it is no JSON, or names none or several.
    pub(crate) fn architecture_of_hugging_face(source_name: &str, json: &str) -> Result<String, Error> {
        let head: Head =
            serde_json::from_str(json).map_err(|error| Error::config(source_name, error.to_string()))?;
        match <[String; 1]>::try_from(head.architectures) {
            Ok([architecture]) => Ok(architecture),
            Err(names) => {
                let message = format!("`architectures` names {names:?}, expected exactly one");
                Err(Error::config(source_name, message))
            }
        }
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// If it is no JSON, a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<Config, Error> {
        let file: File =
            serde_json::from_str(json).map_err(|error| Error::config(source_name, error.to_string()))?;
        let error = |message: String| Error::config(source_name, message);
        if file.num_attention_heads == 0 {
            return Err(error("`num_attention_heads` is 0".into()));
        }
        let head_dim = file.head_dim.unwrap_or(file.hidden_size / file.num_attention_heads);
        // Newer files keep theta beside the scaling in `rope_parameters`; older ones keep both apart.
        let rope =
            file.rope_parameters.as_ref().or(file.rope_scaling.as_ref()).filter(|rope| !rope.is_null());
        let number = |key: &str| rope.and_then(|rope| rope.get(key)).and_then(Value::as_f64);
        let rotary = number("partial_rotary_factor").or(file.partial_rotary_factor).unwrap_or(1.0);
        let original = file.original_max_position_embeddings;
        let rope_scaling = rope
            .map(|rope| scaling(rope, file.max_position_embeddings, original).map_err(error))
            .transpose()?
            .flatten();
        let rope_factors = match (rope_scaling, rope) {
            (Some(Scaling::LongRope { .. }), Some(rope)) => Some(short_factors(rope).map_err(error)?),
            _ => None,
        };
        Config {
            source_name: source_name.to_string(),
            architecture: Config::architecture_of_hugging_face(source_name, json)?,
            name: file.name.clone().filter(|name| !name.is_empty()),
            vocab: file.vocab_size,
            hidden: file.hidden_size,
            layers: file.num_hidden_layers,
            heads: file.num_attention_heads,
            kv_heads: file.num_key_value_heads.unwrap_or(file.num_attention_heads),
            head_dim,
            feed_forward: file.intermediate_size,
            context_length: Scaling::usable_context(rope_scaling, file.max_position_embeddings),
            norm_eps: file.rms_norm_eps,
            rope_theta: number("rope_theta").or(file.rope_theta).unwrap_or(10000.0),
            rope_dims: (head_dim as f64 * rotary) as usize,
            rotated_layers: file.rotated_layers(),
            window: file.window(),
            full_layers: file.max_window_layers.unwrap_or(0),
            multipliers: file.multipliers(),
            rope_scaling,
            rope_factors,
        }
        .checked()
    }
}

impl File {
    fn rotated_layers(&self) -> Option<Vec<bool>> {
        // Despite its name the list holds 1 where a layer rotates.
        let listed = || Some(self.no_rope_layers.as_ref()?.iter().map(|&rotates| rotates != 0).collect());
        let interval = || {
            let interval = self.no_rope_layer_interval?;
            Some((1..=self.num_hidden_layers.min(MAX_LAYERS)).map(|i| !i.is_multiple_of(interval)).collect())
        };
        listed().or_else(interval)
    }

    /// Families that have a switch for the window, beside a number of layers without, leave it off by default.
    fn window(&self) -> Option<usize> {
        let on = self.use_sliding_window.unwrap_or(self.max_window_layers.is_none());
        self.sliding_window.filter(|&window| on && window > 0)
    }

    fn multipliers(&self) -> Multipliers {
        Multipliers {
            embedding: self.embedding_multiplier.unwrap_or(1.0),
            attention: self.attention_multiplier,
            residual: self.residual_multiplier.unwrap_or(1.0),
            logit_divisor: self.logits_scaling.unwrap_or(1.0),
        }
    }
}

/// LongRoPE's factors for sequences within the original context.
fn short_factors(rope: &Value) -> Result<Vec<f32>, String> {
    let list = rope.get("short_factor").and_then(Value::as_array);
    let numbers = list.and_then(|list| list.iter().map(|value| Some(value.as_f64()? as f32)).collect());
    numbers.ok_or_else(|| "the rope scaling lacks `short_factor`, a list of numbers".to_string())
}

/// Some families keep the original context outside the scaling.
fn scaling(rope: &Value, context: usize, original: Option<usize>) -> Result<Option<Scaling>, String> {
    let number = |key: &str| rope.get(key).and_then(Value::as_f64);
    let need = |key: &str| number(key).ok_or(format!("the rope scaling lacks `{key}`"));
    let kind =
        rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str).unwrap_or("default");
    let factor = || match need("factor")? {
        factor if factor.is_finite() && factor >= 1.0 => Ok(factor),
        factor => Err(format!("the rope scaling's factor is {factor}, expected at least 1")),
    };
    let original = number("original_max_position_embeddings").or(original.map(|length| length as f64));
    let original_context = original.unwrap_or(context as f64);
    match kind {
        "default" => Ok(None),
        "linear" => Ok(Some(Scaling::Linear { factor: factor()? })),
        "llama3" => Ok(Some(Scaling::Llama3 {
            factor: factor()?,
            low_frequency: need("low_freq_factor")?,
            high_frequency: need("high_freq_factor")?,
            original_context,
        })),
        "yarn" => {
            let factor = factor()?;
            Ok(Some(Scaling::Yarn {
                factor,
                original_context,
                beta_fast: number("beta_fast").unwrap_or(32.0),
                beta_slow: number("beta_slow").unwrap_or(1.0),
                attention_factor: number("attention_factor").unwrap_or(0.1 * factor.ln() + 1.0),
            }))
        }
        // `su` is what LongRoPE was called at first.
        "longrope" | "su" => {
            let stretch = number("factor").unwrap_or(context as f64 / original_context).max(1.0);
            let derived = (1.0 + stretch.ln() / original_context.ln()).sqrt();
            let attention_factor = number("attention_factor").unwrap_or(derived);
            Ok(Some(Scaling::LongRope { original_context: original_context as usize, attention_factor }))
        }
        other => Err(format!(
            "rope scaling `{other}` is not supported; known: default, linear, llama3, yarn, longrope"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama(extra: &str) -> String {
        format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
                "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
                "intermediate_size": 8192, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
                "rope_theta": 500000.0 {extra}}}"#
        )
    }

    #[test]
    fn reads_llama() {
        let scaling = r#", "rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}"#;
        let config = Config::from_hugging_face("config.json", &llama(scaling)).unwrap();
        assert_eq!((config.head_dim, config.rope_dims, config.kv_heads), (64, 64, 8));
        assert_eq!(
            config.rope_scaling,
            Some(Scaling::Llama3 {
                factor: 32.0,
                low_frequency: 1.0,
                high_frequency: 4.0,
                original_context: 8192.0
            })
        );
        let newer = r#", "rope_parameters": {"rope_theta": 7.5, "rope_type": "default"}"#;
        let config = Config::from_hugging_face("config.json", &llama(newer)).unwrap();
        assert_eq!((config.rope_theta, config.rope_scaling), (7.5, None));
    }

    #[test]
    fn reads_what_other_families_say() {
        let config = |extra: &str| Config::from_hugging_face("config.json", &llama(extra)).unwrap();
        let mistral = config(r#", "sliding_window": 4096"#);
        assert_eq!((mistral.window, mistral.full_layers), (Some(4096), 0));
        assert_eq!(config(r#", "sliding_window": 4096, "max_window_layers": 28"#).window, None);
        assert_eq!(config(r#", "sliding_window": 4096, "use_sliding_window": false"#).window, None);
        let qwen = config(r#", "sliding_window": 9, "max_window_layers": 3, "use_sliding_window": true"#);
        assert_eq!((qwen.window, qwen.full_layers), (Some(9), 3));
        let rotated = config(r#", "no_rope_layer_interval": 4"#).rotated_layers.unwrap();
        assert_eq!(rotated, [true, true, true, false].repeat(4));
        let granite = config(r#", "attention_multiplier": 0.5, "logits_scaling": 8.0"#).multipliers;
        let expected = Multipliers { attention: Some(0.5), logit_divisor: 8.0, ..Multipliers::default() };
        assert_eq!(granite, expected);
    }

    #[test]
    fn longrope_ends_with_the_original_context() {
        let scaling = |rest: &str| {
            let scaling =
                r#", "original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope""#;
            Config::from_hugging_face("config.json", &llama(&format!("{scaling}{rest}}}")))
        };
        let config = scaling(r#", "short_factor": [1, 1.5]"#).unwrap();
        assert_eq!((config.context_length, config.rope_factors), (4096, Some(vec![1.0, 1.5])));
        let Some(Scaling::LongRope { attention_factor, .. }) = config.rope_scaling else { panic!() };
        // sqrt(1 + ln(32) / ln(4096))
        assert!((attention_factor - 1.190_238_1).abs() < 1e-6, "{attention_factor}");
        assert!(scaling("").unwrap_err().to_string().contains("lacks `short_factor`"));
    }

    #[test]
    fn says_what_is_wrong() {
        let refusal = |json: &str| Config::from_hugging_face("config.json", json).unwrap_err().to_string();
        assert!(refusal("{}").contains("missing field `vocab_size`"));
        assert!(refusal("[").starts_with("config.json: "));
        let unknown = llama(r#", "rope_scaling": {"type": "magic", "factor": 2.0}"#);
        assert!(refusal(&unknown).contains("rope scaling `magic` is not supported"));
        let negative = llama("").replace("2048", "-2048");
        assert!(refusal(&negative).contains("invalid value: integer `-2048`"));
    }
}
