//! The contents of a `tokenizer.json`. Strings without escapes are borrowed from the file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::super::added_token::AddedToken;

/// The file; padding and truncation are left out, since they belong to those who make batches.
#[derive(Deserialize)]
pub(in crate::tokenizer) struct TokenizerJson<'a> {
    pub(in crate::tokenizer) version: Option<String>,
    #[serde(default)]
    pub(in crate::tokenizer) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(in crate::tokenizer) normalizer: Value,
    #[serde(default)]
    pub(in crate::tokenizer) pre_tokenizer: Value,
    #[serde(default)]
    pub(in crate::tokenizer) post_processor: Value,
    #[serde(default)]
    pub(in crate::tokenizer) decoder: Value,
    #[serde(borrow)]
    pub(in crate::tokenizer) model: Model<'a>,
}

impl<'a> TokenizerJson<'a> {
    /// A file with a model and nothing else.
    pub(in crate::tokenizer) fn new(model: Model<'a>) -> TokenizerJson<'a> {
        TokenizerJson {
            version: None,
            added_tokens: Vec::new(),
            normalizer: Value::Null,
            pre_tokenizer: Value::Null,
            post_processor: Value::Null,
            decoder: Value::Null,
            model,
        }
    }

    /// The id that a token will have.
    pub(in crate::tokenizer) fn id_of(&self, text: &str) -> Option<u32> {
        let Vocab::Ids(ids) = &self.model.vocab else { return None };
        let ids: HashMap<&str, u32> = ids.iter().map(|(text, id)| (&*text.0, *id)).collect();
        let added = self.added_tokens.iter().map(|token| token.content.as_str());
        let mut new: HashMap<&str, usize> = HashMap::new();
        for token in added.filter(|token| !token.is_empty() && !ids.contains_key(token)) {
            let next = ids.len() + new.len();
            new.entry(token).or_insert(next);
        }
        ids.get(text).copied().or_else(|| u32::try_from(*new.get(text)?).ok())
    }
}

/// The fields of all kinds of models.
#[derive(Default, Deserialize)]
pub(in crate::tokenizer) struct Model<'a> {
    #[serde(rename = "type")]
    pub(in crate::tokenizer) kind: Option<String>,
    #[serde(borrow)]
    pub(in crate::tokenizer) vocab: Vocab<'a>,
    #[serde(borrow)]
    pub(in crate::tokenizer) merges: Option<Vec<Merge<'a>>>,
    pub(in crate::tokenizer) unk_token: Option<String>,
    pub(in crate::tokenizer) unk_id: Option<usize>,
    pub(in crate::tokenizer) dropout: Option<f64>,
    pub(in crate::tokenizer) continuing_subword_prefix: Option<String>,
    pub(in crate::tokenizer) end_of_word_suffix: Option<String>,
    pub(in crate::tokenizer) max_input_chars_per_word: Option<usize>,
    pub(in crate::tokenizer) fuse_unk: Option<bool>,
    pub(in crate::tokenizer) byte_fallback: Option<bool>,
    pub(in crate::tokenizer) ignore_merges: Option<bool>,
}

impl<'a> Model<'a> {
    /// A model of a type with default settings.
    pub(in crate::tokenizer) fn new(kind: &str, vocab: Vocab<'a>) -> Model<'a> {
        Model { kind: Some(kind.into()), vocab, ..Model::default() }
    }
}

impl Model<'_> {
    /// The type, which older files do not state.
    pub(in crate::tokenizer) fn kind(&self) -> &str {
        match (&self.kind, &self.vocab) {
            (Some(kind), _) => kind,
            (None, Vocab::Scores(_)) => "Unigram",
            (None, _) if self.merges.is_some() => "BPE",
            (None, _) if self.max_input_chars_per_word.is_some() => "WordPiece",
            (None, _) => "WordLevel",
        }
    }

    /// The two tokens of each merge. Older files begin with a line that names their version.
    pub(in crate::tokenizer) fn pairs(&self) -> impl Iterator<Item = Result<(&str, &str), String>> {
        let is_version =
            |merge: &&Merge<'_>| matches!(merge, Merge::Line(line) if line.0.starts_with("#version"));
        let merges = self.merges.iter().flatten().filter(move |merge| !is_version(merge));
        merges.map(|merge| match merge {
            Merge::Pair(left, right) => Ok((&*left.0, &*right.0)),
            Merge::Line(line) => {
                let pair = line.0.split_once(' ').filter(|(_, right)| !right.contains(' '));
                pair.ok_or_else(|| {
                    format!("the merge {:?} is not two tokens with a space between them", line.0)
                })
            }
        })
    }
}

/// A string, borrowed from the file if it can be.
#[derive(Debug)]
pub(in crate::tokenizer) struct Text<'a>(pub(in crate::tokenizer) Cow<'a, str>);

/// Tokens, with ids or with scores.
pub(in crate::tokenizer) enum Vocab<'a> {
    Ids(Vec<(Text<'a>, u32)>),
    Scores(Vec<(Text<'a>, f64)>),
}

impl Default for Vocab<'_> {
    fn default() -> Self {
        Vocab::Ids(Vec::new())
    }
}

/// Two tokens that become one: `["a", "b"]`, or `"a b"` in older files.
pub(in crate::tokenizer) enum Merge<'a> {
    Pair(Text<'a>, Text<'a>),
    Line(Text<'a>),
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens with their ids, or a list of tokens with their scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab<'de>, A::Error> {
                let mut ids = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    ids.push(entry);
                }
                Ok(Vocab::Ids(ids))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab<'de>, A::Error> {
                let mut scores = Vec::new();
                while let Some(entry) = list.next_element()? {
                    scores.push(entry);
                }
                Ok(Vocab::Scores(scores))
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: two tokens in a list, or in a string with a space between them")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Merge<'de>, E> {
                TextVisitor.visit_borrowed_str(text).map(Merge::Line)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Merge<'de>, E> {
                TextVisitor.visit_str(text).map(Merge::Line)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge<'de>, A::Error> {
                let pair = (list.next_element()?, list.next_element()?);
                match (pair, list.next_element::<Value>()?) {
                    ((Some(left), Some(right)), None) => Ok(Merge::Pair(left, right)),
                    _ => Err(A::Error::custom("a merge is not of two tokens")),
                }
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}
