//! What the engine `huggingface` makes of the fields of a configuration.

use std::path::Path;

use super::TransformersFacts;
use crate::config::{PipelineConfig, Problems, SupportedEncoding};
use engine::Reproducible;

/// Encodings that Transformers reads, and casts as `weights_dtype` says.
const PLAIN: [SupportedEncoding; 3] =
    [SupportedEncoding::Float32, SupportedEncoding::Bfloat16, SupportedEncoding::Float16];

/// Notes settings that the engine cannot follow.
pub(crate) fn check(config: &PipelineConfig, problems: &mut Problems) {
    let mut refuse = |field: &'static str, value: Option<String>, fix: &str| {
        if let Some(value) = value {
            problems.add(field, value, fix);
        }
    };
    let shown = |path: &Path| path.display().to_string();
    let model = config.huggingface_repo_id.trim();
    refuse(
        "huggingface_repo_id",
        Some(model.to_string()).filter(|model| model.ends_with(".gguf") || model.ends_with(".mef")),
        "the huggingface engine reads folders and repos with config.json and weights in safetensors or PyTorch files",
    );
    refuse(
        "weight_path",
        config.weight_path.first().map(|path| shown(path)),
        "the huggingface engine takes the weights of the model's own folder or repo: leave it out",
    );
    refuse(
        "_huggingface_config",
        config._huggingface_config.given().map(|_| "given".to_string()),
        "the huggingface engine reads the config.json of the model's own folder or repo: leave it out",
    );
    refuse(
        "quantization_encoding",
        config.quantization_encoding.filter(|asked| !PLAIN.contains(asked)).map(|asked| asked.to_string()),
        "the huggingface engine reads float32, bfloat16 and float16, and what config.json itself names: leave it out",
    );
    refuse(
        "quantize",
        config.quantize.map(|mix| mix.name.to_string()),
        "the huggingface engine does not quantize: leave it out, or use the engine max",
    );
    for (field, path) in [
        ("serialized_model_path", &config.serialized_model_path),
        ("save_to_serialized_model_path", &config.save_to_serialized_model_path),
    ] {
        let fix = "the huggingface engine compiles nothing that could be saved: leave it out";
        refuse(field, path.as_deref().map(shown), fix);
    }
    refuse(
        "cache_dtype",
        config.cache_dtype.map(|dtype| dtype.to_string()),
        "the huggingface engine keeps keys and values in the model's own dtype: leave it out, or set weights_dtype",
    );
    refuse(
        "reproducible",
        config.reproducible.filter(|asked| *asked != Reproducible::Machine).map(|asked| asked.to_string()),
        "the bits of PyTorch depend on the machine: give machine, or leave it out",
    );
}

/// Settings that mean nothing, or more than one may think.
pub(crate) fn warnings(config: &PipelineConfig, facts: &TransformersFacts) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.trust_remote_code {
        warnings.push(format!(
            "trust_remote_code lets the Python files of {} run with your rights: they can read, change and send all \
             that you can",
            config.huggingface_repo_id
        ));
    }
    let mut idle = |given: bool, field: &str, why: &str| {
        if given {
            warnings.push(format!("{field} has no effect: {why}"));
        }
    };
    idle(
        config.enable_prefix_caching,
        "enable_prefix_caching",
        "the huggingface engine keeps a cache for each sequence, and shares none",
    );
    idle(config.rope_type.is_some(), "rope_type", "it is for GGUF files only");
    let other = config.architecture.as_ref().is_some_and(|name| *name != facts.architecture);
    idle(other, "architecture", "the huggingface engine takes the one of config.json");
    idle(
        config._weights_converter.is_some(),
        "_weights_converter",
        "the huggingface engine reads the weights by the names that they have",
    );
    warnings
}
