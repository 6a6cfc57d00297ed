//! The files next to a tokenizer that say which ids begin and end a text.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Tokenizer;

/// Configuration files, null where one is missing.
#[derive(Debug, Default)]
pub(super) struct Companions {
    /// `tokenizer_config.json`.
    pub(super) tokenizer: Value,
    /// `generation_config.json`.
    pub(super) generation: Value,
    /// `config.json`, where `generation_config.json` is silent.
    pub(super) config: Value,
}

impl Companions {
    /// BOS: the id that the generation config gives, or else the token that the tokenizer config names.
    pub(super) fn bos(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let given =
            [&self.generation, &self.config].into_iter().flat_map(|config| ids(&config["bos_token_id"]));
        let named = self.named("bos_token", tokenizer);
        given.chain(named).find(|&id| tokenizer.token(id).is_some())
    }

    /// The one EOS that stands in chats: the token that the tokenizer config names, or else the first id that the
    /// generation config or the model config gives.
    pub(super) fn eos(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let given =
            [&self.generation, &self.config].into_iter().flat_map(|config| ids(&config["eos_token_id"]));
        let mut known = given.filter(|&id| tokenizer.token(id).is_some());
        self.named("eos_token", tokenizer).or_else(|| known.next())
    }

    /// EOS: every id that the generation config gives (or else the model config), and the token that the tokenizer
    /// config names.
    pub(super) fn eos_ids(&self, tokenizer: &Tokenizer) -> BTreeSet<u32> {
        let generation = ids(&self.generation["eos_token_id"]);
        let given = if generation.is_empty() { ids(&self.config["eos_token_id"]) } else { generation };
        let named = self.named("eos_token", tokenizer);
        given.into_iter().chain(named).filter(|&id| tokenizer.token(id).is_some()).collect()
    }

    /// `add_bos_token` or `add_eos_token`.
    pub(super) fn adds(&self, key: &str) -> Option<bool> {
        self.tokenizer[key].as_bool()
    }

    /// The tokens that the tokenizer config names, also among those of the model alone (`extra_special_tokens`).
    pub(super) fn special_tokens(&self) -> BTreeMap<String, String> {
        let extra = &self.tokenizer["extra_special_tokens"];
        let fields = [extra, &self.tokenizer].into_iter().filter_map(Value::as_object).flatten();
        let named = fields.filter(|(name, _)| name.ends_with("_token"));
        named.filter_map(|(name, token)| Some((name.clone(), text(token)?.to_owned()))).collect()
    }

    /// The id of a token given as its text, or as an object with its text.
    fn named(&self, key: &str, tokenizer: &Tokenizer) -> Option<u32> {
        tokenizer.id(text(&self.tokenizer[key])?)
    }
}

/// The text of a token that is given as its text, or as an object with its text.
fn text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}

/// One id, or a list of them.
fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(values) => values.iter().filter_map(id).collect(),
        value => id(value).into_iter().collect(),
    }
}
