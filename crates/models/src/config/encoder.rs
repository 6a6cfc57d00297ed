//! Configuration keys of encoders alone.

use std::collections::BTreeMap;

use graph::ops::Unary;
use serde::Deserialize;
use serde_json::Value;
use weights::{MetaValue, Metadata};

use crate::Error;

/// What a checkpoint says about its encoder, for GGUF metadata and Hugging Face `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// `eps` of the layer norms.
    pub norm_eps: f32,
    /// Rows of the table of token types.
    pub token_types: usize,
    /// The token that fills batches of one length, if the configuration says one.
    pub padding: Option<usize>,
    /// Buckets of relative positions.
    pub buckets: usize,
    /// The names of the labels that a classification head scores.
    pub labels: Vec<String>,
    /// Whether this head reads the mean of all tokens, and not the first.
    pub mean_of_tokens: bool,
    /// Every how many layers one has no window, in files that do not list the layers.
    pub global_every: Option<usize>,
    /// The function of gated blocks, or of plain ones, in files that name both.
    pub activation: Option<Unary>,
}

/// How GGUF numbers the pooling by the mean.
const MEAN: u32 = 1;
/// More labels than this are no model but a damaged or hostile file.
const MAX_LABELS: usize = 1 << 16;

/// The keys we read. Absent ones have the defaults that `transformers` gives a BERT.
#[derive(Deserialize)]
struct EncoderKeys {
    #[serde(default = "default_eps", alias = "layer_norm_epsilon", alias = "rms_norm_eps")]
    layer_norm_eps: f32,
    #[serde(default = "default_token_types")]
    type_vocab_size: usize,
    pad_token_id: Option<usize>,
    #[serde(default = "default_buckets")]
    relative_attention_num_buckets: usize,
    architectures: Option<Vec<String>>,
    position_embedding_type: Option<String>,
    #[serde(default)]
    is_decoder: bool,
    classifier_pooling: Option<String>,
    classifier_activation: Option<String>,
    global_attn_every_n_layers: Option<usize>,
    rotary_emb_interleaved: Option<bool>,
    prenorm: Option<bool>,
    activation_function: Option<String>,
}

impl EncoderKeys {
    fn check_positions(&self) -> Result<(), String> {
        // The first files of GTE and Jina say so of all their models.
        let is_one_of =
            |family: &str| self.architectures.iter().flatten().any(|name| name.starts_with(family));
        let known: &[&str] = match (is_one_of("New"), is_one_of("XLMRobertaModel")) {
            (true, _) => &["rope"],
            (false, true) => &["absolute", "rotary"],
            (false, false) => &["absolute"],
        };
        match self.position_embedding_type.as_deref().filter(|kind| !known.contains(kind)) {
            None => Ok(()),
            Some(kind) => {
                let known = known.join(", ");
                Err(format!("positions of the kind `{kind}` are not supported; known: {known}"))
            }
        }
    }
}

/// The keys that name labels, in files of encoders and decoders alike.
#[derive(Deserialize)]
struct NamedLabels {
    id2label: Option<BTreeMap<usize, Value>>,
    num_labels: Option<usize>,
}

fn default_eps() -> f32 {
    1e-12
}

fn default_token_types() -> usize {
    2
}

fn default_buckets() -> usize {
    32
}

impl EncoderConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// If it is no JSON, a key is of the wrong kind, or it asks for what no encoder here does.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<EncoderConfig, Error> {
        let error = |message: String| Error::config(source_name, message);
        let file: EncoderKeys =
            weights::from_json(json.as_bytes()).map_err(|wrong| error(wrong.to_string()))?;
        if file.is_decoder {
            return Err(error(
                "`is_decoder` is true: encoders that attend to earlier tokens alone are not supported".into(),
            ));
        }
        file.check_positions().map_err(error)?;
        if file.rotary_emb_interleaved == Some(true) || file.prenorm == Some(true) {
            let message = "`rotary_emb_interleaved` and `prenorm` are supported as false alone";
            return Err(error(message.into()));
        }
        if let Some(other) = file.classifier_activation.filter(|activation| activation != "gelu") {
            return Err(error(format!("`classifier_activation` is {other}, supported is gelu")));
        }
        let activation = match file.activation_function.as_deref() {
            None => None,
            Some("swiglu") => Some(Unary::Silu),
            Some("geglu" | "gelu") => Some(Unary::Gelu),
            Some("glu") => Some(Unary::Sigmoid),
            Some(other) => {
                let known = "swiglu, geglu, glu, gelu";
                return Err(error(format!("`activation_function` is {other}, supported are {known}")));
            }
        };
        let mean_of_tokens = match file.classifier_pooling.as_deref() {
            None | Some("cls") => false,
            Some("mean") => true,
            Some(other) => {
                return Err(error(format!("`classifier_pooling` is {other}, supported are cls and mean")));
            }
        };
        let labels = labels_of_hugging_face(source_name, json)?;
        let config = EncoderConfig {
            labels,
            norm_eps: file.layer_norm_eps,
            token_types: file.type_vocab_size,
            padding: file.pad_token_id,
            buckets: file.relative_attention_num_buckets,
            mean_of_tokens,
            global_every: file.global_attn_every_n_layers,
            activation,
        };
        config.checked().map_err(error)
    }

    /// Reads a GGUF file's metadata.
    ///
    /// # Errors
    /// If a key is missing or of the wrong kind, or it asks for what no encoder here does.
    pub fn from_gguf(metadata: &Metadata) -> Result<EncoderConfig, Error> {
        let error = |message: String| Error::config("GGUF metadata", message);
        let architecture = metadata.str("general.architecture")?;
        let causal = format!("{architecture}.attention.causal");
        if metadata.optional::<bool>(&causal)? == Some(true) {
            return Err(error(format!(
                "`{causal}` is true: encoders that attend to earlier tokens alone are not supported"
            )));
        }
        let key = |name: &str| format!("{architecture}.{name}");
        let rms_norm_eps = metadata.optional::<f32>(&key("attention.layer_norm_rms_epsilon"))?;
        let norm_eps = metadata.optional::<f32>(&key("attention.layer_norm_epsilon"))?.or(rms_norm_eps);
        let pooling = metadata.optional::<u32>(&key("classifier.pooling_type"))?;
        let config = EncoderConfig {
            labels: labels_of_gguf(metadata)?,
            norm_eps: norm_eps
                .map_or_else(|| metadata.required::<f32>(&key("attention.layer_norm_epsilon")), Ok)?,
            token_types: metadata.optional::<usize>("tokenizer.ggml.token_type_count")?.unwrap_or(1),
            // Tables of positions start with the first that is used.
            padding: None,
            buckets: default_buckets(),
            // As in llama.cpp: older files of ModernBERT do not say it.
            mean_of_tokens: pooling.map_or(architecture == "modern-bert", |pooling| pooling == MEAN),
            // Some files list the layers.
            global_every: match metadata.get(&key("attention.sliding_window_pattern")) {
                Some(MetaValue::Array(_)) => None,
                _ => metadata.optional::<usize>(&key("attention.sliding_window_pattern"))?,
            },
            activation: None,
        };
        config.checked().map_err(error)
    }

    fn checked(self) -> Result<EncoderConfig, String> {
        let EncoderConfig { norm_eps, token_types, .. } = self;
        if !(norm_eps.is_finite() && norm_eps >= 0.0) {
            return Err(format!("the norm's eps is {norm_eps}, expected a small positive number"));
        }
        if token_types > super::MAX_SIZE {
            return Err(format!("there are {token_types} token types, expected at most {}", super::MAX_SIZE));
        }
        Ok(self)
    }
}

