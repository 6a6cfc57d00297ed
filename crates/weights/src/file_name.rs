//! What names of weight files say: which are shards of one model, which list shards, and which only look like weights.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Format;

/// Files that training leaves next to a model and that look like weights.
const TRAINING_STATE: [&str; 5] = ["training_args", "optimizer", "scheduler", "scaler", "rng_state"];
/// Mistral's and Meta's own copies of a model that is there in the format's own layout too.
const CONSOLIDATED: &str = "consolidated";
/// What the name of an index adds to that of the file which it stands for.
const INDEX: &str = ".index.json";
/// Sets of more shards are taken for single files.
const MAX_SHARDS: usize = 4096;

/// The name of a shard: `model-00001-of-00003.safetensors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardName<'n> {
    stem: &'n str,
    /// From 1.
    number: usize,
    /// The number of shards.
    pub(crate) count: usize,
    suffix: &'n str,
}

impl<'n> ShardName<'n> {
    /// Parses a name, with or without a folder; `None` if it is not that of a shard.
    pub(crate) fn parse(name: &'n str) -> Option<ShardName<'n>> {
        let (stem, suffix) = name.rsplit_once('.')?;
        let (stem, count) = stem.rsplit_once("-of-")?;
        let (stem, number) = stem.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number_of = |text: &str| Some(text).filter(|text| digits(text))?.parse().ok();
        Some(ShardName { stem, number: number_of(number)?, count: number_of(count)?, suffix })
    }

    /// The name of another shard of the same model, by its number from 1.
    pub(crate) fn shard(self, number: usize) -> String {
        format!("{}-{number:05}-of-{:05}.{}", self.stem, self.count, self.suffix)
    }
}

/// Names grouped by model: the shards of one together, in order; most files are alone.
pub fn shard_sets<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<Vec<&'n str>> {
    let mut sets: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let set = ShardName::parse(name)
            .map(|ShardName { stem, count, suffix, .. }| format!("{stem}-of-{count:05}.{suffix}"));
        sets.entry(set.unwrap_or_else(|| name.to_string())).or_default().push(name);
    }
    sets.into_values().collect()
}

/// Whether two files are one, or shards of one model.
pub fn are_one_set(name: &str, other: &str) -> bool {
    shard_sets([name, other]).len() == 1
}

/// Whether no shard of a set is missing.
pub fn is_complete(set: &[&str]) -> bool {
    set.first().and_then(|name| ShardName::parse(name)).is_none_or(|shard| set.len() == shard.count)
}

/// The first shard that a set lacks, if it lacks one.
pub fn missing_shard(set: &[&str]) -> Option<String> {
    if is_complete(set) {
        return None;
    }
    shards_of(set[0]).into_iter().find(|shard| !set.contains(&shard.as_str()))
}

/// All shards of the model that a file is a shard of, in order; the file by itself if it is none.
pub fn shards_of(name: &str) -> Vec<String> {
    match ShardName::parse(name)
        .filter(|shard| shard.count <= MAX_SHARDS && (1..=shard.count).contains(&shard.number))
    {
        Some(shard) => (1..=shard.count).map(|number| shard.shard(number)).collect(),
        None => vec![name.to_string()],
    }
}

/// The file that lists which tensor is in which shard, if sets of this kind have one.
pub fn index_of_shard(name: &str) -> Option<String> {
    let ShardName { stem, suffix, .. } = ShardName::parse(name)?;
    (!suffix.eq_ignore_ascii_case("gguf")).then(|| format!("{stem}.{suffix}{INDEX}"))
}

/// Whether a file is named like an index of shards.
pub fn is_index(name: &str) -> bool {
    name.ends_with(INDEX)
}

/// The format of the shards that an index lists, by its name; GGUF files have no index.
pub fn format_of_index(name: &str) -> Option<Format> {
    Format::from_name(name.strip_suffix(INDEX)?).filter(|format| *format != Format::Gguf)
}

/// Whether a file, named without its folder, is the state of a training rather than a model.
pub fn is_training_state(name: &str) -> bool {
    TRAINING_STATE.iter().any(|start| name.starts_with(start))
}

