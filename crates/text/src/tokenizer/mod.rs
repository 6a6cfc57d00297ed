//! Text to token ids and back.
//!
//! A tokenizer comes from GGUF metadata, or from files of a model's folder: `tokenizer.json`, SentencePiece's
//! `tokenizer.model`, tiktoken's files, `tekken.json`, or lists of tokens. Ids are those of llama.cpp, `tokenizers`,
//! SentencePiece, `tiktoken`, `mistral-common` and `transformers` respectively; of added tokens, those of `transformers`.

mod added_token;
mod base64;
mod byte_level;
mod char_class;
mod companions;
mod decoder;
mod files;
mod gguf;
mod hugging_face;
mod json;
mod lists;
mod merge;
mod normalizer;
mod pair;
mod pattern;
mod pieces;
mod pre_tokenizer;
mod prefixes;
mod sentencepiece;
mod sentencepiece_model;
mod tiktoken;
mod to_gguf;
mod unigram;
mod viterbi;
mod vocabulary;
mod word_piece;

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use added_token::AddedToken;
use byte_level::ByteLevel;
use companions::Companions;
use decoder::Decoder;
pub(crate) use decoder::DecoderState;
use files::TokenizerFiles;
pub use files::{COMPANION_FILES, FILES};
pub use gguf::GgufVocabulary;
use hugging_face::{Added, HuggingFace};
use pair::PairPart;
pub use pair::PairTokens;
pub use pieces::Piece;
use sentencepiece::SentencePiece;
use unigram::Unigram;
use vocabulary::{Fragment, Vocabulary};
use word_piece::WordPiece;

use crate::Error;

/// Whether the tokens that a model wants around a text (BOS, EOS, CLS) are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSpecial {
    /// As the model's own files say.
    Yes,
    /// Only what stands in the text.
    No,
}

/// Whether `<|im_end|>` in a text is the special token of that name, or ten characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseSpecial {
    /// The token: for chat templates.
    Yes,
    /// Characters: for text from strangers.
    No,
}

/// Whether decoding leaves special tokens out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipSpecial {
    /// They are no text.
    Yes,
    /// They are written as they are named.
    No,
}

/// Text to token ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    model: Model,
    /// The tokens that files next to a SentencePiece model add to it.
    added: Added,
    /// Whether SentencePiece puts a space in front of texts after special tokens, as in front of the first one.
    spaces_after_tokens: bool,
    decoder: Decoder,
    bos: Option<u32>,
    eos: Option<u32>,
    eos_ids: BTreeSet<u32>,
    /// The tokens that the files name, by variables of chat templates.
    special_tokens: BTreeMap<String, String>,
    /// What `AddSpecial::Yes` puts in front of a text.
    before: Vec<u32>,
    /// What it puts behind.
    after: Vec<u32>,
    /// How a `tokenizer.json` joins two texts.
    pair_template: Option<Vec<PairPart>>,
    kind: String,
}

#[derive(Debug)]
enum Model {
    Own(Box<Encoder>, Vocabulary),
    HuggingFace(Box<HuggingFace>),
}

#[derive(Debug)]
enum Encoder {
    SentencePiece(SentencePiece),
    Unigram(Unigram),
    ByteLevel(ByteLevel),
    WordPiece(WordPiece),
}

impl Encoder {
    /// Appends the ids of a part of a text; `at_start` says that it begins one.
    fn encode(
        &self,
        vocabulary: &Vocabulary,
        part: &Fragment<'_>,
        at_start: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), Error> {
        match (part, self) {
            (Fragment::Token(id), _) => ids.push(*id),
            (Fragment::Text(text), Encoder::SentencePiece(encoder)) => {
                encoder.encode(vocabulary, text, at_start, ids)?;
            }
            (Fragment::Text(text), Encoder::Unigram(encoder)) => encoder.encode(text, ids),
            (Fragment::Text(text), Encoder::ByteLevel(encoder)) => encoder.encode(vocabulary, text, ids),
            (Fragment::Text(text), Encoder::WordPiece(encoder)) => encoder.encode(vocabulary, text, ids),
        }
        Ok(())
    }
}

/// Longer texts than this many bytes are refused: places in a text are 32-bit numbers.
const MAX_TEXT: usize = 1 << 30;

