//! How byte-level BPE cuts a text into words: the published patterns, by the name that `tokenizer.ggml.pre` gives.
//!
//! Merges never cross a word. Patterns apply one after the other, each inside the pieces that the one before left;
//! what a pattern does not match is a piece too.
//!
//! Nearly every published pattern ends in `\s+(?!\S)|\s+`: a run of whitespace leaves its last character to the word
//! that follows. A look-ahead needs a backtracking engine, so here the pattern is a plain one ending in `\s+`, whose
//! match is then shortened by one character: the same words, in linear time.

use std::sync::OnceLock;

use regex::Regex;

/// What a pattern does with a run of whitespace that a word follows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tail {
    /// Nothing: the pattern says all.
    None,
    /// `\s+(?!\S)|\s+`.
    Spaces,
    /// The same, after an alternative that takes every run up to its last line break.
    SpacesAfterBreaks,
}

#[derive(Debug)]
struct Pattern {
    text: &'static str,
    tail: Tail,
    compiled: OnceLock<Regex>,
}

const fn pattern(text: &'static str, tail: Tail) -> Pattern {
    Pattern { text, tail, compiled: OnceLock::new() }
}

/// A way to cut, and what else llama.cpp ties to its name.
#[derive(Debug)]
struct Family {
    names: &'static [&'static str],
    patterns: &'static [&'static Pattern],
    /// A word that is a token is that token, whatever the merges would make of it.
    whole_words: bool,
    /// BOS goes first unless the file says otherwise.
    add_bos: bool,
}

static GPT_2: Pattern =
    pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", Tail::Spaces);
static LLAMA_3: Pattern = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static QWEN_2: Pattern = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static QWEN_3_5: Pattern = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static GPT_4O: Pattern = pattern(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static TEKKEN: Pattern = pattern(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static DEEPSEEK_3: Pattern = pattern(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##,
    Tail::SpacesAfterBreaks,
);
static CJK: Pattern = pattern("[一-龥\u{3040}-ゟ゠-ヿ]+", Tail::None);
static PUNCTUATION: Pattern = pattern(r"[\p{P}$+<=>^~|]+", Tail::None);
static FALCON_PUNCTUATION: Pattern = pattern(r"[\p{P}$+<=>^~|`]+", Tail::None);
static DIGIT: Pattern = pattern(r"\p{N}", Tail::None);
static DIGITS: Pattern = pattern(r"\p{N}+", Tail::None);
static UP_TO_THREE_DIGITS: Pattern = pattern(r"\p{N}{1,3}", Tail::None);
static THREE_DIGITS: Pattern = pattern("[0-9][0-9][0-9]", Tail::None);
static BLOOM: Pattern = pattern(r" ?[^(\s|.,!?…。，、।۔،)]+", Tail::None);
static LINE_BREAK: Pattern = pattern(r"[\r\n]", Tail::None);
static CODER_LETTERS: Pattern = pattern(r"\s?\p{L}+", Tail::None);
static CODER_PUNCTUATION: Pattern = pattern(r"\s?\p{P}+", Tail::None);
static CODER_CJK: Pattern = pattern("[一-龥ࠀ-一가-\u{D7FF}]+", Tail::None);

const fn family(names: &'static [&'static str], patterns: &'static [&'static Pattern]) -> Family {
    Family { names, patterns, whole_words: false, add_bos: false }
}

static FAMILIES: &[Family] = &[
    family(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
        ],
        &[&GPT_2],
    ),
    Family {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        patterns: &[&LLAMA_3],
        whole_words: true,
        add_bos: true,
    },
    family(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[&LLAMA_3]),
    family(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[&QWEN_2],
    ),
    family(&["qwen35"], &[&QWEN_3_5]),
    family(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[&DIGIT, &GPT_2],
    ),
    family(&["falcon"], &[&FALCON_PUNCTUATION, &GPT_2, &THREE_DIGITS]),
    family(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[&GPT_4O]),
    Family { names: &["tekken"], patterns: &[&TEKKEN], whole_words: true, add_bos: true },
    family(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[&UP_TO_THREE_DIGITS, &CJK, &DEEPSEEK_3],
    ),
    family(&["deepseek-coder"], &[&LINE_BREAK, &CODER_LETTERS, &CODER_PUNCTUATION, &CODER_CJK, &DIGIT]),
    family(&["bloom", "poro-chat", "gpt3-finnish"], &[&BLOOM]),
    family(&["viking"], &[&BLOOM, &DIGIT]),
    // What files without a name were made for; the digits are cut twice because llama.cpp does.
    family(&["default", ""], &[&PUNCTUATION, &GPT_2, &DIGITS, &THREE_DIGITS]),
];

