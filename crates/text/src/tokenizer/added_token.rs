//! Tokens that are cut out of a text before the model sees it.

use serde::Deserialize;
use serde_json::Value;

use super::json::flag;

/// A token that is cut out of a text before the model sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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

impl AddedToken {
    /// A token without flags.
    pub(super) fn new(content: impl Into<String>, special: bool) -> AddedToken {
        let (single_word, lstrip, rstrip) = (false, false, false);
        AddedToken { content: content.into(), single_word, lstrip, rstrip, normalized: !special, special }
    }

    /// A token of a configuration file: an object, or the text of a special token.
    pub(super) fn read(value: &Value) -> Result<AddedToken, String> {
        if let Some(content) = value.as_str() {
            return Ok(AddedToken::new(content, true));
        }
        let content = value["content"].as_str().ok_or_else(|| format!("{value} is not a token"))?;
        let special = flag(value, "special", false)?;
        Ok(AddedToken {
            content: content.into(),
            single_word: flag(value, "single_word", false)?,
            lstrip: flag(value, "lstrip", false)?,
            rstrip: flag(value, "rstrip", false)?,
            normalized: flag(value, "normalized", !special)?,
            special,
        })
    }
}

fn yes() -> bool {
    true
}
