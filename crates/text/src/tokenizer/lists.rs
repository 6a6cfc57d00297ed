//! `vocab.json` with `merges.txt`, and `vocab.txt`: lists of tokens. How texts are cut, the class of the tokenizer says,
//! as in `transformers`.

use serde_json::{Value, json};

use super::companions::Companions;
use super::hugging_face::{Merge, ModelFile, Text, TokenizerJson, Vocab};

/// What the class of a tokenizer does with a `vocab.json` and its merges.
struct MergedClass {
    classes: &'static [&'static str],
    /// The starts of model types that have it, if no class is named.
    model_types: &'static [&'static str],
    style: Style,
    /// Special tokens that the configuration need not name.
    special: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Gpt2,
    Qwen2,
    Qwen3_5,
    /// As GPT-2, with tokens around a text.
    Roberta,
}

const END_OF_TEXT: &str = "<|endoftext|>";

static MERGED: &[MergedClass] = &[
    MergedClass {
        classes: &["Qwen3_5Tokenizer"],
        model_types: &["qwen3_5", "qwen4"],
        style: Style::Qwen3_5,
        special: &[("unk_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("pad_token", END_OF_TEXT)],
    },
    MergedClass {
        classes: &["Qwen2Tokenizer", "Qwen3Tokenizer"],
        model_types: &["qwen"],
        style: Style::Qwen2,
        special: &[("unk_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("pad_token", END_OF_TEXT)],
    },
    MergedClass {
        classes: &[
            "RobertaTokenizer",
            "BartTokenizer",
            "LongformerTokenizer",
            "LEDTokenizer",
            "MvpTokenizer",
        ],
        model_types: &["roberta", "bart", "longformer", "led"],
        style: Style::Roberta,
        special: &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("sep_token", "</s>"),
            ("pad_token", "<pad>"),
            ("cls_token", "<s>"),
            ("mask_token", "<mask>"),
        ],
    },
    MergedClass {
        classes: &["GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer"],
        model_types: &["gpt2", "gptj", "gpt_neo", "gpt_bigcode", "opt", "codegen", "starcoder"],
        style: Style::Gpt2,
        special: &[("bos_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("unk_token", END_OF_TEXT)],
    },
];
/// The classes that read a `vocab.txt` as BERT does, without `Tokenizer`.
const WORD_PIECE: &[&str] = &[
    "Bert",
    "DistilBert",
    "Electra",
    "MobileBert",
    "ConvBert",
    "SqueezeBert",
    "LayoutLM",
    "Dpr",
    "Splinter",
];
/// Classes that say nothing about how texts are cut.
const GENERAL: &[&str] = &["", "PreTrainedTokenizer", "TokenizersBackend", "AutoTokenizer"];

/// Words of Qwen 2.
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Words of Qwen 3.5: marks belong to letters.
const QWEN_3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A `vocab.json` and a `merges.txt` as a `tokenizer.json` that says the same.
pub(super) fn merged<'f>(
    vocab: &'f [u8],
    merges: &'f str,
    companions: &mut Companions,
) -> Result<TokenizerJson<'f>, String> {
    let class = merged_class(companions)?;
    companions.set_defaults(class.special);
    let vocab: Vocab<'f> = serde_json::from_slice(vocab).map_err(|error| error.to_string())?;
    if let Vocab::Scores(_) = vocab {
        return Err("is a list, not tokens with their ids".into());
    }
    let space = companions.tokenizer["add_prefix_space"].as_bool().unwrap_or(false);
    let byte_level =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": space, "use_regex": regex});
    let (normalizer, pre_tokenizer) = match class.style {
        Style::Gpt2 | Style::Roberta => (Value::Null, byte_level(true)),
        Style::Qwen2 | Style::Qwen3_5 => {
            let words = if class.style == Style::Qwen2 { QWEN_2 } else { QWEN_3_5 };
            let split = json!({"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated"});
            let parts = json!([split, byte_level(false)]);
            (json!({"type": "NFC"}), json!({"type": "Sequence", "pretokenizers": parts}))
        }
    };
    let lines = merges.lines().filter(|line| !line.trim().is_empty());
    let model = ModelFile {
        merges: Some(lines.map(|line| Merge::Line(Text(line.into()))).collect()),
        ..ModelFile::new("BPE", vocab)
    };
    let mut file = TokenizerJson {
        normalizer,
        pre_tokenizer,
        decoder: json!({"type": "ByteLevel"}),
        added_tokens: companions.added_tokens(&[], false)?,
        ..TokenizerJson::new(model)
    };
    if class.style == Style::Roberta {
        let pair = |key: &str| named(&file, companions, key);
        let (sep, cls) = (pair("sep_token")?, pair("cls_token")?);
        file.post_processor =
            json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "add_prefix_space": space});
    }
    Ok(file)
}

/// The class that reads the files.
fn merged_class(companions: &Companions) -> Result<&'static MergedClass, String> {
    let (class, model_type) = (companions.class(), companions.config["model_type"].as_str());
    let of_class = MERGED.iter().find(|known| known.classes.contains(&class));
    let has_type = |known: &&MergedClass| {
        known.model_types.iter().any(|start| model_type.is_some_and(|name| name.starts_with(start)))
    };
    let of_type = MERGED.iter().find(has_type);
    // Files of Qwen 3.5 name the class of Qwen 2.
    let certain = of_type.filter(|known| known.style == Style::Qwen3_5 || GENERAL.contains(&class));
    certain.or(of_class).ok_or_else(|| {
        let known: Vec<&str> = MERGED.iter().flat_map(|known| known.classes).copied().collect();
        format!(
            "how texts are cut is not known: the tokenizer_class is {class:?} and the model_type {:?}; supported are {}",
            model_type.unwrap_or_default(),
            known.join(", ")
        )
    })
}

