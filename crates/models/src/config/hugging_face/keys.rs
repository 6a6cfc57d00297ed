//! The keys of a `config.json` that count: those of the model's own family, put into words that all families share.

use serde_json::{Map, Value};

use super::biases;
use crate::key::MAX_LAYERS;

/// What `transformers` reads for every family.
pub(crate) const COMMON: &[&str] = &[
    "_name_or_path",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "original_max_position_embeddings",
    "rope_parameters",
    "rope_theta",
    "tie_word_embeddings",
    "use_bidirectional_attention",
    "vocab_size",
];
/// The keys that encoders add, including those of [`crate::EncoderConfig`].
const OF_ENCODERS: &[&str] = &[
    "hidden_act",
    "head_dim",
    "layer_types",
    "norm_eps",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "partial_rotary_factor",
    "rope_local_base_freq",
    "sliding_window",
];
/// An object with keys of its own, perhaps one such object for each kind of layer.
const ROPE: &str = "rope_parameters";
/// The keys in it that only some families read. All others say how frequencies are stretched.
const OF_ROPES: &[&str] = &["llama_4_scaling_beta", "partial_rotary_factor"];

/// The keys of a file.
#[derive(Debug, Clone)]
pub(crate) struct ConfigKeys(Map<String, Value>);

impl ConfigKeys {
    /// Those of the text half of a model that sees, or of the whole file, and the `model_type` of the half.
    pub(crate) fn for_text_half(mut json: Map<String, Value>) -> (ConfigKeys, Option<String>) {
        let text = json.remove("text_config").or_else(|| json.remove("llm_config"));
        let Some(Value::Object(text)) = text else { return (ConfigKeys(json).with_one_rope(), None) };
        let model_type = text.get("model_type").and_then(Value::as_str).map(str::to_string);
        let outer = std::mem::replace(&mut json, text);
        let counts = |key: &str, value: &Value| match key {
            "architectures" | "_name_or_path" => true,
            // The text half does not always repeat it.
            "tie_word_embeddings" => value == true,
            _ => false,
        };
        json.extend(outer.into_iter().filter(|(key, value)| counts(key, value)));
        (ConfigKeys(json).with_one_rope(), model_type)
    }

    /// Takes `rope_scaling` for `rope_parameters`, as `transformers` does unless it is empty.
    fn with_one_rope(mut self) -> ConfigKeys {
        if let Some(Value::Object(scaling)) = self.0.remove("rope_scaling")
            && !scaling.is_empty()
        {
            self.set(ROPE, scaling);
        }
        self
    }

    /// Those that a family with keys of its own reads, and one more; an encoder is of no family.
    pub(crate) fn for_family(&self, own: Option<&[&str]>, more: Option<&str>) -> ConfigKeys {
        let own = own.unwrap_or(OF_ENCODERS);
        let reads = |key: &str| own.contains(&key) || more == Some(key);
        let mut keys = self.0.clone();
        keys.retain(|key, _| COMMON.contains(&&key[..]) || reads(key));
        let reads = |key: &str| reads(key) || reads(&in_rope(key));
        if let Some(rope) = keys.get_mut(ROPE).and_then(Value::as_object_mut) {
            rope.retain(|key, _| !OF_ROPES.contains(&&key[..]) || reads(key));
            for kind in rope.values_mut().filter_map(Value::as_object_mut) {
                kind.retain(|key, _| !OF_ROPES.contains(&&key[..]) || reads(key));
            }
        }
        ConfigKeys(keys)
    }

