//! `config.json` of a Hugging Face folder.

mod defaults;
mod experts;
mod rope;

use graph::ops::Unary;
use serde::Deserialize;
use serde_json::Value;

use super::{Config, MAX_LAYERS, Multipliers, Scaling};
use crate::Error;
use crate::architectures::{Architecture, EncoderArchitecture};

/// The key that says what the others mean.
#[derive(Deserialize)]
struct Head {
    architectures: Option<Vec<String>>,
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
    #[serde(flatten)]
    experts: experts::File,
    hidden_act: Option<String>,
    hidden_activation: Option<String>,
    #[serde(flatten)]
    rope: rope::File,
    no_rope_layers: Option<Vec<u32>>,
    no_rope_layer_interval: Option<usize>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    sliding_window_pattern: Option<Value>,
    attn_logit_softcapping: Option<f32>,
    final_logit_softcapping: Option<f32>,
    query_pre_attn_scalar: Option<f32>,
    tie_word_embeddings: Option<bool>,
    use_bidirectional_attention: Option<bool>,
    embedding_multiplier: Option<f32>,
    attention_multiplier: Option<f32>,
    residual_multiplier: Option<f32>,
    logits_scaling: Option<f32>,
    clip_qkv: Option<f32>,
}

fn default_context() -> usize {
    2048
}

fn default_eps() -> f32 {
    1e-6
}

impl Config {
    /// The architecture that a `config.json` names, whatever else is in it: of several the first that is known.
    ///
    /// # Errors
    /// If it is no JSON, or names none.
    pub(crate) fn architecture_of_hugging_face(source_name: &str, json: &str) -> Result<String, Error> {
        let head: Head =
            serde_json::from_str(json).map_err(|error| Error::config(source_name, error.to_string()))?;
        let is_known = |name: &&String| {
            EncoderArchitecture::from_hugging_face(name).is_some()
                || Architecture::from_hugging_face(name).is_ok()
        };
        let names = head.architectures.unwrap_or_default();
        names.iter().find(is_known).or(names.first()).cloned().ok_or_else(|| {
            Error::config(source_name, "`architectures` names none: name the architecture beside the model")
        })
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// If it is no JSON, a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<Config, Error> {
        let architecture = Config::architecture_of_hugging_face(source_name, json)?;
        Config::from_hugging_face_as(source_name, json, architecture)
    }

    /// As [`Config::from_hugging_face`], of an architecture that its reader knows.
    pub(crate) fn from_hugging_face_as(
        source_name: &str,
        json: &str,
        architecture: String,
    ) -> Result<Config, Error> {
        let error = |message: String| Error::config(source_name, message);
        let invalid = |invalid: serde_json::Error| error(invalid.to_string());
        let keys = defaults::complete(serde_json::from_str(json).map_err(invalid)?);
        let file: File = serde_json::from_value(keys.into()).map_err(invalid)?;
        if file.num_attention_heads == 0 {
            return Err(error("`num_attention_heads` is 0".into()));
        }
        if let Some(limit) = file.clip_qkv {
            return Err(error(format!("`clip_qkv` is {limit}, which is not supported, expected null")));
        }
        if file.use_bidirectional_attention == Some(true) {
            return Err(error(
                "tokens see later ones (`use_bidirectional_attention`), which is not supported".into(),
            ));
        }
        let head_dim = file.head_dim.unwrap_or(file.hidden_size / file.num_attention_heads);
        let (rope, local_rope) = file.rope.read(head_dim, file.max_position_embeddings).map_err(error)?;
        // Where a configuration of a Llama has the key, it was left there by a Mistral, and means nothing.
        let window = file.window().filter(|_| architecture != "LlamaForCausalLM");
        Config {
            source_name: source_name.to_string(),
            architecture,
            name: file.name.clone().filter(|name| !name.is_empty()),
            vocab: file.vocab_size,
            hidden: file.hidden_size,
            layers: file.num_hidden_layers,
            heads: file.num_attention_heads,
            kv_heads: file.num_key_value_heads.unwrap_or(file.num_attention_heads),
            head_dim,
            feed_forward: file.intermediate_size,
            experts: file.experts.read(file.intermediate_size).map_err(error)?,
            sparse_layers: file.experts.sparse_layers(file.num_hidden_layers).map_err(error)?,
            context_length: Scaling::reach(rope.scaling, file.max_position_embeddings),
            norm_eps: file.rms_norm_eps,
            activation: file.activation().map_err(error)?,
            temperature: file.rope.temperature().map_err(error)?,
            rope,
            local_rope,
            rotated_layers: file.rotated_layers(),
            window,
            windowed_layers: file.windowed_layers().map_err(error)?,
            multipliers: file.multipliers(),
            attention_softcap: file.attn_logit_softcapping,
            logit_softcap: file.final_logit_softcapping,
            tied: file.tie_word_embeddings,
        }
        .checked()
    }
}

impl File {
    /// Gemma says with the older key what it never meant, and with the newer one what it does.
    fn activation(&self) -> Result<Option<Unary>, String> {
        let Some(name) = self.hidden_activation.as_ref().or(self.hidden_act.as_ref()) else {
            return Ok(None);
        };
        match name.as_str() {
            "silu" | "swish" => Ok(Some(Unary::Silu)),
            "gelu" => Ok(Some(Unary::Gelu)),
            "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Some(Unary::GeluTanh)),
            "quick_gelu" => Ok(Some(Unary::GeluQuick)),
            "relu" => Ok(Some(Unary::Relu)),
            _ => Err(format!(
                "the activation `{name}` is not supported; known: silu, gelu, gelu_pytorch_tanh, quick_gelu, relu"
            )),
        }
    }

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

