//! What quantized the matrices of a Hugging Face checkpoint, as its `config.json` says it.

use serde_json::Value;
use tensor::DType;

use crate::from_json;
use crate::gptq::GptqConfig;
use crate::{Error, gptq};

/// What quantized the matrices of a checkpoint: the method, and what its tensors do not say themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuantizationConfig {
    /// GPTQ: codes of 4 or 8 bits.
    Gptq(GptqConfig),
    /// AWQ: codes of 4 bits.
    Awq {
        /// Columns that share a scale; `None` is all of them.
        group_size: Option<usize>,
    },
    /// 8-bit floats.
    Fp8 {
        /// The rows and columns that share a scale, if they are blocks.
        block: Option<[usize; 2]>,
    },
    /// MXFP4: 4-bit floats with a power of two per 32.
    Mxfp4,
    /// compressed-tensors: integers of 4 or 8 bits, FP8, NVFP4 or MXFP4.
    CompressedTensors {
        /// The dtype that names what most matrices are.
        dtype: DType,
        /// The rows and columns that share a scale, if they are blocks.
        block: Option<[usize; 2]>,
    },
    /// bitsandbytes: 4 bits on uneven levels, or 8-bit integers.
    BitsAndBytes {
        /// Whether codes have 4 bits.
        four_bits: bool,
    },
    /// ModelOpt: FP8 or NVFP4.
    ModelOpt {
        /// The dtype that names what most matrices are.
        dtype: DType,
    },
}

/// The methods that are read, for messages.
const METHODS: &str = "gptq, awq, fp8, fbgemm_fp8, mxfp4, compressed-tensors, modelopt and bitsandbytes";

impl QuantizationConfig {
    /// Reads `quantization_config` of a `config.json`; `None` if there is none.
    ///
    /// # Errors
    /// If it is of a method that is not read, or has settings that do not run, or is no JSON.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<Option<QuantizationConfig>, Error> {
        let invalid = |error: serde_json::Error| Error::quantization(source_name, error.to_string());
        let mut json: Value = from_json(json.as_bytes()).map_err(invalid)?;
        let of_text = || Some(json.get("text_config")?.get("quantization_config")?.clone());
        let found = of_text().or_else(|| Some(json.get_mut("quantization_config")?.take()));
        let Some(found) = found.filter(|found| !found.is_null()) else { return Ok(None) };
        let place = "quantization_config";
        let config = match method(&found) {
            "gptq" => {
                let config = GptqConfig::read(source_name, place, found)?;
                return Ok(Some(QuantizationConfig::Gptq(config)));
            }
            "mxfp4" => Ok(QuantizationConfig::Mxfp4),
            "awq" => awq(&found),
            "fp8" | "fbgemm_fp8" => {
                block(found.get("weight_block_size")).map(|block| QuantizationConfig::Fp8 { block })
            }
            "compressed-tensors" => compressed_tensors(&found),
            "modelopt" => modelopt(&found),
            "bitsandbytes" => {
                let four_bits = flag(&found, "load_in_4bit") || flag(&found, "_load_in_4bit");
                Ok(QuantizationConfig::BitsAndBytes { four_bits })
            }
            other => Err(format!("quant_method is {other}, supported are {METHODS}: {}", gptq::INSTEAD)),
        };
        config.map(Some).map_err(|what| Error::quantization(source_name, format!("{place}: {what}")))
    }

    /// The dtype that names the scheme.
    pub fn dtype(&self) -> DType {
        match self {
            QuantizationConfig::Gptq(GptqConfig { bits: 8, .. }) => DType::Gptq8,
            QuantizationConfig::Gptq(_) | QuantizationConfig::Awq { .. } => DType::Gptq,
            QuantizationConfig::Fp8 { .. } => DType::Fp8,
            QuantizationConfig::Mxfp4 => DType::Mxfp4,
            QuantizationConfig::CompressedTensors { dtype, .. } | QuantizationConfig::ModelOpt { dtype } => {
                *dtype
            }
            QuantizationConfig::BitsAndBytes { four_bits: true } => DType::Nf4,
            QuantizationConfig::BitsAndBytes { four_bits: false } => DType::Gptq8,
        }
    }
}

