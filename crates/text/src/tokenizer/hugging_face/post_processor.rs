//! The `post_processor` of a `tokenizer.json`: the tokens around a text, and places without the spaces around words.

use serde_json::Value;

use super::super::byte_level::char_of_byte;
use super::{flag, list, text};

/// The tokens to add around a text.
#[derive(Debug, Default)]
pub(super) struct PostProcessor {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
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
                self.around(&[token(value, "cls")?], &[token(value, "sep")?]);
            }
            "TemplateProcessing" => {
                let (before, after) = template(value)?;
                self.around(&before, &after);
            }
            other => return Err(format!("post-processor {other:?} is not supported")),
        }
        Ok(())
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
