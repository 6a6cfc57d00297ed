//! BPE by a ranked list of merges, which join bytes or characters within each word. Bytes are written as printable
//! characters.
//!
//! Follows llama.cpp's "gpt2", "gemma4" and "whitespace" tokenizers id for id. Merges are resolved to ids once, so that encoding compares
//! numbers and never builds strings.

use std::borrow::Cow;
use std::collections::HashMap;

use super::merge::{Join, Merger};
use super::normalizer::SPACE_MARK;
use super::pre_tokenizer::{PreTokenizer, Symbols};
use super::vocabulary::Vocabulary;

#[derive(Debug)]
pub(super) struct ByteLevel {
    pre_tokenizer: PreTokenizer,
    /// The symbol of each byte.
    byte_symbols: [u32; 256],
    /// `left << 32 | right` to the joined symbol and its rank.
    joins: HashMap<u64, Join, ahash::RandomState>,
    /// Symbols that appear in merges but not in the vocabulary; their ids follow its ids.
    strangers: Vec<String>,
    stranger_ids: HashMap<String, u32>,
}

/// The id of a character that is neither a token nor part of a merge.
const NO_SYMBOL: u32 = u32::MAX;

impl ByteLevel {
    /// `merges` are pairs of texts parted by a space, best first. Other strings are ignored.
    pub(super) fn new<'a>(
        vocabulary: &Vocabulary,
        merges: impl ExactSizeIterator<Item = &'a str>,
        pre_tokenizer: PreTokenizer,
    ) -> Self {
        let mut symbols = SymbolIds { vocabulary, strangers: Vec::new(), stranger_ids: HashMap::new() };
        let byte_symbols =
            std::array::from_fn(|byte| symbols.id(char_of_byte(byte as u8).encode_utf8(&mut [0; 4])));
        let mut joins = HashMap::with_capacity_and_hasher(merges.len(), ahash::RandomState::new());
        let mut joined = String::new();
        for (rank, merge) in merges.enumerate() {
            let Some((left, right)) = split_merge(merge) else { continue };
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let pair = pair(symbols.id(left), symbols.id(right));
            let id = symbols.id(&joined);
            joins.entry(pair).or_insert(Join { order: rank as u32, id });
        }
        let SymbolIds { strangers, stranger_ids, .. } = symbols;
        Self { pre_tokenizer, byte_symbols, joins, strangers, stranger_ids }
    }

    pub(super) fn num_merges(&self) -> usize {
        self.joins.len()
    }

    pub(super) fn pre_tokenizer(&self) -> &PreTokenizer {
        &self.pre_tokenizer
    }

    /// Whether all bytes of a text are in its tokens.
    pub(super) fn keeps_all(&self) -> bool {
        self.pre_tokenizer.symbols() == Symbols::Bytes && self.strangers.is_empty()
    }

    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) {
        let mut merger = Merger::default();
        let marked = match self.pre_tokenizer.symbols() {
            Symbols::Marked => Cow::Owned(text.replace(' ', SPACE_MARK)),
            Symbols::Bytes | Symbols::Unspaced => Cow::Borrowed(text),
        };
        self.pre_tokenizer
            .for_each_word(&marked, |word| self.encode_word(vocabulary, word, &mut merger, ids));
    }

    fn encode_word(&self, vocabulary: &Vocabulary, word: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        let symbols = self.pre_tokenizer.symbols();
        if symbols == Symbols::Unspaced && word.starts_with(char::is_whitespace) {
            return;
        }
        if self.pre_tokenizer.is_whole(word) {
            let written = match symbols {
                Symbols::Bytes => Cow::Owned(word.bytes().map(char_of_byte).collect()),
                Symbols::Marked | Symbols::Unspaced => Cow::Borrowed(word),
            };
            if let Some(id) = vocabulary.id(&written) {
                return ids.push(id);
            }
        }
        merger.clear();
        if symbols == Symbols::Bytes {
            word.bytes().for_each(|byte| merger.push(1, self.byte_symbols[usize::from(byte)]));
        } else {
            for (start, c) in word.char_indices() {
                let text = &word[start..start + c.len_utf8()];
                let id = vocabulary.id(text).or_else(|| self.stranger_ids.get(text).copied());
                merger.push(c.len_utf8() as u32, id.unwrap_or(NO_SYMBOL));
            }
        }
        for symbol in merger.run(|left, right| self.joins.get(&pair(left.id, right.id)).copied()) {
            match (symbol.id as usize).checked_sub(vocabulary.len()) {
                None => ids.push(symbol.id),
                Some(stranger) if symbols == Symbols::Bytes => {
                    // ASCII characters one by one; the rest is lost, as in llama.cpp.
                    let ascii = self.strangers[stranger].chars().filter(char::is_ascii);
                    ids.extend(ascii.filter_map(|c| vocabulary.id(c.encode_utf8(&mut [0; 4]))));
                }
                Some(_) => {
                    let bytes = &word.as_bytes()[symbol.start as usize..(symbol.start + symbol.len) as usize];
                    ids.extend(bytes.iter().filter_map(|byte| vocabulary.id(&format!("<0x{byte:02X}>"))));
                }
            }
        }
    }
}

