//! BERT's WordPiece as GGUF files have it, where a word's first piece is marked `▁`. The ids are llama.cpp's, for whose
//! files they are. They differ from those of BERT's own `tokenizer.json` in three ways: of a letter that Unicode
//! decomposes, a Hangul syllable for one, only the first part stays; of marks none stays, where BERT keeps those that
//! take a place of their own (Mc); and words may be as long as they like.

use regex::Regex;
use unicode_normalization::char::decompose_canonical;

use super::normalizer::SPACE_MARK;
use super::vocabulary::Vocabulary;

/// Ideographs, which are words of one letter.
const IDEOGRAPHS: &str = r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}";
/// The symbols of ASCII, which count as punctuation.
const SYMBOLS: &str = r"$+<=>\^`|\~";

#[derive(Debug)]
pub(super) struct WordPiece {
    unknown: u32,
    /// Of the tokens, in bytes.
    longest: usize,
    /// Characters that are removed from a text.
    dropped: Regex,
    /// A word, an ideograph, or a punctuation mark.
    word: Regex,
}

impl WordPiece {
    pub(super) fn new(vocabulary: &Vocabulary, unknown: u32) -> WordPiece {
        let texts = (0..vocabulary.len() as u32).filter_map(|id| vocabulary.text(id));
        let alone = format!(r"\p{{P}}{SYMBOLS}{IDEOGRAPHS}");
        let regex = |pattern: &str| Regex::new(pattern).expect("patterns are ours");
        WordPiece {
            unknown,
            longest: texts.map(str::len).max().unwrap_or(0),
            dropped: regex(r"[[\p{Cc}\p{Cf}\p{Co}\p{M}\x{FFFD}]&&[^\s]]"),
            word: regex(&format!(r"[{alone}]|[^\s{alone}]+")),
        }
    }

    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) {
        let text: String = text.chars().map(first_part).collect();
        let text = self.dropped.replace_all(&text, "");
        for word in self.word.find_iter(&text) {
            self.cut(vocabulary, word.as_str(), ids);
        }
    }

    /// Appends the pieces of a word, each the longest that fits, or one unknown token if they are not all there.
    fn cut(&self, vocabulary: &Vocabulary, word: &str, ids: &mut Vec<u32>) {
        let lower = word.chars().filter_map(|letter| letter.to_lowercase().next());
        let word: String = SPACE_MARK.chars().chain(lower).collect();
        let (before, mut start) = (ids.len(), 0);
        while start < word.len() {
            let ends = (start + 1..=word.len().min(start + self.longest)).rev();
            let ends = ends.filter(|&end| word.is_char_boundary(end));
            let Some((id, end)) =
                ends.filter_map(|end| Some((vocabulary.id(&word[start..end])?, end))).next()
            else {
                ids.truncate(before);
                return ids.push(self.unknown);
            };
            ids.push(id);
            start = end;
        }
    }
}

/// The first character of what a letter decomposes into.
fn first_part(letter: char) -> char {
    let mut first = None;
    decompose_canonical(letter, |part| first = first.or(Some(part)));
    first.unwrap_or(letter)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ids(text: &str) -> Vec<u32> {
        let tokens = ["[UNK]", "▁un", "able", "a", "▁a", "▁,", "▁東", "▁i", "▁e", "▁ᄋ", "▁x", "x"];
        let vocabulary = Vocabulary::new(tokens.into_iter().map(Arc::from), Vec::new());
        let mut ids = Vec::new();
        WordPiece::new(&vocabulary, 0).encode(&vocabulary, text, &mut ids);
        ids
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces_or_unknown() {
        assert_eq!(ids("Unable a,a"), [1, 2, 4, 5, 4]);
        assert_eq!(ids("unablez a"), [0, 4], "all of a word or nothing");
        assert!(ids(" \t\n").is_empty());
        assert_eq!(ids("東東a"), [6, 6, 4], "an ideograph is a word");
    }

    #[test]
    fn letters_lose_their_accents_and_controls_go() {
        assert_eq!(ids("É e\u{301} \u{200b}e\0"), [8, 8, 8]);
        assert_eq!(ids("İ"), [7]);
        assert_eq!(ids("안"), [9], "the first letter of a syllable");
    }

    #[test]
    fn words_may_be_long() {
        let long = ids(&"x".repeat(100_000));
        assert!(long.len() == 100_000 && long[0] == 10 && long[1..].iter().all(|&id| id == 11));
    }
}
