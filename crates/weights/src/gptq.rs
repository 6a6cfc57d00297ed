//! How the matrices of a Hugging Face checkpoint were quantized, as its `config.json` says it.

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, from_json};

/// The settings with which GPTQ quantized the linear layers of a checkpoint
/// (Frantar et al., 2022, <https://arxiv.org/abs/2210.17323>). Whether columns are permuted, and zero points are all the
/// same, the tensors say themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptqConfig {
    /// Bits of a code: 4 or 8.
    pub bits: usize,
    /// Columns that share a scale; `None` is all of them.
    pub group_size: Option<usize>,
    /// Whether columns were quantized in the order of their importance.
    pub desc_act: bool,
    /// Whether stored zero points are less by 1, as in the format `gptq`; in `gptq_v2` they are what they say.
    pub zeros_less_one: bool,
    /// Whether some layers have settings of their own (`dynamic`).
    pub dynamic: bool,
}

/// The keys we read.
#[derive(Deserialize)]
struct GptqJson {
    bits: Option<i64>,
    group_size: Option<i64>,
    desc_act: Option<bool>,
    checkpoint_format: Option<String>,
    is_marlin_format: Option<bool>,
    pack_dtype: Option<String>,
    dynamic: Option<Value>,
}

/// The advice for a checkpoint that does not load.
pub(crate) const INSTEAD: &str =
    "take another quantized one, the model's own in bfloat16 or float16, or a GGUF file of it";

impl GptqConfig {
    /// Reads a `quantize_config.json`, which early tools wrote instead of a key in `config.json`.
    ///
    /// # Errors
    /// If it has settings that do not run, or is no JSON.
    pub fn from_quantize_config(source_name: &str, json: &str) -> Result<GptqConfig, Error> {
        let json: Value = from_json(json.as_bytes())
            .map_err(|error| Error::quantization(source_name, error.to_string()))?;
        GptqConfig::read(source_name, "the file", json)
    }

    pub(crate) fn read(source_name: &str, place: &str, json: Value) -> Result<GptqConfig, Error> {
        let error = |what: String| Error::quantization(source_name, format!("{place}: {what}"));
        let file: GptqJson = serde_json::from_value(json).map_err(|invalid| error(invalid.to_string()))?;
        file.check_words().map_err(error)?;
        Ok(GptqConfig {
            bits: file.bits().map_err(error)?,
            group_size: file.group_size().map_err(error)?,
            desc_act: file.desc_act.unwrap_or(false),
            zeros_less_one: file.zeros_less_one().map_err(error)?,
            dynamic: file.dynamic.is_some_and(|rules| !rules.is_null()),
        })
    }
}

impl GptqJson {
    fn bits(&self) -> Result<usize, String> {
        match self.bits {
            Some(4) => Ok(4),
            Some(8) => Ok(8),
            Some(bits) => Err(format!("bits is {bits}, supported are 4 and 8: {INSTEAD}")),
            None => Err("bits is missing, expected 4 or 8".to_string()),
        }
    }

    fn check_words(&self) -> Result<(), String> {
        match self.pack_dtype.as_deref() {
            None | Some("int32" | "torch.int32") => Ok(()),
            Some(dtype) => Err(format!("pack_dtype is {dtype}, supported is int32: {INSTEAD}")),
        }
    }

    fn group_size(&self) -> Result<Option<usize>, String> {
        match self.group_size {
            Some(-1) => Ok(None),
            Some(size) if size > 0 && size % 32 == 0 => usize::try_from(size)
                .map(Some)
                .map_err(|_| format!("group_size is {size}, which is too large")),
            Some(size) => {
                Err(format!("group_size is {size}, supported are -1 and multiples of 32: {INSTEAD}"))
            }
            None => Err("group_size is missing, expected -1 or a multiple of 32".to_string()),
        }
    }

    fn zeros_less_one(&self) -> Result<bool, String> {
        let format = match self.is_marlin_format {
            Some(true) => "marlin",
            _ => self.checkpoint_format.as_deref().unwrap_or("gptq"),
        };
        match format {
            "gptq" => Ok(true),
            "gptq_v2" => Ok(false),
            other => Err(format!("checkpoint_format is {other}, supported are gptq and gptq_v2: {INSTEAD}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<GptqConfig, String> {
        GptqConfig::from_quantize_config("config.json", keys).map_err(|error| error.to_string())
    }

    #[test]
    fn gptq_settings_are_read() {
        let plain = GptqConfig {
            bits: 4,
            group_size: Some(128),
            desc_act: true,
            zeros_less_one: true,
            dynamic: false,
        };
        let keys = r#"{"bits": 4, "group_size": 128, "desc_act": true, "sym": true, "quant_method": "gptq",
            "checkpoint_format": "gptq", "damp_percent": 0.01, "dynamic": null, "pack_dtype": "int32"}"#;
        assert_eq!(read(keys), Ok(plain));
        assert_eq!(read(r#"{"bits": 4, "group_size": 128, "desc_act": true}"#), Ok(plain));
        let keys = r#"{"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq_v2",
            "dynamic": {"-:.*gate.*": {}}}"#;
        let other =
            GptqConfig { bits: 4, group_size: None, desc_act: false, zeros_less_one: false, dynamic: true };
        assert_eq!(read(keys), Ok(other));
        assert_eq!(read(keys), Ok(other));
    }

    #[test]
    fn unsupported_settings_are_named() {
        let cases = [
            (r#"{"bits": 3, "group_size": 128}"#, "bits is 3, supported are 4 and 8"),
            (r#"{"group_size": 128}"#, "bits is missing, expected 4 or 8"),
            (r#"{"bits": 4}"#, "group_size is missing, expected -1 or a multiple of 32"),
            (r#"{"bits": 4, "group_size": 16}"#, "group_size is 16, supported are -1 and multiples of 32"),
            (r#"{"bits": 4, "group_size": 0}"#, "group_size is 0, supported are -1 and multiples of 32"),
            (
                r#"{"bits": 4, "group_size": 128, "checkpoint_format": "marlin"}"#,
                "checkpoint_format is marlin, supported are gptq and gptq_v2",
            ),
            (
                r#"{"bits": 4, "group_size": 128, "is_marlin_format": true}"#,
                "checkpoint_format is marlin, supported are gptq and gptq_v2",
            ),
            (
                r#"{"bits": 4, "group_size": 128, "pack_dtype": "int8"}"#,
                "pack_dtype is int8, supported is int32",
            ),
        ];
        for (keys, expected) in cases {
            let error = read(keys).unwrap_err();
            assert!(error.starts_with(&format!("config.json: the file: {expected}")), "{error}");
            assert!(expected.contains("missing") || error.ends_with(INSTEAD), "{error}");
        }
        assert!(read(r#"{"bits": "4"}"#).is_err());
    }
}