/// The method. Early tools of bitsandbytes and GPTQ do not name theirs.
fn method(found: &Value) -> &str {
    let of_bits = ["load_in_4bit", "load_in_8bit"].iter().any(|key| flag(found, key));
    let unnamed = if of_bits { "bitsandbytes" } else { "gptq" };
    text(found, "quant_method").unwrap_or(unnamed)
}

fn flag(found: &Value, key: &str) -> bool {
    found.get(key) == Some(&Value::Bool(true))
}

fn text<'a>(found: &'a Value, key: &str) -> Option<&'a str> {
    found.get(key).and_then(Value::as_str)
}

fn awq(found: &Value) -> Result<QuantizationConfig, String> {
    let number = |keys: [&str; 2]| keys.iter().find_map(|key| found.get(key)).and_then(Value::as_i64);
    match number(["bits", "w_bit"]) {
        Some(4) => {}
        Some(bits) => return Err(format!("bits is {bits}, supported is 4: {}", gptq::INSTEAD)),
        None => return Err("bits is missing, expected 4".to_string()),
    }
    if let Some(version) = text(found, "version").filter(|version| !version.eq_ignore_ascii_case("gemm")) {
        return Err(format!("version is {version}, supported is gemm: {}", gptq::INSTEAD));
    }
    let group_size = match number(["group_size", "q_group_size"]) {
        Some(-1) => None,
        Some(size) if size > 0 && size % 32 == 0 => Some(size as usize),
        Some(size) => {
            let expected = "supported are -1 and multiples of 32";
            return Err(format!("group_size is {size}, {expected}: {}", gptq::INSTEAD));
        }
        None => return Err("group_size is missing, expected -1 or a multiple of 32".to_string()),
    };
    Ok(QuantizationConfig::Awq { group_size })
}

/// The rows and columns of blocks.
fn block(found: Option<&Value>) -> Result<Option<[usize; 2]>, String> {
    let Some(found) = found.filter(|found| !found.is_null()) else { return Ok(None) };
    match serde_json::from_value::<[usize; 2]>(found.clone()) {
        Ok(block) if !block.contains(&0) => Ok(Some(block)),
        _ => Err(format!("the block size is {found}, expected two numbers, [128, 128] for example")),
    }
}

fn compressed_tensors(found: &Value) -> Result<QuantizationConfig, String> {
    let groups = found.get("config_groups").and_then(Value::as_object);
    let mut weights =
        groups.into_iter().flat_map(|groups| groups.values()).filter_map(|group| group.get("weights"));
    let weights = weights.next().unwrap_or(&Value::Null);
    let bits = weights.get("num_bits").and_then(Value::as_i64);
    let dtype = match (text(found, "format"), bits) {
        (Some("pack-quantized"), Some(4)) => DType::Gptq,
        (Some("pack-quantized" | "int-quantized"), _) => DType::Gptq8,
        (Some("float-quantized" | "naive-quantized"), _) => DType::Fp8,
        (Some("nvfp4-pack-quantized"), _) => DType::Nvfp4,
        (Some("mxfp4-pack-quantized"), _) => DType::Mxfp4,
        // The tensors say what each matrix is.
        (Some("mixed-precision") | None, Some(4)) => DType::Gptq,
        (Some("mixed-precision") | None, _) => DType::Fp8,
        (Some(format), _) => {
            let known = "pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized and mxfp4-pack-quantized";
            return Err(format!("format is {format}, supported are {known}: {}", gptq::INSTEAD));
        }
    };
    Ok(QuantizationConfig::CompressedTensors { dtype, block: block(weights.get("block_structure"))? })
}

