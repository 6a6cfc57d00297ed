//! The `model` of a `tokenizer.json`: how a word becomes tokens.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::byte_level::char_of_byte;
use super::super::merge::{Join, Merger};
use super::super::prefixes::Prefixes;
use super::super::viterbi::Scored;
use super::file::{self, Vocab};

/// Tokens by id and by text.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    texts: Vec<Option<Arc<str>>>,
    ids: HashMap<Arc<str>, u32, ahash::RandomState>,
}

/// A token of a word, and the bytes of the word that it stands for.
pub(super) type Found = (u32, Range<usize>);

#[derive(Debug)]
pub(super) enum Model {
    Bpe(Bpe),
    Unigram(Unigram),
    WordPiece(WordPiece),
    Ranks(Ranks),
    WordLevel { unknown: Option<u32> },
}

/// Characters join pair by pair, the best merge first.
#[derive(Debug)]
pub(super) struct Bpe {
    /// `left << 32 | right` to the joined token and its rank.
    joins: HashMap<u64, Join, ahash::RandomState>,
    /// Replaces characters without a token; if there is none, they are left out.
    unknown: Option<Unknown>,
    fuse_unknown: bool,
    byte_tokens: Option<[Option<u32>; 256]>,
    /// A word that is a token is that token, whatever the merges would make of it.
    whole_words: bool,
    /// In front of all characters but a word's first.
    prefix: String,
    /// Behind a word's last character.
    suffix: String,
    /// The tokens of the characters that stand for bytes, if all of them have one.
    byte_symbols: Option<Box<[u32; 256]>>,
}

/// Bytes join to those that are a token, the lowest id first.
#[derive(Debug)]
pub(super) struct Ranks {
    ids: HashMap<Vec<u8>, u32, ahash::RandomState>,
    /// Bytes of the longest token.
    longest: usize,
}

/// The token for what has none: its id, if the vocabulary has it.
#[derive(Debug)]
struct Unknown {
    text: String,
    id: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Unigram {
    scored: Scored,
    unknown: Option<u32>,
    byte_tokens: Option<[Option<u32>; 256]>,
}

/// The longest token that a word begins with, then the longest that what is left begins with, and so on.
#[derive(Debug)]
pub(super) struct WordPiece {
    starts: Prefixes,
    /// Without the prefix that marks them.
    others: Prefixes,
    unknown: Unknown,
    most_characters: usize,
}

impl Tokens {
    /// Of equal texts, the last id counts.
    pub(super) fn new<'a>(entries: impl ExactSizeIterator<Item = (&'a str, u32)>) -> Result<Tokens, String> {
        /// Ids that a file may leave out.
        const HOLES: usize = 1 << 16;
        let most = entries.len().saturating_mul(4).saturating_add(HOLES);
        let mut tokens = Tokens {
            texts: Vec::with_capacity(entries.len()),
            ids: HashMap::with_capacity_and_hasher(entries.len(), ahash::RandomState::new()),
        };
        for (text, id) in entries {
            if id as usize >= most {
                return Err(format!(
                    "the token {text:?} has the id {id}, more than the {most} that are read"
                ));
            }
            tokens.add(text, id);
        }
        Ok(tokens)
    }

    /// Adds a token, or gives one another id.
    pub(super) fn add(&mut self, text: &str, id: u32) {
        let text: Arc<str> = text.into();
        if self.texts.len() <= id as usize {
            self.texts.resize(id as usize + 1, None);
        }
        self.texts[id as usize] = Some(Arc::clone(&text));
        self.ids.insert(text, id);
    }

    /// The texts that have ids.
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    /// One more than the highest id.
    pub(super) fn end(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)?.as_deref()
    }

    /// The ids of `<0x00>` to `<0xFF>`.
    fn bytes(&self) -> [Option<u32>; 256] {
        std::array::from_fn(|byte| self.id(&format!("<0x{byte:02X}>")))
    }

    fn unknown(&self, text: String) -> Unknown {
        Unknown { id: self.id(&text), text }
    }

    fn prefixes(&self, prefix: &str) -> Prefixes {
        let rest = |(text, &id): (&Arc<str>, &u32)| {
            let rest = text.strip_prefix(prefix)?;
            Some((if prefix.is_empty() { Arc::clone(text) } else { rest.into() }, id))
        };
        Prefixes::new(self.ids.iter().filter_map(rest))
    }
}

impl Unknown {
    fn id(&self) -> Result<u32, String> {
        self.id.ok_or_else(|| format!("the unknown token {:?} is not in the vocabulary", self.text))
    }
}

