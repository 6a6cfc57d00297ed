//! The files next to a tokenizer: which ids begin and end a text, and which tokens were added to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde_json::{Map, Value};

use super::added_token::AddedToken;
use super::{Tokenizer, read};
use crate::Error;

/// The keys of `tokenizer_config.json` that name one special token each.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Configuration files, null where one is missing.
#[derive(Debug, Default)]
pub(super) struct Companions {
    /// `tokenizer_config.json`, with what an older `special_tokens_map.json` says.
    pub(super) tokenizer: Value,
    /// `generation_config.json`.
    pub(super) generation: Value,
    /// `config.json`, where `generation_config.json` is silent.
    pub(super) config: Value,
    /// `added_tokens.json`: tokens and their ids.
    pub(super) added: Value,
    /// Further special tokens, with the names that the model's code gives them: `image_token`.
    pub(super) of_model: Map<String, Value>,
    /// Further special tokens without names; `None` if no file has the list.
    pub(super) extra: Option<Vec<Value>>,
    /// The same, under the older name of the list.
    pub(super) additional: Vec<Value>,
}

impl Companions {
    /// Reads the files next to a tokenizer.
    ///
    /// # Errors
    /// If one of them cannot be read, or is not JSON.
    pub(super) fn beside(path: &Path) -> Result<Companions, Error> {
        let companion = |name: &str| match path.with_file_name(name) {
            file if file.is_file() => {
                weights::from_json(&read(&file)?).map_err(|error| Error::tokenizer(file.display(), error))
            }
            _ => Ok(Value::Null),
        };
        let files = [companion("tokenizer_config.json")?, companion("special_tokens_map.json")?];
        Ok(Companions {
            generation: companion("generation_config.json")?,
            config: companion("config.json")?,
            added: companion("added_tokens.json")?,
            ..Companions::from_values(files)
        })
    }

    /// What a `tokenizer_config.json` and a `special_tokens_map.json` say. The latter is older, and counts if there is no
    /// `added_tokens_decoder`.
    fn from_values([tokenizer, map]: [Value; 2]) -> Companions {
        let mut config = match tokenizer {
            Value::Object(config) => config,
            _ => Map::new(),
        };
        let mut extra = config.shift_remove("extra_special_tokens");
        let mut additional = config.shift_remove("additional_special_tokens");
        if extra.as_ref().is_none_or(is_empty) && additional.is_some() {
            extra = additional.take();
        }
        let (list, object) = list_or_object(extra);
        let (mut extra, mut additional) = (list, list_or_object(additional).0.unwrap_or_default());
        // Their names count for more than the same names in the map.
        let keys: Vec<String> = config.keys().filter(|key| is_of_model(key)).cloned().collect();
        let of_config = keys.iter().filter(|key| config[*key].is_string());
        let mut explicit: Map<String, Value> =
            of_config.map(|key| (key.clone(), config[key].clone())).collect();
        explicit.extend(object);
        config.retain(|key, value| !(is_of_model(key) && value.is_string()));
        if let (Value::Object(map), false) = (map, config.contains_key("added_tokens_decoder")) {
            for (key, mut value) in map {
                match key.as_str() {
                    "extra_special_tokens" => {
                        let (list, object) = list_or_object(Some(value));
                        if let Some(list) = list {
                            extra.get_or_insert_default().extend(list);
                        }
                        explicit.extend(object);
                        continue;
                    }
                    "additional_special_tokens" => {
                        additional = list_or_object(Some(value)).0.unwrap_or_default();
                        continue;
                    }
                    _ => {}
                }
                if let Value::Object(token) = &mut value {
                    token.insert("special".into(), true.into());
                }
                config.insert(key, value);
            }
        }
        let own = config.iter().filter(|(key, value)| is_of_model(key) && content(value).is_some());
        let mut of_model: Map<String, Value> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        of_model.extend(explicit);
        Companions { tokenizer: Value::Object(config), of_model, extra, additional, ..Companions::default() }
    }

    /// The tokens that these files add to those of the tokenizer itself, in the order in which `transformers` gives
    /// them ids. Indices in the files say no more than that order. `is_slow` says that there is no `tokenizer.json`: the
    /// older list is not read then.
    ///
    /// # Errors
    /// If an entry is no token.
    pub(super) fn added_tokens(&self, own: &[AddedToken], is_slow: bool) -> Result<Vec<AddedToken>, String> {
        let named: Vec<&Value> = self.named_values().collect();
        let special: BTreeSet<&str> = named.iter().filter_map(|value| content(value)).collect();
        let own: HashMap<&str, &AddedToken> =
            own.iter().map(|token| (token.content.as_str(), token)).collect();
        let listed = self.listed()?.into_values();
        let listed = listed.filter(|token| own.get(token.content.as_str()) != Some(&token));
        let mut tokens: Vec<AddedToken> = listed.collect();
        for token in &mut tokens {
            token.special |= special.contains(token.content.as_str());
        }
        let known: BTreeSet<String> = tokens.iter().map(|token| token.content.clone()).collect();
        let older = if is_slow { &[][..] } else { &self.additional[..] };
        for value in named.into_iter().chain(self.extra.as_deref().unwrap_or(older)) {
            let mut token = AddedToken::read(value)?;
            token.special |= special.contains(token.content.as_str());
            if !known.contains(&token.content) && !own.contains_key(token.content.as_str()) {
                tokens.push(token);
            }
        }
        Ok(tokens)
    }

