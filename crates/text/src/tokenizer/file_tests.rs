//! Tokenizers of folders whose tokens are in several files, against the ids that `transformers`, `tiktoken` and
//! `mistral-common` give.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use testdata::shared;

use super::byte_level::byte_of_char;
use super::*;

/// A folder with files; JSON values are written as such.
fn folder(files: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_string);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn encode(tokenizer: &Tokenizer, text: &str, add: AddSpecial) -> Vec<u32> {
    tokenizer.encode(text, add, ParseSpecial::Yes).unwrap()
}

/// The error of a folder that is refused.
fn refusal(folder: &Path) -> String {
    Tokenizer::from_directory(folder).unwrap_err().to_string()
}

/// The folders were made by a script: the shared model of `base`, without the files of `drop`, with those of `write`, and
/// with `patch` in its `tokenizer_config.json`. Ids are those of `AutoTokenizer.encode` of transformers 5.24.
#[test]
fn added_tokens_have_the_ids_of_transformers() {
    let Some(data) = shared("stories260k").map(|path| path.parent().unwrap().to_path_buf()) else { return };
    let cases: Value = serde_json::from_str(include_str!("file_tests/added_tokens.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let (folder, base) = (tempfile::tempdir().unwrap(), data.join(case["base"].as_str().unwrap()));
        let drop: Vec<&str> = case["drop"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for name in [
            "config.json",
            "tokenizer.json",
            "tokenizer.model",
            "tokenizer_config.json",
            "special_tokens_map.json",
        ] {
            if !drop.contains(&name) && base.join(name).is_file() {
                std::fs::copy(base.join(name), folder.path().join(name)).unwrap();
            }
        }
        let config = folder.path().join("tokenizer_config.json");
        let mut object: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
        for (key, value) in case["patch"].as_object().unwrap() {
            object[key] = value.clone();
        }
        std::fs::write(&config, object.to_string()).unwrap();
        for (name, content) in case["write"].as_object().unwrap() {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        }
        let tokenizer = Tokenizer::from_directory(folder.path()).unwrap();
        for (text, expected) in case["texts"].as_array().unwrap().iter().zip(case["ids"].as_array().unwrap())
        {
            let text = text.as_str().unwrap();
            assert_eq!(encode(&tokenizer, text, AddSpecial::Yes), ids(expected), "{text:?} of {case}");
        }
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * i) & 63) as usize] as char;
            text.push(if i <= group.len() { digit } else { '=' });
        }
    }
    text
}

/// The tokens of a shared byte-level `tokenizer.json` as bytes, without the special one: first the bytes, as in every
/// `tekken.json`, then the others in the order of their ids.
fn ranked_tokens() -> Option<Vec<Vec<u8>>> {
    let path: PathBuf = shared("shakespeare-llama/hf/tokenizer.json")?;
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let vocab = file["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(u64, Vec<u8>)> = Vec::new();
    for (text, id) in vocab.iter().filter(|(text, _)| !text.starts_with("<|")) {
        tokens.push((id.as_u64().unwrap(), text.chars().map(|c| byte_of_char(c).unwrap()).collect()));
    }
    tokens.sort_by_key(|(id, token)| if token.len() == 1 { (0, u64::from(token[0])) } else { (1, *id) });
    Some(tokens.into_iter().map(|(_, token)| token).collect())
}

fn tiktoken_file(tokens: &[Vec<u8>]) -> Value {
    let lines = tokens.iter().enumerate().map(|(rank, token)| format!("{} {rank}\n", to_base64(token)));
    lines.collect::<String>().into()
}

fn tekken_file(tokens: &[Vec<u8>], special: Option<Value>, pattern: &str) -> Value {
    let entry = |(rank, token): (usize, &Vec<u8>)| json!({"rank": rank, "token_bytes": to_base64(token), "token_str": null});
    let mut file = json!({
        "config": {
            "pattern": pattern,
            "num_vocab_tokens": tokens.len(),
            "default_vocab_size": tokens.len() + 30,
            "default_num_special_tokens": 30,
            "version": "v3",
        },
        "vocab": tokens.iter().enumerate().map(entry).collect::<Vec<_>>(),
    });
    if let Some(special) = special {
        file["special_tokens"] = special;
    }
    file
}

/// The expected ids were made by a script from the same files, with tiktoken 0.14 and mistral-common 1.13.
#[test]
fn ranked_vocabularies_give_the_ids_of_their_libraries() {
    let Some(tokens) = ranked_tokens() else { return };
    let cases: Value = serde_json::from_str(include_str!("file_tests/ranked.json")).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let name = case["file"].as_str().unwrap();
        let content = match name {
            "tekken.json" => tekken_file(&tokens, None, case["pattern"].as_str().unwrap()),
            _ => tiktoken_file(&tokens),
        };
        let folder = folder(&[(name, content), ("tokenizer_config.json", case["config"].clone())]);
        let tokenizer = Tokenizer::from_directory(folder.path()).unwrap();
        assert_eq!(tokenizer.vocab_size() as u64, case["vocab_size"].as_u64().unwrap(), "{name}");
        for (text, expected) in cases["texts"].as_array().unwrap().iter().zip(case["ids"].as_array().unwrap())
        {
            let text = text.as_str().unwrap();
            let expected = ids(expected);
            assert_eq!(encode(&tokenizer, text, AddSpecial::No), expected, "{name}: {text:?}");
            assert_eq!(
                tokenizer.decode(&expected, SkipSpecial::No),
                case["decoded"][text].as_str().unwrap_or(text)
            );
        }
    }
}