/// The names of the labels that a head scores, by `config.json`.
///
/// # Errors
/// If it is not JSON, or the labels contradict each other.
pub(crate) fn labels_of_hugging_face(source_name: &str, json: &str) -> Result<Vec<String>, Error> {
    let error = |message: String| Error::config(source_name, message);
    let named: NamedLabels = weights::from_json(json.as_bytes()).map_err(|wrong| error(wrong.to_string()))?;
    labels(named).map_err(error)
}

/// The same by GGUF metadata. As in llama.cpp, files of rerankers need not name their one label.
///
/// # Errors
/// If the key is of another kind.
pub(crate) fn labels_of_gguf(metadata: &Metadata) -> Result<Vec<String>, Error> {
    let key = format!("{}.classifier.output_labels", metadata.str("general.architecture")?);
    let labels = metadata.optional::<Vec<&str>>(&key)?;
    Ok(labels.map_or_else(|| unnamed(1), |labels| labels.into_iter().map(str::to_string).collect()))
}

/// The names of labels by their number. If there are others than are counted, `transformers` leaves them out.
fn labels(NamedLabels { id2label, num_labels: count }: NamedLabels) -> Result<Vec<String>, String> {
    let named = id2label.unwrap_or_default();
    let found = if named.is_empty() { count.unwrap_or(2) } else { count.unwrap_or(named.len()) };
    if found == 0 || found > MAX_LABELS {
        return Err(format!("there are {found} labels, expected 1 to {MAX_LABELS}"));
    }
    if found != named.len() {
        return Ok(unnamed(found));
    }
    if let Some(missing) = (0..found).find(|number| !named.contains_key(number)) {
        return Err(format!("`id2label` has {found} labels, but no label {missing}"));
    }
    let text = |label: Value| label.as_str().map_or_else(|| label.to_string(), str::to_string);
    Ok(named.into_values().map(text).collect())
}

/// Labels as `transformers` names them.
pub(crate) fn unnamed(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("LABEL_{number}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_files_say_and_leave_out() {
        let read = |json: &str| EncoderConfig::from_hugging_face("config.json", json);
        let bert = read("{}").unwrap();
        assert_eq!((bert.norm_eps, bert.token_types, bert.padding), (1e-12, 2, None));
        let roberta = r#"{"layer_norm_eps": 1e-05, "pad_token_id": 1, "type_vocab_size": 1}"#;
        let roberta = read(roberta).unwrap();
        assert_eq!((roberta.norm_eps, roberta.padding, roberta.token_types), (1e-5, Some(1), 1));
        assert_eq!(bert.labels, ["LABEL_0", "LABEL_1"]);
        let labels = |json: &str| read(json).unwrap().labels;
        assert_eq!(labels(r#"{"id2label": {"1": "b", "0": "a", "2": 7}}"#), ["a", "b", "7"]);
        assert_eq!(labels(r#"{"id2label": {"0": "a", "1": "b"}, "num_labels": 1}"#), ["LABEL_0"]);
        for (json, message) in [
            (r#"{"id2label": {"0": "a", "2": "b"}}"#, "`id2label` has 2 labels, but no label 1"),
            (r#"{"id2label": {"zero": "a"}}"#, "expected key to be a number"),
            (r#"{"num_labels": 0}"#, "there are 0 labels"),
            (r#"{"num_labels": 99999999999}"#, "there are 99999999999 labels"),
            (r#"{"position_embedding_type": "relative_key"}"#, "positions of the kind `relative_key`"),
            (r#"{"is_decoder": true}"#, "`is_decoder` is true"),
            (r#"{"layer_norm_eps": -1}"#, "the norm's eps is -1"),
            (r#"{"type_vocab_size": 99999999999}"#, "99999999999 token types"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.starts_with("config.json: ") && error.contains(message), "{error}");
        }
    }
}
