//! The `pre_tokenizer` of a `tokenizer.json`: how a text is cut into words, which tokens never cross.

use std::ops::Range;

use serde_json::Value;

use super::super::char_class::PUNCTUATION;
use super::super::json::{character, flag, list, number, text};
use super::super::pattern::Pattern;
use super::aligned::Aligned;
use super::normalizers::emit_bytes;
use super::pattern;

/// The words that GPT-2 cuts a text into.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// One way to cut.
#[derive(Debug)]
pub(super) enum PreTokenizer {
    /// Where a pattern matches, or, if inverted, where it does not.
    Split { pattern: Pattern, behavior: Behavior, invert: bool },
    /// At single characters.
    Characters { kind: Kind, behavior: Behavior },
    /// Spaces become marks, and words begin with them.
    Metaspace { mark: char, prepend: Prepend, split: bool },
    /// Bytes become characters.
    ByteLevel { space_before: bool, words: Option<Pattern> },
    /// Every so many characters.
    FixedLength(usize),
}

/// What to do with a match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// A kind of character.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Space,
    Digit,
    Punctuation,
    Is(char),
}

/// Which words get a mark in front.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Prepend {
    First,
    Never,
    Always,
}

/// A text, and the parts of it that are its words; what is between them is left out.
pub(super) struct Words<'t> {
    pub(super) text: Aligned<'t>,
    pub(super) words: Vec<Range<usize>>,
}

/// Adds what `value` describes.
pub(super) fn read(value: &Value, pre_tokenizers: &mut Vec<PreTokenizer>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let pre_tokenizer = match text(value, "type")? {
        "Sequence" => {
            return list(value, "pretokenizers")?.iter().try_for_each(|part| read(part, pre_tokenizers));
        }
        "Split" => PreTokenizer::Split {
            pattern: pattern(value)?,
            behavior: behavior(value, None)?,
            invert: flag(value, "invert", false)?,
        },
        "Whitespace" => PreTokenizer::Split {
            pattern: Pattern::regex(r"\w+|[^\w\s]+")?,
            behavior: Behavior::Removed,
            invert: true,
        },
        "WhitespaceSplit" => PreTokenizer::Characters { kind: Kind::Space, behavior: Behavior::Removed },
        "Digits" => PreTokenizer::Characters {
            kind: Kind::Digit,
            behavior: match flag(value, "individual_digits", false)? {
                true => Behavior::Isolated,
                false => Behavior::Contiguous,
            },
        },
        "Punctuation" => PreTokenizer::Characters {
            kind: Kind::Punctuation,
            behavior: behavior(value, Some(Behavior::Isolated))?,
        },
        "CharDelimiterSplit" => PreTokenizer::Characters {
            kind: Kind::Is(character(value, "delimiter")?),
            behavior: Behavior::Removed,
        },
        "BertPreTokenizer" => {
            pre_tokenizers.push(PreTokenizer::Characters { kind: Kind::Space, behavior: Behavior::Removed });
            PreTokenizer::Characters { kind: Kind::Punctuation, behavior: Behavior::Isolated }
        }
        "Metaspace" => PreTokenizer::Metaspace {
            mark: character(value, "replacement")?,
            prepend: prepend(value)?,
            split: flag(value, "split", true)?,
        },
        "ByteLevel" => PreTokenizer::ByteLevel {
            space_before: flag(value, "add_prefix_space", true)?,
            words: match flag(value, "use_regex", true)? {
                true => Some(Pattern::regex(GPT_2)?),
                false => None,
            },
        },
        "FixedLength" => match number(value, "length", 5)? {
            0 => return Err("the length of pre-tokenizer FixedLength is 0".into()),
            length => PreTokenizer::FixedLength(length),
        },
        other => return Err(format!("pre-tokenizer {other:?} is not supported")),
    };
    pre_tokenizers.push(pre_tokenizer);
    Ok(())
}

