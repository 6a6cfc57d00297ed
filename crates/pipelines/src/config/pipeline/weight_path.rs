//! Where the files of a model are: its weights, its configuration, its tokenizer.

use std::path::{Path, PathBuf};

use super::PipelineConfig;

/// The files of a model, on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    /// What holds the weights: a file, the files of one model, or a folder.
    pub(super) weights: Vec<PathBuf>,
    /// The folder with the configuration and the tokenizer, for weights that carry none.
    pub(super) folder: PathBuf,
}

impl PipelineConfig {
    /// Finds the files.
    pub(super) fn files(&self) -> Files {
        let model = Path::new(&self.huggingface_repo_id);
        let folder = match &self.weight_path[..] {
            [first, ..] if self.huggingface_repo_id.is_empty() => parent(first),
            _ if model.is_dir() => model.to_path_buf(),
            _ => parent(model),
        };
        let place = |path: &PathBuf| if path.exists() { path.clone() } else { folder.join(path) };
        let weights = match &self.weight_path[..] {
            [] => vec![model.to_path_buf()],
            paths => paths.iter().map(place).collect(),
        };
        Files { weights, folder }
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}