/// One way to cut a text into words.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    family: &'static Family,
}

impl PreTokenizer {
    /// The one that `tokenizer.ggml.pre` names; the empty name is "default".
    pub(super) fn named(name: &str) -> Option<Self> {
        FAMILIES.iter().find(|family| family.names.contains(&name)).map(|family| Self { family })
    }

    /// Every name there is.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FAMILIES.iter().flat_map(|family| family.names).copied().filter(|name| !name.is_empty())
    }

    pub(super) fn whole_words(&self) -> bool {
        self.family.whole_words
    }

    pub(super) fn add_bos(&self) -> bool {
        self.family.add_bos
    }

    /// The first name of its family.
    pub(super) fn name(&self) -> &'static str {
        self.family.names[0]
    }

    pub(super) fn for_each_word(&self, text: &str, mut visit: impl FnMut(&str)) {
        cut(self.family.patterns, text, &mut visit);
    }
}

fn cut(patterns: &[&Pattern], text: &str, visit: &mut dyn FnMut(&str)) {
    let Some((pattern, rest)) = patterns.split_first() else { return visit(text) };
    let mut start = 0;
    while start < text.len() {
        let (match_start, match_end) = pattern.find(text, start).unwrap_or((text.len(), text.len()));
        if match_start > start {
            cut(rest, &text[start..match_start], visit);
        }
        if match_end > match_start {
            cut(rest, &text[match_start..match_end], visit);
        }
        start = match_end;
    }
}

impl Pattern {
    /// The next match from `start` on; never empty.
    fn find(&self, text: &str, start: usize) -> Option<(usize, usize)> {
        let regex =
            self.compiled.get_or_init(|| Regex::new(self.text).expect("the patterns of this file are valid"));
        let found = regex.find_at(text, start)?;
        let last = found.as_str().chars().next_back()?;
        let shorter = match self.tail {
            Tail::None => false,
            Tail::Spaces => last.is_whitespace(),
            Tail::SpacesAfterBreaks => last.is_whitespace() && !matches!(last, '\r' | '\n'),
        };
        let leave = shorter && found.end() < text.len() && found.len() > last.len_utf8();
        Some((found.start(), found.end() - if leave { last.len_utf8() } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let mut words = Vec::new();
        PreTokenizer::named(name).unwrap().for_each_word(text, |word| words.push(word.to_owned()));
        assert_eq!(words, expected, "{name}: {text:?}");
    }

    #[test]
    fn whitespace_leaves_its_last_character_to_the_word() {
        check("gpt-2", "a   b", &["a", "  ", " b"]);
        check("gpt-2", "a\n\nb  ", &["a", "\n", "\n", "b", "  "]);
        check("gpt-2", "\t x", &["\t", " x"]);
        check("gpt-2", "\u{3000}\u{3000}x", &["\u{3000}", "\u{3000}", "x"]);
        check("llama-bpe", "a \n \n  b", &["a", " \n \n", " ", " b"]);
        check("llama-bpe", "a\t\tb", &["a", "\t", "\tb"]);
        check("llama-bpe", "!!\n\n\nx", &["!!\n\n\n", "x"]);
        check("qwen2", "   1  ", &["  ", " ", "1", "  "]);
    }

    #[test]
    fn families_differ_in_digits_and_case() {
        check("gpt-2", "I'm I'M 12345", &["I", "'m", " I", "'", "M", " 12345"]);
        check("llama-bpe", "I'M 12345", &["I", "'M", " ", "123", "45"]);
        check("qwen2", "x123", &["x", "1", "2", "3"]);
        check("smollm", "a 12 b", &["a", " ", "1", "2", " b"]);
        check("falcon", "a1234 `x`", &["a", "123", "4", " ", "`", "x", "`"]);
        check("tekken", "HelloWorld it's", &["Hello", "World", " it", "'s"]);
        check("deepseek-v3", "漢字12345!x", &["漢字", "123", "45", "!x"]);
        check("default", "a12345.b", &["a", "123", "45", ".", "b"]);
    }

    #[test]
    fn every_name_is_one_familys_and_every_pattern_compiles() {
        let names: Vec<_> = PreTokenizer::names().collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is listed twice");
            let mut joined = String::new();
            PreTokenizer::named(name)
                .unwrap()
                .for_each_word("Ab1 \n é 漢!  ", |word| joined.push_str(word));
            assert_eq!(joined, "Ab1 \n é 漢!  ", "{name}");
        }
        assert!(PreTokenizer::named("no-such").is_none());
    }
}
