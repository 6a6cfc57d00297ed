//! Sets of characters by their Unicode properties.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// Sorted ranges of characters.
pub(super) struct CharClass {
    ascii: [bool; 128],
    ranges: Vec<(char, char)>,
}

/// A letter, mark, digit or connector: what `\w` matches.
pub(super) static WORD: LazyLock<CharClass> = LazyLock::new(|| CharClass::new(r"[\w]"));
/// Punctuation, and the symbols of ASCII.
pub(super) static PUNCTUATION: LazyLock<CharClass> = LazyLock::new(|| CharClass::new(r"[\p{P}[:punct:]]"));
/// Control, format and private-use characters.
pub(super) static OTHER: LazyLock<CharClass> = LazyLock::new(|| CharClass::new(r"[\p{Cc}\p{Cf}\p{Co}]"));
/// Marks that take no room of their own.
pub(super) static NONSPACING: LazyLock<CharClass> = LazyLock::new(|| CharClass::new(r"[\p{Mn}]"));

impl CharClass {
    /// The characters that a bracketed class of a regular expression matches.
    fn new(class: &str) -> CharClass {
        let hir = regex_syntax::parse(class).expect("the classes of this file are valid");
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
            panic!("{class} is not a class of several characters")
        };
        let ranges: Vec<(char, char)> =
            class.ranges().iter().map(|range| (range.start(), range.end())).collect();
        let ascii = std::array::from_fn(|code| holds(&ranges, code as u8 as char));
        CharClass { ascii, ranges }
    }

    pub(super) fn contains(&self, c: char) -> bool {
        if c.is_ascii() { self.ascii[c as usize] } else { holds(&self.ranges, c) }
    }
}

fn holds(ranges: &[(char, char)], c: char) -> bool {
    let after = ranges.partition_point(|&(start, _)| start <= c);
    after > 0 && c <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_their_properties_say() {
        assert!(['a', '_', '9', 'é', '漢', '\u{301}'].iter().all(|&c| WORD.contains(c)));
        assert!([' ', '-', '\u{1F600}'].iter().all(|&c| !WORD.contains(c)));
        assert!(['!', '$', '~', '，', '\u{2014}'].iter().all(|&c| PUNCTUATION.contains(c)));
        assert!(['a', ' ', '€'].iter().all(|&c| !PUNCTUATION.contains(c)));
        assert!(['\0', '\u{200B}', '\u{E000}'].iter().all(|&c| OTHER.contains(c)));
        assert!(NONSPACING.contains('\u{301}') && !NONSPACING.contains('\u{903}'));
    }
}
