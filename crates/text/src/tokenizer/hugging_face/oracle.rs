//! Ids, places, texts and streams compared with those of the library `tokenizers`, for real files and for many small ones.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tensor::philox::philox4x32;
use testdata::shared;

use super::build;
use crate::tokenizer::{AddSpecial, ParseSpecial, SkipSpecial, Tokenizer};
use crate::{Detokenizer, Error};

fn read(bytes: &[u8], origin: &str) -> Result<Tokenizer, Error> {
    let file = serde_json::from_slice(bytes).map_err(|error| Error::tokenizer(origin, error))?;
    build(file).map_err(|problem| Error::tokenizer(origin, problem))
}

/// What texts are made of.
const FRAGMENTS: &[&str] = &[
    "The quick brown fox",
    "jumps over",
    " the lazy dog",
    "Hello, world!",
    "don't",
    "I'M",
    "it's",
    "we've",
    "They'll",
    "Zwölf Boxkämpfer",
    "Straße",
    "cœur élève",
    "ÀÉÎÕÜ",
    "naïve",
    "Съешь ещё этих",
    "мягких булок",
    "Ελληνικά ΆΈ",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "こんにちは世界",
    "カタカナ",
    "你好，世界。",
    "漢字",
    "안녕하세요",
    "\u{1112}\u{1161}\u{11AB}",
    "😀",
    "👩‍👩‍👧‍👦",
    "🇩🇪",
    "👍🏽",
    "❤️",
    "e\u{301}",
    "a\u{323}\u{302}",
    "o\u{308}\u{304}",
    "\u{301}",
    "q\u{307}\u{323}",
    "ﬁne",
    "Ⅷ",
    "①",
    "½",
    "㍿",
    "Ａｂｃ",
    "ｶﾞ",
    "\u{212B}",
    "ǅ",
    "İstanbul",
    "ſ",
    "'ſ",
    "\0",
    "\u{1}",
    "\u{7f}",
    "\u{85}",
    "\u{AD}",
    "\u{200B}",
    "\u{200D}",
    "\u{FEFF}",
    "\u{FFFD}",
    "\u{E000}",
    "\u{10FFFD}",
    " ",
    "  ",
    "    ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "\u{A0}",
    "\u{3000}",
    "\u{2028}",
    "\u{2009}",
    "1",
    "42",
    "123456789",
    "3.14159",
    "1,000,000",
    "٣٤",
    "x²",
    "fn main() { println!(\"{}\", x); }",
    "def f(a, b=1):\n    return a*b",
    "a->b::<C>",
    "https://x.org/?q=1&r=%20",
    "user@example.com",
    "#tag",
    "$9.99",
    "<div class=\"a\">",
    "--",
    "...",
    "!!!",
    "?!",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "|",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<mask>",
    " <mask> ",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "[MASK]",
    "<|endoftext|>",
    "<|end|>\n",
    "<|user|>",
    "<extra_id_0>",
    "<0x41>",
    "<0xE2>",
    "▁",
    "▁a",
    "Ġ",
    "##ing",
    "</w>",
    "<|im_start|>",
    "yesterday",
    "Yesterday",
    "a",
    "b",
    "ab",
    "aab",
    "abc",
    "A",
    "é",
    "E\u{301}",
    "_",
    "-",
    "'",
    "\"",
    ",",
    ".",
    "un",
    "able",
    "unable",
    "ing",
];

/// `count` texts, the same on every run; the file's own tokens are among their parts.
fn texts(count: u32, own: &[String]) -> Vec<String> {
    let pieces: Vec<&str> = FRAGMENTS.iter().copied().chain(own.iter().map(String::as_str)).collect();
    let single = pieces.iter().map(|piece| piece.to_string());
    let made = (0..count).map(|seed| {
        let draw = |i: u32| philox4x32([i, 0, 0, 0], [seed, 7]);
        let parts = 1 + draw(0)[0] % 12;
        let part = |i: u32| {
            let [which, how, letter, _] = draw(i + 1);
            match how % 8 {
                0 => char::from(b' ' + (letter % 95) as u8).to_string(),
                1 | 2 => format!(" {}", pieces[which as usize % pieces.len()]),
                _ => pieces[which as usize % pieces.len()].to_string(),
            }
        };
        (0..parts).map(part).collect::<String>()
    });
    [String::new()].into_iter().chain(single).chain(made).collect()
}

