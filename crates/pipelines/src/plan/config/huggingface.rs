//! Settings that the engine `huggingface` cannot follow.

use std::path::Path;

use engine::Reproducible;

use super::problems::Problems;
use super::{PipelineConfig, SupportedEncoding};

/// Encodings that Transformers reads, and casts as `weights_dtype` says.
const PLAIN: [SupportedEncoding; 3] =
    [SupportedEncoding::Float32, SupportedEncoding::Bfloat16, SupportedEncoding::Float16];

/// Notes settings that the engine cannot follow.
pub(super) fn check(config: &PipelineConfig, problems: &mut Problems) {
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