    /// Those of the keys of all families that are there and that a family with keys of its own does not read.
    pub(crate) fn others(
        &self,
        own: &[&str],
        of_all: impl Iterator<Item = &'static str>,
    ) -> Vec<&'static str> {
        let mut others: Vec<&str> = of_all.collect();
        others.sort_unstable();
        others.dedup();
        // A bias that a family does not know is found as a tensor.
        others.retain(|key| !own.contains(key) && !biases::KEYS.contains(key) && self.is_there(key));
        others
    }

    fn is_there(&self, key: &str) -> bool {
        let Some(key) = key.strip_prefix("rope_parameters.") else { return self.0.contains_key(key) };
        let rope = self.0.get(ROPE).and_then(Value::as_object);
        rope.is_some_and(|rope| rope.contains_key(key) || rope.values().any(|kind| kind.get(key).is_some()))
    }

    pub(super) fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// Gives a key of the family's own the name that all families have for it, in whose place it comes.
    pub(crate) fn rename(&mut self, own: &str, shared: &str) {
        if let Some(value) = self.0.remove(own) {
            self.0.insert(shared.to_string(), value);
        }
    }

    /// As [`ConfigKeys::rename`], of a divisor where other families have a factor.
    pub(crate) fn invert(&mut self, own: &str, shared: &str) {
        if let Some(divisor) = self.0.remove(own).and_then(|value| value.as_f64()) {
            self.set(shared, 1.0 / divisor);
        }
    }

    /// Takes a key away, and gives its value.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    /// Adds the keys of an object that the file does not have.
    pub(crate) fn add(&mut self, defaults: Value) {
        let Value::Object(defaults) = defaults else { unreachable!("defaults are an object") };
        for (key, value) in defaults {
            self.0.entry(key).or_insert(value);
        }
    }

    /// Sets a key.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_string(), value.into());
    }

    /// Whether there is a key, and it is not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| !value.is_null())
    }

    /// Whether a key is there and true, or there and false.
    pub(crate) fn is(&self, value: bool, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool) == Some(value)
    }

    /// Gathers the keys of a state space, each of which has a name of the family's own and one of all families.
    pub(crate) fn gather_state_space(&mut self, names: &[(&str, &str)]) {
        let values =
            names.iter().filter_map(|(own, shared)| Some((shared.to_string(), self.0.remove(*own)?)));
        let values: Map<String, Value> = values.filter(|(_, value)| !value.is_null()).collect();
        self.set("state_space", values);
    }

    /// Replaces the kinds of layers: those of these kinds keep a state per sequence, all others attend.
    ///
    /// # Errors
    /// If a kind is unknown.
    pub(crate) fn split_layer_kinds(&mut self, own: &str, recurrent: &[&str]) -> Result<(), String> {
        let Some(Value::Array(kinds)) = self.0.remove(own) else { return Ok(()) };
        let attention = ["attention", "full_attention"];
        let flags = kinds.iter().map(|kind| match kind.as_str() {
            Some(kind) if recurrent.contains(&kind) => Ok(true),
            Some(kind) if attention.contains(&kind) => Ok(false),
            _ => Err(format!(
                "layers of the type {kind} are not supported; known: {}, {}",
                attention.join(", "),
                recurrent.join(", ")
            )),
        });
        self.set("recurrent_layers", flags.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }

    /// Sets a flag for each layer.
    pub(crate) fn list_layers(&mut self, key: &str, flag: impl Fn(&ConfigKeys, usize) -> bool) {
        let layers = self.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
        let flags: Vec<bool> = (0..layers).map(|layer| flag(self, layer)).collect();
        self.set(key, flags);
    }

    /// A key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// A list.
    pub(crate) fn list(&self, key: &str) -> Option<&[Value]> {
        self.0.get(key)?.as_array().map(Vec::as_slice)
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    /// What YaRN makes grow: `1 + 0.1 · scale · ln(factor)`, for the scale that has a name; 1 if positions are not stretched.
    pub(crate) fn yarn_growth(&self, scale: &str) -> f64 {
        let rope = self.0.get(ROPE).and_then(Value::as_object);
        let number = |key: &str| rope.and_then(|rope| rope.get(key)).and_then(Value::as_f64);
        match (number("factor"), number(scale)) {
            (Some(factor), Some(scale)) if factor > 1.0 => 1.0 + 0.1 * scale * factor.ln(),
            _ => 1.0,
        }
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// A whole number.
    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.0.get(key)?.as_u64().and_then(|count| usize::try_from(count).ok())
    }
}

fn in_rope(key: &str) -> String {
    format!("rope_parameters.{key}")
}