/// Compares a file's tokenizer with the library's.
fn compare(name: &str, bytes: &[u8], count: u32) {
    let ours = Arc::new(read(bytes, name).unwrap());
    let mut theirs = tokenizers::Tokenizer::from_bytes(bytes).unwrap();
    theirs.with_padding(None).with_truncation(None).unwrap();
    let mut literal = theirs.clone();
    literal.set_encode_special_tokens(true);
    let own: Vec<String> =
        theirs.get_added_tokens_decoder().values().map(|token| token.content.clone()).collect();
    for text in texts(count, &own) {
        for (add, parse) in [
            (AddSpecial::Yes, ParseSpecial::Yes),
            (AddSpecial::No, ParseSpecial::Yes),
            (AddSpecial::Yes, ParseSpecial::No),
        ] {
            let theirs = if parse == ParseSpecial::Yes { &theirs } else { &literal };
            let expected = match theirs.encode(text.as_str(), add == AddSpecial::Yes) {
                Ok(expected) => expected,
                Err(error) => {
                    assert!(ours.encode(&text, add, parse).is_err(), "{name}: {text:?}: {error}");
                    continue;
                }
            };
            let ids = ours.encode(&text, add, parse).unwrap();
            assert_eq!(ids, expected.get_ids(), "{name}, {add:?}, {parse:?}: {text:?}");
            let pieces = ours.encode_pieces(&text, add, parse).unwrap();
            let places: Vec<_> = pieces.into_iter().map(|piece| piece.place).collect();
            let given = expected.get_offsets().iter().map(|&(start, end)| Some(start..end));
            let given: Vec<_> = given.map(|place| place.filter(|place| !place.is_empty())).collect();
            assert_eq!(places, given, "{name}, {add:?}, {parse:?}: {text:?} {:?}", expected.get_tokens());
            // Some decoders of the library panic where there are no tokens.
            for skip in [SkipSpecial::Yes, SkipSpecial::No].into_iter().filter(|_| !ids.is_empty()) {
                let decoded = ours.decode(&ids, skip);
                assert_eq!(
                    decoded,
                    theirs.decode(&ids, skip == SkipSpecial::Yes).unwrap(),
                    "{name}: {text:?}"
                );
                let mut stream = Detokenizer::new(Arc::clone(&ours), skip);
                let mut streamed: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
                streamed.extend(stream.finish());
                assert_eq!(streamed, decoded, "{name}: {text:?}");
            }
        }
    }
    assert_eq!(ours.vocab_size(), theirs.get_vocab_size(true), "{name}");
}

fn file(path: PathBuf) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn real_files_give_the_librarys_ids_places_and_texts() {
    for path in [
        "tokenizers/hf/phi-3-mini",
        "tokenizers/hf/roberta-base",
        "tokenizers/hf/t5-small",
        "storyteller/hf",
        "shakespeare-llama/hf",
        "stories260k/hf",
        "minilm-l6-v2",
    ] {
        let Some(folder) = shared(path) else { return };
        compare(path, &file(folder.join("tokenizer.json")), 2000);
    }
}

