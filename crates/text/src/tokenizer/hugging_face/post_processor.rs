//! The `post_processor` of a `tokenizer.json`: the tokens around a text, and places without the spaces around words.

use serde_json::Value;

use super::super::byte_level::char_of_byte;
use super::super::json::{flag, list, text};
use super::super::pair::{PairContent, PairPart};

/// The tokens to add around a text.
#[derive(Debug, Default)]
pub(super) struct PostProcessor {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
    /// The templates for two texts.
    pairs: Vec<Option<Vec<PairPart>>>,
    /// Takes spaces off the places of tokens, once for each entry; it says whether texts get a space in front, which is
    /// no part of them.
    pub(super) trims: Vec<bool>,
}

impl PostProcessor {
    /// Adds what `value` describes.
    pub(super) fn read(&mut self, value: &Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        match text(value, "type")? {
            "Sequence" => return list(value, "processors")?.iter().try_for_each(|part| self.read(part)),
            "ByteLevel" => self.trim(value)?,
            kind @ ("BertProcessing" | "RobertaProcessing") => {
                if kind == "RobertaProcessing" {
                    self.trim(value)?;
                }
                let (cls, sep) = (token(value, "cls")?, token(value, "sep")?);
                self.around(&[cls], &[sep]);
                self.pairs.push(Some(pair_of(kind, cls, sep)));
            }
            "TemplateProcessing" => {
                let (before, after) = template(value)?;
                self.around(&before, &after);
                self.pairs.push(pair_template(value));
            }
            other => return Err(format!("post-processor {other:?} is not supported")),
        }
        Ok(())
    }

    /// The template for two texts, unless there are several that would apply one after the other.
    pub(super) fn pair_template(&self) -> Option<Vec<PairPart>> {
        match &self.pairs[..] {
            [only] => only.clone(),
            _ => None,
        }
    }

    fn trim(&mut self, value: &Value) -> Result<(), String> {
        if flag(value, "trim_offsets", true)? {
            self.trims.push(flag(value, "add_prefix_space", true)?);
        }
        Ok(())
    }

    fn around(&mut self, before: &[u32], after: &[u32]) {
        self.before.splice(..0, before.iter().copied());
        self.after.extend(after);
    }

    /// Takes spaces off the place of token number `index`, which is written so.
    pub(super) fn trimmed(&self, (start, end): (usize, usize), token: &str, index: usize) -> (usize, usize) {
        let is_space = |c: &char| *c == char_of_byte(b' ') || c.is_whitespace();
        let leading = token.chars().take_while(is_space).count();
        let trailing = token.chars().rev().take_while(is_space).count();
        let (mut start, mut end) = (start, end);
        for &adds_space in &self.trims {
            let is_first = index == 0 || start == 0;
            if !(is_first && adds_space && leading == 1) {
                start = end.min(start + leading);
            }
            if end >= trailing {
                end = start.max(end - trailing);
            }
        }
        (start, end)
    }
}

/// The id in a pair of a text and an id.
fn token(value: &Value, key: &str) -> Result<u32, String> {
    let id = value[key][1].as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| format!("{key} of the post-processor is not a token with its id"))
}

/// The tokens before and after the text in the template for one text.
fn template(value: &Value) -> Result<(Vec<u32>, Vec<u32>), String> {
    let (mut around, mut texts) = ([Vec::new(), Vec::new()], 0);
    for part in list(value, "single")? {
        if let Some(id) = part["Sequence"]["id"].as_str() {
            texts += 1;
            if id != "A" || texts > 1 {
                return Err("a template that has another text than one `A` is not supported".into());
            }
            continue;
        }
        let name = part["SpecialToken"]["id"].as_str();
        let name = name.ok_or("a part of the post-processor's template is neither a token nor a text")?;
        let ids = value["special_tokens"][name]["ids"].as_array();
        let ids = ids.ok_or_else(|| format!("special_tokens of the post-processor lacks {name:?}"))?;
        for id in ids {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            around[texts]
                .push(id.ok_or_else(|| format!("an id of {name:?} in the post-processor is not one"))?);
        }
    }
    let [before, after] = around;
    if texts == 1 {
        Ok((before, after))
    } else {
        Err("the post-processor's template leaves the text out".into())
    }
}

/// How BERT and RoBERTa join two texts.
fn pair_of(kind: &str, cls: u32, sep: u32) -> Vec<PairPart> {
    use PairContent::{First, Second, Token};
    let part = |(content, token_type)| PairPart { content, token_type };
    match kind {
        "BertProcessing" => {
            [(Token(cls), 0), (First, 0), (Token(sep), 0), (Second, 1), (Token(sep), 1)].map(part).to_vec()
        }
        _ => [Token(cls), First, Token(sep), Token(sep), Second, Token(sep)]
            .map(|content| part((content, 0)))
            .to_vec(),
    }
}

/// The template for two texts, if it has each of them once.
fn pair_template(value: &Value) -> Option<Vec<PairPart>> {
    let mut parts = Vec::new();
    for part in value["pair"].as_array()? {
        let (of_text, special) = (&part["Sequence"], &part["SpecialToken"]);
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let (contents, described) = match (of_text["id"].as_str(), special["id"].as_str()) {
            (Some("A"), _) => (vec![PairContent::First], of_text),
            (Some("B"), _) => (vec![PairContent::Second], of_text),
            (None, Some(name)) => {
                let ids = value["special_tokens"][name]["ids"].as_array()?.iter();
                (ids.map(|id| number(id).map(PairContent::Token)).collect::<Option<_>>()?, special)
            }
            _ => return None,
        };
        let token_type = number(&described["type_id"])?;
        parts.extend(contents.into_iter().map(|content| PairPart { content, token_type }));
    }
    let count = |text: PairContent| parts.iter().filter(|part| part.content == text).count();
    (count(PairContent::First) == 1 && count(PairContent::Second) == 1).then_some(parts)
}
