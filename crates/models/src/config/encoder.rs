//! What configurations say of encoders, beside what they say of every model.

use serde::Deserialize;
use weights::Metadata;

use crate::Error;

/// What a checkpoint says about its encoder, for GGUF metadata and Hugging Face `config.json`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EncoderConfig {
    /// `eps` of the layer norms.
    pub norm_eps: f32,
    /// Rows of the table of token types.
    pub token_types: usize,
    /// The token that fills batches of one length, if the configuration says one.
    pub padding: Option<usize>,
    /// Buckets of relative positions.
    pub buckets: usize,
}

/// The keys we read. Absent ones have the defaults that `transformers` gives a BERT.
#[derive(Deserialize)]
struct File {
    #[serde(default = "default_eps")]
    layer_norm_eps: f32,
    #[serde(default = "default_token_types")]
    type_vocab_size: usize,
    pad_token_id: Option<usize>,
    #[serde(default = "default_buckets")]
    relative_attention_num_buckets: usize,
    position_embedding_type: Option<String>,
    #[serde(default)]
    is_decoder: bool,
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
        let file: File = serde_json::from_str(json).map_err(|wrong| error(wrong.to_string()))?;
        if file.is_decoder {
            return Err(error(
                "`is_decoder` is true: encoders that attend to earlier tokens alone are not supported".into(),
            ));
        }
        if let Some(kind) = file.position_embedding_type.filter(|kind| kind != "absolute") {
            return Err(error(format!("positions of the kind `{kind}` are not supported; known: absolute")));
        }
        let config = EncoderConfig {
            norm_eps: file.layer_norm_eps,
            token_types: file.type_vocab_size,
            padding: file.pad_token_id,
            buckets: file.relative_attention_num_buckets,
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
        let config = EncoderConfig {
            norm_eps: metadata.required::<f32>(&format!("{architecture}.attention.layer_norm_epsilon"))?,
            token_types: metadata.optional::<usize>("tokenizer.ggml.token_type_count")?.unwrap_or(1),
            // Tables of positions start with the first that is used.
            padding: None,
            buckets: default_buckets(),
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
        for (json, message) in [
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