/// A `vocab.txt`, one token a line, as a `tokenizer.json` that says the same.
pub(super) fn words<'f>(bytes: &'f [u8], companions: &mut Companions) -> Result<TokenizerJson<'f>, String> {
    let class = companions.class();
    let is_bert = WORD_PIECE.iter().any(|name| class.strip_prefix(name) == Some("Tokenizer"));
    if !is_bert && !GENERAL.contains(&class) {
        return Err(format!("is read by a {class}, which is not supported; supported are those of BERT"));
    }
    let special = ["unk", "sep", "pad", "cls", "mask"];
    let special = special.map(|name| (format!("{name}_token"), format!("[{}]", name.to_uppercase())));
    companions.set_defaults(&special.each_ref().map(|(key, text)| (key.as_str(), text.as_str())));
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let tokens = text.lines().zip(0..).map(|(line, id)| (Text(line.trim_end().into()), id)).collect();
    let flag = |key: &str, default: bool| companions.tokenizer[key].as_bool().unwrap_or(default);
    let model = ModelFile {
        unk_token: companions.text("unk_token").map(str::to_string),
        ..ModelFile::new("WordPiece", Vocab::Ids(tokens))
    };
    let mut file = TokenizerJson {
        normalizer: json!({
            "type": "BertNormalizer",
            "handle_chinese_chars": flag("tokenize_chinese_chars", true),
            "strip_accents": companions.tokenizer["strip_accents"],
            "lowercase": flag("do_lower_case", true),
        }),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        decoder: json!({"type": "WordPiece", "prefix": "##"}),
        added_tokens: companions.added_tokens(&[], false)?,
        ..TokenizerJson::new(model)
    };
    let pair = |key: &str| named(&file, companions, key);
    let (sep, cls) = (pair("sep_token")?, pair("cls_token")?);
    file.post_processor = json!({"type": "BertProcessing", "sep": sep, "cls": cls});
    Ok(file)
}

/// A special token and its id, for a post-processor.
fn named(file: &TokenizerJson<'_>, companions: &Companions, key: &str) -> Result<(String, u32), String> {
    let text = companions.text(key).ok_or_else(|| format!("{key} is missing"))?;
    let id = file.id_of(text).ok_or_else(|| format!("{key} is {text:?}, which is no token"))?;
    Ok((text.to_string(), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_classes_leave_it_to_the_model_type() {
        for (tokenizer, config, style) in [
            (
                json!({"tokenizer_class": "Qwen2TokenizerFast"}),
                json!({"model_type": "gpt2"}),
                Some(Style::Qwen2),
            ),
            (json!({}), json!({"model_type": "qwen3"}), Some(Style::Qwen2)),
            (
                json!({"tokenizer_class": "Qwen2Tokenizer"}),
                json!({"model_type": "qwen3_5_moe"}),
                Some(Style::Qwen3_5),
            ),
            (
                json!({"tokenizer_class": "PreTrainedTokenizerFast"}),
                json!({"model_type": "opt"}),
                Some(Style::Gpt2),
            ),
            (json!({"tokenizer_class": "CLIPTokenizer"}), json!({"model_type": "gpt2"}), None),
            (json!({}), json!({"model_type": "clip"}), None),
            (json!({}), json!({}), None),
        ] {
            let companions = Companions { tokenizer, config, ..Companions::default() };
            let found = merged_class(&companions).map(|class| class.style);
            assert_eq!(found.ok(), style, "{companions:?}");
        }
    }

    #[test]
    fn unknown_readers_of_words_are_refused() {
        let tokenizer = json!({"tokenizer_class": "BertJapaneseTokenizer"});
        let mut japanese = Companions { tokenizer, ..Companions::default() };
        let error = words(b"[PAD]\n[UNK]\n", &mut japanese).err().unwrap();
        assert!(error.contains("BertJapaneseTokenizer"), "{error}");
        let none = words(b"[PAD]\n", &mut Companions::default());
        let added: Vec<String> = none.unwrap().added_tokens.into_iter().map(|token| token.content).collect();
        assert_eq!(added, ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]);
    }
}
