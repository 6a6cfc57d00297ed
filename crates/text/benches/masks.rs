//! What forms of answers cost over a vocabulary of 128,000 tokens: to compile one, and the mask of each place of an answer.
//! Prints the median, the 99th of a hundred and the longest time of a mask.

mod vocabulary;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion_text::tokenizer::GgufVocabulary;
use perihelion_text::{AddSpecial, Constraint, GrammarCompiler, ParseSpecial, Tokenizer};

use vocabulary::{merges, tokens};

const SCHEMA: &str = r#"{"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "bad", "face"]}},
    "place": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}, "zip": {"type": "string",
    "pattern": "^[0-9]{5}$"}}, "required": ["city", "zip"], "additionalProperties": false}},
    "required": ["name", "age", "tags", "place"], "additionalProperties": false}"#;
const ANSWER: &str = r#"{"name": "abe gage head", "age": 417, "tags": ["a", "bad", "face", "bad"], "place":
    {"city": "cafe deadhead bagged", "zip": "12345"}}"#;

const UNIQUE: &str = r#"{"type": "array", "uniqueItems": true, "items": {"type": "string"}}"#;

fn main() {
    let tokenizer = Arc::new(tokenizer());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer));
    let schema = Constraint::json_schema(SCHEMA).expect("a schema");
    let letters = "abe gage head cafe deadhead bagged face ".repeat(10);
    let unique = Constraint::json_schema(UNIQUE).expect("a schema");
    let items: Vec<String> = (0..100).map(|item| format!("\"abe{:x}\"", 0xa0 + item)).collect();
    let items = format!("[{}]", items.join(", "));
    let expression = Constraint::Regex("([a-h]{1,12} )+".into());
    for (what, form, answer) in [
        ("first, with the vocabulary: any JSON object", Constraint::JsonObject, ANSWER),
        ("a JSON schema", schema, ANSWER),
        ("a hundred unique texts", unique, &items),
        ("a regular expression", expression, &letters[..]),
    ] {
        let began = Instant::now();
        let grammar = compiler.compile(&form).expect("a form");
        let compiled = began.elapsed();
        let mut matcher = grammar.matcher();
        let answer = tokenizer.encode(answer, AddSpecial::No, ParseSpecial::No).expect("text");
        let mut times: Vec<Duration> = Vec::with_capacity(answer.len());
        for token in answer {
            let began = Instant::now();
            black_box(matcher.mask().expect("a mask"));
            times.push(began.elapsed());
            matcher.advance(token).expect("a token of the form");
        }
        times.sort_unstable();
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        let at = |hundredth: usize| microseconds(times[(times.len() - 1) * hundredth / 100]);
        println!(
            "{what:<44} compile {:>9.1} us, {} masks {:>7.1}, {:>7.1}, {:>7.1} us",
            microseconds(compiled),
            times.len(),
            at(50),
            at(99),
            at(100)
        );
    }
}

fn tokenizer() -> Tokenizer {
    let mut tokens = tokens(128_000);
    let merges = merges(&tokens, 280_000);
    let mut token_types = vec![1; tokens.len()];
    tokens.push("<end>".to_string());
    token_types.push(3);
    let vocabulary = GgufVocabulary {
        model: "gpt2",
        pre: "qwen2",
        eos: Some(tokens.len() as u32 - 1),
        tokens: tokens.iter().map(|token| token.into()).collect(),
        token_types: Some(token_types),
        merges: merges.iter().map(|merge| merge.into()).collect(),
        ..Default::default()
    };
    Tokenizer::from_gguf_vocabulary(&vocabulary).expect("a sound vocabulary")
}
