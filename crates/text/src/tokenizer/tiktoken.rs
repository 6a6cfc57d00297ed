//! Vocabularies of bytes in order of their ranks: tiktoken's files, and Mistral's `tekken.json`.
//!
//! ```text
//! IQ== 0          a tiktoken file: the bytes of a token in base64, and its rank
//! IA== 1
//! ```
//!
//! Two neighbors join if their bytes are a token, the lowest rank first. Ids are those of the library `tiktoken`, and of
//! `mistral-common`. Only `tekken.json` says how to cut words, and which special tokens there are. For tiktoken files,
//! classes of Python code do, of which the rows of [`RULES`] are the known ones.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use super::added_token::AddedToken;
use super::base64::base64;
use super::companions::Companions;
use super::merge::{Join, Merger};

/// A vocabulary of bytes, and what goes with it.
pub(super) struct RankedVocabulary {
    /// The tokens and their ids, which are in order of the ranks.
    pub(super) tokens: HashMap<Vec<u8>, u32, ahash::RandomState>,
    /// Special tokens with ids of their own.
    pub(super) special: Vec<(String, u32)>,
    /// The tokens that are cut out of a text, the special ones among them.
    pub(super) added: Vec<AddedToken>,
    /// What words match.
    pub(super) pattern: Cow<'static, str>,
    /// Whether texts are brought into the normal form C.
    pub(super) composes: bool,
    /// What goes in front of a text.
    pub(super) before: Vec<u32>,
    /// What files call this: `tiktoken`.
    pub(super) format: &'static str,
}

/// The two parts that a token is joined from.
type Pair<'t> = (&'t [u8], &'t [u8]);

impl RankedVocabulary {
    /// The two parts that each longer token is joined from last, in the order of the ranks. A token of which merges leave
    /// more parts is only ever a whole word, and has none.
    ///
    /// # Errors
    /// If a token is too long to be tried.
    pub(super) fn merges(&self) -> Result<Vec<Pair<'_>>, String> {
        /// Bytes of the longest token whose merges are looked for; the longest known ones have 512.
        const MOST: usize = 1 << 12;
        let mut ordered: Vec<(&[u8], u32)> =
            self.tokens.iter().map(|(token, &id)| (&token[..], id)).collect();
        ordered.sort_unstable_by_key(|&(_, id)| id);
        let mut merges = Vec::with_capacity(ordered.len());
        let mut merger = Merger::default();
        for (token, id) in ordered.into_iter().filter(|(token, _)| token.len() > 1) {
            if token.len() > MOST {
                return Err(format!("a token has {} bytes, more than {MOST}", token.len()));
            }
            merger.clear();
            token.iter().for_each(|_| merger.push(1, 0));
            let parts = merger.run(|left, right| {
                let part = &token[left.start as usize..(right.start + right.len) as usize];
                let id = self.tokens.get(part).copied().filter(|&part| part < id)?;
                Some(Join { order: id, id })
            });
            let lengths: Vec<usize> = parts.map(|part| part.len as usize).collect();
            if let [left, _] = lengths[..] {
                merges.push(token.split_at(left));
            }
        }
        Ok(merges)
    }
}

/// What the class of a tokenizer does with a tiktoken file.
struct Rules {
    classes: &'static [&'static str],
    /// How the types of models begin whose configuration names no class.
    model_type: &'static str,
    /// The name of the file, if that tells the class.
    file: &'static str,
    pattern: &'static str,
    composes: bool,
    /// The first special tokens, whose ids follow the ranks.
    special: &'static [&'static str],
    /// Further special tokens; `#` stands for the numbers that `reserved` gives.
    others: &'static str,
    reserved: Reserved,
    /// Special tokens that go in front of a text.
    before: &'static [&'static str],
}

/// The special tokens that follow the named ones.
#[derive(Debug, Clone, Copy)]
enum Reserved {
    /// Those with the numbers from the first to the one before the second.
    Numbered(u32, u32),
    /// As many as fill up to so many in all, numbered by their ids, unless the configuration names them.
    FilledTo(u32),
}

/// Words of Qwen, as its first tokenizer cuts them.
const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words of Llama 3, and of most others: numbers have up to three digits.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words of Kimi: Chinese characters are apart from other letters.
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

