//! Patterns that cut a text: strings, and regular expressions.
//!
//! Nearly every published pattern ends in `\s+(?!\S)|\s+`: a run of whitespace leaves its last character to the word
//! that follows. A look-ahead needs a backtracking engine, so here such a pattern is a plain one ending in `\s+`, whose
//! match is then shortened by one character: the same words, in linear time.

use std::ops::Range;

use regex::Regex;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

/// How a pattern treats a run of whitespace before a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Tail {
    /// Nothing: the pattern says all.
    None,
    /// `\s+(?!\S)|\s+`.
    Spaces,
    /// The same, after an alternative that takes every run up to its last line break.
    SpacesAfterBreaks,
}

/// The end of a published pattern, and what stands for it here.
const TAIL: (&str, &str) = (r"|\s+(?!\S)|\s+", r"|\s+");
/// The alternative that takes every run of whitespace up to its last line break begins so.
const BREAKS: &str = r"|\s*[\r\n]";
/// Parts of published patterns whose possessive quantifiers give nothing back that could match, and the same without.
const PLAIN: [(&str, &str); 2] = [
    (r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"[^\r\n\p{L}\p{N}]?\p{L}+"),
    (r"[^\s\p{L}\p{N}]++[\r\n]*", r"[^\s\p{L}\p{N}]+[\r\n]*"),
];
/// Longer patterns are refused.
const MAX_PATTERN: usize = 1 << 14;

/// A string or regular expression to find in a text.
#[derive(Debug)]
pub(super) enum Pattern {
    Literal(String),
    Linear(Regex, Tail),
    Backtracking(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// A string that stands for itself.
    pub(super) fn literal(text: &str) -> Result<Pattern, String> {
        if text.is_empty() { Err("a pattern is empty".into()) } else { Ok(Pattern::Literal(text.to_owned())) }
    }

    /// A regular expression as the library `tokenizers` takes it, with look-around.
    pub(super) fn regex(text: &str) -> Result<Pattern, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("a pattern has {} bytes; at most {MAX_PATTERN} are read", text.len()));
        }
        let text = &PLAIN.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        if let Some((plain, tail)) = without_look_ahead(text) {
            return Pattern::linear(&plain, tail);
        }
        let wrong = |error: &dyn std::fmt::Display| format!("the pattern {text:?} is not valid: {error}");
        match Regex::new(text) {
            Ok(regex) if !has_possessive(text) => Ok(Pattern::Linear(regex, Tail::None)),
            Err(error @ regex::Error::CompiledTooBig(_)) => Err(wrong(&error)),
            _ => match fancy_regex::Regex::new(text) {
                Ok(regex) => Ok(Pattern::Backtracking(Box::new(regex))),
                Err(error) => Err(wrong(&error)),
            },
        }
    }

    /// A regular expression without look-around; `tail` says what its last alternative, `\s+`, leaves.
    pub(super) fn linear(text: &str, tail: Tail) -> Result<Pattern, String> {
        let regex =
            Regex::new(text).map_err(|error| format!("the pattern {text:?} is not valid: {error}"))?;
        Ok(Pattern::Linear(regex, tail))
    }

    /// The places where the pattern matches, in order.
    pub(super) fn matches(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
        match self {
            Pattern::Literal(literal) => {
                let start = |(start, _): (usize, &str)| start..start + literal.len();
                Ok(text.match_indices(literal.as_str()).map(start).collect())
            }
            Pattern::Linear(regex, Tail::None) => {
                Ok(regex.find_iter(text).map(|found| found.range()).collect())
            }
            Pattern::Linear(regex, tail) => {
                let (mut matches, mut start) = (Vec::new(), 0);
                while let Some(found) = find_with_tail(regex, *tail, text, start) {
                    start = found.end;
                    matches.push(found);
                }
                Ok(matches)
            }
            Pattern::Backtracking(regex) => {
                let found = regex.find_iter(text).map(|found| found.map(|found| found.start()..found.end()));
                found.collect::<Result<_, _>>().map_err(|error| format!("the pattern {regex}: {error}"))
            }
        }
    }

    /// Visits the matches and what is between them, in order; `chosen` says which a match is.
    pub(super) fn cut(&self, text: &str, mut visit: impl FnMut(Range<usize>, bool)) -> Result<(), String> {
        let mut done = 0;
        for found in self.matches(text)? {
            if done < found.start {
                visit(done..found.start, false);
            }
            done = found.end;
            visit(found, true);
        }
        if done < text.len() {
            visit(done..text.len(), false);
        }
        Ok(())
    }
}