    /// Newer files list the kind of each layer; older ones say every how many layers one has no window, or how many
    /// of the first have none.
    fn windowed_layers(&self) -> Result<Option<Vec<bool>>, String> {
        let all = |windowed: &dyn Fn(usize) -> bool| {
            Ok(Some((0..self.num_hidden_layers.min(MAX_LAYERS)).map(windowed).collect()))
        };
        if let Some(kinds) = &self.layer_types {
            let windowed = kinds.iter().map(|kind| match kind.as_str() {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                _ => Err(format!(
                    "layers of the type `{kind}` are not supported; known: full_attention, sliding_attention"
                )),
            });
            return windowed.collect::<Result<_, _>>().map(Some);
        }
        match (&self.sliding_window_pattern, self.max_window_layers) {
            (Some(Value::Number(every)), _) => match every.as_u64() {
                Some(0) => all(&|_| false),
                Some(every) => all(&|index| !(index as u64 + 1).is_multiple_of(every)),
                None => Err(format!("`sliding_window_pattern` is {every}, expected a number of layers")),
            },
            // A letter for each layer of the pattern: L has the window.
            (Some(Value::String(letters)), _) if !letters.is_empty() => {
                all(&|index| letters.as_bytes()[index % letters.len()] == b'L')
            }
            (Some(Value::Null) | None, Some(full)) => all(&|index| index >= full),
            (Some(Value::Null) | None, None) => Ok(None),
            (Some(other), _) => {
                Err(format!("`sliding_window_pattern` is {other}, expected a number of layers"))
            }
        }
    }

    fn multipliers(&self) -> Multipliers {
        let query_scale = self.query_pre_attn_scalar.map(|scalar| 1.0 / scalar.sqrt());
        Multipliers {
            embedding: self.embedding_multiplier.unwrap_or(1.0),
            attention: self.attention_multiplier.or(query_scale),
            residual: self.residual_multiplier.unwrap_or(1.0),
            logit_divisor: self.logits_scaling.unwrap_or(1.0),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn llama(extra: &str) -> String {
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
        assert_eq!((config.head_dim, config.rope.dims, config.kv_heads), (64, 64, 8));
        assert_eq!(
            config.rope.scaling,
            Some(Scaling::Llama3 {
                factor: 32.0,
                low_frequency: 1.0,
                high_frequency: 4.0,
                original_context: 8192.0
            })
        );
        let newer = r#", "rope_parameters": {"rope_theta": 7.5, "rope_type": "default"}"#;
        let config = Config::from_hugging_face("config.json", &llama(newer)).unwrap();
        assert_eq!((config.rope.theta, config.rope.scaling), (7.5, None));
    }

    #[test]
    fn reads_what_other_families_say() {
        let json = |extra: &str| llama(extra).replace("LlamaForCausalLM", "MistralForCausalLM");
        let config = |extra: &str| Config::from_hugging_face("config.json", &json(extra)).unwrap();
        let of_llama = llama(r#", "sliding_window": 4096"#);
        assert_eq!(Config::from_hugging_face("config.json", &of_llama).unwrap().window, None);
        let mistral = config(r#", "sliding_window": 4096"#);
        assert_eq!((mistral.window, mistral.windowed_layers), (Some(4096), None));
        assert_eq!(config(r#", "sliding_window": 4096, "max_window_layers": 28"#).window, None);
        assert_eq!(config(r#", "sliding_window": 4096, "use_sliding_window": false"#).window, None);
        let qwen = config(r#", "sliding_window": 9, "max_window_layers": 3, "use_sliding_window": true"#);
        assert_eq!(qwen.window, Some(9));
        assert_eq!(qwen.windowed_layers, Some([vec![false; 3], vec![true; 13]].concat()));
        let rotated = config(r#", "no_rope_layer_interval": 4"#).rotated_layers.unwrap();
        assert_eq!(rotated, [true, true, true, false].repeat(4));
        let granite = config(r#", "attention_multiplier": 0.5, "logits_scaling": 8.0"#).multipliers;
        let expected = Multipliers { attention: Some(0.5), logit_divisor: 8.0, ..Multipliers::default() };
        assert_eq!(granite, expected);
    }

    #[test]
    fn says_what_is_wrong() {
        let refusal = |json: &str| Config::from_hugging_face("config.json", json).unwrap_err().to_string();
        assert!(refusal("{}").contains("`architectures` names none"));
        let nameless = r#"{"architectures": ["LlamaForCausalLM"]}"#;
        assert!(refusal(nameless).contains("missing field `vocab_size`"));
        assert!(refusal("[").starts_with("config.json: "));
        let unknown = llama(r#", "rope_scaling": {"type": "magic", "factor": 2.0}"#);
        assert!(refusal(&unknown).contains("rope scaling `magic` is not supported"));
        let encoder = llama(r#", "use_bidirectional_attention": true"#);
        assert!(refusal(&encoder).contains("tokens see later ones"));
        for (kinds, said) in [
            (
                r#""layer_types": ["linear_attention"]"#,
                "layers of the type `linear_attention` are not supported",
            ),
            (r#""layer_types": ["full_attention"]"#, "16 layers, but 1 in the list of windowed ones"),
            (r#""sliding_window_pattern": -1"#, "`sliding_window_pattern` is -1"),
            (r#""hidden_act": "magic""#, "the activation `magic` is not supported"),
        ] {
            let error = refusal(&llama(&format!(", {kinds}")));
            assert!(error.contains(said), "{error}");
        }
        let negative = llama("").replace("2048", "-2048");
        assert!(refusal(&negative).contains("invalid value: integer `-2048`"));
    }
}