#[test]
fn pairs_have_the_librarys_ids_and_types() {
    let check = |name: &str, bytes: &[u8]| {
        let ours = read(bytes, name).unwrap();
        let mut theirs = tokenizers::Tokenizer::from_bytes(bytes).unwrap();
        theirs.with_padding(None).with_truncation(None).unwrap();
        theirs.set_encode_special_tokens(true);
        let texts = texts(40, &[]);
        for (first, second) in texts.iter().zip(texts.iter().rev()) {
            let plain = |text: &str| ours.encode(text, AddSpecial::No, ParseSpecial::No).unwrap();
            let pair = ours.pair(&plain(first), &plain(second)).unwrap();
            let expected = theirs.encode((first.as_str(), second.as_str()), true).unwrap();
            assert_eq!(pair.ids, expected.get_ids(), "{name}: {first:?}, {second:?}");
            assert_eq!(pair.types, expected.get_type_ids(), "{name}: {first:?}, {second:?}");
        }
    };
    for path in ["tokenizers/hf/roberta-base", "minilm-l6-v2"] {
        let Some(folder) = shared(path) else { return };
        check(path, &file(folder.join("tokenizer.json")));
    }
    let special = |name: &str, id: u32| json!({ "id": name, "ids": [id], "tokens": [name] });
    let part = |kind: &str, id: &str, token_type: u32| json!({ kind: { "id": id, "type_id": token_type } });
    let processors = [
        json!({ "type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 2] }),
        json!({ "type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", 2], "trim_offsets": true, "add_prefix_space": true }),
        json!({
            "type": "TemplateProcessing",
            "single": [part("Sequence", "A", 0)],
            "pair": [
                part("Sequence", "B", 1), part("SpecialToken", "a", 3), part("Sequence", "A", 2),
                part("SpecialToken", "b", 0),
            ],
            "special_tokens": { "a": special("a", 1), "b": special("b", 2) },
        }),
    ];
    for processor in processors {
        let mut file = plain(bpe());
        file["post_processor"] = json!({ "type": "Sequence", "processors": [processor] });
        check(&processor.to_string(), file.to_string().as_bytes());
    }
    let without = read(plain(bpe()).to_string().as_bytes(), "none").unwrap();
    let error = without.pair(&[1], &[2]).unwrap_err().to_string();
    assert!(error.contains("the tokenizer has no template that joins two texts"), "{error}");
}

/// A file with all its parts but the model null.
fn plain(model: Value) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": model,
    })
}

/// A small BPE model: characters, those that stand for bytes, and some merges.
fn bpe() -> Value {
    let bytes = (0..=255u8).map(|byte| super::super::byte_level::char_of_byte(byte).to_string());
    let letters = ["é", "ü", "漢", "▁", " ", "\n", "<unk>", "😀"].into_iter().map(String::from);
    let merges = [
        ("a", "b"),
        ("ab", "c"),
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "t"),
        ("Ġt", "he"),
        ("i", "n"),
        ("in", "g"),
        ("h", "e"),
        ("l", "l"),
        ("▁", "t"),
        ("▁t", "he"),
        ("e", "r"),
        ("Ã", "©"),
        ("Ġ", "Ġ"),
        ("ĠĠ", "ĠĠ"),
        ("o", "w"),
        ("r", "o"),
        ("1", "2"),
        ("12", "3"),
    ];
    let joined = merges.iter().map(|(left, right)| format!("{left}{right}"));
    let mut vocab = serde_json::Map::new();
    for token in bytes.chain(letters).chain(joined) {
        let id = vocab.len();
        vocab.entry(token).or_insert(id.into());
    }
    json!({ "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>" })
}

