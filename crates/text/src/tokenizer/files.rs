//! The files that a tokenizer of a model's folder is made of, by their kind.

use std::path::{Path, PathBuf};

use super::companions::Companions;
use super::hugging_face::{self, TokenizerJson};
use super::sentencepiece_model::{self, SentencePieceFile};
use super::tiktoken::{self, RankedVocabulary};
use super::{Tokenizer, lists, read};
use crate::Error;

/// The files that may hold a tokenizer, in the order of preference. (Other names that end in `.tiktoken` are known, too.)
pub const FILES: [&str; 9] = [
    "tokenizer.json",
    "tekken.json",
    "tokenizer.model",
    "spiece.model",
    "tiktoken.model",
    "qwen.tiktoken",
    "hy.tiktoken",
    "vocab.json",
    "vocab.txt",
];
/// The files next to it: the merges of `vocab.json`, the tokens that were added, and those that begin and end a text.
pub const COMPANION_FILES: [&str; 6] = [
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "generation_config.json",
    "config.json",
];

/// A tokenizer's file and those next to it, read.
pub(super) struct TokenizerFiles {
    path: PathBuf,
    bytes: Vec<u8>,
    /// `merges.txt`, of a `vocab.json`.
    merges: String,
    kind: Kind,
    companions: Companions,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    HuggingFace,
    Tekken,
    Tiktoken,
    SentencePiece,
    /// `vocab.json` and `merges.txt`.
    Lists,
    /// `vocab.txt`.
    Words,
}

/// The contents of the files.
pub(super) enum Contents<'f> {
    /// A `tokenizer.json`, or lists that say the same.
    HuggingFace(Box<TokenizerJson<'f>>),
    Ranked(RankedVocabulary),
    SentencePiece(SentencePieceFile),
}

impl<'f> From<TokenizerJson<'f>> for Contents<'f> {
    fn from(file: TokenizerJson<'f>) -> Self {
        Contents::HuggingFace(Box::new(file))
    }
}

impl TokenizerFiles {
    /// Reads a file and those next to it.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub(super) fn open(path: &Path) -> Result<TokenizerFiles, Error> {
        let bytes = read(path)?;
        let companions = Companions::beside(path)?;
        if bytes.is_empty() {
            return Err(Error::tokenizer(path.display(), "the file is empty"));
        }
        let kind = Kind::for_file(path, &bytes);
        let mut merges = String::new();
        if kind == Kind::Lists {
            let path = path.with_file_name("merges.txt");
            merges =
                String::from_utf8(read(&path)?).map_err(|error| Error::tokenizer(path.display(), error))?;
        }
        Ok(TokenizerFiles { path: path.to_owned(), bytes, merges, kind, companions })
    }

    /// A `tokenizer.json` that is in memory, with the configuration files of a folder.
    ///
    /// # Errors
    /// If one of these cannot be read.
    pub(super) fn from_json(json: Vec<u8>, directory: &Path) -> Result<TokenizerFiles, Error> {
        let path = directory.join("tokenizer.json");
        let companions = Companions::beside(&path)?;
        Ok(TokenizerFiles { path, bytes: json, merges: String::new(), kind: Kind::HuggingFace, companions })
    }

    /// Reads the tokenizer of a folder.
    ///
    /// # Errors
    /// If the folder has none, or as [`TokenizerFiles::open`].
    pub(super) fn in_folder(directory: &Path) -> Result<TokenizerFiles, Error> {
        let named = FILES.iter().map(|name| directory.join(name)).find(|path| path.is_file());
        match named.or_else(|| tiktoken_file(directory)) {
            Some(path) => TokenizerFiles::open(&path),
            None => Err(Error::tokenizer(
                directory.display(),
                format!("the folder has none of {}", FILES.join(", ")),
            )),
        }
    }

    /// What the files contain.
    ///
    /// # Errors
    /// If they are damaged, or not of their kind.
    pub(super) fn contents(&mut self) -> Result<Contents<'_>, Error> {
        let TokenizerFiles { path, bytes, merges, kind, companions } = self;
        let (bytes, merges): (&[u8], &str) = (bytes, merges);
        let contents = match kind {
            Kind::HuggingFace => with_added_tokens(bytes, companions).map(Contents::from),
            Kind::Lists => lists::merged(bytes, merges, companions).map(Contents::from),
            Kind::Words => lists::words(bytes, companions).map(Contents::from),
            Kind::Tekken => tiktoken::read_tekken(bytes, companions).map(Contents::Ranked),
            Kind::Tiktoken => tiktoken::read(bytes, path, companions).map(Contents::Ranked),
            Kind::SentencePiece => SentencePieceFile::decode(bytes).map(Contents::SentencePiece),
        };
        contents.map_err(|problem| Error::tokenizer(path.display(), problem))
    }

    /// Builds the tokenizer.
    ///
    /// # Errors
    /// As [`TokenizerFiles::contents`], and if the tokenizer is of a kind that is not supported.
    pub(super) fn tokenizer(mut self) -> Result<Tokenizer, Error> {
        let origin = self.path.display().to_string();
        let fail = |problem: String| Error::tokenizer(&origin, problem);
        let mut tokenizer = match self.contents()? {
            Contents::HuggingFace(file) => hugging_face::build(*file).map_err(fail)?,
            Contents::Ranked(vocabulary) => hugging_face::from_ranks(vocabulary).map_err(fail)?,
            Contents::SentencePiece(file) => sentencepiece_model::build(&file, &origin)?,
        };
        if self.kind == Kind::SentencePiece {
            let added = self.companions.added_tokens(&[], true).map_err(fail)?;
            tokenizer.add_tokens(added, self.companions.is_legacy()).map_err(fail)?;
        }
        // A `tokenizer.json` says in its post-processor what goes around a text.
        tokenizer.heed(&self.companions, self.kind != Kind::HuggingFace);
        Ok(tokenizer)
    }
}

impl Kind {
    fn for_file(path: &Path, bytes: &[u8]) -> Kind {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
        let is_json = || bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        match name.rsplit_once('.') {
            Some((stem, "json")) if stem.contains("tekken") => Kind::Tekken,
            Some(("vocab", "json")) => Kind::Lists,
            Some(("vocab", "txt")) => Kind::Words,
            Some((_, "json")) => Kind::HuggingFace,
            Some((_, "tiktoken")) => Kind::Tiktoken,
            _ if is_json() => Kind::HuggingFace,
            _ if tiktoken::is_tiktoken(bytes) => Kind::Tiktoken,
            _ => Kind::SentencePiece,
        }
    }
}

/// A `tokenizer.json`, and the tokens that the files next to it add.
fn with_added_tokens<'f>(bytes: &'f [u8], companions: &Companions) -> Result<TokenizerJson<'f>, String> {
    let mut file: TokenizerJson<'f> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let more = companions.added_tokens(&file.added_tokens, false)?;
    file.added_tokens.extend(more);
    Ok(file)
}

/// The one file of a folder whose name ends in `.tiktoken`.
fn tiktoken_file(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found =
        paths.filter(|path| path.extension().is_some_and(|end| end == "tiktoken") && path.is_file());
    found.next().filter(|_| found.next().is_none())
}
