//! Hugging Face's `tokenizer.json`: ids and places are those of the library `tokenizers`.
//!
//! ```text
//! text ─added tokens─▶ parts ─normalizers─▶ added tokens ─pre-tokenizers─▶ words ─model─▶ tokens
//! ```
//!
//! The library's tables are of Unicode 9, and ours newer: characters added since may be normalized otherwise.

mod added;
mod aligned;
mod decoders;
mod file;
mod models;
mod normalizers;
mod post_processor;
mod pre_tokenizers;

#[cfg(test)]
mod oracle;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Value, json};

use super::byte_level::char_of_byte;
use super::pattern::Pattern;
use super::tiktoken::RankedVocabulary;
use super::{ParseSpecial, Tokenizer};
use crate::Error;
pub(super) use added::Added;
use aligned::Aligned;
pub(super) use file::{Merge, Model as ModelFile, Text, TokenizerJson, Vocab};
use models::{Found, Model, Ranks, Tokens};
use normalizers::Normalizer;
use post_processor::PostProcessor;
use pre_tokenizers::{PreTokenizer, Words};

/// Bytes of a text that a step puts in place of another.
const MAX_CONTENT: usize = 4096;

/// What a `tokenizer.json` does to a text, but for the tokens that it puts around it.
#[derive(Debug)]
pub(super) struct HuggingFace {
    added: Added,
    normalizers: Vec<Normalizer>,
    pre_tokenizers: Vec<PreTokenizer>,
    model: Model,
    tokens: Tokens,
    post_processor: PostProcessor,
}

/// Builds a tokenizer from the contents of a `tokenizer.json`.
pub(super) fn build(file: TokenizerJson<'_>) -> Result<Tokenizer, String> {
    if let Some(version) = file.version.filter(|version| version != "1.0") {
        return Err(format!("version {version:?} is not supported; supported is \"1.0\""));
    }
    let (mut normalizers, mut pre_tokenizers) = (Vec::new(), Vec::new());
    normalizers::read(&file.normalizer, &mut normalizers)?;
    pre_tokenizers::read(&file.pre_tokenizer, &mut pre_tokenizers)?;
    let mut post_processor = PostProcessor::default();
    post_processor.read(&file.post_processor)?;
    let decoder = decoders::read(&file.decoder)?;
    let (model, mut tokens, name) = models::read(file.model)?;
    let size = tokens.count();
    let added = Added::new(file.added_tokens, size, &normalizers, |token, next| {
        let id = tokens.id(&token.content).unwrap_or(next);
        tokens.add(&token.content, id);
        id
    })?;
    let kind = format!("{name} (tokenizer.json), {} tokens", tokens.end());
    let (before, after) = (post_processor.before.clone(), post_processor.after.clone());
    let pair_template = post_processor.pair_template();
    let own = HuggingFace { added, normalizers, pre_tokenizers, model, tokens, post_processor };
    let mut tokenizer = Tokenizer::new(super::Model::HuggingFace(Box::new(own)), decoder, kind);
    (tokenizer.before, tokenizer.after) = (before, after);
    tokenizer.pair_template = pair_template;
    Ok(tokenizer)
}

/// Builds a tokenizer from a vocabulary of bytes with ranks.
pub(super) fn from_ranks(vocabulary: RankedVocabulary) -> Result<Tokenizer, String> {
    let RankedVocabulary { tokens: ids, special, added, pattern, composes, before, format } = vocabulary;
    let written = |token: &[u8]| token.iter().copied().map(char_of_byte).collect::<String>();
    let mut entries: Vec<(String, u32)> = ids.iter().map(|(token, &id)| (written(token), id)).collect();
    entries.extend(special);
    let mut tokens = Tokens::new(entries.iter().map(|(text, id)| (text.as_str(), *id)))?;
    let (mut normalizers, mut pre_tokenizers) = (Vec::new(), Vec::new());
    if composes {
        normalizers::read(&json!({"type": "NFC"}), &mut normalizers)?;
    }
    // What the pattern does not match is left out.
    let split =
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": true});
    pre_tokenizers::read(&split, &mut pre_tokenizers)?;
    let added = Added::new(added, tokens.end(), &normalizers, |token, next| {
        let id = tokens.id(&token.content).unwrap_or(next);
        tokens.add(&token.content, id);
        id
    })?;
    let kind = format!("byte-level BPE ({format}), {} tokens", tokens.end());
    let (model, post_processor) = (Model::Ranks(Ranks::new(ids)), PostProcessor::default());
    let own = HuggingFace { added, normalizers, pre_tokenizers, model, tokens, post_processor };
    let decoder = decoders::read(&json!({"type": "ByteLevel"}))?;
    let mut tokenizer = Tokenizer::new(super::Model::HuggingFace(Box::new(own)), decoder, kind);
    tokenizer.before = before;
    Ok(tokenizer)
}

