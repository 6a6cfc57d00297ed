//! Tokenizers against the ids that llama.cpp, SentencePiece and `tokenizers` give.

use std::path::PathBuf;
use std::sync::Arc;

use prost::Message;
use serde_json::Value;
use testdata::shared;
use weights::Weights;

use super::sentencepiece_model;
use super::*;
use crate::detokenizer::Detokenizer;

fn gguf(path: PathBuf) -> Tokenizer {
    Tokenizer::from_gguf(Weights::open(&path).unwrap().metadata()).unwrap()
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn plain(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, AddSpecial::No, ParseSpecial::No).unwrap()
}

fn special(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, AddSpecial::Yes, ParseSpecial::Yes).unwrap()
}

/// Every text of the shared tokenizer cases, and the prompts of the shared models.
fn corpus() -> Option<Vec<String>> {
    let folder = shared("tokenizers")?;
    let mut texts = Vec::new();
    for file in ["gguf-vocab/ggml-vocab-phi-3.gguf.expected.json", "hf/t5-small/expected.json"] {
        let cases = json(folder.join(file))["cases"].clone();
        texts.extend(cases.as_array().unwrap().iter().map(|case| case["text"].as_str().unwrap().to_owned()));
    }
    texts.extend(inputs(folder.join("gguf-vocab/ggml-vocab-phi-3.gguf.inp")));
    texts.extend(prompts("stories260k")?.into_iter().map(|(prompt, _)| prompt));
    texts.extend(prompts("storyteller")?.into_iter().map(|(prompt, _)| prompt));
    Some(texts)
}

fn inputs(path: PathBuf) -> Vec<String> {
    const MARK: &str = "\n__ggml_vocab_test__\n";
    let text = std::fs::read_to_string(path).unwrap();
    text.strip_suffix(MARK).unwrap().split(MARK).map(str::to_owned).collect()
}

/// The prompts of a model's reference run, with their ids.
fn prompts(model: &str) -> Option<Vec<(String, Vec<u32>)>> {
    let reference = json(shared(&format!("{model}/reference/greedy.json"))?);
    let cases = match &reference["variants"] {
        Value::Object(variants) => variants["BF16"]["cases"].clone(),
        _ => reference["cases"].clone(),
    };
    let case = |case: &Value| (case["prompt"].as_str().unwrap().to_owned(), ids(&case["prompt_ids"]));
    Some(cases.as_array().unwrap().iter().map(case).collect())
}

