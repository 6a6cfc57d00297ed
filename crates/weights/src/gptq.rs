//! How the matrices of a Hugging Face checkpoint were quantized, as its `config.json` says it.

use serde::Deserialize;
use serde_json::Value;

use crate::Error;

/// The settings with which GPTQ quantized the linear layers of a checkpoint
/// (Frantar et al., 2022, <https://arxiv.org/abs/2210.17323>). Codes have 4 bits. Whether columns are permuted, and zero
/// points are all the same, the tensors say themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptqConfig {
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
struct File {
    quant_method: Option<String>,
    load_in_8bit: Option<bool>,
    load_in_4bit: Option<bool>,
    bits: Option<i64>,
    group_size: Option<i64>,
    desc_act: Option<bool>,
    checkpoint_format: Option<String>,
    is_marlin_format: Option<bool>,
    pack_dtype: Option<String>,
    dynamic: Option<Value>,
}

/// The advice for a checkpoint that does not load.
const INSTEAD: &str =
    "take one of 4 bits that GPTQ made, the model's own in bfloat16 or float16, or a GGUF file of it";

impl GptqConfig {
    /// Reads `quantization_config` of a `config.json`; `None` if there is none.
    ///
    /// # Errors
    /// If it is of another method than GPTQ, or of GPTQ with settings that do not run, or no JSON.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<Option<GptqConfig>, Error> {
        let invalid = |error: serde_json::Error| Error::quantization(source_name, error.to_string());
        let mut json: Value = serde_json::from_str(json).map_err(invalid)?;
        let of_text = || Some(json.get("text_config")?.get("quantization_config")?.clone());
        let found = of_text().or_else(|| Some(json.get_mut("quantization_config")?.take()));
        match found {
            None | Some(Value::Null) => Ok(None),
            Some(found) => GptqConfig::read(source_name, "quantization_config", found).map(Some),
        }
    }

    /// Reads a `quantize_config.json`, which early tools wrote instead of a key in `config.json`.
    ///
    /// # Errors
    /// As [`GptqConfig::from_hugging_face`].
    pub fn from_quantize_config(source_name: &str, json: &str) -> Result<GptqConfig, Error> {
        let json: Value = serde_json::from_str(json)
            .map_err(|error| Error::quantization(source_name, error.to_string()))?;
        GptqConfig::read(source_name, "the file", json)
    }

    fn read(source_name: &str, place: &str, json: Value) -> Result<GptqConfig, Error> {
        let error = |what: String| Error::quantization(source_name, format!("{place}: {what}"));
        let file: File = serde_json::from_value(json).map_err(|invalid| error(invalid.to_string()))?;
        file.check().map_err(error)?;
        Ok(GptqConfig {
            group_size: file.group_size().map_err(error)?,
            desc_act: file.desc_act.unwrap_or(false),
            zeros_less_one: file.zeros_less_one().map_err(error)?,
            dynamic: file.dynamic.is_some_and(|rules| !rules.is_null()),
        })
    }
}

impl File {
    /// Checks that codes are of a method and width that run.
    fn check(&self) -> Result<(), String> {
        let of_bits = [self.load_in_4bit, self.load_in_8bit].contains(&Some(true));
        let method = self.quant_method.as_deref().unwrap_or(if of_bits { "bitsandbytes" } else { "gptq" });
        if method != "gptq" {
            return Err(format!("quant_method is {method}, supported is gptq: {INSTEAD}"));
        }
        match self.bits {
            Some(4) => {}
            Some(bits) => return Err(format!("bits is {bits}, supported is 4: {INSTEAD}")),
            None => return Err("bits is missing, expected 4".to_string()),
        }
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

    fn read(keys: &str) -> Result<Option<GptqConfig>, String> {
        let json = format!(r#"{{"quantization_config": {keys}}}"#);
        GptqConfig::from_hugging_face("config.json", &json).map_err(|error| error.to_string())
    }

    #[test]
    fn gptq_settings_are_read() {
        let plain =
            GptqConfig { group_size: Some(128), desc_act: true, zeros_less_one: true, dynamic: false };
        let keys = r#"{"bits": 4, "group_size": 128, "desc_act": true, "sym": true, "quant_method": "gptq",
            "checkpoint_format": "gptq", "damp_percent": 0.01, "dynamic": null, "pack_dtype": "int32"}"#;
        assert_eq!(read(keys), Ok(Some(plain)));
        assert_eq!(read(r#"{"bits": 4, "group_size": 128, "desc_act": true}"#), Ok(Some(plain)));
        let keys = r#"{"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq_v2",
            "dynamic": {"-:.*gate.*": {}}}"#;
        let other = GptqConfig { group_size: None, desc_act: false, zeros_less_one: false, dynamic: true };
        assert_eq!(read(keys), Ok(Some(other)));
        assert_eq!(read("null"), Ok(None));
        assert!(matches!(GptqConfig::from_hugging_face("config.json", "{}"), Ok(None)));
        let nested = format!(r#"{{"text_config": {{"quantization_config": {keys}}}}}"#);
        assert_eq!(GptqConfig::from_hugging_face("config.json", &nested).unwrap(), Some(other));
    }

    #[test]
    fn unsupported_settings_are_named() {
        let cases = [
            (
                r#"{"quant_method": "awq", "bits": 4, "group_size": 128}"#,
                "quant_method is awq, supported is gptq",
            ),
            (r#"{"quant_method": "fp8"}"#, "quant_method is fp8, supported is gptq"),
            (
                r#"{"quant_method": "compressed-tensors"}"#,
                "quant_method is compressed-tensors, supported is gptq",
            ),
            (r#"{"load_in_4bit": true}"#, "quant_method is bitsandbytes, supported is gptq"),
            (r#"{"bits": 3, "group_size": 128}"#, "bits is 3, supported is 4"),
            (r#"{"bits": 8, "group_size": 128}"#, "bits is 8, supported is 4"),
            (r#"{"group_size": 128}"#, "bits is missing, expected 4"),
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
            assert!(error.starts_with(&format!("config.json: quantization_config: {expected}")), "{error}");
            assert!(expected.contains("missing") || error.ends_with(INSTEAD), "{error}");
        }
        assert!(read(r#"{"bits": "4"}"#).is_err());
        assert!(GptqConfig::from_hugging_face("config.json", "[").is_err());
    }
}