/// Applies normalizers one after the other.
fn normalize<'t>(normalizers: &[Normalizer], text: Aligned<'t>) -> Result<Aligned<'t>, String> {
    normalizers.iter().try_fold(text, |text, normalizer| normalizer.apply(text))
}

impl HuggingFace {
    /// Appends the ids of a text.
    pub(super) fn encode(&self, text: &str, parse: ParseSpecial, ids: &mut Vec<u32>) -> Result<(), Error> {
        self.for_each(text, parse, |id, _, _, _| ids.push(id)).map_err(Error::Encode)
    }

    /// How many times fewer bytes the tokens of a text may have than the text; `None` if there is no bound.
    pub(super) fn shrinkage(&self) -> Option<usize> {
        /// A composed character has at least a quarter of the bytes of its parts.
        const COMPOSED: usize = 4;
        let keeps = |normalizer: &Normalizer| {
            matches!(normalizer, Normalizer::Unicode(_) | Normalizer::Prepend(_) | Normalizer::ByteLevel)
        };
        let keeps_all = self.model.takes_bytes() && self.normalizers.iter().all(keeps);
        keeps_all.then_some(if self.normalizers.is_empty() { 1 } else { COMPOSED })
    }

    /// The bytes of a text that each of its tokens stands for, where it does for some.
    pub(super) fn places(&self, text: &str, parse: ParseSpecial) -> Result<Vec<Option<Range<usize>>>, Error> {
        let mut places = Vec::new();
        let add = |id: u32, part: &Aligned<'_>, range: Range<usize>, is_cut: bool| {
            // The library takes an added token as it stands in the text.
            let own = self.tokens.text(id).unwrap_or_default();
            let token = if is_cut { &part.text()[range.clone()] } else { own };
            let place = part.place(range).map(|place| (place.start, place.end)).unwrap_or_default();
            let (start, end) = self.post_processor.trimmed(place, token, places.len());
            places.push(Some(start..end).filter(|place| !place.is_empty()));
        };
        self.for_each(text, parse, add).map_err(Error::Encode)?;
        Ok(places)
    }

    /// Visits the tokens of a text, each with the part of the text that it is in, its bytes there, and whether it is one
    /// that was cut out.
    fn for_each(
        &self,
        text: &str,
        parse: ParseSpecial,
        mut visit: impl FnMut(u32, &Aligned<'_>, Range<usize>, bool),
    ) -> Result<(), String> {
        let parse = parse == ParseSpecial::Yes;
        let mut found: Vec<Found> = Vec::new();
        for (id, range) in self.added.cut(text, parse) {
            let part = Aligned::new(&text[range.clone()], range.start);
            if let Some(id) = id {
                visit(id, &part, 0..range.len(), true);
                continue;
            }
            let part = normalize(&self.normalizers, part)?;
            for (id, range) in self.added.cut_normalized(part.text(), parse) {
                if let Some(id) = id {
                    visit(id, &part, range, true);
                    continue;
                }
                let (words, bytes) = self.words(part.slice(range))?;
                for word in words.words.iter().filter(|word| !word.is_empty()) {
                    found.clear();
                    self.model.encode(&self.tokens, &words.text.text()[word.clone()], bytes, &mut found)?;
                    for (id, range) in found.drain(..) {
                        let range = word.start + range.start..word.start + range.end;
                        visit(id, &words.text, range, false);
                    }
                }
            }
        }
        Ok(())
    }

    /// The words of a text, and whether their bytes are still to become characters, which the model can do itself.
    fn words<'t>(&self, text: Aligned<'t>) -> Result<(Words<'t>, bool), String> {
        let mut words = Words::whole(text);
        let (last, others) = match self.pre_tokenizers.split_last() {
            Some((last @ PreTokenizer::ByteLevel { .. }, others)) if self.model.takes_bytes() => {
                (Some(last), others)
            }
            _ => (None, &self.pre_tokenizers[..]),
        };
        others.iter().try_for_each(|pre_tokenizer| pre_tokenizer.apply(&mut words))?;
        if let Some(last) = last {
            last.split_bytes(&mut words)?;
        }
        Ok((words, last.is_some()))
    }

    /// One more than the highest id.
    pub(super) fn vocab_size(&self) -> usize {
        self.tokens.end()
    }

    /// A token as decoders see it.
    pub(super) fn token(&self, id: u32) -> Option<Cow<'_, str>> {
        self.added.changed(id).or_else(|| self.tokens.text(id)).map(Cow::Borrowed)
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.tokens.id(token)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.added.is_special(id)
    }
}

/// What to look for: `{"String": ...}` or `{"Regex": ...}`.
fn pattern(value: &Value) -> Result<Pattern, String> {
    let pattern = &value["pattern"];
    match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(literal), None) => Pattern::literal(literal),
        (None, Some(regex)) => Pattern::regex(regex),
        _ => Err(format!("{pattern} is not a pattern: it is neither a String nor a Regex")),
    }
}
