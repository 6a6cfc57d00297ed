//! The tokenizer of a model's folder as GGUF metadata: the inverse of reading those.
//!
//! Formats differ in what they can say, so nothing is trusted: what is written is read back, and must give the ids that
//! the folder's tokenizer gives, for a text of every kind and for each token's own text. That also finds the name of the
//! pattern that cuts words, which only GGUF files have.

use std::collections::HashMap;
use std::path::Path;

use unicode_normalization::is_nfc;
use weights::{MetaValue, Metadata, Strings};

use super::base64::base64;
use super::byte_level::char_of_byte;
use super::files::{Contents, TokenizerFiles};
use super::hugging_face::{TokenizerJson, Vocab};
use super::normalizer::SPACE_MARK;
use super::pre_tokenizer::PreTokenizer;
use super::sentencepiece_model::SentencePieceFile;
use super::tiktoken::RankedVocabulary;
use super::vocabulary::TokenType;
use super::{AddSpecial, ParseSpecial, SkipSpecial, Tokenizer, read};
use crate::{ChatTemplate, Error};

/// Texts that patterns cut differently.
const PROBES: &[&str] = &[
    "Hello world, this is a test.",
    "I'm sure they'll say: WE'RE HERE, IT'S 12345 o'clock!",
    "a  b   c\td\n\ne \n f\r\n  g   ",
    "  leading and trailing  ",
    "3.14159 + 2,718 = 1234567890 (roughly) ... 100% #1",
    "fn main() { let x = vec![1, 22, 333]; println!(\"{x:?}\"); }\n\n\n\treturn;",
    "HelloWorld camelCase snake_case CONSTANT_CASE path/to/file.rs a@b.c",
    "\"quoted\" 'single' `code` [1] {2} <3> ~ ^ | \\ $5 & *",
];
/// Texts in other scripts, which WordPiece of GGUF files treats in its own way.
const FOREIGN: &[&str] = &[
    "Äpfel, ñandú, café, naïve, İstanbul, ǅ",
    "Привет мир, как дела? Ελληνικά",
    "你好，世界！1234 日本語のテキスト 한국어",
    "🚀 emoji 👩‍👩‍👧 \u{200d} \u{3000}x",
];
/// Tokens whose own texts are tried, at most; the others are taken at even distances.
const MAX_TOKENS: usize = 1 << 15;

/// A vocabulary on its way into metadata.
#[derive(Default)]
struct Vocabulary {
    /// By id; `None` where the tokenizer has a gap.
    tokens: Vec<Option<(String, TokenType)>>,
    scores: Vec<f32>,
    merges: Vec<String>,
    /// Further keys.
    keys: Vec<(&'static str, MetaValue)>,
}

impl Tokenizer {
    /// The tokenizer and the chat template of a model's folder as GGUF metadata, for an embedding of `rows` rows: ids
    /// that no token has are filled up with unused ones.
    ///
    /// # Errors
    /// If the folder has no tokenizer, it is of a kind that GGUF files cannot hold, or GGUF's would give other ids.
    pub fn gguf_metadata(directory: &Path, rows: usize) -> Result<Metadata, Error> {
        let source = Tokenizer::from_directory(directory)?;
        let origin = directory.display();
        let fail = |problem: String| Error::tokenizer(origin.to_string(), problem);
        let (model, vocabulary) = vocabulary(&source, directory).map_err(|problem| match problem {
            Problem::Of(error) => error,
            Problem::Words(words) => fail(words),
        })?;
        if vocabulary.tokens.len() > rows {
            let tokens = vocabulary.tokens.len();
            return Err(fail(format!("has {tokens} tokens, but the embedding has {rows} rows")));
        }
        let mut metadata = vocabulary.metadata(model, rows);
        source.put_special_ids(model, &mut metadata).map_err(fail)?;
        match model {
            "gpt2" => {
                let names = PreTokenizer::families().map(|name| vec![("pre", name.into())]);
                let problem = "cuts words in a way that no GGUF file has a name for";
                source.choose(&mut metadata, names, &vocabulary, problem).map_err(fail)?;
            }
            "t5" => {
                let flags = [(true, true), (true, false), (false, true), (false, false)];
                let spaces = flags.map(|(prefix, tidy)| {
                    vec![("add_space_prefix", prefix.into()), ("remove_extra_whitespaces", tidy.into())]
                });
                let problem = "treats spaces in a way that GGUF files cannot say";
                source.choose(&mut metadata, spaces.into_iter(), &vocabulary, problem).map_err(fail)?;
            }
            _ => source.compare(&metadata, model, &vocabulary).map_err(fail)?,
        }
        if let Some(template) = ChatTemplate::from_directory(directory)? {
            for (key, template) in template.gguf_keys() {
                metadata.insert(key, template);
            }
        }
        Ok(metadata)
    }