/// The next match from `start` on, without the last of several spaces if a word follows; never empty.
pub(super) fn find_with_tail(regex: &Regex, tail: Tail, text: &str, start: usize) -> Option<Range<usize>> {
    let found = regex.find_at(text, start)?;
    let last = found.as_str().chars().next_back()?;
    let shorter = match tail {
        Tail::None => false,
        Tail::Spaces => last.is_whitespace(),
        Tail::SpacesAfterBreaks => last.is_whitespace() && !matches!(last, '\r' | '\n'),
    };
    let leave = shorter && found.end() < text.len() && found.len() > last.len_utf8();
    Some(found.start()..found.end() - if leave { last.len_utf8() } else { 0 })
}

/// A pattern that ends in `\s+(?!\S)|\s+`, without that look-ahead, if nothing but its end can match spaces at the end
/// of a match, so that a [`Tail`] says the same.
fn without_look_ahead(text: &str) -> Option<(String, Tail)> {
    let body = text.strip_suffix(TAIL.0).filter(|body| !has_possessive(body))?;
    let (mut last, may_be_empty) = last_characters(&regex_syntax::parse(body).ok()?)?;
    let HirKind::Class(Class::Unicode(spaces)) = regex_syntax::parse(r"\s").ok()?.into_kind() else {
        return None;
    };
    last.intersect(&spaces);
    let is_line_end =
        |range: &ClassUnicodeRange| matches!((range.start(), range.end()), ('\r', '\r') | ('\n', '\n'));
    let line_ends = last.ranges().iter().all(is_line_end);
    let tail = match last.ranges().is_empty() {
        _ if may_be_empty => return None,
        true => Tail::Spaces,
        false if line_ends && body.contains(BREAKS) => Tail::SpacesAfterBreaks,
        false => return None,
    };
    Some((format!("{body}{}", TAIL.1), tail))
}

/// Whether a pattern has quantifiers such as `?+`, which `regex` takes for two quantifiers.
fn has_possessive(pattern: &str) -> bool {
    let mut rest = pattern.chars().peekable();
    let mut classes = 0;
    let mut quantified = false;
    while let Some(c) = rest.next() {
        let was_quantified = std::mem::take(&mut quantified);
        match c {
            '\\' => {
                let named = rest.next().is_some_and(|kind| matches!(kind, 'p' | 'P' | 'x' | 'u' | 'U'));
                if named && rest.peek() == Some(&'{') {
                    rest.by_ref().find(|&c| c == '}');
                }
            }
            '[' => classes += 1,
            ']' if classes > 0 => classes -= 1,
            _ if classes > 0 => {}
            '+' if was_quantified => return true,
            '(' => _ = rest.next_if_eq(&'?'),
            '{' => {
                rest.by_ref().find(|&c| c == '}');
                quantified = true;
            }
            '?' | '*' | '+' => quantified = !was_quantified,
            _ => {}
        }
    }
    false
}

