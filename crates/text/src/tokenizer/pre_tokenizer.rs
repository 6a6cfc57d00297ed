//! How byte-level BPE cuts a text into words: the published patterns, by the name that `tokenizer.ggml.pre` gives.
//!
//! Merges never cross a word. Patterns apply one after the other, each inside the pieces that the one before left;
//! what a pattern does not match is a piece too.

use std::sync::OnceLock;

use regex::Regex;

use super::pattern::{Tail, find_with_tail};

/// A published pattern, compiled when it is first used.
#[derive(Debug)]
struct Published {
    text: &'static str,
    tail: Tail,
    /// Given the characters that are left of a match, how many of them are the next word.
    group: fn(&str, usize) -> usize,
    compiled: OnceLock<Regex>,
}

const fn pattern(text: &'static str, tail: Tail) -> Published {
    grouped(text, tail, |_, left| left)
}

const fn grouped(text: &'static str, tail: Tail, group: fn(&str, usize) -> usize) -> Published {
    Published { text, tail, group, compiled: OnceLock::new() }
}

/// Groups of three, counted from the end.
fn threes(_: &str, left: usize) -> usize {
    (left - 1) % 3 + 1
}

/// Spaces in groups of 512, 256, … 2 and 1.
fn powers_of_two(word: &str, left: usize) -> usize {
    let is_spaces = word.chars().all(char::is_whitespace) && !word.ends_with(['\r', '\n']);
    if is_spaces { (1 << left.ilog2()).min(512) } else { left }
}

/// The units that merges join first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbols {
    /// Bytes, each as a printable character that stands for it.
    Bytes,
    /// Characters, with `▁` for each space. One that is part of no token is the tokens of its bytes, `<0x41>`.
    Marked,
    /// Characters; whitespace is left out.
    Unspaced,
}

/// The words that are one token if the vocabulary has them, whatever the merges would make of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WholeWords {
    None,
    LineBreaks,
    All,
}

/// A way to cut, and what else llama.cpp ties to its name.
#[derive(Debug)]
struct Family {
    names: &'static [&'static str],
    patterns: &'static [&'static Published],
    symbols: Symbols,
    whole_words: WholeWords,
    /// BOS goes first unless the file says otherwise.
    add_bos: bool,
}

const fn family(names: &'static [&'static str], patterns: &'static [&'static Published]) -> Family {
    Family { names, patterns, symbols: Symbols::Bytes, whole_words: WholeWords::None, add_bos: false }
}

static GPT_2: Published =
    pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", Tail::Spaces);
