//! Which files make up a model: one file, the shards of an index, or what lies in a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::contents::WeightMap;
use crate::error::Problem;
use crate::file_name::{is_index, is_training_state, remove_copies, shards_of};
use crate::{Error, Format, WeightFile, from_json};

/// The files of one model, in the order they are read. Of a split GGUF set, one part stands for all.
pub(crate) struct ModelFiles {
    pub(crate) files: Vec<PathBuf>,
    /// The shard that an index lists for a tensor; empty without an index.
    pub(crate) shards: WeightMap,
}

/// Hugging Face's list of which tensor is in which shard.
#[derive(serde::Deserialize)]
struct IndexFile {
    weight_map: WeightMap,
}

/// The files that the index of a sharded checkpoint lists, all in its folder.
///
/// # Errors
/// If the index cannot be read, lists nothing, or names files elsewhere.
pub fn shards(index: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(files_of(index, &read_index(index)?))
}

/// The shard that an index lists for each tensor.
pub(crate) fn read_index(path: &Path) -> Result<WeightMap, Error> {
    let bytes = WeightFile::open(path)?;
    let format =
        if path.to_string_lossy().contains(".safetensors") { Format::Safetensors } else { Format::PyTorch };
    let malformed = |what| Problem::Malformed(what).at(path, format);
    let IndexFile { weight_map } = from_json(&bytes).map_err(|error| malformed(format!("index: {error}")))?;
    if let Some(shard) = weight_map.values().find(|shard| !is_plain_name(shard)) {
        return Err(malformed(format!("index: `{shard}` is not the name of a file next to it")));
    }
    if weight_map.is_empty() {
        return Err(malformed("index: lists no tensors".to_string()));
    }
    Ok(weight_map)
}

/// The paths of the files that an index lists.
fn files_of(index: &Path, shards: &WeightMap) -> Vec<PathBuf> {
    let names: BTreeSet<&String> = shards.values().collect();
    names.into_iter().map(|shard| index.with_file_name(shard)).collect()
}

impl ModelFiles {
    /// Finds the files of the model at `path`.
    pub(crate) fn find(path: &Path) -> Result<ModelFiles, Error> {
        if path.is_dir() {
            return ModelFiles::in_folder(path);
        }
        if is_index(&path.to_string_lossy()) {
            return ModelFiles::from_index(path);
        }
        Ok(ModelFiles { files: vec![path.to_path_buf()], shards: WeightMap::new() })
    }

    /// The files that an index lists and that are there; if none is, the first, so that opening it names it.
    fn from_index(path: &Path) -> Result<ModelFiles, Error> {
        let shards = read_index(path)?;
        let mut files = files_of(path, &shards);
        match files.iter().any(|file| file.is_file()) {
            true => files.retain(|file| file.is_file()),
            false => files.truncate(1),
        }
        Ok(ModelFiles { files, shards })
    }

    fn in_folder(folder: &Path) -> Result<ModelFiles, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
            let path = entry.map_err(Error::io(folder))?.path();
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && path.is_file()
            {
                names.push(name.to_string());
            }
        }
        names.sort();
        for format in Format::BY_PREFERENCE {
            match choose(format, &names) {
                Choice::Nothing => {}
                Choice::Files(files) => {
                    let files = files.into_iter().map(|file| folder.join(file)).collect();
                    return Ok(ModelFiles { files, shards: WeightMap::new() });
                }
                Choice::Index(index) => return ModelFiles::from_index(&folder.join(index)),
                Choice::Several(candidates) => {
                    return Err(Error::SeveralModels { path: folder.to_path_buf(), candidates });
                }
            }
        }
        Err(Error::NoWeights { path: folder.to_path_buf() })
    }
}

/// The weight files of one format in a folder.
#[derive(Debug, PartialEq)]
enum Choice {
    Nothing,
    Files(Vec<String>),
    Index(String),
    Several(Vec<String>),
}

/// Chooses the model of a format among the names in a folder: the file with the default name, else an index, else the only
/// file or set of shards. A set that lacks shards is completed with their names, so that opening it names the
/// one that is missing.
fn choose(format: Format, names: &[String]) -> Choice {
    let is_weights = |name: &&String| Format::from_name(name) == Some(format) && !is_training_state(name);
    let mut files: Vec<&String> = names.iter().filter(is_weights).collect();
    remove_copies(&mut files, |name| name);
    if files.iter().any(|name| *name == format.default_name()) {
        return Choice::Files(vec![format.default_name().to_string()]);
    }
    if names.contains(&format.default_index()) {
        return Choice::Index(format.default_index());
    }
    let mut models: Vec<Vec<String>> = Vec::new();
    for shards in files.into_iter().map(|name| shards_of(name)) {
        if !models.contains(&shards) {
            models.push(shards);
        }
    }
    match models.len() {
        0 => Choice::Nothing,
        1 => Choice::Files(models.remove(0)),
        _ => Choice::Several(models.into_iter().map(|mut shards| shards.remove(0)).collect()),
    }
}

/// Whether a name from an index is a plain file name, which cannot lead out of the folder.
fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(format: usize, names: &[&str]) -> Choice {
        let mut names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        names.sort();
        super::choose(Format::BY_PREFERENCE[format], &names)
    }

    fn files(names: &[&str]) -> Choice {
        Choice::Files(names.iter().map(|name| name.to_string()).collect())
    }

    #[test]
    fn a_folder_holds_one_model() {
        assert_eq!(choose(0, &["config.json"]), Choice::Nothing);
        assert_eq!(
            choose(0, &["model.safetensors", "consolidated.safetensors"]),
            files(&["model.safetensors"])
        );
        assert_eq!(choose(0, &["adapter.safetensors", "model.safetensors"]), files(&["model.safetensors"]));
        assert_eq!(choose(0, &["consolidated.safetensors"]), files(&["consolidated.safetensors"]));
        let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        assert_eq!(choose(0, &shards), files(&shards));
        let index = "model.safetensors.index.json";
        assert_eq!(choose(0, &[shards[0], shards[1], index]), Choice::Index(index.to_string()));
        assert_eq!(choose(1, &["tiny.gguf"]), files(&["tiny.gguf"]));
        assert_eq!(choose(1, &["TINY.GGUF"]), files(&["TINY.GGUF"]));
        assert_eq!(choose(1, &["a.gguf", "b.gguf"]), Choice::Several(vec!["a.gguf".into(), "b.gguf".into()]));
        assert_eq!(choose(2, &["optimizer.pt", "training_args.bin"]), Choice::Nothing);
        assert_eq!(choose(2, &["consolidated.00.pth", "optimizer.pt"]), files(&["consolidated.00.pth"]));
    }

    #[test]
    fn missing_shards_are_listed() {
        assert_eq!(
            choose(0, &["m-00002-of-00003.safetensors"]),
            files(&[
                "m-00001-of-00003.safetensors",
                "m-00002-of-00003.safetensors",
                "m-00003-of-00003.safetensors"
            ])
        );
    }

    #[test]
    fn shard_names_with_folders_are_refused() {
        assert!(is_plain_name("model-00001-of-00002.safetensors"));
        for name in ["", "..", ".", "/etc/passwd", "../x.bin", "a/b.bin", "a/", "./a"] {
            assert!(!is_plain_name(name), "{name}");
        }
    }
}