/// A small Unigram model.
fn unigram() -> Value {
    let pieces = [
        "<unk>", "▁", "a", "b", "▁the", "the", "▁t", "h", "e", "ing", "in", "n", "g", "o", "▁qu", "é",
        "漢字", "ab", "\u{301}", " ",
    ];
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let vocab: Vec<Value> = pieces
        .into_iter()
        .map(String::from)
        .chain(bytes)
        .enumerate()
        .map(|(id, piece)| json!([piece, -(id as f64) / 7.0]))
        .collect();
    json!({ "type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false })
}

fn word_piece() -> Value {
    let pieces = [
        "[UNK]", "[CLS]", "[SEP]", "the", "un", "##able", "##a", "##b", "a", "b", "##ing", "é", "e", "!",
        "1", "##2", "漢", "字",
    ];
    let vocab: serde_json::Map<String, Value> =
        pieces.iter().enumerate().map(|(id, piece)| (piece.to_string(), id.into())).collect();
    json!({
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20,
        "vocab": vocab,
    })
}

fn with(mut file: Value, changes: &[(&str, Value)]) -> Value {
    for (path, value) in changes {
        *file.pointer_mut(path).unwrap() = value.clone();
    }
    file
}

fn check(changes: &[(&str, Value)]) {
    check_model(bpe(), changes);
}

fn check_model(model: Value, changes: &[(&str, Value)]) {
    let file = with(plain(model), changes);
    let name = format!("{changes:?}");
    compare(&name[..name.len().min(300)], &serde_json::to_vec(&file).unwrap(), 300);
}

fn byte_level(space: bool, words: bool, trim: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": space, "use_regex": words, "trim_offsets": trim })
}

#[test]
fn normalizers() {
    let replace =
        |pattern: Value, content: &str| json!({ "type": "Replace", "pattern": pattern, "content": content });
    let charsmap = shared("tokenizers/hf/t5-small/tokenizer.json").map(|path| {
        let file: Value = serde_json::from_slice(&file(path)).unwrap();
        file["normalizer"].clone()
    });
    let bert = |clean: bool, ideographs: bool, accents: Value, lowercase: bool| json!({ "type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": ideographs, "strip_accents": accents, "lowercase": lowercase });
    let mut all = vec![
        json!({ "type": "Strip", "strip_left": true, "strip_right": true }),
        json!({ "type": "Strip", "strip_left": true, "strip_right": false }),
        json!({ "type": "Strip", "strip_left": false, "strip_right": true }),
        replace(json!({ "String": " " }), "▁"),
        replace(json!({ "String": "the" }), ""),
        replace(json!({ "Regex": r"\s+" }), " "),
        replace(json!({ "Regex": r"(?<=a)b" }), "é"),
        json!({ "type": "Prepend", "prepend": "▁" }),
        json!({ "type": "Prepend", "prepend": "漢a" }),
        bert(true, true, Value::Null, true),
        bert(false, true, json!(false), true),
        bert(true, false, json!(true), false),
        json!({ "type": "Sequence", "normalizers": [{ "type": "NFD" }, { "type": "StripAccents" }, { "type": "Lowercase" }] }),
        json!({ "type": "Sequence", "normalizers": [{ "type": "NFKC" }, { "type": "Prepend", "prepend": "x" }, { "type": "NFD" }] }),
    ];
    all.extend(
        ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"]
            .map(|kind| json!({ "type": kind })),
    );
    all.extend(charsmap);
    for normalizer in all {
        check(&[("/normalizer", normalizer.clone())]);
        check(&[("/normalizer", normalizer), ("/pre_tokenizer", byte_level(true, true, true))]);
    }
}

#[test]
fn pre_tokenizers() {
    let split = |pattern: Value, behavior: &str, invert: bool| json!({ "type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert });
    let metaspace = |scheme: &str, split: bool| json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split });
    let mut all = vec![
        json!({ "type": "Digits", "individual_digits": true }),
        json!({ "type": "Digits", "individual_digits": false }),
        json!({ "type": "CharDelimiterSplit", "delimiter": "e" }),
        json!({ "type": "FixedLength", "length": 3 }),
        byte_level(true, true, true),
        byte_level(false, true, true),
        byte_level(true, false, false),
        metaspace("always", true),
        metaspace("first", true),
        metaspace("first", false),
        metaspace("never", true),
        json!({ "type": "Sequence", "pretokenizers": [{ "type": "WhitespaceSplit" }, metaspace("always", true)] }),
        json!({ "type": "Sequence", "pretokenizers": [{ "type": "Whitespace" }, metaspace("first", true), { "type": "Digits", "individual_digits": true }] }),
        json!({ "type": "Sequence", "pretokenizers": [byte_level(false, false, true), { "type": "Punctuation" }] }),
    ];
    all.extend(
        ["Whitespace", "WhitespaceSplit", "Punctuation", "BertPreTokenizer"]
            .map(|kind| json!({ "type": kind })),
    );
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] {
        all.push(json!({ "type": "Punctuation", "behavior": behavior }));
        for pattern in [
            json!({ "String": "a" }),
            json!({ "Regex": r"\w+|[^\w\s]+" }),
            json!({ "Regex": r"x*" }),
            json!({ "Regex": r"\s+(?!\S)|\s+" }),
        ] {
            all.push(split(pattern.clone(), behavior, false));
            all.push(split(pattern, behavior, true));
        }
    }
    let llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let cl100k = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
    for pattern in [llama, cl100k] {
        let split = split(json!({ "Regex": pattern }), "Isolated", false);
        all.push(json!({ "type": "Sequence", "pretokenizers": [split, byte_level(false, false, true)] }));
    }
    for pre_tokenizer in all {
        check(&[
            ("/pre_tokenizer", pre_tokenizer.clone()),
            ("/post_processor", byte_level(true, true, true)),
        ]);
        check(&[("/pre_tokenizer", pre_tokenizer), ("/normalizer", json!({ "type": "NFKD" }))]);
    }
}

#[test]
fn models() {
    let yes = json!(true);
    for changes in [
        vec![("/model/fuse_unk", yes.clone())],
        vec![("/model/byte_fallback", yes.clone())],
        vec![("/model/ignore_merges", yes.clone()), ("/pre_tokenizer", byte_level(false, true, true))],
        vec![("/model/unk_token", Value::Null)],
        vec![("/model/unk_token", json!("nowhere"))],
        vec![("/model/continuing_subword_prefix", json!(""))],
    ] {
        let mut model = bpe();
        for key in ["fuse_unk", "byte_fallback", "ignore_merges"] {
            model[key] = json!(false);
        }
        model["continuing_subword_prefix"] = Value::Null;
        check_model(model, &changes);
    }
    for bytes in [false, true] {
        let vocab = json!({ "<unk>": 0, "a": 1, "b</w>": 2, "b": 3, "##b": 4, "##b</w>": 5, "ab</w>": 6, "a</w>": 7, "##a": 8, "<0x63>": 9, "##<0x63>": 10 });
        let merges = json!(["a ##b</w>"]);
        let model = json!({
            "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "continuing_subword_prefix": "##",
            "end_of_word_suffix": "</w>", "byte_fallback": bytes, "dropout": null,
        });
        check_model(
            model,
            &[
                ("/pre_tokenizer", json!({ "type": "WhitespaceSplit" })),
                ("/decoder", json!({ "type": "BPEDecoder", "suffix": "</w>" })),
            ],
        );
    }
    let metaspace =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    for bytes in [false, true] {
        check_model(
            unigram(),
            &[
                ("/model/byte_fallback", json!(bytes)),
                ("/pre_tokenizer", metaspace.clone()),
                ("/decoder", metaspace.clone()),
            ],
        );
        check_model(unigram(), &[("/model/byte_fallback", json!(bytes))]);
    }
    // Without an unknown token, the library refuses words for their characters even if the words are tokens.
    let strict = with(plain(unigram()), &[("/model/unk_id", Value::Null)]);
    let strict = read(&serde_json::to_vec(&strict).unwrap(), "tokenizer.json").unwrap();
    let encode = |text: &str| strict.encode(text, AddSpecial::No, ParseSpecial::No);
    assert_eq!(encode("漢字").unwrap(), [16]);
    assert!(encode("漢").unwrap_err().to_string().contains("unk_id is missing"));
    check_model(
        word_piece(),
        &[
            ("/pre_tokenizer", json!({ "type": "BertPreTokenizer" })),
            ("/decoder", json!({ "type": "WordPiece", "prefix": "##", "cleanup": true })),
        ],
    );
    check_model(
        word_piece(),
        &[
            ("/pre_tokenizer", json!({ "type": "Whitespace" })),
            ("/decoder", json!({ "type": "WordPiece", "prefix": "##", "cleanup": false })),
        ],
    );
    let words =
        json!({ "type": "WordLevel", "vocab": { "the": 0, "a": 1, "<unk>": 2 }, "unk_token": "<unk>" });
    check_model(words.clone(), &[("/pre_tokenizer", json!({ "type": "Whitespace" }))]);
    check_model(
        words,
        &[("/pre_tokenizer", json!({ "type": "Whitespace" })), ("/model/unk_token", json!("nowhere"))],
    );
}

#[test]
fn added_tokens() {
    let token = |content: &str, flags: [bool; 5]| {
        let [single_word, lstrip, rstrip, normalized, special] = flags;
        json!({ "id": 0, "content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized, "special": special })
    };
    for bits in 0..32 {
        let flags = [1, 2, 4, 8, 16].map(|bit| bits & bit != 0);
        let normalized = flags[3];
        let plain = [false, false, false, normalized, false];
        let added = json!([
            token("yesterday", flags),
            token("<s>", flags),
            token("ab", flags),
            token("a", plain),
            token("  ", plain),
            token("the", plain),
            token("É", flags),
            token("<|user|>", [false, false, true, false, true]),
        ]);
        let lowercase = json!({ "type": "Lowercase" });
        check(&[("/added_tokens", added.clone()), ("/post_processor", byte_level(false, true, true))]);
        // The library takes a special token for text when it decodes it, if normalizing changes it.
        if !(flags[3] && flags[4]) {
            check(&[
                ("/added_tokens", added),
                ("/normalizer", lowercase),
                ("/pre_tokenizer", byte_level(false, true, true)),
            ]);
        }
    }
}

#[test]
fn post_processors_and_decoders() {
    let pair = |text: &str, id: u32| json!([text, id]);
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "[A]", "type_id": 0 } }, { "SpecialToken": { "id": "[A]", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": "[B]", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 0 } }],
        "special_tokens": { "[A]": { "id": "[A]", "ids": [3, 4], "tokens": ["x", "y"] }, "[B]": { "id": "[B]", "ids": [5], "tokens": ["z"] } },
    });
    let bert = json!({ "type": "BertProcessing", "sep": pair("b", 2), "cls": pair("a", 1) });
    let roberta = |trim: bool, space: bool| json!({ "type": "RobertaProcessing", "sep": pair("b", 2), "cls": pair("a", 1), "trim_offsets": trim, "add_prefix_space": space });
    let all = [
        template.clone(),
        bert.clone(),
        roberta(true, true),
        roberta(true, false),
        roberta(false, true),
        json!({ "type": "Sequence", "processors": [byte_level(false, true, true), template.clone()] }),
        json!({ "type": "Sequence", "processors": [bert, template] }),
    ];
    for processor in all {
        check(&[
            ("/post_processor", processor),
            ("/pre_tokenizer", byte_level(true, true, true)),
            ("/decoder", byte_level(true, true, true)),
        ]);
    }
    let replace = json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " });
    let fallback = json!({ "type": "ByteFallback" });
    let strip =
        |start: u32, stop: u32| json!({ "type": "Strip", "content": " ", "start": start, "stop": stop });
    let sequence = |decoders: Value| json!({ "type": "Sequence", "decoders": decoders });
    for decoder in [
        Value::Null,
        replace.clone(),
        json!({ "type": "Replace", "pattern": { "Regex": "[aeiou]+" }, "content": "" }),
        sequence(json!([replace, fallback, { "type": "Fuse" }, strip(1, 0)])),
        sequence(json!([replace, fallback, { "type": "Fuse" }])),
        sequence(json!([replace, strip(1, 0)])),
        json!({ "type": "CTC", "pad_token": "a", "word_delimiter_token": "▁", "cleanup": true }),
        json!({ "type": "CTC", "pad_token": "ab", "word_delimiter_token": "▁", "cleanup": false }),
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true }),
    ] {
        let mut model = bpe();
        model["byte_fallback"] = json!(true);
        check_model(model, &[("/decoder", decoder)]);
    }
}

