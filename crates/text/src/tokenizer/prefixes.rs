//! Finds the strings of a list that a text begins with, in one walk along the text.
//!
//! The strings are sorted; each byte of the text narrows the range of those that agree so far.

use std::sync::Arc;

/// Strings with a number each.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// Sorted by bytes, none empty, none twice.
    entries: Vec<(Arc<str>, u32)>,
    /// Per first byte, where its strings start in `entries`; one more entry at the end.
    starts: Vec<u32>,
}

impl Prefixes {
    /// Of equal strings, the first counts; empty ones are left out.
    pub(super) fn new(entries: impl IntoIterator<Item = (Arc<str>, u32)>) -> Prefixes {
        // Most comparisons end in the first eight bytes, which lie beside one another.
        let head = |text: &str| {
            let mut bytes = [0; 8];
            let count = text.len().min(8);
            bytes[..count].copy_from_slice(&text.as_bytes()[..count]);
            u64::from_be_bytes(bytes)
        };
        let entries = entries.into_iter().filter(|(text, _)| !text.is_empty());
        let mut sorted: Vec<(u64, (Arc<str>, u32))> = entries.map(|entry| (head(&entry.0), entry)).collect();
        sorted.sort_by(|(head, a), (other, b)| head.cmp(other).then_with(|| a.0.cmp(&b.0)));
        let mut entries: Vec<(Arc<str>, u32)> = sorted.into_iter().map(|(_, entry)| entry).collect();
        entries.dedup_by(|later, earlier| later.0 == earlier.0);
        let starts = (0..=256)
            .map(|byte| entries.partition_point(|(text, _)| usize::from(text.as_bytes()[0]) < byte) as u32)
            .collect();
        Prefixes { entries, starts }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Visits the strings that `text` begins with, shortest first: length in bytes, and number.
    pub(super) fn for_each(&self, text: &[u8], mut visit: impl FnMut(usize, u32)) {
        let (Some(&first), false) = (text.first(), self.is_empty()) else { return };
        let start = |byte: usize| self.starts[byte] as usize;
        let mut rest = &self.entries[start(usize::from(first))..start(usize::from(first) + 1)];
        let mut depth = 1;
        while let Some((string, number)) = rest.first() {
            if string.len() == depth {
                visit(depth, *number);
                rest = &rest[1..];
            }
            let Some(&byte) = text.get(depth) else { return };
            let at = |entry: &(Arc<str>, u32)| entry.0.as_bytes()[depth];
            let agree = |entry: Option<&(Arc<str>, u32)>| entry.is_some_and(|entry| at(entry) == byte);
            if !agree(rest.first()) {
                rest = &rest[rest.partition_point(|entry| at(entry) < byte)..];
            }
            if !agree(rest.last()) {
                rest = &rest[..rest.partition_point(|entry| at(entry) <= byte)];
            }
            depth += 1;
        }
    }

    /// The longest string that `text` begins with: its length in bytes, and its number.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let mut longest = None;
        self.for_each(text, |length, number| longest = Some((length, number)));
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_come_shortest_first() {
        let texts = ["b", "", "ab", "a", "abcd", "é", "ab", "abd"];
        let prefixes = Prefixes::new(texts.iter().enumerate().map(|(i, &text)| (text.into(), i as u32)));
        let found = |text: &str| {
            let mut found = Vec::new();
            prefixes.for_each(text.as_bytes(), |length, number| found.push((length, number)));
            found
        };
        assert_eq!(found("abcde"), [(1, 3), (2, 2), (4, 4)]);
        assert_eq!(found("abce"), [(1, 3), (2, 2)]);
        assert_eq!(found("ab"), [(1, 3), (2, 2)]);
        assert_eq!(found("éa"), [(2, 5)]);
        assert_eq!((found("c"), found("")), (vec![], vec![]));
        assert_eq!(prefixes.longest(b"abdd"), Some((3, 7)));
        assert_eq!(Prefixes::default().longest(b"a"), None);
    }
}