/// The characters that a match may end in, and whether it may be empty; `None` for what matches bytes or places.
fn last_characters(hir: &Hir) -> Option<(ClassUnicode, bool)> {
    match hir.kind() {
        HirKind::Empty => Some((ClassUnicode::empty(), true)),
        HirKind::Literal(literal) => {
            let last = std::str::from_utf8(&literal.0).ok()?.chars().next_back()?;
            Some((ClassUnicode::new([ClassUnicodeRange::new(last, last)]), false))
        }
        HirKind::Class(Class::Unicode(class)) => Some((class.clone(), false)),
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => None,
        HirKind::Repetition(repetition) => {
            let (last, may_be_empty) = last_characters(&repetition.sub)?;
            Some((last, may_be_empty || repetition.min == 0))
        }
        HirKind::Capture(capture) => last_characters(&capture.sub),
        HirKind::Concat(parts) => {
            let mut last = ClassUnicode::empty();
            for part in parts.iter().rev() {
                let (class, may_be_empty) = last_characters(part)?;
                last.union(&class);
                if !may_be_empty {
                    return Some((last, false));
                }
            }
            Some((last, true))
        }
        HirKind::Alternation(parts) => {
            let (mut last, mut any_empty) = (ClassUnicode::empty(), false);
            for part in parts {
                let (class, may_be_empty) = last_characters(part)?;
                last.union(&class);
                any_empty |= may_be_empty;
            }
            Some((last, any_empty))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
    const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

    #[test]
    fn published_patterns_need_no_backtracking() {
        assert!(matches!(Pattern::regex(CL100K), Ok(Pattern::Linear(_, Tail::SpacesAfterBreaks))));
        for (text, tail) in [
            (GPT_2, Tail::Spaces),
            (LLAMA_3, Tail::SpacesAfterBreaks),
            (O200K, Tail::SpacesAfterBreaks),
            (DEEPSEEK_3, Tail::SpacesAfterBreaks),
        ] {
            assert_eq!(without_look_ahead(text).map(|(_, tail)| tail), Some(tail), "{text}");
        }
        // A space may end these matches, or there is another look-around.
        for text in
            [r"a |\s+(?!\S)|\s+", r"a?|\s+(?!\S)|\s+", r"a\r?|\s+(?!\S)|\s+", r"(?<=a)b|\s+(?!\S)|\s+"]
        {
            assert_eq!(without_look_ahead(text), None, "{text}");
            assert!(matches!(Pattern::regex(text), Ok(Pattern::Backtracking(_))), "{text}");
        }
    }

    #[test]
    fn without_look_ahead_the_words_are_the_same() {
        let pieces =
            ["a", "é", "'s", "'S", "1", "12", " ", "  ", "\n", "\r\n", "\t", "\u{3000}", "!", "/", "漢"];
        for pattern in [GPT_2, LLAMA_3, CL100K, O200K, DEEPSEEK_3] {
            let (fast, slow) = (Pattern::regex(pattern).unwrap(), fancy_regex::Regex::new(pattern).unwrap());
            assert!(matches!(fast, Pattern::Linear(..)));
            for seed in 0..2000u64 {
                let draw = |i: u64| tensor::philox::philox4x32([i as u32, 0, 0, 0], [seed as u32, 1])[0];
                let text: String =
                    (0..12).map(|i| pieces[draw(i) as usize % pieces.len()]).collect::<Vec<_>>().concat();
                let expected: Vec<_> = slow.find_iter(&text).map(|found| found.unwrap().as_str()).collect();
                let found: Vec<_> = fast.matches(&text).unwrap().into_iter().map(|at| &text[at]).collect();
                assert_eq!(found, expected, "{pattern}: {text:?}");
            }
        }
    }

    #[test]
    fn possessive_quantifiers_are_recognized() {
        for text in [r"a?+b", r"a++", r"\p{L}*+", r"\d{1,3}+", r"[+]++"] {
            assert!(has_possessive(text), "{text}");
            assert!(matches!(Pattern::regex(text), Ok(Pattern::Backtracking(_))), "{text}");
        }
        for text in [r"\p{L}+", r"a+?", r"(?i:a)+", r"[?+*+]", r"\++", r"\x{41}+"] {
            assert!(!has_possessive(text), "{text}");
        }
    }

    #[test]
    fn hostile_patterns_are_refused() {
        for text in [r"(", r"\p{L}{1000}{1000}", &"(a|".repeat(200), &"a".repeat(20_000)] {
            assert!(Pattern::regex(text).is_err(), "{text}");
        }
        assert!(Pattern::literal("").is_err());
        let slow = Pattern::regex(r"(a|aa)+\1c").unwrap();
        assert!(slow.matches(&"a".repeat(100)).unwrap_err().contains("pattern"));
    }
}