static RULES: &[Rules] = &[
    Rules {
        classes: &["QWenTokenizer"],
        model_type: "qwen",
        file: "qwen.tiktoken",
        pattern: QWEN,
        composes: true,
        special: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        others: "<|extra_#|>",
        reserved: Reserved::Numbered(0, 205),
        before: &[],
    },
    Rules {
        classes: &["HYTokenizer"],
        model_type: "hunyuan",
        file: "hy.tiktoken",
        pattern: QWEN,
        composes: true,
        special: &["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"],
        others: "<|extra_#|>",
        reserved: Reserved::Numbered(0, 205),
        before: &[],
    },
    Rules {
        classes: &["TikTokenTokenizer"],
        model_type: "kimi",
        file: "tiktoken.model",
        pattern: KIMI,
        composes: false,
        special: &[],
        others: "<|reserved_token_#|>",
        reserved: Reserved::FilledTo(256),
        before: &[],
    },
    Rules {
        classes: &["ChatGLM4Tokenizer"],
        model_type: "chatglm",
        file: "",
        pattern: LLAMA_3,
        composes: false,
        special: &[
            "<|endoftext|>",
            "[MASK]",
            "[gMASK]",
            "[sMASK]",
            "<sop>",
            "<eop>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|observation|>",
            "<|begin_of_image|>",
            "<|end_of_image|>",
            "<|begin_of_video|>",
            "<|end_of_video|>",
        ],
        others: "",
        reserved: Reserved::Numbered(0, 0),
        before: &["[gMASK]", "<sop>"],
    },
];
/// Those of other files, as `transformers` reads them.
static OTHERS: Rules = Rules {
    classes: &[],
    model_type: "",
    file: "",
    pattern: LLAMA_3,
    composes: false,
    special: &[],
    others: "<|reserved_token_#|>",
    reserved: Reserved::FilledTo(0),
    before: &[],
};
/// Those of Meta's own files of Llama 3, which have nothing next to them that names special tokens.
static META: Rules = Rules {
    classes: &[],
    model_type: "",
    file: "",
    pattern: LLAMA_3,
    composes: false,
    special: &[
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>",
        "<|finetune_right_pad_id|>",
        "<|step_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|python_tag|>",
    ],
    others: "<|reserved_special_token_#|>",
    // The first two stand among the named ones.
    reserved: Reserved::Numbered(2, 247),
    before: &["<|begin_of_text|>"],
};
/// The ranks of Llama 3.
const META_RANKS: usize = 128_000;
/// Ids that the tokens of a file may leave out, and the most special tokens.
const MAX_GAPS: usize = 1 << 16;

/// Whether a file is one of tiktoken's, by its first line.
pub(super) fn is_tiktoken(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).is_ok_and(|line| token_and_rank(line.trim_end()).is_some())
}

/// The bytes of a token, and its rank.
fn token_and_rank(line: &str) -> Option<(Vec<u8>, u32)> {
    let (token, rank) = line.split_once(' ')?;
    Some((base64(token)?, rank.trim().parse().ok()?))
}

/// Reads a tiktoken file.
pub(super) fn read(bytes: &[u8], path: &Path, companions: &Companions) -> Result<RankedVocabulary, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not a tiktoken file: {error}"))?;
    let mut tokens = HashMap::default();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines {
        let entry = token_and_rank(line.trim_end());
        let (token, rank) = entry.ok_or_else(|| {
            format!("line {} is not a token in base64 and its rank: {}", number + 1, shortened(line))
        })?;
        add(&mut tokens, token, rank)?;
    }
    let end = check(&tokens)?;
    let rules = rules(path, companions, tokens.len())?;
    let listed = companions.indexed()?;
    let special: Vec<(String, u32)> = rules.names(end, &listed)?.into_iter().zip(end..).collect();
    let added = special.iter().map(|(name, _)| AddedToken::new(name, true)).collect::<Vec<_>>();
    let id = |name: &&str| special.iter().find(|(own, _)| own == name).map(|(_, id)| *id);
    Ok(RankedVocabulary {
        before: rules.before.iter().filter_map(id).collect(),
        added: with_companions(added, companions)?,
        special,
        tokens,
        pattern: rules.pattern.into(),
        composes: rules.composes,
        format: "tiktoken",
    })
}