/// Builds a model and its tokens; its name is for people.
pub(super) fn read(file: file::Model<'_>) -> Result<(Model, Tokens, &'static str), String> {
    let kind = file.kind();
    let ids = |vocab: &Vocab<'_>| match vocab {
        Vocab::Ids(ids) => Tokens::new(ids.iter().map(|(text, id)| (&*text.0, *id))),
        Vocab::Scores(_) => Err(format!("the vocabulary of a {kind} model is a list, not tokens with ids")),
    };
    match kind {
        "BPE" => {
            let tokens = ids(&file.vocab)?;
            Ok((Model::Bpe(Bpe::new(&tokens, &file)?), tokens, "BPE"))
        }
        "WordPiece" => {
            let tokens = ids(&file.vocab)?;
            Ok((Model::WordPiece(WordPiece::new(&tokens, file)), tokens, "WordPiece"))
        }
        "WordLevel" => {
            let tokens = ids(&file.vocab)?;
            let unknown = file.unk_token.unwrap_or_else(|| "<unk>".into());
            Ok((Model::WordLevel { unknown: tokens.id(&unknown) }, tokens, "WordLevel"))
        }
        "Unigram" => {
            let Vocab::Scores(scores) = &file.vocab else {
                return Err("the vocabulary of a Unigram model has ids, not scores".into());
            };
            if u32::try_from(scores.len()).is_err() {
                return Err(format!("{} tokens are too many", scores.len()));
            }
            let texts = scores.iter().enumerate();
            let tokens = Tokens::new(texts.map(|(id, (text, _))| (&*text.0, id as u32)))?;
            let scores = scores.iter().map(|&(_, score)| score).collect();
            let bytes = file.byte_fallback.unwrap_or(false);
            Ok((Model::Unigram(Unigram::new(&tokens, scores, file.unk_id, bytes)?), tokens, "Unigram"))
        }
        other => Err(format!(
            "model {other:?} is not supported; supported are BPE, Unigram, WordPiece and WordLevel"
        )),
    }
}

impl Model {
    /// Whether words can come as bytes, for which characters would stand.
    pub(super) fn takes_bytes(&self) -> bool {
        matches!(self, Model::Bpe(bpe) if bpe.byte_symbols.is_some())
    }

    /// Appends the tokens of a word that is not empty; `bytes` says that it is as it was before its bytes became characters.
    pub(super) fn encode(
        &self,
        tokens: &Tokens,
        word: &str,
        bytes: bool,
        found: &mut Vec<Found>,
    ) -> Result<(), String> {
        match self {
            Model::Bpe(bpe) if bytes => {
                bpe.encode_bytes(tokens, word, found);
                Ok(())
            }
            Model::Bpe(bpe) => bpe.encode(tokens, word, found),
            Model::Unigram(unigram) => unigram.encode(tokens, word, found),
            Model::WordPiece(pieces) => pieces.encode(word, found),
            Model::Ranks(ranks) => ranks.encode(word.as_bytes(), found),
            Model::WordLevel { unknown } => {
                let id = tokens.id(word).or(*unknown);
                let id = id.ok_or_else(|| format!("{word:?} has no token, and there is no unknown one"))?;
                found.push((id, 0..word.len()));
                Ok(())
            }
        }
    }
}

thread_local! {
    /// Buffers for words, kept from one to the next.
    static MERGER: RefCell<Merger> = RefCell::default();
}