#[test]
fn tiktoken_files_of_any_name_are_read_as_the_class_or_the_model_says() {
    let Some(tokens) = ranked_tokens() else { return };
    let own = |class: &str| json!({"tokenizer_class": class, "auto_map": {"AutoTokenizer": ["x.X", null]}});
    let open = |name: &str, class: Value, model_type: &str| {
        let config = json!({ "model_type": model_type });
        let file = (name, tiktoken_file(&tokens));
        folder(&[file, ("tokenizer_config.json", class), ("config.json", config)])
    };
    let first_special = |name: &str, class: Value, model_type: &str| {
        let tokenizer = Tokenizer::from_directory(open(name, class, model_type).path()).unwrap();
        tokenizer.token(tokens.len() as u32 + 1).unwrap().into_owned()
    };
    assert_eq!(first_special("x.tiktoken", own("HYTokenizer"), ""), "<|startoftext|>");
    assert_eq!(first_special("hy.tiktoken", json!({}), ""), "<|startoftext|>");
    assert_eq!(first_special("x.tiktoken", json!({}), "hunyuan_v1_dense"), "<|startoftext|>");
    assert_eq!(first_special("x.tiktoken", json!({}), "qwen"), "<|im_start|>");
    assert_eq!(first_special("x.tiktoken", json!({}), "kimi_k2"), "<|reserved_token_1024|>");
    assert_eq!(first_special("tokenizer.model", json!({}), "chatglm"), "[MASK]");
    for (name, class, found) in [
        ("x.tiktoken", json!({}), "no file names the class"),
        ("x.tiktoken", own("StrangeTokenizer"), "the class `StrangeTokenizer` is not known"),
        ("tokenizer.model", own("StrangeTokenizer"), "the class `StrangeTokenizer` is not known"),
    ] {
        let error = refusal(open(name, class, "strange").path());
        let known = "(known are QWenTokenizer, HYTokenizer, TikTokenTokenizer, ChatGLM4Tokenizer)";
        assert!(error.contains(found) && error.contains(known), "{error}");
    }
}

#[test]
fn ranked_vocabularies_become_gguf() {
    let Some(tokens) = ranked_tokens() else { return };
    let tekken = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    for (name, content, bos) in [
        ("tekken.json", tekken_file(&tokens, None, tekken), true),
        ("tiktoken.model", tiktoken_file(&tokens), false),
        ("tokenizer.model", tiktoken_file(&tokens), false),
    ] {
        let folder = folder(&[(name, content)]);
        let metadata = Tokenizer::gguf_metadata(folder.path(), 2000).unwrap();
        // The shared vocabulary is too small to tell all patterns apart: the first that gives its ids is named.
        assert!(metadata.str("tokenizer.ggml.pre").is_ok(), "{name}");
        assert_eq!(metadata.optional::<bool>("tokenizer.ggml.add_bos_token").unwrap(), Some(bos), "{name}");
    }
    // GGUF files have no pattern with which Qwen's normal form could go.
    let unknown = folder(&[("tekken.json", tekken_file(&tokens, None, r"\S+|\s+"))]);
    let error = Tokenizer::gguf_metadata(unknown.path(), 2000).unwrap_err().to_string();
    assert!(error.contains("cuts words in a way that no GGUF file has a name for"), "{error}");
}

