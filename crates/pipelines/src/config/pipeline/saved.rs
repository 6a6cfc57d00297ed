//! The saved models that a configuration names: one to start from, or one to write.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use models::Checkpoint;
use sources::is_beside_weights;

use super::PipelineConfig;
use super::check::Problems;
use crate::compiled::CacheLayout;
use crate::serialized::{Identity, Settings};

/// Checks that a file to start from is one, and that one to write can be.
pub(super) fn check_paths(config: &PipelineConfig, problems: &mut Problems) {
    if let Some(path) = &config.serialized_model_path {
        if let Err(problem) = Identity::read(path) {
            problems.add("serialized_model_path", path.display(), problem);
        }
    } else if let Some(path) = &config.save_to_serialized_model_path
        && let Some(fix) = unwritable(path)
    {
        problems.add("save_to_serialized_model_path", path.display(), fix);
    }
}

/// Checks that a file to start from was made with the configuration's settings, and that one to write is none of the
/// model's own.
pub(super) fn check_model(
    config: &PipelineConfig,
    checkpoint: &Checkpoint,
    folder: &Path,
    problems: &mut Problems,
) {
    if let Some(path) = &config.serialized_model_path {
        let cache = CacheLayout { page_size: config.kv_cache_page_size, dtype: config.kept_dtype() };
        let needed = Settings::of(checkpoint, config.quantization_encoding, cache);
        // That it is none is told already.
        let found = Identity::read(path).ok();
        if let Some(fix) = found.and_then(|found| found.refusal(&needed, path, checkpoint.weights())) {
            problems.add("serialized_model_path", path.display(), fix);
        }
    } else if let Some(path) = &config.save_to_serialized_model_path
        && let Some(own) = own_files(config, folder).find(|own| is_same(own, path))
    {
        let fix = format!("that is {}, of which the model is made: give another file", own.display());
        problems.add("save_to_serialized_model_path", path.display(), fix);
    }
}

/// Why a file cannot be written, as far as that is known before, and what to do.
fn unwritable(path: &Path) -> Option<String> {
    if path.is_dir() || path.file_name().is_none() {
        return Some("it is a folder: give a file".to_string());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.metadata() {
        Ok(metadata) if !metadata.is_dir() => {
            Some(format!("{} is no folder: give another file", folder.display()))
        }
        Ok(metadata) if metadata.permissions().readonly() => {
            Some(format!("nobody may write to the folder {}: give another file", folder.display()))
        }
        Ok(_) => None,
        Err(error) => {
            Some(format!("its folder {}: {error}: make it, or give another file", folder.display()))
        }
    }
}

/// The files of the model: its weights, and what stands beside them.
fn own_files(config: &PipelineConfig, folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(Result::ok);
    let beside = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_beside_weights));
    config.weight_path.iter().cloned().chain(beside.map(|entry| entry.path()))
}

/// Whether two paths lead to one file, by whatever links.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(metadata), Ok(others)) => {
            is_same_node(&metadata, &others)
                || one.canonicalize().is_ok_and(|path| other.canonicalize().is_ok_and(|other| path == other))
        }
        _ => false,
    }
}

/// Whether these are of one file under two names.
#[cfg(unix)]
fn is_same_node(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// That cannot be told here.
#[cfg(not(unix))]
fn is_same_node(_one: &Metadata, _other: &Metadata) -> bool {
    false
}
