//! The files next to a model's weights, by name: configuration, tokenizer, templates, and the later stages of a model.

use weights::Format;
use weights::file_name::is_index;

use crate::WeightsFormat;

/// The configuration of a model whose weights do not contain it.
pub(crate) const CONFIG: &str = "config.json";

/// Which files a model needs besides its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Companions {
    /// Configuration, tokenizer and templates.
    All,
    /// Only the sampling defaults: GGUF files contain the rest.
    Settings,
    /// Only the configurations of a model's later stages: `modules.json`, and those in folders such as `1_Pooling`.
    Modules,
}

impl Companions {
    /// The files that weights of a format need.
    pub(crate) fn for_format(format: WeightsFormat) -> Companions {
        if format == WeightsFormat::Gguf { Companions::Settings } else { Companions::All }
    }

    /// Whether a file is one of them.
    pub(crate) fn include(self, name: &str) -> bool {
        match self {
            Companions::Settings => is_settings(name),
            Companions::All => is_beside_weights(name),
            Companions::Modules => {
                let is_stage = name.contains('/') && is_beside_weights(name);
                name == "modules.json"
                    || is_stage && !name.ends_with(".safetensors") && !name.ends_with(".bin")
            }
        }
    }
}

/// Whether a file next to GGUF files is read. They contain configuration and tokenizer, so few others are.
pub fn is_settings(name: &str) -> bool {
    [CONFIG, "generation_config.json"].contains(&name)
}

/// Whether a file is configuration, tokenizer or template.
pub fn is_beside_weights(name: &str) -> bool {
    let suffixes = [".json", ".model", ".jinja", ".tiktoken"];
    let texts = ["merges.txt", "vocab.txt"];
    match name.rsplit_once('/') {
        None if is_index(name) => false,
        None => texts.contains(&name) || suffixes.iter().any(|suffix| name.ends_with(suffix)),
        Some(("additional_chat_templates", file)) => file.ends_with(".jinja"),
        // The later stages of a model: `1_Pooling`.
        Some((folder, file)) => {
            let files = [CONFIG, Format::Safetensors.default_name(), Format::PyTorch.default_name()];
            files.contains(&file) && folder.starts_with(|first: char| first.is_ascii_digit())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_depend_on_the_format_of_the_weights() {
        let names = [
            "config.json",
            "generation_config.json",
            "tokenizer.model",
            "merges.txt",
            "modules.json",
            "1_Pooling/config.json",
            "2_Dense/model.safetensors",
            "additional_chat_templates/pairs.jinja",
            "model.safetensors.index.json",
            "onnx/config.json",
            "README.md",
        ];
        let check = |companions: Companions, expected: &[&str]| {
            let found: Vec<&str> = names.into_iter().filter(|name| companions.include(name)).collect();
            assert_eq!(found, expected);
        };
        check(Companions::for_format(WeightsFormat::Gguf), &names[..2]);
        check(Companions::for_format(WeightsFormat::Safetensors), &names[..8]);
        check(Companions::Modules, &[names[4], names[5], names[7]]);
    }
}