/// Ids for the texts in merges, in the vocabulary or not.
struct SymbolIds<'a> {
    vocabulary: &'a Vocabulary,
    strangers: Vec<String>,
    stranger_ids: HashMap<String, u32>,
}

impl SymbolIds<'_> {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.vocabulary.id(text).or_else(|| self.stranger_ids.get(text).copied()) {
            return id;
        }
        let id = (self.vocabulary.len() + self.strangers.len()) as u32;
        self.strangers.push(text.to_owned());
        self.stranger_ids.insert(text.to_owned(), id);
        id
    }
}

/// The first space after the first character parts the two: a merge may itself begin with a space.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The printable character that stands for a byte: itself where it prints, else one from U+0100 up, in order.
pub(super) fn char_of_byte(byte: u8) -> char {
    let code = match byte {
        0..=32 => 256 + u32::from(byte),
        127..=160 => 256 + 33 + u32::from(byte - 127),
        173 => 256 + 67,
        prints => u32::from(prints),
    };
    char::from_u32(code).expect("codes below U+0144 are characters")
}

/// The byte that a character stands for, if it stands for one.
pub(super) fn byte_of_char(c: char) -> Option<u8> {
    let byte = match u32::from(c) {
        code @ 256..=288 => code - 256,
        code @ 289..=322 => code - 289 + 127,
        323 => 173,
        code @ (33..=126 | 161..=172 | 174..=255) => code,
        _ => return None,
    };
    Some(byte as u8)
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::TokenType;
    use super::*;

    #[test]
    fn bytes_and_characters_pair_up() {
        assert!((0..=255).all(|byte| byte_of_char(char_of_byte(byte)) == Some(byte)));
        assert_eq!((char_of_byte(b' '), char_of_byte(b'\n'), char_of_byte(0xAD)), ('Ġ', 'Ċ', 'Ń'));
        let stand_for_bytes = (0..0x3000).filter_map(char::from_u32).filter(|&c| byte_of_char(c).is_some());
        assert_eq!(stand_for_bytes.count(), 256);
    }

    /// `ab` is a merge without a token, on the way to `abc`, which has one.
    #[test]
    fn merges_without_tokens() {
        let texts = ["a", "b", "c", "abc"];
        let vocabulary = Vocabulary::new(texts.iter().map(|&text| text.into()), vec![TokenType::Normal; 4]);
        let pre_tokenizer = PreTokenizer::named("gpt-2").unwrap();
        let merges = ["a b", "ab c", "no-space", "", " ", "é "];
        let model = ByteLevel::new(&vocabulary, merges.into_iter(), pre_tokenizer);
        let encode = |text| {
            let mut ids = Vec::new();
            model.encode(&vocabulary, text, &mut ids);
            ids
        };
        assert_eq!(encode("abc"), [3]);
        assert_eq!(encode("ab"), [0, 1]);
        assert_eq!(encode("aéc"), [0, 2]);
    }
}
