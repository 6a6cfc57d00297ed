//! Which files are parts of one model: `model-00001-of-00003.safetensors`.

use std::collections::BTreeMap;

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
pub(crate) fn sets<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Vec<&'a str>> {
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

/// The file that lists which tensor is in which part, if sets of this kind have one.
pub(crate) fn index_of(name: &str) -> Option<String> {
    let (set, _) = part(name)?;
    let (stem, rest) = set.rsplit_once("-of-")?;
    let suffix = rest.split_once('.')?.1;
    (suffix != "gguf").then(|| format!("{stem}.{suffix}.index.json"))
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
        for single in ["a-1-of-2.gguf", "a-00001-of-2.gguf", "a", "-of-.bin", "a-0000x-of-00002.bin"] {
            assert_eq!(part(single), None, "{single}");
        }
        assert_eq!(index_of("model-00001-of-00002.safetensors").unwrap(), "model.safetensors.index.json");
        assert_eq!(index_of("x/pytorch_model-00001-of-00002.bin").unwrap(), "x/pytorch_model.bin.index.json");
        assert_eq!(index_of(names[1]), None);
        assert_eq!(index_of("model.safetensors"), None);
    }
}