    /// Adds the ids of special tokens, and which of them go around a text.
    fn put_special_ids(&self, model: &str, metadata: &mut Metadata) -> Result<(), String> {
        let encode = |add| self.encode("x", add, ParseSpecial::No).map_err(|error| error.to_string());
        let (with, plain) = (encode(AddSpecial::Yes)?, encode(AddSpecial::No)?);
        let place = with.windows(plain.len().max(1)).position(|ids| ids == plain);
        let Some(start) = place else {
            return Err("what goes around a text changes its own tokens, which GGUF files cannot say".into());
        };
        let (before, after) = (&with[..start], &with[start + plain.len()..]);
        let mut put =
            |key: &str, value: MetaValue| _ = metadata.insert(format!("tokenizer.ggml.{key}"), value);
        let (bos, eos) = match (before, after) {
            ([] | [_], [] | [_]) => {
                (before.first().copied().or(self.bos()), after.first().copied().or(self.eos()))
            }
            _ => {
                let [before, after] = [before, after].map(|ids| ids.len());
                return Err(format!(
                    "puts {before} tokens before and {after} behind a text; GGUF files can say one each"
                ));
            }
        };
        let (first, last) = if model == "bert" {
            ("cls_token_id", "seperator_token_id")
        } else {
            ("bos_token_id", "eos_token_id")
        };
        bos.into_iter().for_each(|id| put(first, id.into()));
        eos.into_iter().for_each(|id| put(last, id.into()));
        let named = |text: &str| self.id(text);
        let padding = ["[PAD]", "<pad>", "<|pad|>"].into_iter().find_map(named);
        padding.into_iter().for_each(|id| put("padding_token_id", id.into()));
        let mut others = self.eos_ids().iter().copied().filter(|&id| Some(id) != eos);
        others.next().into_iter().for_each(|id| put("eot_token_id", id.into()));
        others.next().into_iter().for_each(|id| put("eom_token_id", id.into()));
        put("add_bos_token", (!before.is_empty()).into());
        put("add_eos_token", (!after.is_empty()).into());
        Ok(())
    }

