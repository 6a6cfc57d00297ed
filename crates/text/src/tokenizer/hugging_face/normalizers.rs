//! The `normalizer` of a `tokenizer.json`: what is done to a text before it is cut.

use serde_json::Value;
use unicode_normalization::char::{
    canonical_combining_class, compose, decompose_canonical, decompose_compatible, is_combining_mark,
};
use unicode_normalization::{IsNormalized, is_nfc_quick, is_nfd_quick, is_nfkc_quick, is_nfkd_quick};
use unicode_segmentation::UnicodeSegmentation;

use super::super::base64::base64;
use super::super::byte_level::char_of_byte;
use super::super::char_class::{NONSPACING, OTHER};
use super::super::json::{flag, list, text};
use super::super::normalizer::Charsmap;
use super::super::pattern::Pattern;
use super::aligned::Aligned;
use super::{MAX_CONTENT, pattern};

/// One change of a text.
#[derive(Debug)]
pub(in crate::tokenizer) enum Normalizer {
    Bert {
        clean: bool,
        ideographs: bool,
        accents: bool,
        lowercase: bool,
    },
    /// Takes the whitespace off the ends.
    Strip {
        left: bool,
        right: bool,
    },
    /// Takes marks out.
    StripAccents,
    Unicode(NormalizationForm),
    Lowercase,
    Nmt,
    Charsmap(Charsmap),
    Replace {
        pattern: Pattern,
        content: String,
    },
    Prepend(String),
    /// Puts for each byte the character that stands for it.
    ByteLevel,
}

/// A normalization form of Unicode.
#[derive(Debug, Clone, Copy)]
pub(in crate::tokenizer) struct NormalizationForm {
    compose: bool,
    compatible: bool,
}

/// Adds what `value` describes.
pub(super) fn read(value: &Value, normalizers: &mut Vec<Normalizer>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let normalizer = match text(value, "type")? {
        "Sequence" => return list(value, "normalizers")?.iter().try_for_each(|part| read(part, normalizers)),
        "BertNormalizer" => {
            let lowercase = flag(value, "lowercase", true)?;
            Normalizer::Bert {
                clean: flag(value, "clean_text", true)?,
                ideographs: flag(value, "handle_chinese_chars", true)?,
                accents: flag(value, "strip_accents", lowercase)?,
                lowercase,
            }
        }
        "Strip" => Normalizer::Strip {
            left: flag(value, "strip_left", true)?,
            right: flag(value, "strip_right", true)?,
        },
        "StripAccents" => Normalizer::StripAccents,
        "NFC" => Normalizer::Unicode(NormalizationForm { compose: true, compatible: false }),
        "NFD" => Normalizer::Unicode(NormalizationForm { compose: false, compatible: false }),
        "NFKC" => Normalizer::Unicode(NormalizationForm { compose: true, compatible: true }),
        "NFKD" => Normalizer::Unicode(NormalizationForm { compose: false, compatible: true }),
        "Lowercase" => Normalizer::Lowercase,
        "Nmt" => Normalizer::Nmt,
        "Precompiled" => {
            let charsmap = base64(text(value, "precompiled_charsmap")?);
            Normalizer::Charsmap(Charsmap::read(&charsmap.ok_or("precompiled_charsmap is not base64")?)?)
        }
        "Replace" => Normalizer::Replace { pattern: pattern(value)?, content: content(value, "content")? },
        "Prepend" => Normalizer::Prepend(content(value, "prepend")?),
        "ByteLevel" => Normalizer::ByteLevel,
        other => return Err(format!("normalizer {other:?} is not supported")),
    };
    normalizers.push(normalizer);
    Ok(())
}

fn content(value: &Value, key: &str) -> Result<String, String> {
    let content = text(value, key)?;
    match content.len() {
        0..=MAX_CONTENT => Ok(content.to_owned()),
        bytes => Err(format!("a normalizer's {key} has {bytes} bytes; at most {MAX_CONTENT} are read")),
    }
}

