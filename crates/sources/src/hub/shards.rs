//! Which files are parts of one model: `model-00001-of-00003.safetensors`.

use std::collections::BTreeMap;

/// Sets of more parts are taken for single files.
const MAX_PARTS: usize = 4096;

/// The number of parts that a part's name states, and the name without the part's number.
fn part(name: &str) -> Option<(String, usize)> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (stem, number) = stem.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(number) && digits(count))
        .then(|| (format!("{stem}-of-{count}.{suffix}"), count.parse().ok()))
        .and_then(|(set, count)| Some((set, count?)))
}

/// Files that belong together, in order; most are alone.
pub fn sets<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Vec<&'a str>> {
    let mut sets: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let key = part(name).map_or_else(|| name.to_string(), |(set, _)| set);
        sets.entry(key).or_default().push(name);
    }
    sets.into_values().collect()
}

/// Whether all parts of a set are there.
pub(crate) fn is_complete(set: &[&str]) -> bool {
    set.first().and_then(|name| part(name)).is_none_or(|(_, count)| set.len() == count)
}

/// The first part that a set lacks, if it lacks one.
pub(crate) fn missing_part(set: &[&str]) -> Option<String> {
    if is_complete(set) {
        return None;
    }
    parts_of(set[0]).into_iter().find(|part| !set.contains(&part.as_str()))
}

/// All files of the set that a file is a part of, in order; the file by itself, if it is no part.
pub(crate) fn parts_of(name: &str) -> Vec<String> {
    let alone = || vec![name.to_string()];
    let Some((set, count)) = part(name).filter(|&(_, count)| count <= MAX_PARTS) else { return alone() };
    let Some((stem, rest)) = set.rsplit_once("-of-") else { return alone() };
    let parts: Vec<String> = (1..=count).map(|number| format!("{stem}-{number:05}-of-{rest}")).collect();
    if parts.iter().any(|part| part == name) { parts } else { alone() }
}

/// The file that lists which tensor is in which part, if sets of this kind have one.
pub(crate) fn index_of(name: &str) -> Option<String> {
    let (set, _) = part(name)?;
    let (stem, rest) = set.rsplit_once("-of-")?;
    let suffix = rest.split_once('.')?.1;
    (!suffix.eq_ignore_ascii_case("gguf")).then(|| format!("{stem}.{suffix}.index.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_by_their_names() {
        let names = ["b.gguf", "a-00001-of-00002.gguf", "x/a-00001-of-00001.bin", "a-00002-of-00002.gguf"];
        let found = sets(names);
        assert_eq!(found, [vec![names[1], names[3]], vec![names[0]], vec![names[2]]]);
        assert!(found.iter().all(|set| is_complete(set)));
        assert!(!is_complete(&["a-00002-of-00002.gguf"]));
        assert_eq!(missing_part(&["a-00002-of-00002.gguf"]).unwrap(), names[1]);
        assert_eq!((missing_part(&found[0]), missing_part(&["b.gguf"])), (None, None));
        assert_eq!(parts_of(names[3]), [names[1], names[3]]);
        for alone in ["b.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf", "a-00001-of-99999.gguf"] {
            assert_eq!(parts_of(alone), [alone]);
        }
        for single in ["a-1-of-2.gguf", "a-00001-of-2.gguf", "a", "-of-.bin", "a-0000x-of-00002.bin"] {
            assert_eq!(part(single), None, "{single}");
        }
        assert_eq!(index_of("model-00001-of-00002.safetensors").unwrap(), "model.safetensors.index.json");
        assert_eq!(index_of("x/pytorch_model-00001-of-00002.bin").unwrap(), "x/pytorch_model.bin.index.json");
        assert_eq!(index_of(names[1]), None);
        assert_eq!(index_of("model.safetensors"), None);
    }
}