static LLAMA_3: Published = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static QWEN_2: Published = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static QWEN_3_5: Published = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static GPT_4O: Published = pattern(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static TEKKEN: Published = pattern(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static DEEPSEEK_3: Published = pattern(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##,
    Tail::SpacesAfterBreaks,
);
static CJK: Published = pattern("[一-龥\u{3040}-ゟ゠-ヿ]+", Tail::None);
static PUNCTUATION: Published = pattern(r"[\p{P}$+<=>^~|]+", Tail::None);
static FALCON_PUNCTUATION: Published = pattern(r"[\p{P}$+<=>^~|`]+", Tail::None);
static DIGIT: Published = pattern(r"\p{N}", Tail::None);
static DIGITS: Published = pattern(r"\p{N}+", Tail::None);
static UP_TO_THREE_DIGITS: Published = pattern(r"\p{N}{1,3}", Tail::None);
static THREE_DIGITS: Published = pattern("[0-9][0-9][0-9]", Tail::None);
static BLOOM: Published = pattern(r" ?[^(\s|.,!?…。，、।۔،)]+", Tail::None);
static LINE_BREAK: Published = pattern(r"[\r\n]", Tail::None);
static SEED_CODER: Published = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static KIMI_2: Published = pattern(
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static THREES: Published = grouped(r"\p{N}+", Tail::None, threes);
/// Only where no letter follows.
static THREES_AT_WORD_END: Published = grouped(r"\d+\b", Tail::None, threes);
static LINES: Published = pattern(r"[^\n]+", Tail::None);
static UNSPACED: Published = pattern(r"\S+", Tail::None);
/// As [`LLAMA_3`].
static JAIS_2: Published = grouped(LLAMA_3.text, Tail::SpacesAfterBreaks, powers_of_two);
/// Words take the joiners of Indic scripts, too.
static K2_HORIZON: Published = pattern(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}\x{200C}\x{200D}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
/// Letters with single spaces between them are one word.
static EXAONE_MOE: Published = pattern(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+",
    Tail::SpacesAfterBreaks,
);
static YOUTU_SCRIPTS: Published = pattern(
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[！…“”‘’—：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[一-龥\x{3040}-ゟ゠-ヿ]+",
    Tail::None,
);
static YOUTU: Published = pattern(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
static SPARK_2_5: Published = pattern(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+"##,
    Tail::Spaces,
);
/// As [`QWEN_2`], but an apostrophe belongs to the letters after it.
static UFAKZEKA: Published = pattern(
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    Tail::SpacesAfterBreaks,
);
/// Scripts without spaces between words.
static AFMOE_SCRIPTS: Published = pattern(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E00}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+",
    Tail::None,
);
static CHAMELEON_SENTINEL: Published = pattern("<sentinel:[0-9]+>", Tail::None);
static CHAMELEON_IMAGE: Published = pattern("IMGIMG[A-I]{1,4}Z", Tail::None);
static CHAMELEON_SPACES: Published = pattern(r"[\t\n]|    |  ", Tail::None);
static CHAMELEON_PUNCTUATION: Published = pattern(r"[\p{P}!-/:-@\[-`{-~]", Tail::None);
/// Letters that have cases, in the Unicode of their day.
static DEEPSEEK_LETTERS: Published = pattern(
    r"\s?[A-Za-z\xB5\xC0-\xD6\xD8-\xF6\xF8-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+",
    Tail::None,
);
static DEEPSEEK_PUNCTUATION: Published =
    pattern(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+", Tail::None);
static SPACES_AT_END: Published = pattern(r"\s+$", Tail::None);
static CODER_LETTERS: Published = pattern(r"\s?\p{L}+", Tail::None);
static CODER_PUNCTUATION: Published = pattern(r"\s?\p{P}+", Tail::None);
static CODER_CJK: Published = pattern("[一-龥ࠀ-一가-\u{D7FF}]+", Tail::None);

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
        symbols: Symbols::Bytes,
        whole_words: WholeWords::All,
        add_bos: true,
    },
    Family {
        add_bos: true,
        ..family(
            &["chameleon"],
            &[
                &CHAMELEON_SENTINEL,
                &CHAMELEON_IMAGE,
                &CHAMELEON_SPACES,
                &DIGIT,
                &CHAMELEON_PUNCTUATION,
                &GPT_2,
            ],
        )
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
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
        ],
        &[&QWEN_2],
    ),
    family(&["seed-coder"], &[&SEED_CODER]),
    family(&["kimi-k2"], &[&KIMI_2]),
    family(&["superbpe"], &[&THREES]),
    family(&["afmoe"], &[&THREES, &AFMOE_SCRIPTS, &DEEPSEEK_3]),
    family(
        &["deepseek-llm"],
        &[&LINE_BREAK, &DEEPSEEK_LETTERS, &DEEPSEEK_PUNCTUATION, &SPACES_AT_END, &CODER_CJK, &DIGITS],
    ),
    family(&["qwen35"], &[&QWEN_3_5]),
    family(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[&DIGIT, &GPT_2],
    ),
    family(&["falcon"], &[&FALCON_PUNCTUATION, &GPT_2, &THREE_DIGITS]),
    family(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[&GPT_4O]),
    Family { whole_words: WholeWords::All, add_bos: true, ..family(&["tekken"], &[&TEKKEN]) },
    family(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[&UP_TO_THREE_DIGITS, &CJK, &DEEPSEEK_3],
    ),
    family(&["deepseek-coder"], &[&LINE_BREAK, &CODER_LETTERS, &CODER_PUNCTUATION, &CODER_CJK, &DIGIT]),
    family(&["bloom", "poro-chat", "gpt3-finnish"], &[&BLOOM]),
    family(&["viking"], &[&BLOOM, &DIGIT]),
    family(&["jais-2"], &[&JAIS_2]),
    family(&["exaone-moe"], &[&EXAONE_MOE]),
    family(&["tiny_aya", "cohere2moe"], &[&THREES_AT_WORD_END, &GPT_4O]),
    family(&["laguna"], &[&LINES, &QWEN_2]),
    family(&["k2-horizon"], &[&K2_HORIZON]),
    family(&["ufakzeka"], &[&UFAKZEKA]),
    family(&["spark2_5"], &[&UP_TO_THREE_DIGITS, &CJK, &SPARK_2_5, &DIGIT]),
    Family { whole_words: WholeWords::All, ..family(&["youtu"], &[&YOUTU_SCRIPTS, &YOUTU]) },
    Family { whole_words: WholeWords::All, ..family(&["granite-embed-multi-97m"], &[&GPT_4O]) },
    Family { whole_words: WholeWords::All, ..family(&["minicpm5"], &[&UP_TO_THREE_DIGITS, &LLAMA_3]) },
    Family {
        symbols: Symbols::Marked,
        whole_words: WholeWords::LineBreaks,
        ..family(&["gemma4", "granite-embed-multi-311m"], &[&LINES])
    },
    Family { symbols: Symbols::Marked, ..family(&["sarvam-moe"], &[&LINES]) },
    Family { symbols: Symbols::Unspaced, ..family(&["whitespace"], &[&UNSPACED]) },
    // Files without a name were made for this; digits are cut twice because llama.cpp does it.
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

    /// The first name of each family.
    pub(super) fn families() -> impl Iterator<Item = &'static str> {
        FAMILIES.iter().map(|family| family.names[0])
    }

    pub(super) fn symbols(&self) -> Symbols {
        self.family.symbols
    }

    /// Whether this word is one token if the vocabulary has it.
    pub(super) fn is_whole(&self, word: &str) -> bool {
        match self.family.whole_words {
            WholeWords::None => false,
            WholeWords::LineBreaks => word.bytes().all(|byte| byte == b'\n'),
            WholeWords::All => true,
        }
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

fn cut(patterns: &[&Published], text: &str, visit: &mut dyn FnMut(&str)) {
    let Some((pattern, rest)) = patterns.split_first() else { return visit(text) };
    let mut start = 0;
    while start < text.len() {
        let (match_start, match_end) = pattern.find(text, start).unwrap_or((text.len(), text.len()));
        if match_start > start {
            cut(rest, &text[start..match_start], visit);
        }
        let mut found = &text[match_start..match_end];
        let mut left = found.chars().count();
        while left > 0 {
            let count = (pattern.group)(found, left);
            let end = found.char_indices().nth(count).map_or(found.len(), |(end, _)| end);
            cut(rest, &found[..end], visit);
            (found, left) = (&found[end..], left - count);
        }
        start = match_end;
    }
}

impl Published {
    /// The next match from `start` on; never empty.
    fn find(&self, text: &str, start: usize) -> Option<(usize, usize)> {
        let regex =
            self.compiled.get_or_init(|| Regex::new(self.text).expect("the patterns of this file are valid"));
        let found = find_with_tail(regex, self.tail, text, start)?;
        Some((found.start, found.end))
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
        check("deepseek-llm", "He é 123\n漢! ", &["He", " é", " ", "123", "\n", "漢", "!", " "]);
        check("superbpe", "a 1234567 b", &["a ", "1", "234", "567", " b"]);
        check("afmoe", "x12345 漢字 y!", &["x", "12", "345", " ", "漢字", " y", "!"]);
        check("kimi-k2", "漢字Abc's 1234", &["漢字", "Abc's", " ", "123", "4"]);
        check("seed-coder", "a!\n\nb 12", &["a", "!", "\n\n", "b", " ", "1", "2"]);
        check("bailingmoe", "I'm 12", &["I", "'m", " ", "1", "2"]);
        check("chameleon", "IMGIMGABZ  a1!", &["IMGIMGABZ", "  ", "a", "1", "!"]);
        check("youtu", "ab漢字かな，。가나 12's", &["ab", "漢字かな", "，。", "가나", " ", "1", "2", "'s"]);
        check("youtu", "it's", &["it's"]);
        check("exaone-moe", "ab cd  e1 '", &["ab cd", " ", " e", "1", " '"]);
        check("exaone-moe", "it's!\n\nx", &["it", "'s", "!\n", "\n", "x"]);
        check("tiny_aya", "1234567 12345a IT's", &["1", "234", "567", " ", "123", "45", "a", " IT's"]);
        check("cohere2moe", "a1234.5", &["a", "1", "234", ".", "5"]);
        check("minicpm5", "a 12345", &["a", " ", "123", "45"]);
        check(
            "granite-embed-multi-97m",
            "HelloWorld it's 1234",
            &["Hello", "World", " it's", " ", "123", "4"],
        );
        check("laguna", "a \n\n b 12", &["a", " ", "\n\n", " b", " ", "1", "2"]);
        check(
            "k2-horizon",
            "isn't a\u{200D}b e\u{301}1234",
            &["isn", "'t", " a\u{200D}b", " e\u{301}", "123", "4"],
        );
        check("ufakzeka", "Ankara'da 12", &["Ankara", "'da", " ", "1", "2"]);
        check("spark2_5", "a \n b!\n1234", &["a", " \n", " b", "!", "\n", "1", "2", "3", "4"]);
        check("gemma4", "a b\n\n c", &["a b", "\n\n", " c"]);
        check("sarvam-moe", "a b\nc", &["a b", "\n", "c"]);
    }

    #[test]
    fn jais_2_cuts_runs_of_spaces_into_powers_of_two() {
        let spaces = |count: usize| " ".repeat(count);
        for (count, groups) in [
            (2, &[1][..]),
            (4, &[2, 1]),
            (8, &[4, 2, 1]),
            (1536, &[512, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1]),
        ] {
            let mut expected = vec!["a".to_owned()];
            expected.extend(groups.iter().map(|&count| spaces(count)));
            expected.push(" b".to_owned());
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check("jais-2", &format!("a{}b", spaces(count)), &expected);
        }
        check("jais-2", "a   ", &["a", "  ", " "]);
        check("jais-2", "a  \n   1", &["a", "  \n", "  ", " ", "1"]);
        let published = fancy_regex::Regex::new(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        );
        let published = published.unwrap();
        for count in 0..40 {
            for (before, after) in [("a", "b"), ("a", "1"), ("a", ""), ("!", "!"), ("a\n", "\n"), ("", "x")] {
                let text = format!("{before}{}{after}", spaces(count));
                let expected: Vec<&str> =
                    published.find_iter(&text).map(|found| found.unwrap().as_str()).collect();
                check("jais-2", &text, &expected);
            }
        }
    }

    #[test]
    fn names_are_unique_and_patterns_compile() {
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
        for name in ["llama-bpe", "qwen2", "gpt-4o", "tekken", "command-r", "deepseek-llm", "deepseek-v3"] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
