//! What embedders and classifiers may both be asked for: how texts are cut, and what stands before them.

use std::collections::BTreeMap;

use crate::error::InvalidField;

/// What happens to a text of more tokens than the model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Truncate {
    /// It is an error.
    #[default]
    Never,
    /// Its last tokens are left out; those that the model wants around a text stay.
    Right,
    /// Its first tokens are left out; those that the model wants around a text stay.
    Left,
}

impl Truncate {
    /// So many tokens of a text.
    pub(crate) fn keep(self, tokens: &[u32], count: usize) -> &[u32] {
        match self {
            Truncate::Left => &tokens[tokens.len() - count..],
            Truncate::Never | Truncate::Right => &tokens[..count],
        }
    }
}

/// What stands before a text, to tell the model what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingPrompt {
    /// One that the model's files name, such as `query`.
    Named(String),
    /// A text.
    Text(String),
}

/// The text of the prompt that is wanted, or else of the one that is used by default; `None` if there is none.
pub(crate) fn chosen_prompt(
    prompts: &BTreeMap<String, String>,
    default: Option<&str>,
    wanted: Option<&EmbeddingPrompt>,
) -> Result<Option<String>, InvalidField> {
    let name = match (wanted, default) {
        (Some(EmbeddingPrompt::Text(text)), _) => return Ok(Some(text.clone())),
        (Some(EmbeddingPrompt::Named(name)), _) => name,
        (None, Some(name)) => name,
        (None, None) => return Ok(None),
    };
    let text = prompts.get(name).cloned().ok_or_else(|| {
        let names: Vec<&str> = prompts.keys().map(String::as_str).collect();
        let fix = if names.is_empty() {
            "the model's files name no prompts; give its text".to_string()
        } else {
            format!("the model's files name {}", names.join(", "))
        };
        invalid_prompt(name, fix)
    });
    text.map(Some)
}

pub(crate) fn invalid_prompt(value: &str, fix: String) -> InvalidField {
    InvalidField { field: "prompt", value: value.to_string(), fix }
}
