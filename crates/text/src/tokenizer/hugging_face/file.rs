//! The contents of a `tokenizer.json`. Strings without escapes are borrowed from the file.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The file; padding and truncation are left out, since they belong to those who make batches.
#[derive(Deserialize)]
pub(super) struct File<'a> {
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(super) normalizer: Value,
    #[serde(default)]
    pub(super) pre_tokenizer: Value,
    #[serde(default)]
    pub(super) post_processor: Value,
    #[serde(default)]
    pub(super) decoder: Value,
    #[serde(borrow)]
    pub(super) model: Model<'a>,
}

/// A token that is cut out of a text before the model sees it.
#[derive(Debug, Deserialize)]
pub(super) struct AddedToken {
    pub(super) content: String,
    /// Only if neither neighbor is a letter or digit.
    #[serde(default)]
    pub(super) single_word: bool,
    /// Takes the whitespace before it.
    #[serde(default)]
    pub(super) lstrip: bool,
    /// Takes the whitespace after it.
    #[serde(default)]
    pub(super) rstrip: bool,
    /// Is looked for in the normalized text.
    #[serde(default = "yes")]
    pub(super) normalized: bool,
    /// Is no text.
    #[serde(default)]
    pub(super) special: bool,
}

fn yes() -> bool {
    true
}

/// The fields of all kinds of models.
#[derive(Deserialize)]
pub(super) struct Model<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(borrow)]
    pub(super) vocab: Vocab<'a>,
    #[serde(borrow)]
    pub(super) merges: Option<Vec<Merge<'a>>>,
    pub(super) unk_token: Option<String>,
    pub(super) unk_id: Option<usize>,
    pub(super) dropout: Option<f64>,
    pub(super) continuing_subword_prefix: Option<String>,
    pub(super) end_of_word_suffix: Option<String>,
    pub(super) max_input_chars_per_word: Option<usize>,
    pub(super) fuse_unk: Option<bool>,
    pub(super) byte_fallback: Option<bool>,
    pub(super) ignore_merges: Option<bool>,
}

/// A string, borrowed from the file if it can be.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

/// Tokens, with ids or with scores.
pub(super) enum Vocab<'a> {
    Ids(Vec<(Text<'a>, u32)>),
    Scores(Vec<(Text<'a>, f64)>),
}

/// Two tokens that become one: `["a", "b"]`, or `"a b"` in older files.
pub(super) enum Merge<'a> {
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