/// The special tokens of a file, and what the files next to it add.
fn with_companions(mut added: Vec<AddedToken>, companions: &Companions) -> Result<Vec<AddedToken>, String> {
    let more = companions.added_tokens(&added, false)?;
    added.extend(more);
    Ok(added)
}

/// The rules of the class that the configuration names, or of the file's name, or of the type of the model.
///
/// # Errors
/// If the class is code that is not known, or nothing tells how words are cut.
fn rules(path: &Path, companions: &Companions, ranks: usize) -> Result<&'static Rules, String> {
    let (class, file) = (companions.class(), path.file_name().and_then(|name| name.to_str()));
    let of_class = RULES.iter().find(|rules| rules.classes.contains(&class));
    let of_file = || RULES.iter().find(|rules| Some(rules.file) == file);
    let of_type = || {
        let model_type = companions.model_type();
        RULES.iter().find(|rules| model_type.starts_with(rules.model_type))
    };
    if let Some(rules) = of_class.or_else(of_file).or_else(of_type) {
        return Ok(rules);
    }
    let has_other_name = path.extension().is_some_and(|end| end == "tiktoken");
    if companions.has_own_class() || has_other_name && class.is_empty() {
        let found = match class {
            "" => "and no file names the class of the tokenizer".to_owned(),
            class => format!("and the class `{class}` is not known"),
        };
        let known: Vec<&str> = RULES.iter().flat_map(|rules| rules.classes).copied().collect();
        return Err(format!(
            "a tiktoken file does not say how words are cut, {found} (known are {})",
            known.join(", ")
        ));
    }
    let names_none = !companions.names_special_tokens();
    Ok(if ranks == META_RANKS && names_none { &META } else { &OTHERS })
}

impl Rules {
    /// The special tokens whose ids begin with `start`; `listed` are those that the configuration gives indices.
    fn names(&self, start: u32, listed: &HashMap<u32, String>) -> Result<Vec<String>, String> {
        let mut names: Vec<String> = self.special.iter().map(|name| name.to_string()).collect();
        match self.reserved {
            Reserved::Numbered(first, end) => {
                names.extend((first..end).map(|number| self.others.replace('#', &number.to_string())));
            }
            Reserved::FilledTo(count) => {
                let last = listed.keys().copied().max().filter(|&last| last >= start);
                let end = last.map_or(start, |last| last.saturating_add(1)).max(start.saturating_add(count));
                if (end - start) as usize > MAX_GAPS {
                    return Err(format!(
                        "added_tokens_decoder has the index {}, but the ranks end at {start}",
                        end - 1
                    ));
                }
                let name = |id: u32| self.others.replace('#', &id.to_string());
                names.extend((start..end).map(|id| listed.get(&id).cloned().unwrap_or_else(|| name(id))));
            }
        }
        Ok(names)
    }
}

/// Adds a token, which must be new.
fn add(
    tokens: &mut HashMap<Vec<u8>, u32, ahash::RandomState>,
    token: Vec<u8>,
    rank: u32,
) -> Result<(), String> {
    if token.is_empty() {
        return Err(format!("the token of rank {rank} is empty"));
    }
    match tokens.insert(token, rank) {
        None => Ok(()),
        Some(other) => Err(format!("the tokens of the ranks {other} and {rank} are the same")),
    }
}

/// Checks that each rank is there once, and that every byte has a token. Gives the rank after the last.
fn check(tokens: &HashMap<Vec<u8>, u32, ahash::RandomState>) -> Result<u32, String> {
    let byte = (0..=255u8).find(|&byte| !tokens.contains_key(&[byte][..]));
    if let Some(byte) = byte {
        return Err(format!("the byte 0x{byte:02X} has no token"));
    }
    let last = tokens.values().copied().max().unwrap_or_default() as usize;
    if last >= tokens.len() + MAX_GAPS {
        return Err(format!("a token has the rank {last}, but there are {} tokens", tokens.len()));
    }
    let mut known = vec![false; last + 1];
    for &rank in tokens.values() {
        if std::mem::replace(&mut known[rank as usize], true) {
            return Err(format!("several tokens have the rank {rank}"));
        }
    }
    Ok(last as u32 + 1)
}

