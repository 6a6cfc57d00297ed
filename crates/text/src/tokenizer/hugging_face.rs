//! Hugging Face's `tokenizer.json`, through the `tokenizers` crate.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::{DecoderWrapper, ModelWrapper};

use super::decoder::{Decoder, Step};
use super::{AddSpecial, Model, ParseSpecial, Tokenizer};
use crate::Error;

#[derive(Debug)]
pub(super) struct HuggingFace {
    tokenizer: tokenizers::Tokenizer,
    /// The same, reading special tokens as plain text; made when it is first asked for.
    literal: OnceLock<tokenizers::Tokenizer>,
    special: HashSet<u32>,
    vocab_size: usize,
}

/// Builds a tokenizer from the bytes of a `tokenizer.json`.
///
/// Padding and truncation that the file asks for are left out: they belong to whoever makes batches.
pub(super) fn read(bytes: &[u8], origin: &str) -> Result<Tokenizer, Error> {
    let tokenizer = guarded(|| tokenizers::Tokenizer::from_bytes(bytes))
        .map_err(|problem| Error::tokenizer(origin, problem))?;
    wrap(tokenizer).map_err(|problem| Error::tokenizer(origin, problem))
}

fn wrap(mut tokenizer: tokenizers::Tokenizer) -> Result<Tokenizer, String> {
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
    let decoder = decoder(tokenizer.get_decoder())?;
    let added = tokenizer.get_added_tokens_decoder();
    let past_added = added.keys().max().map_or(0, |&id| id as usize + 1);
    let special = added.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
    let vocab_size = tokenizer.get_vocab_size(true).max(past_added);
    let model = match tokenizer.get_model() {
        ModelWrapper::BPE(_) => "BPE",
        ModelWrapper::WordPiece(_) => "WordPiece",
        ModelWrapper::WordLevel(_) => "WordLevel",
        ModelWrapper::Unigram(_) => "Unigram",
    };
    let kind = format!("{model} (tokenizers), {vocab_size} tokens");
    let wrapped = HuggingFace { tokenizer, literal: OnceLock::new(), special, vocab_size };
    Ok(Tokenizer::new(Model::HuggingFace(Box::new(wrapped)), decoder, kind))
}

impl HuggingFace {
    pub(super) fn encode(&self, text: &str, add: AddSpecial, parse: ParseSpecial) -> Result<Vec<u32>, Error> {
        let encoding = guarded(|| self.parsing(parse).encode_fast(text, add == AddSpecial::Yes));
        encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(Error::Encode)
    }

    /// The bytes that each of the ids stands for, where it does for some.
    pub(super) fn places(
        &self,
        text: &str,
        add: AddSpecial,
        parse: ParseSpecial,
    ) -> Result<Vec<Option<Range<usize>>>, Error> {
        let encoding = guarded(|| self.parsing(parse).encode(text, add == AddSpecial::Yes));
        let encoding = encoding.map_err(Error::Encode)?;
        let places = encoding.get_offsets().iter().map(|&(start, end)| Some(start..end));
        Ok(places.map(|place| place.filter(|place| !place.is_empty())).collect())
    }

    fn parsing(&self, parse: ParseSpecial) -> &tokenizers::Tokenizer {
        match parse {
            ParseSpecial::Yes => &self.tokenizer,
            ParseSpecial::No => self.literal.get_or_init(|| {
                let mut literal = self.tokenizer.clone();
                literal.set_encode_special_tokens(true);
                literal
            }),
        }
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub(super) fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }
}

/// The files beside a `tokenizer.json` that say which ids begin and end a text.
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

    /// The id of a token given as its text, or as an object with its text.
    fn named(&self, key: &str, tokenizer: &Tokenizer) -> Option<u32> {
        let token = &self.tokenizer[key];
        tokenizer.id(token.as_str().or_else(|| token["content"].as_str())?)
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

/// Runs a call into the `tokenizers` crate, which panics on some malformed character maps and patterns.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the file is malformed in a way that the tokenizers library cannot handle".into()),
    }
}

/// Our own form of the file's decoder, which can work token by token.
fn decoder(wrapper: Option<&DecoderWrapper>) -> Result<Decoder, String> {
    let Some(wrapper) = wrapper else {
        return Ok(Decoder { steps: vec![Step::Spaced], strip_start: None });
    };
    let value = serde_json::to_value(wrapper).map_err(|error| error.to_string())?;
    let mut decoder = Decoder::default();
    add_steps(&value, &mut decoder)?;
    Ok(decoder)
}

fn add_steps(value: &Value, decoder: &mut Decoder) -> Result<(), String> {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let step = match text("type") {
        "Sequence" => {
            return value["decoders"]
                .as_array()
                .into_iter()
                .flatten()
                .try_for_each(|v| add_steps(v, decoder));
        }
        // Tokens are joined as they come, which is what fusing asks for.
        "Fuse" => return Ok(()),
        "Strip" => {
            if value["stop"].as_u64().unwrap_or(0) != 0 {
                return Err("a decoder that strips the end of a text cannot work token by token".into());
            }
            let c = text("content").chars().next().unwrap_or(' ');
            let most = value["start"].as_u64().unwrap_or(0) as usize;
            decoder.strip_start = Some((c, most)).filter(|&(_, most)| most > 0);
            return Ok(());
        }
        "ByteLevel" => Step::ByteLevel,
        "ByteFallback" => Step::ByteFallback,
        "Metaspace" => Step::Metaspace {
            mark: text("replacement").chars().next().unwrap_or('▁'),
            drop_first: text("prepend_scheme") != "never",
        },
        "WordPiece" => Step::WordPiece {
            prefix: text("prefix").into(),
            tidy: value["cleanup"].as_bool().unwrap_or(true),
        },
        "Replace" => {
            let from = value["pattern"]["String"].as_str();
            let from = from.filter(|from| !from.is_empty());
            let from = from.ok_or("a decoder that replaces a pattern, not a text, is not supported")?;
            Step::Replace { from: from.into(), to: text("content").into() }
        }
        other => return Err(format!("decoder \"{other}\" is not supported")),
    };
    decoder.steps.push(step);
    Ok(())
}
