//! Constraints on the vocabularies of real models, and on one of bytes.

use std::sync::Arc;

use ::regex::bytes::Regex;
use serde_json::{Value, json};
use testdata::shared;
use weights::Weights;

use super::*;
use crate::Tokenizer;
use crate::tokenizer::GgufVocabulary;

/// Tokens of one byte each, so that every text has one way to be cut.
pub(super) fn bytes() -> Arc<Tokenizer> {
    let names = ["<unk>", "<s>", "</s>", "<|call|>"].map(str::to_owned);
    let tokens = names.into_iter().chain((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let vocabulary = GgufVocabulary {
        model: "llama",
        tokens: tokens.map(Into::into).collect(),
        token_types: Some([2, 3, 3, 3].into_iter().chain([6; 256]).collect()),
        eos: Some(2),
        ..Default::default()
    };
    Arc::new(Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap())
}

/// The id of `</s>` in [`bytes`].
pub(super) const END: u32 = 2;

pub(super) fn gguf(name: &str) -> Option<Arc<Tokenizer>> {
    let path = shared(&format!("tokenizers/gguf-vocab/ggml-vocab-{name}.gguf"))?;
    Some(Arc::new(Tokenizer::from_gguf(Weights::open(&path).unwrap().metadata()).unwrap()))
}

/// Vocabularies of every kind that writes: byte-level BPE, SentencePiece from GGUF and `tokenizer.json`.
fn tokenizers() -> Option<Vec<Arc<Tokenizer>>> {
    let file = |path: &str| Some(Arc::new(Tokenizer::open(shared(path)?).unwrap()));
    let mut all = vec![gguf("gpt-2")?, gguf("phi-3")?, gguf("falcon")?];
    all.extend([file("tokenizers/hf/phi-3-mini")?, file("stories260k/hf")?, file("storyteller/hf")?]);
    Some(all)
}

pub(super) fn schema(value: Value) -> Constraint {
    Constraint::JsonSchema(Arc::new(value))
}

fn regex(expression: &str) -> Constraint {
    Constraint::Regex(expression.into())
}

fn lark(grammar: &str) -> Constraint {
    Constraint::Lark(grammar.into())
}

fn gbnf(grammar: &str) -> Constraint {
    Constraint::Gbnf(grammar.into())
}

/// Whether an answer may be this text; a `␄` in it is the token `<|call|>` of [`bytes`].
pub(super) fn accepts(compiler: &GrammarCompiler, constraint: &Constraint, text: &str) -> bool {
    let mut matcher = compiler.compile(constraint).unwrap().matcher();
    let ids = text.split_inclusive('␄').flat_map(|part| {
        let ids = part.strip_suffix('␄').unwrap_or(part).bytes().map(|byte| u32::from(byte) + 4);
        ids.chain(part.ends_with('␄').then_some(3))
    });
    for id in ids {
        if !matcher.mask().unwrap().allows(id) {
            return false;
        }
        matcher.advance(id).unwrap();
    }
    assert_eq!(matcher.mask().unwrap().allows(END), matcher.may_end(), "{text:?}");
    matcher.may_end()
}

fn check(constraint: &Constraint, good: &[&str], bad: &[&str]) {
    let compiler = GrammarCompiler::new(bytes());
    for text in good {
        assert!(accepts(&compiler, constraint, text), "{constraint:?} refuses {text:?}");
    }
    for text in bad {
        assert!(!accepts(&compiler, constraint, text), "{constraint:?} accepts {text:?}");
    }
}

fn problem(constraint: &Constraint) -> String {
    GrammarCompiler::new(bytes()).compile(constraint).unwrap_err().to_string()
}

#[test]
fn regex_matches_whole_answers() {
    check(&regex("a+"), &["a", "aaa"], &["", "b", "ab"]);
    check(&regex("^(a|bc)$"), &["a", "bc"], &["b", "abc"]);
    check(&regex(r"\d{2}/[é-ü]*|x\ny"), &["12/", "12/éü", "x\ny"], &["1/", "12/e", "x"]);
    check(
        &regex("(a+)+b"),
        &["ab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"],
        &["aaaaaaaaaaaaaaaaaaaaaaaaaaac", "b"],
    );
    check(&regex("a|"), &["", "a"], &["aa"]);
    check(&regex(""), &[""], &["a"]);
    for (expression, expected) in [
        ("a(b", "regex: line 1, column 2: unclosed group"),
        ("a\n[", "regex: line 2, column 1: unclosed character class"),
        (r"a\", "regex: line 1, column 2: incomplete escape sequence, reached end of pattern prematurely"),
        (
            "(?=a)b",
            "regex: line 1, column 1: look-around, including look-ahead and look-behind, is not supported",
        ),
        (r"(a)\1", "regex: line 1, column 4: backreferences are not supported"),
        (r"a\b", r"regex: lookarounds not supported yet; WordUnicode in regex /a\b/"),
        ("a^b", "regex: lookarounds not supported yet; Start in regex /a^b/"),
    ] {
        assert_eq!(problem(&regex(expression)), expected);
    }
}

#[test]
fn choice_is_one_of_the_texts() {
    let choice = Constraint::choice(["yes", "no", "a.b", "no way"]);
    check(&choice, &["yes", "no", "a.b", "no way"], &["", "y", "axb", "yesno", "no w"]);
    assert_eq!(
        problem(&Constraint::choice::<&str>([])),
        "choice: there is nothing to choose from: give at least one text"
    );
    assert_eq!(problem(&Constraint::choice(["a", ""])), "choice: text 1 (counted from 0) is empty");
}

#[test]
fn json_object_is_any_object() {
    let good = [r#"{}"#, r#"{"a": [1, -2.5e3, null, {"b": "\n\\é"}]}"#, "{\n  \"a\": true\n}"];
    check(&Constraint::JsonObject, &good, &["[]", "1", "", "{", r#"{"a"}"#, r#"{"a": 01}"#, "{\n\n}"]);
    // Whitespace is bounded.
    check(&Constraint::JsonObject, &[], &[&format!("{{\n{}}}", " ".repeat(33)), "{  }", "{} \n"]);
}

#[test]
fn lark_has_schemas_tokens_and_rules() {
    let grammar = r#"start: "say " word | <|call|> %json {"type": "object", "properties": {"a/b": {"type": "integer"}},
        "required": ["a/b"], "additionalProperties": false} <|call|> // "(((" /(((/
    word: /[a-z]+/ "!"? "#; // a comment with ( [ {
    let good = ["say hi", "say x!", "␄{\"a/b\": 12}␄"];
    check(&lark(grammar), &good, &["say ", "{\"a/b\": 12}", "␄{}␄", "␄{\"a/b\": 12}", "␄␄"]);
    for (grammar, expected) in [
        (
            "start: %json {\"$ref\": \"#/a\"}",
            "grammar: line 1, column 12: json_schema at its root, keyword `$ref`: there is no schema at `#/a`",
        ),
        ("start: \"a\"\n  <|no|>", "grammar: line 2, column 8: the vocabulary has no token `<|no|>`"),
        (
            "start: %json {",
            "grammar: line 1, column 12: the JSON after `%json`: EOF while parsing an object at line 1 column 2",
        ),
        ("start: word", "grammar: 1(8): unknown name: \"word\""),
        ("start: @other", "grammar: unknown grammar @other"),
        (
            "%llguidance {\"allow_invalid_utf8\": true}\nstart: \"a\"",
            "grammar: line 1, column 11: `allow_invalid_utf8` is not supported: answers are texts",
        ),
    ] {
        assert_eq!(problem(&lark(grammar)), expected);
    }
}

#[test]
fn gbnf_matches_character_by_character() {
    let arithmetic = r#"
        root  ::= (expr "=" term "\n")+   # several lines
        expr  ::= term ([-+*/] term)*
        term  ::= ident | num | "(" expr ")"
        ident ::= [a-z] [a-z0-9_]*
        num   ::= [0-9]{1,3}
    "#;
    check(&gbnf(arithmetic), &["(1+x)*12=a_1\n", "1=2\n3=4\n"], &["1=2", "1234=a\n", "=1\n", ""]);
    // Terminals would take "ab" whole.
    let overlapping = "root ::= list\nlist ::= \"[\" list \"]\" | \"ab\" \"c\" | [a-z]+ \"d\"\n";
    check(&gbnf(overlapping), &["abc", "abd", "[abd]", "[[xd]]"], &["ab", "[abd", "d"]);
    let plain = "root ::= \"ab\" \"c\"\n  | [^a-c\\]\\x20] . | \"\\u00e9\\\"\" {2} | (\"x\" | \"\")?";
    check(&gbnf(plain), &["abc", "dd", "é\"é\"", "x", ""], &["ab", "ad", "] ", "  "]);
    check(&gbnf("root ::= <|call|> \"a\" | !<|call|> \"b\""), &["␄a", "cb"], &["␄b", "ca", "a"]);
    // A part that comes no times is not there, whatever it is.
    for grammar in [
        "root ::= \"a\" \"b\"{0} \"c\"",
        "root ::= \"a\" (\"b\" | missing){0,0} \"c\"",
        "root ::= \"a\" (\"b\"{0}){0,} \"c\" root{0}",
        "root ::= \"a\" inner \"c\"\ninner ::= [b-d]{ 0 , 0 }",
        "root ::= \"a\" (\"b\"{2} \"\"{3}){0} \"c\" <|call|>{0}",
    ] {
        check(&gbnf(grammar), &["ac"], &["abc", "a", "c", "abbc"]);
    }
    check(&gbnf("root ::= \"a\"{0}"), &[""], &["a"]);
    check(&gbnf("root ::= (\"a\"{0,2} \"b\"){1,2}"), &["b", "aab", "abaab"], &["", "aaab", "bbb"]);
    for (grammar, expected) in [
        ("root ::= foo", "grammar: rule `root` uses `foo`, which is not defined"),
        ("roots ::= \"a\"", "grammar: there is no rule `root`"),
        ("root ::= \"a", "grammar: line 1, column 12: the text ends within quotes"),
        ("root ::= \"a\"\nx := \"b\"", "grammar: line 2, column 3: expected `::=`"),
        ("root ::= [b-a]", "grammar: line 1, column 14: the range 'b' to 'a' is empty"),
        ("root ::= \"a\"{3,2}", "grammar: line 1, column 14: `{3,2}` is not a range of counts"),
        ("root ::= <nope>", "grammar: line 1, column 10: the vocabulary has no token `<nope>`"),
        ("root ::= root", "grammar: no token of the vocabulary goes on as the constraint asks"),
    ] {
        assert_eq!(problem(&gbnf(grammar)), expected);
    }
    assert!(Constraint::grammar("root ::= \"a\"") == gbnf("root ::= \"a\""));
    assert!(Constraint::grammar("start: \"a ::= b\"") == lark("start: \"a ::= b\""));
}

#[test]
fn schema_errors_name_the_pointer_and_the_keyword() {
    for (value, expected) in [
        (
            json!({ "properties": { "a~/b": { "not": { "format": "date" } } } }),
            "json_schema at /properties/a~0~1b, keyword `not`: values that do not fit it cannot be told from others, which is not supported",
        ),
        (
            json!({ "items": { "minContains": 65, "contains": {} } }),
            "json_schema at /items, keyword `minContains`: 65 items are not supported",
        ),
        (
            json!({ "$ref": "https://x.org/s" }),
            "json_schema at its root, keyword `$ref`: \"https://x.org/s\": only references within the schema (`#/...`) are supported",
        ),
        (
            json!({ "$ref": "#/const", "const": { "not": {} } }),
            "json_schema at its root, keyword `$ref`: there is no schema at `#/const`",
        ),
        (json!({ "$ref": "#" }), "json_schema: no token of the vocabulary goes on as the constraint asks"),
        (
            json!({ "type": "object", "x-guidance": { "lenient": true } }),
            "json_schema at its root, keyword `x-guidance`: not supported",
        ),
        (
            json!({ "$defs": { "a": { "type": "strin" } }, "items": { "$ref": "#/$defs/a" } }),
            "json_schema at /$defs/a, keyword `type`: Invalid type: strin",
        ),
        (
            json!({ "properties": { "a": { "type": "string", "pattern": "(" } } }),
            "json_schema at /properties/a, keyword `pattern`: unclosed group",
        ),
        (
            json!({ "properties": { "a": false, "b": { "type": "string", "pattern": "a\\b" } } }),
            "json_schema at /properties/b, keyword `pattern`: lookarounds not supported yet; WordUnicode in regex /a\\b/",
        ),
        (
            json!({ "items": { "oneOf": [{ "type": "number" }, { "multipleOf": 2 }] } }),
            "json_schema at /items, keyword `oneOf`: a value may fit several of its schemas, which is not supported; `anyOf` is",
        ),
        (
            json!({ "type": "object", "minProperties": 2 }),
            "json_schema at its root, keyword `minProperties`: 2 with 0 required properties: at most one more can be asked for",
        ),
        (
            json!({ "enum": [9007199254740993_u64] }),
            "json_schema at its root, keyword `enum`: 9007199254740993 is beyond ±9007199254740992, not supported",
        ),
        (
            json!({ "type": "string", "minLength": 3, "maxLength": 2 }),
            "json_schema at its root, keyword `minLength`: Unsatisfiable schema: minLength (3) is greater than maxLength (2)",
        ),
        (
            json!({ "const": { "a": ["\u{0}"] } }),
            "json_schema at its root, keyword `const`: control characters are not supported",
        ),
        (
            json!({ "pattern": "a\\x7f" }),
            "json_schema at its root, keyword `pattern`: control characters are not supported",
        ),
        (json!([]), "json_schema at its root: a schema is an object, true or false"),
        (
            json!({ "properties": 3 }),
            "json_schema at its root, keyword `properties`: not an object of schemas",
        ),
        (
            json!({ "$schema": "https://x.org/mine" }),
            "json_schema at its root, keyword `$schema`: \"https://x.org/mine\" is not a known draft",
        ),
    ] {
        assert_eq!(problem(&schema(value)), expected);
    }
    let error = GrammarCompiler::new(bytes())
        .compile(&schema(json!({ "items": { "not": { "format": "date" } } })))
        .unwrap_err();
    let crate::Error::Constraint(error) = error else { panic!("{error}") };
    assert_eq!((error.pointer.as_deref(), error.keyword.as_deref()), (Some("/items"), Some("not")));
    let error = Constraint::json_schema("{\"a\": }").unwrap_err();
    assert_eq!(error.to_string(), "json_schema: not JSON: expected value at line 1 column 7");
}

/// Keys that are equal as JSON have one spelling, so that a property cannot come again under another.
#[test]
fn a_named_property_cannot_be_spelled_otherwise() {
    let constraint = schema(json!({ "type": "object", "properties": { "a": { "type": "integer" } } }));
    check(&constraint, &[r#"{"a":1,"b":"x"}"#], &[r#"{"\u0061":"x"}"#, r#"{"b":1,"a":"x"}"#]);
}

/// Every token of the vocabulary, at every place of some texts, against the expression for what may stand there.
#[test]
fn masks_are_those_of_a_slow_reference() {
    let Some(tokenizers) = tokenizers() else { return };
    // An expression, one for the beginnings of what it matches, and a text.
    let cases = [
        ("[a-z ]+[.!]", r"^[a-z ]+[.!]?$", "once upon a time."),
        ("-?[0-9]{1,3}(,[0-9]{3})*", r"^-?([0-9]{1,3}(,[0-9]{3})*(,[0-9]{0,2})?)?$", "-12,345"),
        (
            r#"\{"x": "[^"\\]*"\}"#,
            r#"^(\{|\{"|\{"x|\{"x"|\{"x":|\{"x": |\{"x": "[^"\\]*("\}?)?)$"#,
            r#"{"x": "a b"}"#,
        ),
        ("(yes|no|not now)", "^(y|ye|yes|n|no|not|not |not n|not no|not now)$", "not now"),
    ];
    for tokenizer in tokenizers {
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer));
        for (expression, beginnings, text) in &cases {
            let reference = Regex::new(&format!("(?s-u){beginnings}")).unwrap();
            check_masks(&tokenizer, &compiler.compile(&regex(expression)).unwrap(), &reference, text);
        }
    }
}

fn check_masks(tokenizer: &Tokenizer, grammar: &Grammar, reference: &Regex, text: &str) {
    let mut matcher = grammar.matcher();
    let mut written = Vec::new();
    while written != text.as_bytes() {
        let mask = matcher.mask().unwrap();
        let forced: Vec<u8> = matcher.forced().flat_map(|id| tokenizer.bytes_inside(id).unwrap()).collect();
        let mut next = None;
        for id in 0..tokenizer.vocab_size() as u32 {
            let special = tokenizer.is_special(id) || tokenizer.eos_ids().contains(&id);
            let bytes = if special { Vec::new() } else { tokenizer.bytes_inside(id).unwrap() };
            let longer = [&written[..], &bytes].concat();
            // Invalid UTF-8 is the beginning of nothing that an answer may be, unless a character may follow.
            let is_text = std::str::from_utf8(&longer).is_ok();
            let fits = !bytes.is_empty() && is_text && reference.is_match(&longer);
            let place = || format!("{:?} after {:?}", tokenizer.token(id), String::from_utf8_lossy(&written));
            if mask.allows(id) && !bytes.is_empty() && is_text {
                assert!(fits, "{} is allowed", place());
            } else if fits {
                // Where the text can go on in one way only, one way to cut it is chosen.
                assert!(
                    forced.starts_with(&bytes) || bytes.starts_with(&forced) && !forced.is_empty(),
                    "{}",
                    place()
                );
            }
            assert!(
                !mask.allows(id) || !bytes.is_empty() || tokenizer.eos_ids().contains(&id),
                "{}",
                place()
            );
            if mask.allows(id) && !bytes.is_empty() && text.as_bytes().starts_with(&longer) {
                next = Some((id, longer));
            }
        }
        let ends = tokenizer.eos_ids().iter().all(|&id| mask.allows(id));
        assert_eq!(
            ends && !tokenizer.eos_ids().is_empty(),
            matcher.may_end() && !tokenizer.eos_ids().is_empty()
        );
        let (id, longer) = next.unwrap_or_else(|| panic!("nothing goes on to {text:?} from {written:?}"));
        matcher.advance(id).unwrap();
        written = longer;
    }
    assert!(matcher.may_end(), "{text:?}");
}

/// Forced tokens are those that the tokenizer makes of the text.
#[test]
fn forced_tokens_are_canonical() {
    let Some(tokenizers) = tokenizers() else { return };
    let constraint = schema(json!({
        "type": "object", "required": ["temperature", "unit"], "additionalProperties": false,
        "properties": { "temperature": { "type": "integer" }, "unit": { "const": "degrees Celsius" } },
    }));
    for tokenizer in tokenizers {
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer));
        let matcher = compiler.compile(&Constraint::choice(["the weather is fine"])).unwrap().matcher();
        let forced: Vec<u32> = matcher.forced().collect();
        let bytes: Vec<u8> = forced.iter().flat_map(|&id| tokenizer.bytes_inside(id).unwrap()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), "the weather is fine", "{}", tokenizer.kind());
        assert!(matcher.is_complete() || !forced.is_empty());
        let greedy = tokenizer
            .encode("x the weather is fine", crate::AddSpecial::No, crate::ParseSpecial::No)
            .unwrap();
        assert!(forced.len() <= greedy.len() + 1, "{}: {forced:?} {greedy:?}", tokenizer.kind());
        compiler.compile(&constraint).unwrap();
    }
}

#[test]
fn equal_constraints_are_compiled_once() {
    let compiler = GrammarCompiler::new(bytes());
    let compile = |constraint: &Constraint| compiler.compile(constraint).unwrap();
    compile(&regex("a"));
    compile(&regex("a"));
    compile(&schema(json!({ "type": "null" })));
    compile(&Constraint::json_schema("{\"type\":\n \"null\"}").unwrap());
    assert_eq!(compiler.num_cached(), 2);
    let mut first = compile(&regex("a")).matcher();
    first.advance(u32::from(b'a') + 4).unwrap();
    assert!(first.is_complete());
    assert!(compile(&regex("a+")).matcher().mask().unwrap().allows(u32::from(b'a') + 4));
}

/// A token that the grammar does not allow is an error, as is one past the end, and errors stay.
#[test]
fn wrong_tokens_are_errors() {
    let mut matcher = GrammarCompiler::new(bytes()).compile(&regex("[ab]c[de]")).unwrap().matcher();
    assert!(matcher.advance(u32::from(b'x') + 4).is_err());
    assert!(matcher.mask().is_err() && matcher.advance(u32::from(b'a') + 4).is_err());
}

#[test]
fn tokens_of_a_vocabulary_are_written_for_lark() {
    assert_eq!(token_as_lark(&bytes(), "<|call|>").as_deref(), Some("<[3]>"));
    assert_eq!(token_as_lark(&bytes(), "<0x41>").as_deref(), Some("\"A\""));
    assert_eq!(token_as_lark(&bytes(), "<|none|>"), None);
}

#[test]
fn json_has_no_white_space_if_its_schema_says_so() {
    let object = json!({
        "type": "object",
        "properties": { "a": { "type": "array", "items": { "type": "integer" } } },
        "x-guidance": { "whitespace_flexible": false },
    });
    check(&schema(object), &["{}", r#"{"a":[1,2]}"#], &[r#"{"a": [1,2]}"#, r#"{"a":[1, 2]}"#, "{ }", "{\n}"]);
}
