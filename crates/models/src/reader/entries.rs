//! The entries of a `config.json` with those that it leaves out.

use serde_json::{Map, Value};

use crate::architectures::{Architecture, EncoderArchitecture};
use crate::config::COMMON;
use crate::key::{self, Field};
use crate::{Config, EncoderConfig, Error};

impl Config {
    /// Completes a `config.json`: entries that it leaves out get the defaults of the model's family. In a configuration with
    /// a text part, they are added to that part. A configuration of an unknown architecture stays as it is.
    ///
    /// # Errors
    /// If it is no object, names no architecture, or cannot be read.
    pub fn complete_hugging_face(source_name: &str, json: &str) -> Result<Value, Error> {
        let mut entries: Map<String, Value> = weights::from_json(json.as_bytes())
            .map_err(|error| Error::config(source_name, error.to_string()))?;
        let name = Config::architecture_of_hugging_face(source_name, json)?;
        let name = Config::meant_architecture(json, name);
        let family = EncoderArchitecture::from_hugging_face(&name).map(|encoder| encoder.family);
        let family = match family {
            Some(family) => family,
            None => match Architecture::from_hugging_face(&name) {
                Ok(family) => Some(family),
                Err(_) => return Ok(entries.into()),
            },
        };
        let config = Config::from_hugging_face_as(source_name, json, name)?;
        let half = ["text_config", "llm_config"]
            .into_iter()
            .find(|half| entries.get(*half).is_some_and(Value::is_object));
        let eps = match family {
            Some(_) => config.norm_eps,
            None => EncoderConfig::from_hugging_face(source_name, json)?.norm_eps,
        };
        let missing = config.entries(family, eps);
        let Some(half) = half else { return Ok(with(entries, missing).into()) };
        if let Some(Value::Object(text)) = entries.get_mut(half) {
            *text = with(std::mem::take(text), missing);
        }
        Ok(entries.into())
    }

    /// The configuration's values under the Hugging Face keys that the family reads. Encoders have no family.
    fn entries(&self, family: Option<&Architecture>, norm_eps: f32) -> Vec<(&'static str, Value)> {
        let reads = |key: &str| match family {
            Some(family) => family.keys.contains(&key) || COMMON.contains(&key),
            None => key == "hidden_act" || COMMON.contains(&key),
        };
        let mut entries = [key::json_entries(self), key::json_entries(&self.attention)].concat();
        entries.extend(key::json_entries(&self.multipliers));
        entries.extend(self.experts.iter().flat_map(key::json_entries));
        entries.retain(|(key, value)| !value.is_null() && reads(key));
        let eps = ["rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"];
        let eps = eps.into_iter().find(|key| reads(key)).or(family.is_none().then_some("layer_norm_eps"));
        entries.extend(eps.map(|key| (key, Field::to_json(&norm_eps))));
        if family.is_some() && self.rope.dims > 0 {
            entries.push(("rope_theta", self.rope.theta.into()));
        }
        let count = self.experts.map(|experts| experts.count);
        let own = [
            ("sliding_window", self.attention.window),
            ("num_local_experts", count),
            ("n_routed_experts", count),
        ];
        let own = own.into_iter().filter(|(key, _)| reads(key));
        entries.extend(own.map(|(key, size)| (key, size.map_or(Value::Null, Value::from))));
        entries
    }
}

/// Entries, and those that they leave out.
fn with(mut entries: Map<String, Value>, missing: Vec<(&'static str, Value)>) -> Map<String, Value> {
    for (key, value) in missing {
        entries.entry(key).or_insert(value);
    }
    entries
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complete(json: Value) -> Value {
        Config::complete_hugging_face("config.json", &json.to_string()).unwrap()
    }

    #[test]
    fn left_out_entries_have_the_defaults_of_the_family() {
        // As `transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, rms_norm_eps=1e-5)` has them.
        let llama = complete(json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "rms_norm_eps": 1e-5,
            "own_key": [1],
        }));
        let expected = [
            ("hidden_size", json!(64)),
            ("rms_norm_eps", json!(1e-5)),
            ("own_key", json!([1])),
            ("vocab_size", json!(32000)),
            ("intermediate_size", json!(11008)),
            ("num_hidden_layers", json!(32)),
            ("num_key_value_heads", json!(4)),
            ("head_dim", json!(16)),
            ("max_position_embeddings", json!(2048)),
            ("rope_theta", json!(10000.0)),
        ];
        for (key, value) in expected {
            assert_eq!(llama[key], value, "{key}");
        }
        let defaults = complete(json!({"architectures": ["LlamaForCausalLM"]}));
        assert_eq!((&defaults["rms_norm_eps"], &defaults["hidden_size"]), (&json!(1e-6), &json!(4096)));
        let unknown = json!({"architectures": ["NobodyForCausalLM"], "hidden_size": 64});
        assert_eq!(complete(unknown.clone()), unknown);
    }

    #[test]
    fn encoders_and_text_halves_are_completed() {
        let bert = complete(json!({
            "architectures": ["BertModel"], "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 32,
        }));
        assert_eq!(bert["layer_norm_eps"], json!(1e-12), "{bert}");
        assert_eq!(bert.get("num_key_value_heads"), None);
        let seeing = complete(json!({
            "architectures": ["Gemma3ForConditionalGeneration"],
            "text_config": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2},
        }));
        assert_eq!(seeing.get("vocab_size"), None);
        assert_eq!(seeing["text_config"]["num_hidden_layers"], 2);
        assert!(seeing["text_config"]["vocab_size"].is_u64(), "{seeing}");
    }
}