fn modelopt(found: &Value) -> Result<QuantizationConfig, String> {
    let of_section = || text(found.get("quantization")?, "quant_algo");
    let dtype = match text(found, "quant_algo").or_else(of_section) {
        Some(algorithm) if algorithm.starts_with("FP8") => DType::Fp8,
        Some("NVFP4") => DType::Nvfp4,
        other => {
            let found = other.unwrap_or("missing");
            return Err(format!("quant_algo is {found}, supported are FP8 and NVFP4: {}", gptq::INSTEAD));
        }
    };
    Ok(QuantizationConfig::ModelOpt { dtype })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<Option<QuantizationConfig>, String> {
        let json = format!(r#"{{"quantization_config": {keys}}}"#);
        QuantizationConfig::from_hugging_face("config.json", &json).map_err(|error| error.to_string())
    }

    #[test]
    fn methods_are_told_apart() {
        let gptq = r#"{"quant_method": "gptq", "bits": 4, "group_size": -1}"#;
        let plain =
            GptqConfig { bits: 4, group_size: None, desc_act: false, zeros_less_one: true, dynamic: false };
        assert_eq!(read(gptq), Ok(Some(QuantizationConfig::Gptq(plain))));
        let nested = format!(r#"{{"text_config": {{"quantization_config": {gptq}}}}}"#);
        let nested = QuantizationConfig::from_hugging_face("config.json", &nested).unwrap();
        assert_eq!(nested, Some(QuantizationConfig::Gptq(plain)));
        assert_eq!(read("null"), Ok(None));
        assert!(matches!(QuantizationConfig::from_hugging_face("config.json", "{}"), Ok(None)));
        let cases = [
            (
                r#"{"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}"#,
                QuantizationConfig::Mxfp4,
            ),
            (
                r#"{"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}"#,
                QuantizationConfig::Awq { group_size: Some(128) },
            ),
            (
                r#"{"quant_method": "fp8", "weight_block_size": [128, 64]}"#,
                QuantizationConfig::Fp8 { block: Some([128, 64]) },
            ),
            (r#"{"quant_method": "fbgemm_fp8"}"#, QuantizationConfig::Fp8 { block: None }),
            (
                r#"{"quant_method": "compressed-tensors", "format": "pack-quantized",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}"#,
                QuantizationConfig::CompressedTensors { dtype: DType::Gptq, block: None },
            ),
            (
                r#"{"quant_method": "compressed-tensors", "format": "float-quantized",
                    "config_groups": {"group_0": {"weights": {"num_bits": 8, "block_structure": [128, 128]}}}}"#,
                QuantizationConfig::CompressedTensors { dtype: DType::Fp8, block: Some([128, 128]) },
            ),
            (
                r#"{"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}"#,
                QuantizationConfig::ModelOpt { dtype: DType::Nvfp4 },
            ),
            (
                r#"{"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}"#,
                QuantizationConfig::CompressedTensors { dtype: DType::Mxfp4, block: None },
            ),
            (r#"{"load_in_4bit": true}"#, QuantizationConfig::BitsAndBytes { four_bits: true }),
        ];
        for (keys, expected) in cases {
            assert_eq!(read(keys), Ok(Some(expected)), "{keys}");
        }
    }

    #[test]
    fn other_methods_are_named() {
        let cases = [
            (r#"{"quant_method": "hqq", "bits": 4}"#, "quant_method is hqq, supported are gptq, awq"),
            (r#"{"quant_method": "awq", "bits": 8}"#, "bits is 8, supported is 4"),
            (
                r#"{"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"}"#,
                "version is gemv, supported is gemm",
            ),
            (
                r#"{"quant_method": "awq", "bits": 4, "group_size": 16}"#,
                "group_size is 16, supported are -1 and multiples of 32",
            ),
            (
                r#"{"quant_method": "compressed-tensors", "format": "marlin-24"}"#,
                "format is marlin-24, supported are",
            ),
            (
                r#"{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}"#,
                "quant_algo is W4A8_AWQ, supported are FP8 and NVFP4",
            ),
        ];
        for (keys, expected) in cases {
            let error = read(keys).unwrap_err();
            let expected = format!("config.json: quantization_config: {expected}");
            assert!(error.starts_with(&expected) && error.ends_with(gptq::INSTEAD), "{error}");
        }
        let error = read(r#"{"quant_method": "fp8", "weight_block_size": [128, 0]}"#).unwrap_err();
        assert!(error.contains("the block size is [128,0], expected two numbers"), "{error}");
        assert!(read(r#"{"bits": "4"}"#).is_err());
        assert!(QuantizationConfig::from_hugging_face("config.json", "[").is_err());
    }
}