fn behavior(value: &Value, default: Option<Behavior>) -> Result<Behavior, String> {
    match (value.get("behavior"), default) {
        (None, Some(default)) => Ok(default),
        _ => match text(value, "behavior")? {
            "Removed" => Ok(Behavior::Removed),
            "Isolated" => Ok(Behavior::Isolated),
            "MergedWithPrevious" => Ok(Behavior::MergedWithPrevious),
            "MergedWithNext" => Ok(Behavior::MergedWithNext),
            "Contiguous" => Ok(Behavior::Contiguous),
            other => Err(format!("behavior {other:?} of a pre-tokenizer is not supported")),
        },
    }
}

/// `prepend_scheme`, or `add_prefix_space` in older files.
pub(super) fn prepend(value: &Value) -> Result<Prepend, String> {
    let scheme = match value.get("prepend_scheme") {
        None => Prepend::Always,
        Some(_) => match text(value, "prepend_scheme")? {
            "first" => Prepend::First,
            "never" => Prepend::Never,
            "always" => Prepend::Always,
            other => return Err(format!("prepend_scheme {other:?} of Metaspace is not supported")),
        },
    };
    Ok(if flag(value, "add_prefix_space", true)? { scheme } else { Prepend::Never })
}

impl Kind {
    fn has(self, c: char) -> bool {
        match self {
            Kind::Space => c.is_whitespace(),
            Kind::Digit => c.is_numeric(),
            Kind::Punctuation => PUNCTUATION.contains(c),
            Kind::Is(wanted) => c == wanted,
        }
    }
}

impl Behavior {
    /// The words that parts of a text make; each part is a match or what is between matches. Words may be empty.
    fn arrange(self, parts: Vec<(Range<usize>, bool)>) -> Vec<Range<usize>> {
        let mut words: Vec<Range<usize>> = Vec::with_capacity(parts.len());
        match self {
            Behavior::Isolated => return parts.into_iter().map(|(range, _)| range).collect(),
            Behavior::Removed => {
                return parts.into_iter().filter(|(_, is_match)| !is_match).map(|(range, _)| range).collect();
            }
            Behavior::Contiguous => {
                let mut before = false;
                for (range, is_match) in parts {
                    match words.last_mut().filter(|_| is_match == before) {
                        Some(word) => word.end = range.end,
                        None => words.push(range),
                    }
                    before = is_match;
                }
            }
            Behavior::MergedWithPrevious => {
                let mut before = false;
                for (range, is_match) in parts {
                    match words.last_mut().filter(|_| is_match && !before) {
                        Some(word) => word.end = range.end,
                        None => words.push(range),
                    }
                    before = is_match;
                }
            }
            Behavior::MergedWithNext => {
                let mut after = false;
                for (range, is_match) in parts.into_iter().rev() {
                    match words.last_mut().filter(|_| is_match && !after) {
                        Some(word) => word.start = range.start,
                        None => words.push(range),
                    }
                    after = is_match;
                }
                words.reverse();
            }
        }
        words
    }
}

impl<'t> Words<'t> {
    /// A text as one word.
    pub(super) fn whole(text: Aligned<'t>) -> Words<'t> {
        let whole = 0..text.text().len();
        Words { text, words: vec![whole] }
    }

    /// Cuts each word into those that `cut` finds in it.
    fn split(
        &mut self,
        mut cut: impl FnMut(&str) -> Result<Vec<Range<usize>>, String>,
    ) -> Result<(), String> {
        let mut words = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let parts = cut(&self.text.text()[word.clone()])?;
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            words.extend(parts.map(|part| word.start + part.start..word.start + part.end));
        }
        self.words = words;
        Ok(())
    }

    /// Cuts each word at the characters of a kind.
    fn split_at(&mut self, kind: Kind, behavior: Behavior) -> Result<(), String> {
        self.split(|word| {
            let (mut parts, mut done) = (Vec::new(), 0);
            for (start, c) in word.char_indices().filter(|&(_, c)| kind.has(c)) {
                if done < start {
                    parts.push((done..start, false));
                }
                done = start + c.len_utf8();
                parts.push((start..done, true));
            }
            if done < word.len() {
                parts.push((done..word.len(), false));
            }
            Ok(behavior.arrange(parts))
        })
    }