    /// The tokens with indices, in their order.
    fn listed(&self) -> Result<BTreeMap<u64, AddedToken>, String> {
        let mut listed = BTreeMap::new();
        if let Some(decoder) = self.tokenizer.get("added_tokens_decoder").filter(|value| !value.is_null()) {
            let decoder = decoder.as_object().ok_or("added_tokens_decoder is not an object")?;
            for (index, token) in decoder {
                let of = |what: &str| format!("added_tokens_decoder: {index:?}: {what}");
                let number = index.parse().map_err(|_| of("is not an index"))?;
                listed.insert(number, AddedToken::read(token).map_err(|problem| of(&problem))?);
            }
            return Ok(listed);
        }
        let Value::Object(added) = &self.added else { return Ok(listed) };
        // `transformers` compares before it reads objects of the tokenizer config as tokens.
        let is_read = |value: &&Value| value.get("__type").is_none();
        let named = NAMED.iter().filter_map(|key| self.tokenizer.get(*key));
        let named = named.chain(self.extra.iter().flatten()).filter(is_read);
        let special: BTreeSet<&str> = named.filter_map(content).collect();
        let older: BTreeSet<&str> = self.additional.iter().filter_map(content).collect();
        for (text, index) in added {
            let number = index.as_u64();
            let number =
                number.ok_or_else(|| format!("added_tokens.json: {text:?}: {index} is not an index"))?;
            let mut token = AddedToken::new(text, special.contains(text.as_str()));
            token.special |= older.contains(text.as_str());
            listed.insert(number, token);
        }
        Ok(listed)
    }

    /// The special tokens with names.
    fn named_values(&self) -> impl Iterator<Item = &Value> {
        let named = NAMED.iter().filter_map(move |key| self.tokenizer.get(*key));
        named.filter(|value| !value.is_null()).chain(self.of_model.values())
    }

    /// Sets the special tokens that `tokenizer_config.json` does not set.
    pub(super) fn set_defaults(&mut self, defaults: &[(&str, &str)]) {
        if !self.tokenizer.is_object() {
            self.tokenizer = Value::Object(Map::new());
        }
        let Value::Object(config) = &mut self.tokenizer else { return };
        for (key, text) in defaults {
            config.entry(*key).or_insert_with(|| (*text).into());
        }
    }

    /// The name of the class that reads the tokenizer, without the suffix `Fast`; empty if nothing says it.
    pub(super) fn class(&self) -> &str {
        let class =
            self.tokenizer["tokenizer_class"].as_str().or_else(|| self.config["tokenizer_class"].as_str());
        class.unwrap_or_default().trim_end_matches("Fast")
    }

    /// Whether the class is code of the model's repository, and none of `transformers`.
    pub(super) fn has_own_class(&self) -> bool {
        self.tokenizer["auto_map"].get("AutoTokenizer").is_some_and(|code| !code.is_null())
    }

    /// The type of the model; empty if no file names it.
    pub(super) fn model_type(&self) -> &str {
        self.config["model_type"].as_str().unwrap_or_default()
    }

    /// The text of a named special token, such as `unk_token`.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        content(&self.tokenizer[key])
    }

    /// The texts of the tokens with indices.
    ///
    /// # Errors
    /// As [`Companions::added_tokens`].
    pub(super) fn indexed(&self) -> Result<HashMap<u32, String>, String> {
        let listed = self.listed()?.into_iter();
        let known = listed.map(|(index, token)| Some((u32::try_from(index).ok()?, token.content)));
        known.collect::<Option<_>>().ok_or_else(|| "an added token has an index above 2^32".to_string())
    }

    /// Whether any file names special tokens other than those of one key each.
    pub(super) fn names_special_tokens(&self) -> bool {
        let has_decoder = self.tokenizer.get("added_tokens_decoder").is_some();
        has_decoder || self.extra.is_some() || !self.additional.is_empty() || !self.added.is_null()
    }

    /// Whether each text between special tokens begins with a space of its own, as in older readers of SentencePiece
    /// models. `transformers` assumes it unless the class is Llama's.
    pub(super) fn is_legacy(&self) -> bool {
        self.tokenizer["legacy"].as_bool().unwrap_or_else(|| self.class() != "LlamaTokenizer")
    }

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

    /// The special tokens with names, by these.
    pub(super) fn special_tokens(&self) -> BTreeMap<String, String> {
        let named = NAMED.into_iter().map(|name| (name, &self.tokenizer[name]));
        let of_model = self.of_model.iter().map(|(name, value)| (name.as_str(), value));
        let tokens = named.chain(of_model);
        tokens.filter_map(|(name, token)| Some((name.to_owned(), content(token)?.to_owned()))).collect()
    }

    /// The id of a token given as its text, or as an object with its text.
    fn named(&self, key: &str, tokenizer: &Tokenizer) -> Option<u32> {
        tokenizer.id(self.text(key)?)
    }
}

/// The text of a token given as its text, or as an object with its text.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// Whether a key names a special token that one model has.
fn is_of_model(key: &str) -> bool {
    key.ends_with("_token") && !NAMED.contains(&key)
}

/// Special tokens without names, or with names.
fn list_or_object(value: Option<Value>) -> (Option<Vec<Value>>, Map<String, Value>) {
    match value {
        Some(Value::Array(list)) => (Some(list), Map::new()),
        Some(Value::Object(object)) => (None, object),
        _ => (None, Map::new()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        value => value.is_null(),
    }
}

/// One id, or a list of them.
fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(values) => values.iter().filter_map(id).collect(),
        value => id(value).into_iter().collect(),
    }
}