impl Normalizer {
    pub(super) fn apply<'t>(&self, text: Aligned<'t>) -> Result<Aligned<'t>, String> {
        match self {
            Normalizer::Bert { clean, ideographs, accents, lowercase } => {
                let mut text = text;
                if *clean {
                    text = clean_text(text)?;
                }
                if *ideographs && text.text().chars().any(is_ideograph) {
                    text = text.map(|c, emit| match is_ideograph(c) {
                        true => [' ', c, ' '].into_iter().for_each(emit),
                        false => emit(c),
                    })?;
                }
                if *accents && !text.text().is_ascii() {
                    let form = NormalizationForm { compose: false, compatible: false };
                    text = keep(form.apply(text)?, |c| !NONSPACING.contains(c))?;
                }
                if *lowercase { lowered(text) } else { Ok(text) }
            }
            Normalizer::Strip { left, right } => {
                let whole = text.text();
                let after = if *right { whole.trim_end().len() } else { whole.len() };
                let before = if *left { whole[..after].len() - whole[..after].trim_start().len() } else { 0 };
                Ok(if after - before == whole.len() { text } else { text.slice(before..after) })
            }
            Normalizer::StripAccents => keep(text, |c| !is_combining_mark(c)),
            Normalizer::Unicode(form) => form.apply(text),
            Normalizer::Lowercase => lowered(text),
            Normalizer::Nmt => nmt(text),
            Normalizer::Charsmap(charsmap) => mapped(text, charsmap),
            Normalizer::Replace { pattern, content } => {
                let ranges = pattern.matches(text.text())?;
                text.replace(&ranges, content)
            }
            Normalizer::Prepend(prefix) => {
                let mut first = !prefix.is_empty();
                if !first {
                    return Ok(text);
                }
                text.map(|c, emit| {
                    if std::mem::take(&mut first) {
                        prefix.chars().for_each(&mut *emit);
                    }
                    emit(c);
                })
            }
            Normalizer::ByteLevel => text.map(emit_bytes),
        }
    }
}

/// Emits the characters that stand for the bytes of `c`.
pub(super) fn emit_bytes(c: char, emit: &mut dyn FnMut(char)) {
    c.encode_utf8(&mut [0; 4]).bytes().map(char_of_byte).for_each(emit);
}

