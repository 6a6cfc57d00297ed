//! What tokenizers cost: building one, encoding a text; those of `tokenizer.json` compared with the library `tokenizers`. Prints
//! the best of several runs.

mod vocabulary;

use std::hint::black_box;
use std::time::{Duration, Instant};

use perihelion_text::tokenizer::GgufVocabulary;
use perihelion_text::{AddSpecial, ParseSpecial, Tokenizer};

use vocabulary::{merges, tokens};

fn main() {
    gguf();
    json();
}

fn best(what: &str, runs: usize, mut run: impl FnMut()) {
    let times = (0..runs).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    let best: Duration = times.min().expect("at least one run");
    println!("{what:<44} {:>10.1} us", best.as_secs_f64() * 1e6);
}

fn gguf() {
    let tokens = tokens(128_000);
    let merges = merges(&tokens, 280_000);
    let build = || {
        let vocabulary = GgufVocabulary {
            model: "gpt2",
            pre: "qwen2",
            tokens: tokens.iter().map(|token| token.into()).collect(),
            merges: merges.iter().map(|merge| merge.into()).collect(),
            ..Default::default()
        };
        Tokenizer::from_gguf_vocabulary(&vocabulary).expect("a sound vocabulary")
    };
    best("build: 128,000 tokens, 280,000 merges", 5, || drop(black_box(build())));
    let tokenizer = build();
    let text = "The quick brown fox jumps over the lazy dog; badge facade cafe. ".repeat(2000);
    best(&format!("encode: {} bytes", text.len()), 5, || {
        black_box(tokenizer.encode(&text, AddSpecial::No, ParseSpecial::No).expect("text"));
    });
}

fn json() {
    const FILES: [&str; 4] =
        ["tokenizers/hf/phi-3-mini", "tokenizers/hf/roberta-base", "tokenizers/hf/t5-small", "minilm-l6-v2"];
    let text = "The quick brown fox jumps over the lazy dog; Zwölf Boxkämpfer, 漢字 1234.\n".repeat(1000);
    for name in FILES {
        let Some(path) = testdata::shared(name).map(|folder| folder.join("tokenizer.json")) else { return };
        let short = name.rsplit('/').next().unwrap_or(name);
        let ours = || Tokenizer::from_file(&path).expect("a sound file");
        let theirs = || tokenizers::Tokenizer::from_file(&path).expect("a sound file");
        best(&format!("{short}: build"), 5, || drop(black_box(ours())));
        best(&format!("{short}: build, tokenizers"), 5, || drop(black_box(theirs())));
        let (ours, mut theirs) = (ours(), theirs());
        theirs.with_truncation(None).expect("no limit").with_padding(None);
        best(&format!("{short}: encode {} bytes", text.len()), 5, || {
            black_box(ours.encode(&text, AddSpecial::No, ParseSpecial::No).expect("text"));
        });
        best(&format!("{short}: encode {} bytes, tokenizers", text.len()), 5, || {
            black_box(theirs.encode_fast(text.as_str(), false).expect("text"));
        });
    }
}