impl Tokenizer {
    /// From a folder, a GGUF file, or one of the files of [`Tokenizer::from_file`].
    ///
    /// # Errors
    /// As the function for each of these.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        if path.is_dir() {
            return Self::from_directory(path);
        }
        let mut start = [0; 4];
        // Not of a named pipe, which to open is to wait for.
        let is_gguf = path.is_file()
            && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
            && start == *b"GGUF";
        match is_gguf {
            true => Self::from_gguf(weights::Weights::open(path)?.metadata()),
            false => Self::from_file(path),
        }
    }

    /// From one of the [`FILES`], with the configuration files next to it.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a tokenizer that we support.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        TokenizerFiles::open(path.as_ref())?.tokenizer()
    }

    /// From a model's folder: the first of the [`FILES`] that it has.
    ///
    /// # Errors
    /// When the folder has none of these, or as [`Tokenizer::from_file`].
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Self, Error> {
        TokenizerFiles::in_folder(directory.as_ref())?.tokenizer()
    }

    /// From the content of a `tokenizer.json` that a model's folder lacks, with the configuration files of that folder.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file`].
    pub fn from_json(json: Vec<u8>, directory: impl AsRef<Path>) -> Result<Self, Error> {
        TokenizerFiles::from_json(json, directory.as_ref())?.tokenizer()
    }

    /// From the metadata of a GGUF file.
    ///
    /// # Errors
    /// When the metadata has no tokenizer, it contradicts itself, or it is of a kind that we do not support.
    pub fn from_gguf(metadata: &weights::Metadata) -> Result<Self, Error> {
        Self::from_gguf_vocabulary(&GgufVocabulary::read(metadata)?)
    }

    /// From what GGUF metadata says.
    ///
    /// # Errors
    /// When the vocabulary contradicts itself, or is of a kind that we do not support.
    pub fn from_gguf_vocabulary(vocabulary: &GgufVocabulary<'_>) -> Result<Self, Error> {
        gguf::build(vocabulary, "GGUF metadata")
    }

    fn new(model: Model, decoder: Decoder, kind: String) -> Self {
        let (before, after, eos_ids) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (added, spaces_after_tokens) = (Added::default(), true);
        Self {
            model,
            added,
            spaces_after_tokens,
            decoder,
            bos: None,
            eos: None,
            eos_ids,
            special_tokens: BTreeMap::new(),
            before,
            after,
            pair_template: None,
            kind,
        }
    }

    /// The ids of `text`.
    ///
    /// # Errors
    /// When the text has a character that the vocabulary has no token for, not even an unknown one, or is longer
    /// than 1 GiB.
    pub fn encode(&self, text: &str, add: AddSpecial, parse: ParseSpecial) -> Result<Vec<u32>, Error> {
        if text.len() > MAX_TEXT {
            return Err(Error::Encode(format!("the text has {} bytes, more than {MAX_TEXT}", text.len())));
        }
        let mut ids = if add == AddSpecial::Yes { self.before.clone() } else { Vec::new() };
        match &self.model {
            Model::Own(encoder, vocabulary) => {
                let (parse, mut at_start) = (parse == ParseSpecial::Yes, true);
                for (id, range) in self.added.cut(text, parse) {
                    let fragments = match id {
                        Some(id) => vec![Fragment::Token(id)],
                        None => vocabulary.cut(&text[range], parse),
                    };
                    for fragment in fragments {
                        encoder.encode(vocabulary, &fragment, at_start, &mut ids)?;
                        at_start = self.spaces_after_tokens && matches!(fragment, Fragment::Token(_));
                    }
                }
            }
            Model::HuggingFace(model) => model.encode(text, parse, &mut ids)?,
        }
        if add == AddSpecial::Yes {
            ids.extend(&self.after);
        }
        Ok(ids)
    }

    /// The text of `ids`. Bytes that are no UTF-8, and ids beyond the vocabulary, become U+FFFD.
    pub fn decode(&self, ids: &[u32], skip: SkipSpecial) -> String {
        let (mut state, mut text) = (DecoderState::default(), Vec::new());
        ids.iter().for_each(|&id| self.append_text(id, skip, &mut state, &mut text));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Appends the bytes that `id` adds to a text.
    pub(crate) fn append_text(
        &self,
        id: u32,
        skip: SkipSpecial,
        state: &mut DecoderState,
        text: &mut Vec<u8>,
    ) {
        let Some(token) = self.token(id) else {
            return text.extend("\u{FFFD}".as_bytes());
        };
        let special = self.is_special(id);
        if !(special && skip == SkipSpecial::Yes) {
            self.decoder.append(&token, self.is_literal(id), state, text);
        }
    }

    /// The bytes of a token inside a text; of a special token, its name's. `None` if they depend on the token before it.
    pub(crate) fn bytes_inside(&self, id: u32) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.append_text(id, SkipSpecial::No, &mut DecoderState::inside(), &mut bytes);
        (!self.decoder.looks_back()).then_some(bytes)
    }

    /// One more than the highest id. A model's logits may be longer, padded for speed; never shorter.
    pub fn vocab_size(&self) -> usize {
        match &self.model {
            Model::Own(_, vocabulary) => vocabulary.len(),
            Model::HuggingFace(model) => model.vocab_size(),
        }
    }

    /// A token as the vocabulary writes it, with marks for spaces and bytes.
    pub fn token(&self, id: u32) -> Option<Cow<'_, str>> {
        match &self.model {
            Model::Own(_, vocabulary) => vocabulary.text(id).map(Cow::Borrowed),
            Model::HuggingFace(model) => model.token(id),
        }
    }

    /// The id of a token as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<u32> {
        match &self.model {
            Model::Own(_, vocabulary) => vocabulary.id(token),
            Model::HuggingFace(model) => model.id(token),
        }
    }

    /// Whether an id is a token that is no text, such as BOS.
    pub fn is_special(&self, id: u32) -> bool {
        match &self.model {
            Model::Own(_, vocabulary) => vocabulary.token_type(id).is_some_and(|kind| kind.is_special()),
            Model::HuggingFace(model) => model.is_special(id),
        }
    }

    /// The token that begins a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, as chat templates write it, if the model has one.
    pub fn eos(&self) -> Option<u32> {
        self.eos.or_else(|| self.eos_ids.first().copied())
    }

    /// The tokens that end a generation.
    pub fn eos_ids(&self) -> &BTreeSet<u32> {
        &self.eos_ids
    }

    /// The special tokens that the model's files name, by their names as variables of chat templates: `unk_token`,
    /// `pad_token`, `image_token`.
    pub fn special_tokens(&self) -> &BTreeMap<String, String> {
        &self.special_tokens
    }

    /// The most bytes of a text that one token stands for, if there is such a bound: some tokenizers leave characters out, or
    /// have one token for any number of them.
    pub fn max_token_bytes(&self) -> Option<usize> {
        let factor = match &self.model {
            Model::Own(encoder, _) => match &**encoder {
                Encoder::SentencePiece(encoder) => encoder.keeps_all().then_some(1),
                Encoder::ByteLevel(encoder) => encoder.keeps_all().then_some(1),
                Encoder::Unigram(_) | Encoder::WordPiece(_) => None,
            },
            Model::HuggingFace(model) => model.shrinkage(),
        }?;
        let ids = 0..self.vocab_size() as u32;
        ids.filter_map(|id| self.token(id)).map(|token| token.len()).max().map(|bytes| bytes * factor)
    }

    /// What this is, for people: `byte-level BPE (gpt-2), 50257 tokens, 50000 merges`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Tokens that are text as they stand, with no marks in them. (A `tokenizer.json` makes no such difference.)
    fn is_literal(&self, id: u32) -> bool {
        use vocabulary::TokenType::{Control, Unknown, UserDefined};
        match &self.model {
            Model::Own(_, vocabulary) => {
                matches!(vocabulary.token_type(id), Some(Control | Unknown | UserDefined))
            }
            Model::HuggingFace(_) => false,
        }
    }

    /// Adds tokens to a SentencePiece model. `legacy` says that each text between special tokens begins with a space.
    fn add_tokens(&mut self, list: Vec<AddedToken>, legacy: bool) -> Result<(), String> {
        let Model::Own(_, vocabulary) = &mut self.model else { return Ok(()) };
        let size = vocabulary.len();
        // Nothing is normalized before these tokens are cut out.
        let list = list.into_iter().map(|token| AddedToken { normalized: false, ..token }).collect();
        self.added = Added::new(list, size, &[], |token, next| vocabulary.add(token, next))?;
        vocabulary.list_cut_tokens(|id| self.added.token(id).is_some());
        self.spaces_after_tokens = legacy;
        if vocabulary.len() > size {
            self.kind += &format!(", {} of them added", vocabulary.len() - size);
        }
        Ok(())
    }

    /// Takes over what the files next to the tokenizer say. `adds` says that they decide what goes around a text.
    fn heed(&mut self, companions: &Companions, adds: bool) {
        self.bos = companions.bos(self).or(self.bos);
        self.eos = companions.eos(self).or(self.eos);
        self.eos_ids.extend(companions.eos_ids(self));
        self.special_tokens.extend(companions.special_tokens());
        if adds {
            let eos = self.eos();
            let given =
                [("add_bos_token", self.bos, &mut self.before), ("add_eos_token", eos, &mut self.after)];
            for (key, id, around) in given {
                match companions.adds(key) {
                    Some(true) if around.is_empty() => around.extend(id),
                    Some(false) => around.clear(),
                    _ => {}
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    weights::read_file(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