fn refusal(file: &Value) -> String {
    match read(&serde_json::to_vec(file).unwrap(), "tokenizer.json") {
        Err(Error::Tokenizer { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn unsupported_settings_are_named() {
    let check = |changes: &[(&str, Value)], expected: &str| {
        let problem = refusal(&with(plain(bpe()), changes));
        assert!(problem.contains(expected), "{problem:?} should say {expected:?}");
    };
    let kind = |kind: &str| json!({ "type": kind });
    check(&[("/normalizer", kind("Shout"))], "normalizer \"Shout\" is not supported");
    check(&[("/pre_tokenizer", kind("UnicodeScripts"))], "pre-tokenizer \"UnicodeScripts\" is not supported");
    check(&[("/post_processor", kind("Polish"))], "post-processor \"Polish\" is not supported");
    check(&[("/decoder", kind("Ring"))], "decoder \"Ring\" is not supported");
    check(&[("/decoder", json!(5))], "type is missing");
    check(&[("/model/type", json!("Markov"))], "model \"Markov\" is not supported");
    check(&[("/version", json!("2.0"))], "version \"2.0\"");
    check(&[("/model/merges", json!([["a", "nowhere"]]))], "\"nowhere\", which is no token");
    check(&[("/model/merges", json!(["a b c"]))], "not two tokens");
    check(&[("/model/vocab", json!({ "a": 4_000_000_000u32 }))], "the id 4000000000");
    check(&[("/model/vocab", json!([["a", 0.0]]))], "is a list");
    let mut random = plain(bpe());
    random["model"]["dropout"] = json!(0.1);
    assert!(refusal(&random).contains("dropout 0.1"));
    let unigram = with(plain(unigram()), &[("/model/unk_id", json!(9999))]);
    assert!(refusal(&unigram).contains("unk_id is 9999"));
    let long = json!({ "type": "Prepend", "prepend": "x".repeat(5000) });
    check(&[("/normalizer", long)], "5000 bytes");
}

/// Whatever opens must encode and decode without a panic, and in bounded memory.
#[test]
fn damaged_files_do_no_harm() {
    let exercise = |tokenizer: &Tokenizer| {
        for text in ["", "the abc é漢😀 <s> 123", "\u{301}\0"] {
            if let Ok(ids) = tokenizer.encode(text, AddSpecial::Yes, ParseSpecial::Yes) {
                tokenizer.decode(&ids, SkipSpecial::No);
                tokenizer.encode_pieces(text, AddSpecial::No, ParseSpecial::No).unwrap();
            }
        }
    };
    // The library panics on this character map, whose trie points outside itself.
    let charsmap = json!({ "type": "Precompiled", "precompiled_charsmap": "BAAAAP////9hAA==" });
    let file = with(plain(unigram()), &[("/normalizer", charsmap)]);
    exercise(&read(&serde_json::to_vec(&file).unwrap(), "tokenizer.json").unwrap());
    // Each step doubles the text.
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let file = with(
        plain(bpe()),
        &[("/normalizer", json!({ "type": "Sequence", "normalizers": vec![double; 60] }))],
    );
    let growing = read(&serde_json::to_vec(&file).unwrap(), "tokenizer.json").unwrap();
    let error = growing.encode("a", AddSpecial::No, ParseSpecial::No).unwrap_err().to_string();
    assert!(error.contains("normalizers make more than"), "{error}");

    let file = with(
        plain(word_piece()),
        &[
            ("/added_tokens", json!([{ "id": 1, "content": "<s>", "special": true, "normalized": false }])),
            ("/normalizer", json!({ "type": "BertNormalizer" })),
            (
                "/pre_tokenizer",
                json!({ "type": "Sequence", "pretokenizers": [{ "type": "Split", "pattern": { "Regex": "[a-c]+" }, "behavior": "Isolated" }, byte_level(true, true, true)] }),
            ),
            ("/post_processor", json!({ "type": "BertProcessing", "sep": ["b", 2], "cls": ["a", 1] })),
            (
                "/decoder",
                json!({ "type": "Sequence", "decoders": [{ "type": "Strip", "content": " ", "start": 1, "stop": 0 }] }),
            ),
        ],
    );
    let sound = serde_json::to_vec(&file).unwrap();
    exercise(&read(&sound, "tokenizer.json").unwrap());
    let mut opened = 0;
    for seed in 0..3000u32 {
        let mut bytes = sound.clone();
        for i in 0..=seed % 3 {
            let [at, with, ..] = philox4x32([i, 0, 0, 0], [seed, 3]);
            let at = at as usize % bytes.len();
            bytes[at] = b"\"{}[],:0129aeltru\\\xff "[with as usize % 20];
        }
        if let Ok(tokenizer) = read(&bytes, "tokenizer.json") {
            opened += 1;
            exercise(&tokenizer);
        }
    }
    assert!(opened > 100, "only {opened} of the damaged files opened");
}