impl Bpe {
    fn new(tokens: &Tokens, file: &file::Model<'_>) -> Result<Bpe, String> {
        if let Some(dropout) = file.dropout.filter(|&dropout| dropout != 0.0) {
            return Err(format!("dropout {dropout} would make ids random: set it to null in the file"));
        }
        let prefix = file.continuing_subword_prefix.clone().unwrap_or_default();
        let merges = file.merges.as_ref().ok_or("a BPE model needs merges")?;
        let mut joins = HashMap::with_capacity_and_hasher(merges.len(), ahash::RandomState::new());
        let mut joined = String::new();
        for (rank, pair) in file.pairs().enumerate() {
            let pair @ (left, right) = pair?;
            let known = |text: &str| {
                tokens
                    .id(text)
                    .ok_or_else(|| format!("the merge of {pair:?} names {text:?}, which is no token"))
            };
            let rest = right.strip_prefix(prefix.as_str());
            let rest = rest.ok_or_else(|| format!("the merge of {pair:?} lacks the prefix {prefix:?}"))?;
            joined.clear();
            joined.push_str(left);
            joined.push_str(rest);
            let pair = pair_key(known(left)?, known(right)?);
            joins.insert(pair, Join { order: rank as u32, id: known(&joined)? });
        }
        let suffix = file.end_of_word_suffix.clone().unwrap_or_default();
        let symbols = (0..=255).map(|byte| tokens.id(char_of_byte(byte).encode_utf8(&mut [0; 4])));
        let symbols: Option<Vec<u32>> = symbols.collect();
        let byte_symbols = symbols.filter(|_| prefix.is_empty() && suffix.is_empty());
        Ok(Bpe {
            joins,
            unknown: file.unk_token.clone().map(|text| tokens.unknown(text)),
            fuse_unknown: file.fuse_unk.unwrap_or(false),
            byte_tokens: file.byte_fallback.unwrap_or(false).then(|| tokens.bytes()),
            whole_words: file.ignore_merges.unwrap_or(false),
            byte_symbols: byte_symbols.and_then(|symbols| symbols.into_boxed_slice().try_into().ok()),
            prefix,
            suffix,
        })
    }

    /// As [`Bpe::encode`] of the characters that stand for the bytes of `word`.
    fn encode_bytes(&self, tokens: &Tokens, word: &str, found: &mut Vec<Found>) {
        let Some(symbols) = &self.byte_symbols else { return };
        if self.whole_words {
            let characters: String = word.bytes().map(char_of_byte).collect();
            if let Some(id) = tokens.id(&characters) {
                return found.push((id, 0..word.len()));
            }
        }
        self.merge(word.bytes().map(|byte| (symbols[usize::from(byte)], 1)), found);
    }

    fn encode(&self, tokens: &Tokens, word: &str, found: &mut Vec<Found>) -> Result<(), String> {
        if let Some(id) = tokens.id(word).filter(|_| self.whole_words) {
            found.push((id, 0..word.len()));
            return Ok(());
        }
        let mut symbols: Vec<(u32, usize)> = Vec::with_capacity(word.len());
        // Characters without a token, still to be added: their token, and how many bytes they are.
        let mut unknown: Option<(u32, usize)> = None;
        let mut marked = String::new();
        for (start, c) in word.char_indices() {
            let end = start + c.len_utf8();
            let mut text = &word[start..end];
            let (prefix, suffix) =
                (start > 0 && !self.prefix.is_empty(), end == word.len() && !self.suffix.is_empty());
            if prefix || suffix {
                marked.clear();
                marked.push_str(if prefix { &self.prefix } else { "" });
                marked.push(c);
                marked.push_str(if suffix { &self.suffix } else { "" });
                text = &marked;
            }
            if let Some(id) = tokens.id(text) {
                symbols.extend(unknown.take());
                symbols.push((id, c.len_utf8()));
                continue;
            }
            let bytes = self.byte_tokens.as_ref();
            let bytes = bytes
                .and_then(|ids| text.bytes().map(|byte| ids[usize::from(byte)]).collect::<Option<Vec<_>>>());
            if let Some(bytes) = bytes {
                symbols.extend(bytes.into_iter().map(|id| (id, 1)));
                continue;
            }
            let Some(token) = &self.unknown else { continue };
            match &mut unknown {
                Some((_, length)) if self.fuse_unknown => *length += c.len_utf8(),
                _ => symbols.extend(unknown.replace((token.id()?, c.len_utf8()))),
            }
        }
        symbols.extend(unknown);
        self.merge(symbols.into_iter(), found);
        Ok(())
    }

    /// Joins symbols, which come with their lengths in bytes.
    fn merge(&self, symbols: impl Iterator<Item = (u32, usize)>, found: &mut Vec<Found>) {
        MERGER.with_borrow_mut(|merger| {
            merger.clear();
            symbols.for_each(|(id, length)| merger.push(length as u32, id));
            let joined = merger.run(|left, right| self.joins.get(&pair_key(left.id, right.id)).copied());
            let place = |start: u32, length: u32| start as usize..(start + length) as usize;
            found.extend(joined.map(|symbol| (symbol.id, place(symbol.start, symbol.len))));
        });
    }
}

fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Unigram {
    fn new(
        tokens: &Tokens,
        scores: Vec<f64>,
        unknown: Option<usize>,
        bytes: bool,
    ) -> Result<Unigram, String> {
        if let Some(unknown) = unknown.filter(|&unknown| unknown >= scores.len()) {
            return Err(format!("unk_id is {unknown}, but there are {} tokens", scores.len()));
        }
        let lowest = scores.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Unigram {
            scored: Scored::new(tokens.prefixes(""), scores, lowest),
            unknown: unknown.map(|unknown| unknown as u32),
            byte_tokens: bytes.then(|| tokens.bytes()),
        })
    }

    /// Neighboring characters without tokens are one token, or the tokens of their bytes.
    fn encode(&self, tokens: &Tokens, word: &str, found: &mut Vec<Found>) -> Result<(), String> {
        let mut stranger: Option<Range<usize>> = None;
        for cut in self.scored.cut(word) {
            match cut.id.filter(|&id| Some(id) != self.unknown) {
                None => stranger = Some(stranger.map_or(cut.range.start, |range| range.start)..cut.range.end),
                Some(id) => {
                    if let Some(range) = stranger.take() {
                        self.encode_stranger(tokens, word, range, found)?;
                    }
                    found.push((id, cut.range));
                }
            }
        }
        stranger.map_or(Ok(()), |range| self.encode_stranger(tokens, word, range, found))
    }

    fn encode_stranger(
        &self,
        tokens: &Tokens,
        word: &str,
        range: Range<usize>,
        found: &mut Vec<Found>,
    ) -> Result<(), String> {
        let text = &word[range.clone()];
        let unknown = || self.unknown.ok_or_else(|| format!("{text:?} has no token, and unk_id is missing"));
        // Without an unknown token the library refuses such a text even if its bytes have tokens.
        let unknown = unknown()?;
        let bytes = || self.byte_tokens.as_ref().map(|ids| text.bytes().map(|byte| ids[usize::from(byte)]));
        match tokens.id(text) {
            Some(id) => found.push((id, range)),
            None => match bytes().and_then(Iterator::collect::<Option<Vec<_>>>) {
                Some(bytes) => found.extend(bytes.into_iter().map(|id| (id, range.clone()))),
                None => found.push((unknown, range)),
            },
        }
        Ok(())
    }
}

impl Ranks {
    /// All bytes must be tokens.
    pub(super) fn new(ids: HashMap<Vec<u8>, u32, ahash::RandomState>) -> Ranks {
        let longest = ids.keys().map(Vec::len).max().unwrap_or(0);
        Ranks { ids, longest }
    }

    fn id(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > self.longest { None } else { self.ids.get(bytes).copied() }
    }

    /// A word that is a token is that token; others are joined from their bytes.
    fn encode(&self, word: &[u8], found: &mut Vec<Found>) -> Result<(), String> {
        if let Some(id) = self.id(word) {
            found.push((id, 0..word.len()));
            return Ok(());
        }
        MERGER.with_borrow_mut(|merger| {
            merger.clear();
            for byte in word {
                let id = self.id(std::slice::from_ref(byte));
                merger.push(1, id.ok_or_else(|| format!("the byte 0x{byte:02X} has no token"))?);
            }
            let joined = merger.run(|left, right| {
                let id = self.id(&word[left.start as usize..(right.start + right.len) as usize])?;
                Some(Join { order: id, id })
            });
            let place = |start: u32, length: u32| start as usize..(start + length) as usize;
            found.extend(joined.map(|symbol| (symbol.id, place(symbol.start, symbol.len))));
            Ok(())
        })
    }
}

impl WordPiece {
    fn new(tokens: &Tokens, file: file::Model<'_>) -> WordPiece {
        let prefix = file.continuing_subword_prefix.unwrap_or_else(|| "##".into());
        WordPiece {
            starts: tokens.prefixes(""),
            others: tokens.prefixes(&prefix),
            unknown: tokens.unknown(file.unk_token.unwrap_or_else(|| "[UNK]".into())),
            most_characters: file.max_input_chars_per_word.unwrap_or(100),
        }
    }

    /// All pieces of a word, or one unknown token if they are not all there.
    fn encode(&self, word: &str, found: &mut Vec<Found>) -> Result<(), String> {
        let (before, mut start) = (found.len(), 0);
        let too_long = word.chars().nth(self.most_characters).is_some();
        while start < word.len() {
            let pieces = if start == 0 { &self.starts } else { &self.others };
            let Some((length, id)) = pieces.longest(&word.as_bytes()[start..]).filter(|_| !too_long) else {
                found.truncate(before);
                found.push((self.unknown.id()?, 0..word.len()));
                return Ok(());
            };
            found.push((id, start..start + length));
            start += length;
        }
        Ok(())
    }
}