/// A line for a message.
fn shortened(line: &str) -> String {
    let end = line.char_indices().nth(60).map_or(line.len(), |(end, _)| end);
    format!("{:?}", &line[..end])
}

/// The parts of a `tekken.json` that tokens depend on.
#[derive(Deserialize)]
struct Tekken<'a> {
    config: TekkenConfig,
    #[serde(borrow)]
    vocab: Vec<TekkenToken<'a>>,
    special_tokens: Option<Vec<TekkenSpecial>>,
}

#[derive(Deserialize)]
struct TekkenConfig {
    pattern: String,
    default_vocab_size: Option<usize>,
    default_num_special_tokens: Option<usize>,
}

#[derive(Deserialize)]
struct TekkenToken<'a> {
    rank: usize,
    #[serde(borrow)]
    token_bytes: Cow<'a, str>,
}

#[derive(Deserialize)]
struct TekkenSpecial {
    rank: usize,
    token_str: String,
}

/// The special tokens of files that list none.
const TEKKEN_SPECIAL: &[&str] = &[
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Reads a `tekken.json`. Special tokens have the first ids, and ranks follow.
pub(super) fn read_tekken(bytes: &[u8], companions: &Companions) -> Result<RankedVocabulary, String> {
    let file: Tekken<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let special = file.special()?;
    let first = special.len() as u32;
    let mut tokens = HashMap::default();
    for (rank, entry) in file.vocab[..file.ranks(special.len())?].iter().enumerate() {
        if entry.rank != rank {
            return Err(format!("vocab entry {rank} has the rank {}", entry.rank));
        }
        let token = base64(&entry.token_bytes);
        let token = token.ok_or_else(|| {
            format!("the token of rank {rank} is not base64: {}", shortened(&entry.token_bytes))
        })?;
        add(&mut tokens, token, rank as u32)?;
    }
    check(&tokens)?;
    tokens.values_mut().for_each(|id| *id += first);
    let added = special.iter().map(|name| AddedToken::new(name, true)).collect();
    let before = special.iter().position(|name| name == "<s>").map(|id| id as u32);
    Ok(RankedVocabulary {
        tokens,
        before: before.into_iter().collect(),
        special: special.into_iter().zip(0..).collect(),
        added: with_companions(added, companions)?,
        pattern: file.config.pattern.into(),
        composes: false,
        format: "tekken",
    })
}

impl Tekken<'_> {
    /// The special tokens in the order of their ids.
    fn special(&self) -> Result<Vec<String>, String> {
        let mut names: Vec<String> = match &self.special_tokens {
            None => TEKKEN_SPECIAL.iter().map(|name| name.to_string()).collect(),
            Some(listed) => {
                let mut listed: Vec<&TekkenSpecial> = listed.iter().collect();
                listed.sort_by_key(|token| token.rank);
                if let Some((rank, token)) =
                    listed.iter().enumerate().find(|(rank, token)| token.rank != *rank)
                {
                    let TekkenSpecial { rank: found, token_str } = token;
                    return Err(format!("special token {token_str:?} has the rank {found}, expected {rank}"));
                }
                listed.into_iter().map(|token| token.token_str.clone()).collect()
            }
        };
        let count = self.config.default_num_special_tokens.unwrap_or(names.len());
        if count < names.len() || count > MAX_GAPS {
            let found = names.len();
            return Err(format!(
                "default_num_special_tokens is {count}, expected {found} (the special tokens) to {MAX_GAPS}"
            ));
        }
        names.extend((names.len()..count).map(|id| format!("<SPECIAL_{id}>")));
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("special token {:?} is there twice", pair[0])),
            None => Ok(names),
        }
    }

    /// How many entries of the vocabulary are used.
    fn ranks(&self, special: usize) -> Result<usize, String> {
        let Some(size) = self.config.default_vocab_size else { return Ok(self.vocab.len()) };
        let ranks = size.checked_sub(special).filter(|&ranks| ranks <= self.vocab.len());
        ranks.ok_or_else(|| {
            let entries = self.vocab.len();
            format!(
                "default_vocab_size is {size}, but there are {special} special tokens and {entries} others"
            )
        })
    }
}