/// Leaves out the authors' own copies of a model, if there is anything else.
pub fn remove_copies<T>(files: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let is_copy = |file: &T| name(file).contains(CONSOLIDATED);
    if !files.iter().all(is_copy) {
        files.retain(|file| !is_copy(file));
    }
}

impl Format {
    /// The formats in the order in which a folder or a repository with several is read.
    pub const BY_PREFERENCE: [Format; 3] = [Format::Safetensors, Format::Gguf, Format::PyTorch];

    /// The format that a file's name promises: `.gguf`, `.safetensors`, or `.bin`, `.pt`, `.pth`.
    pub fn from_name(name: impl AsRef<Path>) -> Option<Format> {
        match name.as_ref().extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "gguf" => Some(Format::Gguf),
            "safetensors" => Some(Format::Safetensors),
            "bin" | "pt" | "pth" => Some(Format::PyTorch),
            _ => None,
        }
    }

    /// The name that a model in one file has by convention. Among several models, it is the one that is meant.
    pub const fn default_name(self) -> &'static str {
        match self {
            Format::Gguf => "model.gguf",
            Format::Safetensors => "model.safetensors",
            Format::PyTorch => "pytorch_model.bin",
        }
    }

    /// The name that an index of shards has by convention.
    pub fn default_index(self) -> String {
        format!("{}{INDEX}", self.default_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_told_by_their_names() {
        let names = ["b.gguf", "a-00001-of-00002.gguf", "x/a-00001-of-00001.bin", "a-00002-of-00002.gguf"];
        let found = shard_sets(names);
        assert_eq!(found, [vec![names[1], names[3]], vec![names[0]], vec![names[2]]]);
        assert!(found.iter().all(|set| is_complete(set)));
        assert!(are_one_set(names[1], names[3]) && are_one_set(names[0], names[0]));
        assert!(!are_one_set(names[0], names[1]));
        assert!(!is_complete(&["a-00002-of-00002.gguf"]));
        assert_eq!(missing_shard(&["a-00002-of-00002.gguf"]).unwrap(), names[1]);
        assert_eq!((missing_shard(&found[0]), missing_shard(&["b.gguf"])), (None, None));
        assert_eq!(shards_of(names[3]), [names[1], names[3]]);
        for alone in ["b.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf", "a-00001-of-99999.gguf"] {
            assert_eq!(shards_of(alone), [alone]);
        }
        for single in ["a-1-of-2.gguf", "a-00001-of-2.gguf", "a", "-of-.bin", "a-0000x-of-00002.bin"] {
            assert_eq!(ShardName::parse(single), None, "{single}");
        }
    }

    #[test]
    fn indexes_are_named_after_shards() {
        let shards = ["model-00001-of-00002.safetensors", "x/pytorch_model-00001-of-00002.bin"];
        let indexes = ["model.safetensors.index.json", "x/pytorch_model.bin.index.json"];
        assert_eq!(shards.map(|shard| index_of_shard(shard).unwrap()), indexes);
        assert_eq!(index_of_shard("a-00001-of-00002.gguf"), None);
        assert_eq!(index_of_shard("model.safetensors"), None);
        assert_eq!(indexes.map(format_of_index), [Some(Format::Safetensors), Some(Format::PyTorch)]);
        assert_eq!(
            ["model.gguf.index.json", "index.json", "model.safetensors"].map(format_of_index),
            [None; 3]
        );
        assert_eq!(Format::Safetensors.default_index(), indexes[0]);
        assert!(is_index(indexes[0]) && !is_index("config.json"));
    }

    #[test]
    fn default_names_promise_their_formats() {
        for format in Format::BY_PREFERENCE {
            assert_eq!(Format::from_name(format.default_name()), Some(format));
        }
    }

    #[test]
    fn copies_count_if_there_is_nothing_else() {
        let check = |names: &[&str], expected: &[&str]| {
            let mut left = names.to_vec();
            remove_copies(&mut left, |name| name);
            assert_eq!(left, expected);
        };
        check(&["consolidated.safetensors", "model.safetensors"], &["model.safetensors"]);
        check(
            &["consolidated.00.pth", "consolidated.01.pth"],
            &["consolidated.00.pth", "consolidated.01.pth"],
        );
    }
}