    /// Adds the first of several sets of keys with which metadata describe this tokenizer.
    fn choose(
        &self,
        metadata: &mut Metadata,
        choices: impl Iterator<Item = Vec<(&'static str, MetaValue)>>,
        vocabulary: &Vocabulary,
        problem: &str,
    ) -> Result<(), String> {
        let mut first = None;
        for keys in choices {
            let mut complete = metadata.clone();
            for (key, value) in keys {
                complete.insert(format!("tokenizer.ggml.{key}"), value);
            }
            match self.compare(&complete, "", vocabulary) {
                Ok(()) => {
                    *metadata = complete;
                    return Ok(());
                }
                Err(problem) => first = first.or(Some(problem)),
            }
        }
        Err(format!("{problem}: {}", first.unwrap_or_default()))
    }

    /// Checks that the tokenizer of metadata gives the same ids.
    fn compare(&self, metadata: &Metadata, model: &str, vocabulary: &Vocabulary) -> Result<(), String> {
        let written = Tokenizer::from_gguf(metadata).map_err(|error| error.to_string())?;
        let check = |text: &str| {
            for add in [AddSpecial::No, AddSpecial::Yes] {
                let ids = |tokenizer: &Tokenizer| tokenizer.encode(text, add, ParseSpecial::No).ok();
                let (expected, found) = (ids(self), ids(&written));
                if expected != found {
                    return Err(format!("as GGUF it makes {found:?} of {text:?}, and {expected:?} before"));
                }
            }
            Ok(())
        };
        PROBES.iter().try_for_each(|text| check(text))?;
        if model == "bert" {
            return Ok(());
        }
        FOREIGN.iter().try_for_each(|text| check(text))?;
        let ids = (0..vocabulary.tokens.len()).step_by(vocabulary.tokens.len().div_ceil(MAX_TOKENS).max(1));
        for id in ids {
            let text = self.decode(&[id as u32], SkipSpecial::Yes);
            // GGUF files have no key for a normal form, which some tokenizers bring texts into.
            if !text.contains('\u{FFFD}') && is_nfc(&text) {
                check(&text)?;
            }
        }
        Ok(())
    }
}

impl Vocabulary {
    fn metadata(&self, model: &str, rows: usize) -> Metadata {
        let mut metadata = Metadata::new();
        let mut put =
            |key: &str, value: MetaValue| _ = metadata.insert(format!("tokenizer.ggml.{key}"), value);
        let ids = 0..rows;
        let entry = |id: usize| self.tokens.get(id).and_then(Option::as_ref);
        let text = |id: usize| entry(id).map_or_else(|| format!("[PAD{id}]"), |(text, _)| text.clone());
        put("model", model.into());
        put("tokens", ids.clone().map(text).collect::<Strings>().into());
        if !self.scores.is_empty() {
            let score = |id: usize| self.scores.get(id).copied().unwrap_or(-10000.0);
            put("scores", ids.clone().map(score).collect::<Vec<f32>>().into());
        }
        let kind = |id: usize| entry(id).map_or(TokenType::Unused, |(_, kind)| *kind) as i32;
        put("token_type", ids.map(kind).collect::<Vec<i32>>().into());
        if !self.merges.is_empty() {
            put("merges", self.merges.iter().collect::<Strings>().into());
        }
        for (key, value) in &self.keys {
            put(key, value.clone());
        }
        metadata
    }
}

/// Why a vocabulary cannot be written.
enum Problem {
    Of(Error),
    Words(String),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::Of(error)
    }
}

impl From<String> for Problem {
    fn from(words: String) -> Problem {
        Problem::Words(words)
    }
}

/// The kind of a folder's tokenizer as GGUF calls it, and its vocabulary.
fn vocabulary(source: &Tokenizer, directory: &Path) -> Result<(&'static str, Vocabulary), Problem> {
    let model = directory.join("tokenizer.model");
    let mut files = TokenizerFiles::in_folder(directory)?;
    let file = match files.contents()? {
        Contents::SentencePiece(pieces) => {
            let kind = pieces.gguf_model(&model.display().to_string())?;
            return Ok((kind, of_pieces(source, &pieces)));
        }
        Contents::Ranked(ranked) => return Ok(("gpt2", of_ranks(source, &ranked)?)),
        Contents::HuggingFace(file) => *file,
    };
    let tokens = tokens(source, &file);
    match file.model.kind() {
        "BPE" if file.model.byte_fallback == Some(true) => {
            // The scores of the original, if it is there and can be read.
            let bytes = if model.is_file() { Some(read(&model)?) } else { None };
            let pieces = bytes.map(|bytes| SentencePieceFile::decode(&bytes)).transpose();
            of_marked_bpe(
                &file,
                tokens,
                pieces.map_err(|error| Problem::Words(format!("tokenizer.model: {error}")))?,
            )
        }
        "BPE" => of_byte_level(&file, tokens),
        "WordPiece" => Ok(("bert", of_word_piece(&file, tokens))),
        "Unigram" => of_unigram(&file, tokens),
        other => Err(Problem::Words(format!(
            "llama.cpp has no tokenizers of the type {other}: those of BPE, WordPiece and Unigram are written"
        ))),
    }
}

/// A vocabulary of bytes with ranks. Its merges are the two parts that each token is joined from last.
fn of_ranks(source: &Tokenizer, ranked: &RankedVocabulary) -> Result<Vocabulary, Problem> {
    let token = |id| Some((source.token(id)?.into_owned(), TokenType::Normal));
    let mut tokens: Vec<_> = (0..source.vocab_size() as u32).map(token).collect();
    let special = ranked.special.iter().map(|(text, id)| (text.as_str(), *id, true));
    let added = ranked.added.iter();
    let added =
        added.filter_map(|token| Some((token.content.as_str(), source.id(&token.content)?, token.special)));
    for (text, id, is_special) in special.chain(added) {
        let kind = if is_special { TokenType::Control } else { TokenType::UserDefined };
        tokens[id as usize] = Some((text.to_string(), kind));
    }
    let written = |token: &[u8]| token.iter().copied().map(char_of_byte).collect::<String>();
    let pairs = ranked.merges().map_err(Problem::Words)?;
    let merges = pairs.iter().map(|(left, right)| format!("{} {}", written(left), written(right)));
    Ok(Vocabulary { tokens, merges: merges.collect(), ..Vocabulary::default() })
}

/// The tokens of a `tokenizer.json`, normal ones unless they were added.
fn tokens(source: &Tokenizer, file: &TokenizerJson<'_>) -> Vocabulary {
    let token = |id| Some((source.token(id)?.into_owned(), TokenType::Normal));
    let mut tokens: Vec<_> = (0..source.vocab_size() as u32).map(token).collect();
    for added in &file.added_tokens {
        if let Some(id) = source.id(&added.content) {
            let kind = if added.special { TokenType::Control } else { TokenType::UserDefined };
            tokens[id as usize] = Some((added.content.clone(), kind));
        }
    }
    Vocabulary { tokens, ..Vocabulary::default() }
}

fn of_byte_level(
    file: &TokenizerJson<'_>,
    mut vocabulary: Vocabulary,
) -> Result<(&'static str, Vocabulary), Problem> {
    for pair in file.model.pairs() {
        let (a, b) = pair?;
        if a.contains(' ') || b.contains(' ') {
            let problem = format!("the merge of {a:?} and {b:?} has a space, which parts them in GGUF files");
            return Err(Problem::Words(problem));
        }
        vocabulary.merges.push(format!("{a} {b}"));
    }
    Ok(("gpt2", vocabulary))
}

/// BPE on characters and bytes, with marked spaces: SentencePiece's, which orders merges by the scores of tokens.
fn of_marked_bpe(
    file: &TokenizerJson<'_>,
    mut vocabulary: Vocabulary,
    pieces: Option<SentencePieceFile>,
) -> Result<(&'static str, Vocabulary), Problem> {
    let unknown = file.model.unk_token.as_deref().unwrap_or_default();
    for (id, entry) in vocabulary.tokens.iter_mut().enumerate() {
        let Some((text, kind)) = entry else { continue };
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        if text == unknown {
            *kind = TokenType::Unknown;
            vocabulary.keys.push(("unknown_token_id", (id as u32).into()));
        } else if is_byte && *kind == TokenType::Normal {
            *kind = TokenType::Byte;
        }
    }
    let is_same = |pieces: &SentencePieceFile| {
        let mut pairs = pieces.texts().zip(&vocabulary.tokens);
        pieces.texts().len() <= vocabulary.tokens.len()
            && pairs.all(|(text, token)| token.as_ref().is_some_and(|(own, _)| *own == text))
    };
    vocabulary.scores = match pieces.filter(is_same) {
        Some(pieces) => pieces.scores().collect(),
        None => {
            let mut ranks: HashMap<String, usize> = HashMap::new();
            for (rank, pair) in file.model.pairs().enumerate() {
                let (a, b) = pair?;
                ranks.entry(format!("{a}{b}")).or_insert(rank);
            }
            let score = |token: &Option<(String, TokenType)>| {
                token.as_ref().and_then(|(text, _)| ranks.get(text)).map_or(0.0, |&rank| -(rank as f32))
            };
            vocabulary.tokens.iter().map(score).collect()
        }
    };
    let pre = &file.pre_tokenizer;
    let prefix = file.normalizer.to_string().contains("\"Prepend\"")
        || pre["type"] == "Metaspace" && pre["prepend_scheme"].as_str() != Some("never");
    vocabulary.keys.push(("add_space_prefix", prefix.into()));
    Ok(("llama", vocabulary))
}

fn of_word_piece(file: &TokenizerJson<'_>, mut vocabulary: Vocabulary) -> Vocabulary {
    let unknown = file.model.unk_token.as_deref().unwrap_or("[UNK]");
    let prefix = file.model.continuing_subword_prefix.as_deref().unwrap_or("##");
    for (id, entry) in vocabulary.tokens.iter_mut().enumerate() {
        let Some((text, _)) = entry else { continue };
        if text == unknown {
            vocabulary.keys.push(("unknown_token_id", (id as u32).into()));
        }
        // GGUF marks the first piece of a word, and not the others.
        let is_special = text.starts_with('[') && text.ends_with(']');
        if let Some(rest) = text.strip_prefix(prefix) {
            *text = rest.to_string();
        } else if !is_special {
            *text = format!("{SPACE_MARK}{text}");
        }
    }
    vocabulary
}

/// SentencePiece's Unigram. Which spaces count is tried out.
fn of_unigram(
    file: &TokenizerJson<'_>,
    mut vocabulary: Vocabulary,
) -> Result<(&'static str, Vocabulary), Problem> {
    if let Vocab::Scores(entries) = &file.model.vocab {
        vocabulary.scores = entries.iter().map(|(_, score)| *score as f32).collect();
    }
    if let Some(unknown) = file.model.unk_id {
        if let Some(Some((_, kind))) = vocabulary.tokens.get_mut(unknown) {
            *kind = TokenType::Unknown;
        }
        vocabulary.keys.push(("unknown_token_id", (unknown as u32).into()));
    }
    let normalizer = &file.normalizer;
    let mut steps =
        normalizer["normalizers"].as_array().map_or(&[][..], Vec::as_slice).iter().chain([normalizer]);
    if let Some(charsmap) = steps.find_map(|step| step["precompiled_charsmap"].as_str()) {
        let charsmap = base64(charsmap).ok_or_else(|| "precompiled_charsmap is not base64".to_string())?;
        vocabulary.keys.push(("precompiled_charsmap", charsmap.into()));
    }
    Ok(("t5", vocabulary))
}

/// A SentencePiece model, and the tokens that were added to it.
fn of_pieces(source: &Tokenizer, pieces: &SentencePieceFile) -> Vocabulary {
    let own = pieces.texts().zip(pieces.kinds().map(TokenType::from_number));
    let mut tokens: Vec<_> = own.map(|(text, kind)| Some((text.into_owned(), kind))).collect();
    for id in tokens.len() as u32..source.vocab_size() as u32 {
        let kind = if source.is_special(id) { TokenType::Control } else { TokenType::UserDefined };
        tokens.push(source.token(id).map(|text| (text.into_owned(), kind)));
    }
    let mut scores: Vec<f32> = pieces.scores().collect();
    scores.resize(tokens.len(), 0.0);
    Vocabulary { tokens, scores, keys: pieces.gguf_keys(), ..Vocabulary::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folder: &Path, rows: usize, expected: &[(&str, MetaValue)]) {
        let metadata = Tokenizer::gguf_metadata(folder, rows).unwrap();
        for (key, value) in expected {
            assert_eq!(metadata.get(&format!("tokenizer.ggml.{key}")), Some(value), "{key}");
        }
        assert_eq!(Tokenizer::from_gguf(&metadata).unwrap().vocab_size(), rows);
    }

    #[test]
    fn tokenizers_of_folders_give_the_same_ids_as_gguf() {
        let Some(data) = testdata::shared("storyteller").map(|path| path.parent().unwrap().to_path_buf())
        else {
            return;
        };
        let story = [
            ("model", "gpt2".into()),
            ("pre", "gpt-2".into()),
            ("bos_token_id", 0u32.into()),
            ("eos_token_id", 1u32.into()),
            ("add_bos_token", true.into()),
            ("add_eos_token", false.into()),
        ];
        check(&data.join("storyteller/hf"), 4100, &story);
        let plain = [("add_bos_token", false.into()), ("model", "gpt2".into())];
        check(&data.join("shakespeare-llama/hf"), 1024, &plain);
        let marked = [
            ("model", "llama".into()),
            ("add_bos_token", true.into()),
            ("add_space_prefix", true.into()),
            ("unknown_token_id", 0u32.into()),
        ];
        check(&data.join("stories260k/hf"), 512, &marked);
        let bert = [
            ("model", "bert".into()),
            ("cls_token_id", 101u32.into()),
            ("seperator_token_id", 102u32.into()),
            ("unknown_token_id", 100u32.into()),
        ];
        check(&data.join("minilm-l6-v2"), 30_522, &bert);
        let t5 = [
            ("model", "t5".into()),
            ("add_bos_token", false.into()),
            ("add_eos_token", true.into()),
            ("eos_token_id", 1u32.into()),
            ("unknown_token_id", 2u32.into()),
            ("add_space_prefix", true.into()),
            ("remove_extra_whitespaces", true.into()),
        ];
        check(&data.join("tokenizers/hf/t5-small"), 32_128, &t5);
        let roberta =
            [("model", "gpt2".into()), ("add_bos_token", true.into()), ("add_eos_token", true.into())];
        check(&data.join("tokenizers/hf/roberta-base"), 50_265, &roberta);
    }

    #[test]
    fn tokenizers_that_gguf_cannot_hold_are_refused() {
        let Some(data) = testdata::shared("tokenizers/hf") else { return };
        let refusal = |folder: &Path, rows| Tokenizer::gguf_metadata(folder, rows).unwrap_err().to_string();
        let too_few = refusal(&data.join("phi-3-mini"), 100);
        assert!(too_few.contains("tokens, but the embedding has 100 rows"), "{too_few}");
        let folder = std::env::temp_dir().join(format!("perihelion-to-gguf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let model = r#"{"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}"#;
        std::fs::write(folder.join("tokenizer.json"), format!(r#"{{"model": {model}}}"#)).unwrap();
        let words = refusal(&folder, 2);
        assert!(words.contains("llama.cpp has no tokenizers of the type WordLevel"), "{words}");
        // GGUF has no key for bytes in place of unknown characters.
        let bytes =
            (0..256).map(|byte| format!(r#"["<0x{byte:02X}>", -9.0]"#)).collect::<Vec<_>>().join(", ");
        let vocab = format!(r#"[["<unk>", 0.0], ["a", -1.0], {bytes}]"#);
        let model = format!(r#"{{"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": {vocab}}}"#);
        std::fs::write(folder.join("tokenizer.json"), format!(r#"{{"model": {model}}}"#)).unwrap();
        let unigram = refusal(&folder, 300);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(unigram.contains("treats spaces in a way that GGUF files cannot say"), "{unigram}");
    }
}
