//! Whether a word of the command line names a model or is a text.

use std::path::Path;

use sources::{ModelName, RepoName};

/// File name extensions of weights and artifacts.
const EXTENSIONS: [&str; 7] = ["gguf", "safetensors", "bin", "pt", "pth", "mef", "onnx"];
/// Files that make a folder a model.
const MODEL_FILES: [&str; 3] = ["config.json", "tokenizer.json", "tokenizer.model"];

/// Whether a word names a model: a file or folder as in [`is_model_path`], or a name that looks like a hub repo
/// (`org/name`, `org/name:q4_k`).
pub(crate) fn names_model(word: &str) -> bool {
    is_model_path(word) || looks_like_repo(word)
}

/// Whether a word is the path of a model: an existing model file or folder, or a missing file whose name is one of a
/// model (`lama.gguf`), which is more likely a typing error than a text.
pub(crate) fn is_model_path(word: &str) -> bool {
    let path = Path::new(word);
    if path.is_dir() {
        return is_model_folder(path);
    }
    let is_named_like_one = path
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()));
    is_named_like_one && (path.is_file() || !word.contains(char::is_whitespace))
}

/// Whether a folder directly holds a configuration, a tokenizer or weights.
fn is_model_folder(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        EXTENSIONS[..2].contains(&extension) || MODEL_FILES.iter().any(|name| entry.file_name() == *name)
    })
}

/// Whether a word names a repo as `owner/name`, perhaps with a revision or a label, or by its address.
fn looks_like_repo(word: &str) -> bool {
    let is_owned = |name: &RepoName| name.repo.id().contains('/');
    !word.contains(char::is_whitespace)
        && ModelName::parse(word).is_ok_and(|name| name.repo().is_some_and(is_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_paths_and_repos_are_told_from_texts() {
        for text in ["Once upon a time", "", "and / or", "a.b", "http://example.com", "1/2/3", ":", "src"] {
            assert!(!names_model(text), "{text}");
        }
        let models = [
            "Qwen/Qwen3-0.6B",
            "Qwen/Qwen3-0.6B@main",
            "Qwen/Qwen3-0.6B-GGUF:q8_0",
            "hf.co/Qwen/Qwen3-0.6B",
            "https://huggingface.co/Qwen/Qwen3-0.6B/tree/main",
            "nowhere.gguf",
            "a/b/model.safetensors",
        ];
        for model in models {
            assert!(names_model(model), "{model}");
        }
        let storyteller = testdata::asset("storyteller");
        assert!(is_model_path(storyteller.to_str().unwrap()));
        assert!(is_model_path(storyteller.join("model.gguf").to_str().unwrap()));
        assert!(!is_model_path(testdata::repository().join("docs").to_str().unwrap()));
    }
}
