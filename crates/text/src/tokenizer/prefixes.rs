//! Finds the strings of a list that a text begins with, in one walk along the text.
//!
//! The strings are sorted; each byte of the text narrows the range of those that agree so far.

use std::sync::Arc;

/// Strings with a number each.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// Sorted by bytes, none empty, none twice.
    entries: Vec<Entry>,
    /// Per first byte, where its strings start in `entries`; one more entry at the end.
    starts: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    /// The first eight bytes, which most comparisons need and no other; zeros after a shorter text.
    head: u64,
    text: Arc<str>,
    number: u32,
}

impl Entry {
    fn new((text, number): (Arc<str>, u32)) -> Entry {
        let mut head = [0; 8];
        let length = text.len().min(8);
        head[..length].copy_from_slice(&text.as_bytes()[..length]);
        Entry { head: u64::from_be_bytes(head), text, number }
    }

    fn byte(&self, depth: usize) -> u8 {
        if depth < 8 { self.head.to_be_bytes()[depth] } else { self.text.as_bytes()[depth] }
    }
}

impl Prefixes {
    /// Of equal strings, the first counts; empty ones are left out.
    pub(super) fn new(entries: impl IntoIterator<Item = (Arc<str>, u32)>) -> Prefixes {
        let entries = entries.into_iter().filter(|(text, _)| !text.is_empty());
        let mut entries: Vec<Entry> = entries.map(Entry::new).collect();
        entries.sort_by(|a, b| a.head.cmp(&b.head).then_with(|| a.text.cmp(&b.text)));
        entries.dedup_by(|later, earlier| later.text == earlier.text);
        let start = |byte| entries.partition_point(|entry| usize::from(entry.byte(0)) < byte) as u32;
        let starts = (0..=256).map(start).collect();
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
        while let Some(entry) = rest.first() {
            if entry.text.len() == depth {
                visit(depth, entry.number);
                rest = &rest[1..];
            }
            let Some(&byte) = text.get(depth) else { return };
            let agrees = |entry: &Entry| entry.byte(depth) == byte;
            if !rest.first().is_some_and(agrees) {
                rest = &rest[rest.partition_point(|entry| entry.byte(depth) < byte)..];
            }
            if !rest.last().is_some_and(agrees) {
                rest = &rest[..rest.partition_point(|entry| entry.byte(depth) <= byte)];
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
