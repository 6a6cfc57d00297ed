//! Tokens that are cut out of a text before the model sees it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::super::added_token::AddedToken;
use super::super::char_class::WORD;
use super::super::prefixes::Prefixes;
use super::aligned::Aligned;
use super::normalize;
use super::normalizers::Normalizer;

/// The `added_tokens` of a file, and those of the files next to it.
#[derive(Debug, Default)]
pub(in crate::tokenizer) struct Added {
    tokens: HashMap<u32, AddedToken>,
    special: HashSet<u32>,
    /// Looked for in a text as it is given.
    given: Prefixes,
    /// Looked for in a text after it was normalized.
    normalized: Prefixes,
    /// The normalized texts of tokens that normalizing changes: so decoders see them.
    changed: HashMap<u32, Arc<str>>,
}

/// A part of a text: a token, or text still to be encoded.
pub(in crate::tokenizer) type Segment = (Option<u32>, Range<usize>);

impl Added {
    /// `id_of` gives each token its id: that of its text, or else the next one. The first of these is `size`, the number of
    /// tokens that there are. Of a token that is there twice, the later flags count.
    pub(in crate::tokenizer) fn new(
        list: Vec<AddedToken>,
        size: usize,
        normalizers: &[Normalizer],
        mut id_of: impl FnMut(&AddedToken, u32) -> u32,
    ) -> Result<Added, String> {
        /// Bytes of normalized tokens.
        const MOST: usize = 64 << 20;
        let mut added = Added { tokens: HashMap::with_capacity(list.len()), ..Added::default() };
        let mut next = u32::try_from(size).map_err(|_| "there are too many tokens")?;
        let mut bytes = 0;
        for token in list.into_iter().filter(|token| !token.content.is_empty()) {
            let id = id_of(&token, next);
            next = next.max(id.saturating_add(1));
            added.changed.remove(&id);
            if token.normalized {
                let text = normalize(normalizers, Aligned::new(&token.content, 0))?;
                bytes += text.text().len();
                if bytes > MOST {
                    return Err(format!("the added tokens are more than {MOST} bytes after normalizing"));
                }
                if text.text() != token.content {
                    added.changed.insert(id, text.text().into());
                }
            }
            if token.special {
                added.special.insert(id);
            }
            added.tokens.insert(id, token);
        }
        let pick = |normalized: bool| {
            let mut picked: Vec<(Arc<str>, u32)> = Vec::new();
            for (&id, token) in added.tokens.iter().filter(|(_, token)| token.normalized == normalized) {
                let changed = added.changed.get(&id).cloned();
                picked.push((changed.unwrap_or_else(|| token.content.as_str().into()), id));
            }
            picked.sort_by_key(|&(_, id)| id);
            Prefixes::new(picked)
        };
        (added.given, added.normalized) = (pick(false), pick(true));
        Ok(added)
    }

    pub(in crate::tokenizer) fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// A token that was added.
    pub(in crate::tokenizer) fn token(&self, id: u32) -> Option<&AddedToken> {
        self.tokens.get(&id)
    }

    /// The text of a token as decoders see it, if normalizing changes it.
    pub(super) fn changed(&self, id: u32) -> Option<&str> {
        self.changed.get(&id).map(|text| &**text)
    }

    /// Cuts a text as it was given.
    pub(in crate::tokenizer) fn cut(&self, text: &str, parse_special: bool) -> Vec<Segment> {
        self.cut_with(&self.given, text, parse_special)
    }

    /// Cuts a text that was normalized.
    pub(super) fn cut_normalized(&self, text: &str, parse_special: bool) -> Vec<Segment> {
        self.cut_with(&self.normalized, text, parse_special)
    }

    /// Of tokens that start at the same place the longest is taken. Special ones are text unless `parse_special`.
    fn cut_with(&self, wanted: &Prefixes, text: &str, parse_special: bool) -> Vec<Segment> {
        let (mut parts, mut done, mut at) = (Vec::new(), 0, 0);
        while at < text.len() && !wanted.is_empty() {
            let Some((length, id)) = wanted.longest(&text.as_bytes()[at..]) else {
                at += 1;
                continue;
            };
            let (mut start, mut end) = (at, at + length);
            at = end;
            let token = &self.tokens[&id];
            let is_text = !parse_special && self.is_special(id);
            if is_text || token.single_word && !stands_alone(text, start..end) {
                continue;
            }
            if token.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if token.rstrip {
                end += text[end..].len() - text[end..].trim_start().len();
            }
            if done < start {
                parts.push((None, done..start));
            }
            parts.push((Some(id), start..end));
            done = end;
        }
        if done < text.len() {
            parts.push((None, done..text.len()));
        }
        parts
    }
}

/// Whether neither neighbor of a part of a text is a letter or digit.
fn stands_alone(text: &str, part: Range<usize>) -> bool {
    let before = text[..part.start].chars().next_back();
    let after = text[part.end..].chars().next();
    [before, after].into_iter().flatten().all(|c| !WORD.contains(c))
}