/// Leaves out all characters but those that `wanted` says.
fn keep(text: Aligned<'_>, wanted: impl Fn(char) -> bool) -> Result<Aligned<'_>, String> {
    if text.text().chars().all(&wanted) {
        return Ok(text);
    }
    text.map(|c, emit| {
        if wanted(c) {
            emit(c)
        }
    })
}

/// Control characters go, and whitespace becomes spaces.
fn clean_text(text: Aligned<'_>) -> Result<Aligned<'_>, String> {
    let is_space = |c: char| matches!(c, '\t' | '\n' | '\r') || c.is_whitespace();
    let goes =
        |c: char| c == '\0' || c == '\u{FFFD}' || !matches!(c, '\t' | '\n' | '\r') && OTHER.contains(c);
    if !text.text().chars().any(|c| goes(c) || c != ' ' && is_space(c)) {
        return Ok(text);
    }
    text.map(|c, emit| match c {
        _ if goes(c) => {}
        _ if is_space(c) => emit(' '),
        _ => emit(c),
    })
}

/// As the library has it, whose last but two range starts at U+2B920 where BERT's starts at U+2B820.
fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
        | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

fn lowered(text: Aligned<'_>) -> Result<Aligned<'_>, String> {
    if text.text().chars().all(|c| c.to_lowercase().eq([c])) {
        return Ok(text);
    }
    text.map(|c, emit| c.to_lowercase().for_each(emit))
}

fn nmt(text: Aligned<'_>) -> Result<Aligned<'_>, String> {
    text.map(|c, emit| match u32::from(c) {
        0x1..=0x8 | 0xB | 0xE..=0x1F | 0x7F | 0x8F | 0x9F => {}
        0x9 | 0xA | 0xC | 0xD | 0x1680 | 0x200B..=0x200F | 0x2028 | 0x2029 | 0x2581 | 0xFEFF | 0xFFFD => {
            emit(' ')
        }
        _ => emit(c),
    })
}

/// Short clusters of characters are replaced as a whole, or else character by character.
fn mapped<'t>(text: Aligned<'t>, charsmap: &Charsmap) -> Result<Aligned<'t>, String> {
    /// Clusters of at least as many bytes go character by character.
    const LONG: usize = 6;
    let mut events: Vec<(char, isize)> = Vec::with_capacity(text.text().len());
    let mut changed = false;
    for cluster in text.text().graphemes(true) {
        if let Some(replacement) = charsmap.shortest_match(cluster).filter(|_| cluster.len() < LONG) {
            changed = true;
            put(&mut events, cluster.chars().count(), replacement);
            continue;
        }
        for c in cluster.chars() {
            match charsmap.shortest_match(c.encode_utf8(&mut [0; 4])) {
                Some(replacement) => {
                    changed = true;
                    put(&mut events, 1, replacement);
                }
                None => events.push((c, 0)),
            }
        }
    }
    if changed { text.rewrite(events) } else { Ok(text) }
}

/// `replacement` for the next `count` characters.
fn put(events: &mut Vec<(char, isize)>, count: usize, replacement: &str) {
    let start = events.len();
    events.extend(replacement.chars().map(|c| (c, 0)));
    let added = events.len() - start;
    if added > count {
        let inserted = events.len() - (added - count);
        events[inserted..].iter_mut().for_each(|(_, change)| *change = 1);
    } else if let Some((_, change)) = events.last_mut() {
        *change -= (count - added) as isize;
    }
}

impl NormalizationForm {
    fn apply<'t>(self, text: Aligned<'t>) -> Result<Aligned<'t>, String> {
        let is_done = match (self.compose, self.compatible) {
            (true, false) => is_nfc_quick(text.text().chars()),
            (false, false) => is_nfd_quick(text.text().chars()),
            (true, true) => is_nfkc_quick(text.text().chars()),
            (false, true) => is_nfkd_quick(text.text().chars()),
        };
        if is_done == IsNormalized::Yes {
            return Ok(text);
        }
        let parts = decomposed(text.text(), self.compatible);
        text.rewrite(if self.compose { composed(parts) } else { parts })
    }
}

/// The characters that a text decomposes into, in canonical order; those after the first of each are inserted.
fn decomposed(text: &str, compatible: bool) -> Vec<(char, isize)> {
    let mut parts: Vec<(u8, char, isize)> = Vec::with_capacity(text.len());
    let mut sorted = 0;
    for c in text.chars() {
        let mut change = 0;
        let add = |part| {
            let class = canonical_combining_class(part);
            if class == 0 {
                parts[sorted..].sort_by_key(|&(class, ..)| class);
                sorted = parts.len();
            }
            parts.push((class, part, change));
            change = 1;
        };
        if compatible { decompose_compatible(c, add) } else { decompose_canonical(c, add) }
    }
    parts[sorted..].sort_by_key(|&(class, ..)| class);
    parts.into_iter().map(|(_, c, change)| (c, change)).collect()
}

/// The same with characters composed where they can be; one that was joined to another is removed.
fn composed(parts: Vec<(char, isize)>) -> Vec<(char, isize)> {
    let mut whole = Vec::with_capacity(parts.len());
    // The last starter, and the marks after it that it did not take.
    let mut starter: Option<(char, isize)> = None;
    let mut marks: Vec<(char, isize)> = Vec::new();
    let mut last_class = None;
    for (c, change) in parts {
        let class = canonical_combining_class(c);
        let Some(base) = starter else {
            if class == 0 {
                starter = Some((c, change));
            } else {
                whole.push((c, change));
            }
            continue;
        };
        let blocked = last_class.is_some_and(|last| last >= class);
        if let Some(joined) = compose(base.0, c).filter(|_| !blocked) {
            starter = Some((joined, base.1 + change - 1));
        } else if class == 0 {
            whole.push(base);
            whole.append(&mut marks);
            (starter, last_class) = (Some((c, change)), None);
        } else {
            marks.push((c, change));
            last_class = Some(class);
        }
    }
    whole.extend(starter);
    whole.append(&mut marks);
    whole
}