    /// Puts for each character those that `map` emits; it is told where the word starts if the character is its first.
    fn map(&mut self, map: impl FnMut(Option<usize>, char, &mut dyn FnMut(char))) -> Result<(), String> {
        (self.text, self.words) = self.text.map_words(&self.words, map)?;
        Ok(())
    }
}

impl PreTokenizer {
    pub(super) fn apply(&self, words: &mut Words<'_>) -> Result<(), String> {
        match self {
            PreTokenizer::Split { pattern, behavior: Behavior::Isolated, .. } => words.split(|word| {
                let mut parts = Vec::new();
                pattern.cut(word, |range, _| parts.push(range))?;
                Ok(parts)
            }),
            PreTokenizer::Split { pattern, behavior, invert } => words.split(|word| {
                let mut parts = Vec::new();
                pattern.cut(word, |range, is_match| parts.push((range, is_match != *invert)))?;
                Ok(behavior.arrange(parts))
            }),
            PreTokenizer::Characters { kind, behavior } => words.split_at(*kind, *behavior),
            PreTokenizer::Metaspace { mark, prepend, split } => {
                let source = words.text.clone();
                words.map(|first, c, emit| {
                    let c = if c == ' ' { *mark } else { c };
                    let wants_mark = |start| match prepend {
                        Prepend::Always => true,
                        Prepend::Never => false,
                        Prepend::First => source.is_at_start(start),
                    };
                    if c != *mark && first.is_some_and(wants_mark) {
                        emit(*mark);
                    }
                    emit(c);
                })?;
                match split {
                    true => words.split_at(Kind::Is(*mark), Behavior::MergedWithNext),
                    false => Ok(()),
                }
            }
            PreTokenizer::ByteLevel { .. } => {
                self.split_bytes(words)?;
                words.map(|_, c, emit| emit_bytes(c, emit))
            }
            PreTokenizer::FixedLength(length) => words.split(|word| {
                let starts: Vec<usize> =
                    word.char_indices().map(|(start, _)| start).step_by(*length).collect();
                let ends = starts.iter().skip(1).copied().chain([word.len()]);
                Ok(starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect())
            }),
        }
    }

    /// The part of ByteLevel that precedes the mapping of bytes to characters.
    pub(super) fn split_bytes(&self, words: &mut Words<'_>) -> Result<(), String> {
        let PreTokenizer::ByteLevel { space_before, words: pattern } = self else { return Ok(()) };
        let lacks_space = |words: &Words<'_>| {
            words.words.iter().any(|word| !words.text.text()[word.clone()].starts_with(' '))
        };
        if *space_before && lacks_space(words) {
            words.map(|first, c, emit| {
                if first.is_some() && c != ' ' {
                    emit(' ');
                }
                emit(c);
            })?;
        }
        let Some(pattern) = pattern else { return Ok(()) };
        words.split(|word| {
            let mut parts = Vec::new();
            pattern.cut(word, |range, _| parts.push(range))?;
            Ok(parts)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_kept_as_the_behavior_says() {
        let words = |behavior: Behavior| {
            let mut words = Words::whole(Aligned::new("the-final--countdown", 0));
            words.split_at(Kind::Is('-'), behavior).unwrap();
            let text = words.text.text().to_owned();
            words.words.into_iter().map(|word| text[word].to_owned()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(words(Behavior::Removed), "the|final|countdown");
        assert_eq!(words(Behavior::Isolated), "the|-|final|-|-|countdown");
        assert_eq!(words(Behavior::MergedWithPrevious), "the-|final-|-|countdown");
        assert_eq!(words(Behavior::MergedWithNext), "the|-final|-|-countdown");
        assert_eq!(words(Behavior::Contiguous), "the|-|final|--|countdown");
    }
}