/// Every kind of vocabulary that llama.cpp's test files have.
#[test]
fn gguf_vocabularies_give_llama_cpps_ids() {
    let Some(folder) = shared("tokenizers/gguf-vocab") else { return };
    for name in ["gpt-2", "falcon", "mpt", "phi-3", "bert-bge"] {
        let path = |suffix: &str| folder.join(format!("ggml-vocab-{name}.gguf{suffix}"));
        let tokenizer = gguf(path(""));
        let outputs = std::fs::read_to_string(path(".out")).unwrap();
        let inputs = inputs(path(".inp"));
        assert_eq!(inputs.len(), outputs.lines().count(), "{name}");
        for (text, line) in inputs.iter().zip(outputs.lines()) {
            let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert_eq!(plain(&tokenizer, text), expected, "{name}: {text:?}");
        }
        let expected = json(path(".expected.json"));
        for case in expected["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(plain(&tokenizer, text), ids(&case["ids"]), "{name}: {text:?}");
            assert_eq!(special(&tokenizer, text), ids(&case["ids_special"]), "{name}, special: {text:?}");
            // BERT lowers letters, and SentencePiece cannot tell its mark for a space from a space.
            if name != "bert-bge" {
                let marks = if name == "phi-3" { " " } else { "▁" };
                assert_eq!(
                    tokenizer.decode(&ids(&case["ids"]), SkipSpecial::No),
                    text.replace('▁', marks),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn tokenizer_json_gives_the_librarys_ids_and_texts() {
    let Some(folder) = shared("tokenizers/hf") else { return };
    for name in ["phi-3-mini", "roberta-base", "t5-small"] {
        let tokenizer = Tokenizer::from_directory(folder.join(name)).unwrap();
        let expected = json(folder.join(name).join("expected.json"));
        for case in expected["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(special(&tokenizer, text), ids(&case["ids"]), "{name}: {text:?}");
            let bare = tokenizer.encode(text, AddSpecial::No, ParseSpecial::Yes).unwrap();
            assert_eq!(bare, ids(&case["ids_no_special"]), "{name}: {text:?}");
            let decoded = |skip| tokenizer.decode(&bare, skip);
            assert_eq!(decoded(SkipSpecial::No), case["decoded"], "{name}: {text:?}");
            assert_eq!(decoded(SkipSpecial::Yes), case["decoded_skip_special"], "{name}: {text:?}");
        }
    }
}

#[test]
fn one_model_in_three_formats_gives_the_same_ids() {
    let (Some(folder), Some(corpus)) = (shared("stories260k"), corpus()) else { return };
    let from_json = Tokenizer::from_file(folder.join("hf/tokenizer.json")).unwrap();
    let from_model = Tokenizer::from_file(folder.join("hf/tokenizer.model")).unwrap();
    let from_gguf = gguf(folder.join("gguf/stories260K-F32.gguf"));
    for text in &corpus {
        for add in [AddSpecial::Yes, AddSpecial::No] {
            let expected = from_json.encode(text, add, ParseSpecial::No).unwrap();
            assert_eq!(from_model.encode(text, add, ParseSpecial::No).unwrap(), expected, "{text:?}");
            assert_eq!(from_gguf.encode(text, add, ParseSpecial::No).unwrap(), expected, "{text:?}");
            for tokenizer in [&from_json, &from_model, &from_gguf] {
                // The mark for a space cannot be told from a space.
                assert_eq!(tokenizer.decode(&expected, SkipSpecial::Yes), text.replace('▁', " "));
            }
        }
    }
    for tokenizer in [&from_json, &from_model, &from_gguf] {
        assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab_size()), (Some(1), Some(2), 512));
        assert!(tokenizer.eos_ids().contains(&2));
    }
    // generation_config.json says [1, 2]; GGUF metadata has but the one.
    assert!(from_json.eos_ids().iter().eq(&[1, 2]) && from_gguf.eos_ids().iter().eq(&[2]));
    for (prompt, expected) in prompts("stories260k").unwrap() {
        assert_eq!(special(&from_gguf, &prompt), expected);
    }
}

#[test]
fn prompts_of_the_shared_models() {
    for model in ["shakespeare-llama", "storyteller"] {
        let (Some(folder), Some(prompts)) = (shared(model), prompts(model)) else { return };
        let from_gguf = gguf(folder.join(format!("gguf/{model}-BF16.gguf")));
        let from_json = Tokenizer::from_directory(folder.join("hf")).unwrap();
        assert_eq!(from_gguf.eos_ids(), from_json.eos_ids());
        assert!(from_json.eos_ids().iter().eq(if model == "storyteller" { &[1] } else { &[0] }));
        assert_eq!((from_gguf.bos(), from_gguf.vocab_size()), (from_json.bos(), from_json.vocab_size()));
        for (prompt, expected) in prompts {
            assert_eq!(special(&from_gguf, &prompt), expected, "{model}: {prompt:?}");
            assert_eq!(special(&from_json, &prompt), expected, "{model}: {prompt:?}");
        }
        for text in corpus().unwrap() {
            assert_eq!(plain(&from_gguf, &text), plain(&from_json, &text), "{model}: {text:?}");
            assert_eq!(from_gguf.decode(&plain(&from_gguf, &text), SkipSpecial::No), text, "{model}");
        }
    }
}

/// T5's vocabulary as the SentencePiece file that its `tokenizer.json` was made from.
#[test]
fn unigram_gives_the_librarys_ids() {
    let Some(folder) = shared("tokenizers/hf/t5-small") else { return };
    let file = json(folder.join("tokenizer.json"));
    let added = |id| file["added_tokens"].as_array().unwrap().iter().any(|token| token["id"] == id);
    let pieces = file["model"]["vocab"].as_array().unwrap().iter().enumerate().map(|(id, entry)| {
        let kind = if id == 2 {
            2
        } else if added(id) {
            3
        } else {
            1
        };
        sentencepiece_model::Piece {
            piece: entry[0].as_str().unwrap().into(),
            score: entry[1].as_f64().unwrap() as f32,
            kind: Some(kind),
        }
    });
    let charsmap = base64::base64(file["normalizer"]["precompiled_charsmap"].as_str().unwrap()).unwrap();
    let model = sentencepiece_model::Model {
        pieces: pieces.collect(),
        trainer: Some(sentencepiece_model::Trainer {
            unknown: Some(2),
            bos: Some(-1),
            eos: Some(1),
            ..Default::default()
        }),
        normalizer: Some(sentencepiece_model::Normalizer { charsmap, ..Default::default() }),
    };
    let file = sentencepiece_model::SentencePieceFile::decode(&model.encode_to_vec()).unwrap();
    let tokenizer = sentencepiece_model::build(&file, "spiece.model").unwrap();
    let expected = json(folder.join("expected.json"));
    for case in expected["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(special(&tokenizer, text), ids(&case["ids"]), "{text:?}");
    }
}

#[test]
fn wordpiece_files_lose_their_padding_and_truncation() {
    let Some(folder) = shared("minilm-l6-v2") else { return };
    let tokenizer = Tokenizer::from_directory(folder).unwrap();
    assert_eq!(special(&tokenizer, "Hello world"), [101, 7592, 2088, 102]);
    assert_eq!(special(&tokenizer, &"word ".repeat(500)).len(), 502);
    assert_eq!(tokenizer.decode(&[101, 7592, 2088, 102], SkipSpecial::Yes), "hello world");
    // The GGUF file's vocabulary is the same, and texts come out the same, but for those where llama.cpp departs from
    // BERT's own tokenizer: it keeps the first letter of a decomposed Hangul syllable only, drops the Devanagari signs that
    // are no accents too, and has no limit on a word's length.
    const DIFFERENT: [&str; 3] = ["안녕", "नमस", "xxxx"];
    let from_gguf = gguf(shared("tokenizers/gguf-vocab/ggml-vocab-bert-bge.gguf").unwrap());
    for text in corpus().unwrap() {
        if DIFFERENT.iter().any(|start| text.starts_with(start)) {
            assert_ne!(special(&from_gguf, &text), special(&tokenizer, &text), "{text:?}");
            continue;
        }
        assert_eq!(special(&from_gguf, &text), special(&tokenizer, &text), "{text:?}");
        let literal =
            |tokenizer: &Tokenizer| tokenizer.encode(&text, AddSpecial::Yes, ParseSpecial::No).unwrap();
        assert_eq!(literal(&from_gguf), literal(&tokenizer), "{text:?}");
    }
}

/// Files that lie: whatever opens must encode and decode without a panic.
#[test]
fn malformed_vocabularies() {
    let Some(folder) = shared("malformed") else { return };
    let index = json(folder.join("index.json"));
    let mut opened = 0;
    for case in index["files"].as_array().unwrap() {
        let file = case["file"].as_str().unwrap();
        let (Some(base), Some(patches)) = (case["base"].as_str(), case["patch"].as_array()) else { continue };
        if !file.starts_with("gguf/") {
            continue;
        }
        let mut bytes = std::fs::read(shared(base).unwrap()).unwrap();
        for patch in patches {
            let at = patch[0].as_u64().unwrap() as usize;
            bytes[at] = u8::from_str_radix(patch[1].as_str().unwrap(), 16).unwrap();
        }
        let path =
            std::env::temp_dir().join(format!("peri-{}-{}", std::process::id(), file.replace('/', "-")));
        std::fs::write(&path, bytes).unwrap();
        let weights = Weights::open(&path);
        std::fs::remove_file(&path).unwrap();
        let tokenizer = weights.map_err(Error::from).and_then(|w| Tokenizer::from_gguf(w.metadata()));
        if let Ok(tokenizer) = tokenizer {
            opened += 1;
            exercise(&tokenizer);
        } else if case["expect"] == "accept" {
            panic!("{file}: {}", tokenizer.unwrap_err());
        }
    }
    assert!(opened >= 8, "only {opened} of the patched models opened");
}

fn exercise(tokenizer: &Tokenizer) {
    for text in ["", "Once upon a time\n", "é漢😀 <s></s>", "<0x-1>"] {
        for parse in [ParseSpecial::Yes, ParseSpecial::No] {
            let ids = tokenizer.encode(text, AddSpecial::Yes, parse).unwrap();
            tokenizer.decode(&ids, SkipSpecial::No);
        }
    }
    let all: Vec<u32> = (0..tokenizer.vocab_size() as u32 + 10).chain([u32::MAX]).collect();
    assert!(tokenizer.decode(&all, SkipSpecial::No).ends_with("\u{FFFD}"));
}

fn vocabulary<'a>(model: &'a str, tokens: &[&'a str]) -> GgufVocabulary<'a> {
    GgufVocabulary { model, tokens: tokens.iter().map(|&t| t.into()).collect(), ..Default::default() }
}

#[test]
fn contradictions_are_named() {
    let check = |vocabulary: &GgufVocabulary<'_>, expected: &str| {
        let message = Tokenizer::from_gguf_vocabulary(vocabulary).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} should say {expected:?}");
    };
    let tokens = ["<unk>", "<s>", "</s>", "a"];
    check(&vocabulary("llama", &[]), "tokens is empty");
    check(
        &vocabulary("rwkv", &tokens),
        "\"rwkv\" is not supported; supported are llama, gpt2, gemma4, whitespace, bert and t5",
    );
    let llama = || vocabulary("llama", &tokens);
    check(&GgufVocabulary { bos: Some(9999), ..llama() }, "its id is 9999 and there are 4 tokens");
    check(
        &GgufVocabulary { scores: Some(vec![0.0; 3]), ..llama() },
        "scores has 3 entries, but there are 4 tokens",
    );
    check(&GgufVocabulary { token_types: Some(vec![]), ..llama() }, "token_type has 0 entries");
    check(&GgufVocabulary { pre: "moon", ..vocabulary("gpt2", &tokens) }, "\"moon\" is not supported");
    check(&GgufVocabulary { pre: "gpt-2", ..vocabulary("gpt2", &tokens) }, "needs tokenizer.ggml.merges");
    check(&vocabulary("t5", &tokens[..2]), "the unknown token is 2, but there are 2 tokens");
    check(&vocabulary("t5", &tokens), "needs tokenizer.ggml.scores");
    check(&vocabulary("bert", &tokens), "the unknown token is 100, but there are 4 tokens");
    let missing =
        Tokenizer::from_directory(std::env::temp_dir().join("no-such-folder")).unwrap_err().to_string();
    assert!(missing.contains("tokenizer.json, tekken.json, tokenizer.model"), "{missing}");
}

#[test]
fn hostile_vocabularies_do_no_harm() {
    let tokens = ["<unk>", "<s>", "</s>", "<0x-1>", "a", "a", "", "<0x41>", "\u{FFFD}", "▁", "aa"];
    let types = vec![2, 3, 3, 6, 1, 4, 3, 6, 99, -7, 1];
    let scores = vec![f32::NAN, 0.0, f32::INFINITY, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, f32::NAN];
    for (model, pre) in [
        ("llama", ""),
        ("t5", ""),
        ("bert", ""),
        ("gpt2", "llama-bpe"),
        ("gemma4", ""),
        ("gpt2", "sarvam-moe"),
        ("whitespace", "whitespace"),
    ] {
        let vocabulary = GgufVocabulary {
            pre,
            merges: vec!["a a".into(), " ".into(), "".into(), "zz y".into()],
            token_types: Some(types.clone()),
            scores: Some(scores.clone()),
            bos: Some(1),
            eos: Some(u32::MAX),
            eot: Some(77),
            add_eos: Some(false),
            unknown: Some(0),
            cls: Some(1),
            separator: Some(2),
            ..vocabulary(model, &tokens)
        };
        let tokenizer = Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap();
        exercise(&tokenizer);
        assert!(tokenizer.eos_ids().iter().all(|&id| (id as usize) < tokens.len()), "{model}");
    }
    for bytes in [&b"{"[..], b"{}", b"\x0a\xff\xff", b"", b"{\"model\": {\"type\": \"BPE\"}}"] {
        let path = std::env::temp_dir().join(format!("peri-{}-tokenizer.json", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let result = Tokenizer::from_file(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(result.is_err(), "{bytes:?}");
    }
}

/// As llama.cpp's "gemma4" and "whitespace": merges of characters, `▁` for spaces, bytes for characters without tokens.
#[test]
fn merges_of_characters() {
    let tokens = ["<bos>", "▁", "a", "b", "▁a", "▁ab", "\n", "\n\n", "<0xC3>", "<0xA9>", "漢", "漢字", "a漢"];
    let types = vec![3, 1, 1, 1, 1, 1, 1, 1, 6, 6, 1, 1, 1];
    let merges = ["▁ a", "▁a b", "漢 字", "\n \n"];
    let tokenizer = |model, pre| {
        let vocabulary = GgufVocabulary {
            pre,
            merges: merges.iter().map(|&merge| merge.into()).collect(),
            token_types: Some(types.clone()),
            bos: Some(0),
            ..vocabulary(model, &tokens)
        };
        Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap()
    };
    let text = "b ab\n\n\n\né漢字 字";
    for gemma in [tokenizer("gemma4", ""), tokenizer("gpt2", "granite-embed-multi-311m")] {
        // Of four line breaks no token is whole; the merge joins them two by two. `字` has neither token nor bytes.
        assert_eq!(plain(&gemma, text), [3, 5, 7, 7, 8, 9, 11, 1]);
        assert_eq!(plain(&gemma, "\n\n"), [7]);
        assert_eq!(gemma.decode(&[3, 5, 7, 8, 9, 11], SkipSpecial::No), "b ab\n\né漢字");
    }
    assert_eq!(special(&tokenizer("gemma4", ""), "a"), [0, 2]);
    assert_eq!(plain(&tokenizer("gpt2", "sarvam-moe"), "a a"), [2, 4]);
    let unspaced = tokenizer("whitespace", "whitespace");
    assert_eq!(plain(&unspaced, "a \n 漢字\u{3000}b"), [2, 11, 3]);
    assert_eq!(unspaced.decode(&[2, 11], SkipSpecial::No), "a漢字");
}

#[test]
fn every_kind_streams_what_it_decodes() {
    let Some(folder) = shared("tokenizers") else { return };
    let Some(stories) = shared("stories260k/hf/tokenizer.json") else { return };
    let mut tokenizers = vec![Tokenizer::from_file(stories).unwrap()];
    for name in ["gpt-2", "falcon", "mpt", "phi-3", "bert-bge"] {
        tokenizers.push(gguf(folder.join(format!("gguf-vocab/ggml-vocab-{name}.gguf"))));
    }
    for name in ["phi-3-mini", "roberta-base", "t5-small"] {
        tokenizers.push(Tokenizer::from_directory(folder.join("hf").join(name)).unwrap());
    }
    for tokenizer in tokenizers.into_iter().map(Arc::new) {
        proptest::proptest!(proptest::test_runner::Config::with_cases(200), |(seed: u64, len in 0usize..40)| {
            let size = tokenizer.vocab_size() as u64 + 2;
            // Low ids are where byte tokens are; half of the draws go there.
            let id = |i| tensor::philox::philox4x32([i as u32, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
            let ids: Vec<u32> = (0..len)
                .map(id)
                .map(|[a, b, ..]| if b % 2 == 0 { a % 300 } else { (u64::from(a) % size) as u32 })
                .collect();
            for skip in [SkipSpecial::Yes, SkipSpecial::No] {
                check_streaming(&tokenizer, &ids, skip);
            }
        });
    }
}

fn check_streaming(tokenizer: &Arc<Tokenizer>, ids: &[u32], skip: SkipSpecial) {
    let whole = tokenizer.decode(ids, skip);
    let mut stream = Detokenizer::new(Arc::clone(tokenizer), skip);
    let mut text: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
    text.extend(stream.finish());
    assert_eq!(text, whole, "{}: {ids:?}", tokenizer.kind());

    // Cut anywhere between characters, prompt and answer make the same text.
    let (prompt, answer) = ids.split_at(ids.len() / 2);
    let mut stream = Detokenizer::after(Arc::clone(tokenizer), skip, prompt);
    let mut text: String = answer.iter().filter_map(|&id| stream.push(id)).collect();
    text.extend(stream.finish());
    assert!(whole.ends_with(&text), "{}: {ids:?}", tokenizer.kind());
}

#[test]
fn files_are_read_as_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        Tokenizer::open(&path).unwrap_err().to_string()
    };
    let json = refusal("tokenizer.json", "not JSON");
    assert!(json.contains("tokenizer.json") && !json.contains("Protobuf"), "{json}");
    for name in ["tokenizer.json", "tokenizer.model"] {
        assert!(refusal(name, "").ends_with(&format!("{name}: the file is empty")), "{}", refusal(name, ""));
    }
}