#[test]
fn damaged_ranked_vocabularies_are_refused() {
    let Some(tokens) = ranked_tokens() else { return };
    let lines = tiktoken_file(&tokens);
    let lines: Vec<&str> = lines.as_str().unwrap().lines().collect();
    let with = |number: usize, line: &str| {
        let mut lines = lines.clone();
        lines[number] = line;
        lines.join("\n")
    };
    for (text, message) in [
        (with(300, "Z!Y= 300"), "line 301 is not a token in base64"),
        (with(300, "ZZZZZ 300"), "line 301 is not a token in base64"),
        (with(300, "YWJjZGVmZ2g= -1"), "line 301 is not a token in base64"),
        (with(300, "YWJjZGVmZ2g= 4294967296"), "line 301 is not a token in base64"),
        (with(300, "YWJjZGVmZ2g="), "line 301 is not a token in base64"),
        (with(300, "YWJjZGVmZ2g= 299"), "several tokens have the rank 299"),
        (with(300, "YWJjZGVmZ2g= 4000000000"), "a token has the rank 4000000000"),
        (with(300, lines[299]), "are the same"),
        (with(0, "YWJjZGVmZ2g= 0"), "has no token"),
        (with(300, " 300"), "the token of rank 300 is empty"),
        (lines[..200].join("\n"), "has no token"),
    ] {
        let folder = folder(&[("qwen.tiktoken", text.into())]);
        let error = refusal(folder.path());
        assert!(error.contains(message), "{message}: {error}");
    }
    let config = |index: &str| json!({"added_tokens_decoder": {index: {"content": "<a>", "special": true}}});
    for (index, message) in
        [("4000000000", "has the index 4000000000"), ("99999999999", "above 2^32"), ("x", "not an index")]
    {
        let folder =
            folder(&[("tiktoken.model", tiktoken_file(&tokens)), ("tokenizer_config.json", config(index))]);
        let error = refusal(folder.path());
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn damaged_tekken_files_are_refused() {
    type Change<'c> = &'c dyn Fn(&mut Value);
    let Some(tokens) = ranked_tokens() else { return };
    let good = tekken_file(&tokens, None, r"\S+|\s+");
    let with = |change: Change<'_>| {
        let mut file = good.clone();
        change(&mut file);
        refusal(folder(&[("tekken.json", file)]).path())
    };
    let cases: [(Change<'_>, &str); 10] = [
        (&|file| file["vocab"][300]["rank"] = json!(301), "vocab entry 300 has the rank 301"),
        (&|file| file["vocab"][300]["token_bytes"] = json!("Z!"), "rank 300 is not base64"),
        (&|file| file["vocab"][300]["token_bytes"] = json!(""), "rank 300 is empty"),
        (
            &|file| {
                file["vocab"][300] = json!({"rank": 300, "token_bytes": file["vocab"][299]["token_bytes"]})
            },
            "are the same",
        ),
        (&|file| file["config"]["default_vocab_size"] = json!(1 << 30), "default_vocab_size is"),
        (&|file| file["config"]["default_vocab_size"] = json!(20), "default_vocab_size is 20"),
        (
            &|file| file["config"]["default_num_special_tokens"] = json!(4_000_000_000u64),
            "default_num_special_tokens is",
        ),
        (&|file| file["config"]["default_num_special_tokens"] = json!(3), "default_num_special_tokens is 3"),
        (
            &|file| file["special_tokens"] = json!([{"rank": 1, "token_str": "a"}]),
            "has the rank 1, expected 0",
        ),
        (&|file| file["config"]["pattern"] = json!("("), "tekken.json"),
    ];
    for (change, message) in cases {
        let error = with(change);
        assert!(error.contains(message), "{message}: {error}");
    }
    let twice = json!([{"rank": 0, "token_str": "a"}, {"rank": 1, "token_str": "a"}]);
    let error = with(&|file| file["special_tokens"] = twice.clone());
    assert!(error.contains("is there twice"), "{error}");
    // Files that are cut off are refused, and none panics.
    let text = good.to_string();
    for cut in (0..text.len()).step_by(text.len() / 40) {
        refusal(folder(&[("tekken.json", text[..cut].into())]).path());
    }
}

/// The lists of a shared `tokenizer.json`, which give the same ids with the class that cuts texts so.
#[test]
fn lists_of_tokens_give_the_ids_of_their_tokenizer_json() {
    let texts =
        ["Hello world, I'm here: 12345!", " a  b\n\n c\t", "naïve Äpfel 日本語 😀", "</s><mask> x", ""];
    for (base, config) in [
        ("shakespeare-llama/hf", json!({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"})),
        (
            "tokenizers/hf/roberta-base",
            json!({"tokenizer_class": "RobertaTokenizer", "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": true}}),
        ),
        ("minilm-l6-v2", json!({"tokenizer_class": "BertTokenizer"})),
    ] {
        let Some(original) = shared(base).map(|path| path.join("tokenizer.json")) else { return };
        let file: Value = serde_json::from_slice(&std::fs::read(&original).unwrap()).unwrap();
        let vocab = &file["model"]["vocab"];
        let mut words: Vec<(u64, &str)> = vocab
            .as_object()
            .unwrap()
            .iter()
            .map(|(text, id)| (id.as_u64().unwrap(), text.as_str()))
            .collect();
        words.sort_unstable();
        let words: String = words.iter().map(|(_, text)| format!("{text}\n")).collect();
        let merge = |merge: &Value| match merge {
            Value::String(line) => format!("{line}\n"),
            pair => format!("{} {}\n", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        };
        let merges: Option<String> =
            file["model"]["merges"].as_array().map(|merges| merges.iter().map(merge).collect());
        let files = match merges {
            Some(merges) => {
                vec![("vocab.json", vocab.clone()), ("merges.txt", format!("#version: 0.2\n{merges}").into())]
            }
            None => vec![("vocab.txt", words.into())],
        };
        let folder = folder(&[&files[..], &[("tokenizer_config.json", config)]].concat());
        let (ours, theirs) =
            (Tokenizer::from_directory(folder.path()).unwrap(), Tokenizer::from_file(&original).unwrap());
        assert_eq!(ours.vocab_size(), theirs.vocab_size(), "{base}");
        for text in texts {
            assert_eq!(
                encode(&ours, text, AddSpecial::Yes),
                encode(&theirs, text, AddSpecial::Yes),
                "{base}: {text:?}"
            );
        }
    }
}

#[test]
fn lists_that_lack_something_are_refused() {
    let vocab = json!({"a": 0, "b": 1, "ab": 2});
    let gpt2 = json!({"tokenizer_class": "GPT2Tokenizer"});
    let clip = json!({"tokenizer_class": "CLIPTokenizer"});
    for (files, message) in [
        (vec![("vocab.json", vocab.clone()), ("tokenizer_config.json", gpt2.clone())], "merges.txt"),
        (
            vec![
                ("vocab.json", vocab.clone()),
                ("merges.txt", "a c".into()),
                ("tokenizer_config.json", gpt2.clone()),
            ],
            "which is no token",
        ),
        (
            vec![
                ("vocab.json", vocab.clone()),
                ("merges.txt", "a b c".into()),
                ("tokenizer_config.json", gpt2.clone()),
            ],
            "is not two tokens",
        ),
        (
            vec![
                ("vocab.json", vocab.clone()),
                ("merges.txt", "a b".into()),
                ("tokenizer_config.json", clip),
            ],
            "\"CLIPTokenizer\"",
        ),
        (vec![("vocab.json", vocab.clone()), ("merges.txt", "a b".into())], "is not known"),
        (
            vec![("vocab.json", json!(["a"])), ("merges.txt", "a b".into()), ("tokenizer_config.json", gpt2)],
            "vocab.json",
        ),
        (
            vec![
                ("vocab.txt", "a\nb".into()),
                ("tokenizer_config.json", json!({"tokenizer_class": "MPNetTokenizer"})),
            ],
            "MPNetTokenizer",
        ),
        (vec![("config.json", json!({}))], "the folder has none of tokenizer.json"),
    ] {
        let error = refusal(folder(&files).path());
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn files_next_to_a_tokenizer_may_have_infinite_numbers() {
    let Some(base) = shared("stories260k/hf") else { return };
    let read = |name: &str| Value::String(std::fs::read_to_string(base.join(name)).unwrap());
    let odd = r#"{"bos_token": "<s>", "model_max_length": Infinity, "x": [NaN, -Infinity], "extra_special_tokens": ["<y>"]}"#;
    let folder = folder(&[
        ("tokenizer.json", read("tokenizer.json")),
        ("tokenizer_config.json", odd.into()),
        ("generation_config.json", r#"{"eos_token_id": 2, "max_time": Infinity}"#.into()),
        ("config.json", r#"{"limit": [0.0, Infinity]}"#.into()),
    ]);
    let tokenizer = Tokenizer::from_directory(folder.path()).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.id("<y>")), (Some(1), Some(2), Some(512)));
}
