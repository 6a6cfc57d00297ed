//! Tokenizers from GGUF metadata (`tokenizer.ggml.*`), as llama.cpp reads it.

use std::borrow::Cow;
use std::sync::Arc;

use weights::{MetaArray, MetaValue, Metadata, Strings};

use super::byte_level::ByteLevel;
use super::decoder::Decoder;
use super::normalizer::{Charsmap, Normalizer};
use super::pre_tokenizer::{PreTokenizer, Symbols};
use super::sentencepiece::SentencePiece;
use super::unigram::Unigram;
use super::vocabulary::{TokenType, Vocabulary};
use super::word_piece::WordPiece;
use super::{Encoder, Model, Tokenizer};
use crate::Error;

/// A tokenizer as GGUF metadata describes it. Keys are under `tokenizer.ggml.` unless another is given.
///
/// Only `model` and `tokens` are always there; a default is llama.cpp's.
#[derive(Debug, Clone, Default)]
pub struct GgufVocabulary<'a> {
    /// `model`: `llama` (SentencePiece BPE), `gpt2` (byte-level BPE), `gemma4` and `whitespace` (BPE of characters), `bert`
    /// (WordPiece), or `t5` (Unigram).
    pub model: &'a str,
    /// `pre`: how `gpt2` cuts words; empty where the file has none.
    pub pre: &'a str,
    /// `general.name`.
    pub name: &'a str,
    /// `tokens`: the text of every id; what is not UTF-8 in it is U+FFFD.
    pub tokens: Vec<Cow<'a, str>>,
    /// `scores`, one per token.
    pub scores: Option<Vec<f32>>,
    /// `token_type`, one per token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// `merges`: pairs of texts parted by a space, best first.
    pub merges: Vec<Cow<'a, str>>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `eot_token_id`: ends a turn.
    pub eot: Option<u32>,
    /// `eom_token_id`: ends a message.
    pub eom: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `cls_token_id`.
    pub cls: Option<u32>,
    /// `seperator_token_id` (so spelled).
    pub separator: Option<u32>,
    /// `padding_token_id`.
    pub padding: Option<u32>,
    /// `mask_token_id`.
    pub mask: Option<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`.
    pub remove_extra_spaces: Option<bool>,
    /// `precompiled_charsmap`; empty where the file has none.
    pub charsmap: Vec<u8>,
    /// Whether a Unigram model makes bytes of unknown characters. No GGUF key says so.
    pub byte_fallback: bool,
}

impl<'a> GgufVocabulary<'a> {
    /// Reads the keys of `metadata`.
    ///
    /// # Errors
    /// When `tokenizer.ggml.model` or `tokenizer.ggml.tokens` is missing, or a value is of another type.
    pub fn read(metadata: &'a Metadata) -> Result<Self, weights::Error> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let id = |name: &str| metadata.optional::<u32>(&key(name));
        let flag = |name: &str| metadata.optional::<bool>(&key(name));
        let texts = |strings: &'a Strings| strings.iter().map(String::from_utf8_lossy).collect();
        let merges = metadata.optional::<&Strings>(&key("merges"))?;
        Ok(Self {
            model: metadata.required(&key("model"))?,
            pre: metadata.optional(&key("pre"))?.unwrap_or_default(),
            name: metadata.optional("general.name")?.unwrap_or_default(),
            tokens: texts(metadata.required(&key("tokens"))?),
            scores: metadata.optional(&key("scores"))?,
            token_types: metadata.optional(&key("token_type"))?,
            merges: merges.map(texts).unwrap_or_default(),
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            eot: id("eot_token_id")?,
            eom: id("eom_token_id")?,
            unknown: id("unknown_token_id")?,
            cls: id("cls_token_id")?,
            separator: id("seperator_token_id")?,
            padding: id("padding_token_id")?,
            mask: id("mask_token_id")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            remove_extra_spaces: flag("remove_extra_whitespaces")?,
            charsmap: match metadata.get(&key("precompiled_charsmap")) {
                Some(MetaValue::Array(MetaArray::U8(bytes))) => bytes.clone(),
                Some(MetaValue::Array(MetaArray::I8(bytes))) => {
                    bytes.iter().map(|&byte| byte as u8).collect()
                }
                _ => Vec::new(),
            },
            byte_fallback: false,
        })
    }
}

/// Tokens that end a generation whatever the file says of them: many files name only one of several.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Fill-in-the-middle padding and file marks: a completion that reaches one has left its file.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Further tokens that are control tokens whatever the file says.
const CONTROLS: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
];

pub(super) fn build(gguf: &GgufVocabulary<'_>, origin: &str) -> Result<Tokenizer, Error> {
    check(gguf).map_err(|problem| Error::tokenizer(origin, problem))?;
    let vocabulary = vocabulary(gguf);
    let tokenizer = match gguf.model {
        "llama" => sentence_piece(gguf, vocabulary),
        "gpt2" | "whitespace" => byte_level(gguf, vocabulary, gguf.pre),
        "gemma4" => byte_level(gguf, vocabulary, "gemma4"),
        "t5" => unigram(gguf, vocabulary),
        "bert" => word_piece(gguf, vocabulary),
        other => Err(format!(
            "tokenizer.ggml.model \"{other}\" is not supported; supported are llama, gpt2, gemma4, whitespace, bert and t5"
        )),
    };
    let (mut tokenizer, adds) = tokenizer.map_err(|problem| Error::tokenizer(origin, problem))?;
    tokenizer.add_ids(gguf, adds).map_err(|problem| Error::tokenizer(origin, problem))?;
    Ok(tokenizer)
}

/// Which special tokens go around a text where the file does not say.
#[derive(Default)]
struct Adds {
    bos: bool,
    eos: bool,
}

fn check(gguf: &GgufVocabulary<'_>) -> Result<(), String> {
    let tokens = gguf.tokens.len();
    if tokens == 0 {
        return Err("tokenizer.ggml.tokens is empty".into());
    }
    // Ids are u32, and merges need names for what is not in the vocabulary.
    if tokens.saturating_add(3 * gguf.merges.len()) > i32::MAX as usize {
        return Err(format!("{tokens} tokens and {} merges are too many", gguf.merges.len()));
    }
    let lengths = [
        ("scores", gguf.scores.as_ref().map(Vec::len)),
        ("token_type", gguf.token_types.as_ref().map(Vec::len)),
    ];
    for (key, len) in lengths {
        if let Some(len) = len.filter(|&len| len != tokens) {
            return Err(format!("tokenizer.ggml.{key} has {len} entries, but there are {tokens} tokens"));
        }
    }
    Ok(())
}

fn vocabulary(gguf: &GgufVocabulary<'_>) -> Vocabulary {
    let types = gguf.token_types.iter().flatten().map(|&number| TokenType::from_number(number)).collect();
    let mut vocabulary = Vocabulary::new(gguf.tokens.iter().map(|text| Arc::from(&**text)), types);
    vocabulary.make_control(ENDS);
    vocabulary.make_control(CONTROLS);
    // Phi-3's special tokens take the whitespace after them; GGUF has no key for it, so its name has to do.
    let name = gguf.name.to_lowercase();
    if name.contains("phi-3") || name.contains("phi3") {
        vocabulary.strip_right_except(&["<unk>", "<s>", "<|endoftext|>"]);
    }
    vocabulary
}

type Built = Result<(Tokenizer, Adds), String>;

fn sentence_piece(gguf: &GgufVocabulary<'_>, vocabulary: Vocabulary) -> Built {
    let normalizer = Normalizer {
        charsmap: charsmap(gguf)?,
        remove_extra_spaces: gguf.remove_extra_spaces.unwrap_or(false),
        space_prefix: gguf.add_space_prefix.unwrap_or(true),
    };
    let decoder = Decoder::sentence_piece(normalizer.space_prefix);
    let unknown = gguf.unknown.or(Some(0)).filter(|&id| (id as usize) < vocabulary.len());
    let scores = gguf.scores.as_deref().unwrap_or_default();
    let model = SentencePiece::new(&vocabulary, scores, unknown, normalizer);
    let kind = format!("SentencePiece BPE, {} tokens", vocabulary.len());
    Ok((
        Tokenizer::new(Model::Own(Box::new(Encoder::SentencePiece(model)), vocabulary), decoder, kind),
        Adds { bos: true, eos: false },
    ))
}

fn unigram(gguf: &GgufVocabulary<'_>, vocabulary: Vocabulary) -> Built {
    let normalizer = Normalizer {
        charsmap: charsmap(gguf)?,
        remove_extra_spaces: gguf.remove_extra_spaces.unwrap_or(true),
        space_prefix: gguf.add_space_prefix.unwrap_or(true),
    };
    let decoder = Decoder::sentence_piece(normalizer.space_prefix);
    let unknown = gguf.unknown.unwrap_or(2);
    if unknown as usize >= vocabulary.len() {
        return Err(format!("the unknown token is {unknown}, but there are {} tokens", vocabulary.len()));
    }
    let scores = gguf.scores.as_deref().ok_or("a Unigram model needs tokenizer.ggml.scores")?;
    let model = Unigram::new(&vocabulary, scores, unknown, gguf.byte_fallback, normalizer);
    let kind = format!("SentencePiece Unigram, {} tokens", vocabulary.len());
    Ok((
        Tokenizer::new(Model::Own(Box::new(Encoder::Unigram(model)), vocabulary), decoder, kind),
        Adds { bos: false, eos: true },
    ))
}

fn word_piece(gguf: &GgufVocabulary<'_>, vocabulary: Vocabulary) -> Built {
    let unknown = gguf.unknown.unwrap_or(100);
    if unknown as usize >= vocabulary.len() {
        return Err(format!("the unknown token is {unknown}, but there are {} tokens", vocabulary.len()));
    }
    let kind = format!("WordPiece, {} tokens", vocabulary.len());
    let model = WordPiece::new(&vocabulary, unknown);
    Ok((
        Tokenizer::new(
            Model::Own(Box::new(Encoder::WordPiece(model)), vocabulary),
            Decoder::word_piece(),
            kind,
        ),
        Adds { bos: true, eos: true },
    ))
}

fn byte_level(gguf: &GgufVocabulary<'_>, vocabulary: Vocabulary, pre: &str) -> Built {
    let pre_tokenizer = PreTokenizer::named(pre).ok_or_else(|| {
        let names = PreTokenizer::names().collect::<Vec<_>>().join(", ");
        format!("tokenizer.ggml.pre \"{pre}\" is not supported; supported are {names}")
    })?;
    if gguf.merges.is_empty() {
        return Err(format!("tokenizer.ggml.model {} needs tokenizer.ggml.merges", gguf.model));
    }
    let adds = Adds { bos: pre_tokenizer.add_bos(), eos: false };
    let (decoder, symbols) = match pre_tokenizer.symbols() {
        Symbols::Bytes => (Decoder::byte_level(), "byte-level"),
        Symbols::Marked | Symbols::Unspaced => (Decoder::sentence_piece(false), "character"),
    };
    let model = ByteLevel::new(&vocabulary, gguf.merges.iter().map(|merge| &**merge), pre_tokenizer);
    let kind = format!(
        "{symbols} BPE ({}), {} tokens, {} merges",
        model.pre_tokenizer().name(),
        vocabulary.len(),
        model.num_merges()
    );
    Ok((Tokenizer::new(Model::Own(Box::new(Encoder::ByteLevel(model)), vocabulary), decoder, kind), adds))
}

fn charsmap(gguf: &GgufVocabulary<'_>) -> Result<Option<Charsmap>, String> {
    if gguf.charsmap.is_empty() { Ok(None) } else { Charsmap::read(&gguf.charsmap).map(Some) }
}

impl Tokenizer {
    /// Fills in BOS, EOS, and what goes around a text.
    fn add_ids(&mut self, gguf: &GgufVocabulary<'_>, adds: Adds) -> Result<(), String> {
        let len = self.vocab_size();
        let known = |id: Option<u32>| id.filter(|&id| (id as usize) < len);
        let (bos, eos) = match gguf.model {
            "llama" => (gguf.bos.or(Some(1)), gguf.eos.or(Some(2))),
            "t5" => (gguf.bos, gguf.eos.or(Some(1))),
            // CLS and SEP.
            "bert" => (gguf.cls.or(gguf.bos).or(Some(101)), gguf.separator.or(Some(102))),
            _ => (gguf.bos, gguf.eos),
        };
        let needed = |id: Option<u32>, what: &str| match id {
            Some(id) if (id as usize) < len => Ok(id),
            Some(id) => {
                Err(format!("{what} goes around every text, but its id is {id} and there are {len} tokens"))
            }
            None => Err(format!("{what} goes around every text, but the file gives it no id")),
        };
        let own = matches!(self.model, Model::Own(..));
        // Many files of Gemma 4 deny its BOS, which llama.cpp adds all the same.
        if own && (gguf.add_bos.unwrap_or(adds.bos) || gguf.model == "gemma4") {
            self.before.push(needed(bos, "BOS")?);
        }
        if own && gguf.add_eos.unwrap_or(adds.eos) {
            self.after.push(needed(eos, "EOS")?);
        }
        (self.bos, self.eos) = (known(bos), known(eos));
        let named = [
            ("unk_token", gguf.unknown),
            ("cls_token", gguf.cls),
            ("sep_token", gguf.separator),
            ("pad_token", gguf.padding),
            ("mask_token", gguf.mask),
        ];
        for (name, id) in named {
            let token = id.and_then(|id| self.token(id)).map(|token| token.into_owned());
            self.special_tokens.extend(token.map(|token| (name.to_owned(), token)));
        }
        self.eos_ids.extend([eos, gguf.eot, gguf.eom].into_iter().filter_map(known));
        let ends: Vec<u32> = ENDS.iter().filter_map(|text| self.id(text)).collect();
        self.eos_ids.extend(ends);
        self.drop_false_ends();
        Ok(())
    }

    /// Some formats end parts of an answer with a token that ends the answer elsewhere.
    fn drop_false_ends(&mut self) {
        let has = |text: &str| self.id(text).is_some();
        let mut false_ends = Vec::new();
        if has("<|return|>") && has("<|call|>") || has("<|calls|>") && has("<|flush|>") {
            false_ends.extend(self.id("<|end|>"));
        }
        if has("<|tool_response>") {
            false_ends.extend(self.id("</s>"));
        }
        self.eos_ids.retain(|id| !false_ends.contains(id));
    }
}
