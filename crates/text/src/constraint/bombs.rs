//! Constraints that are made to be slow or large.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::tests::{bytes, schema};
use super::*;

/// Compiles in bounded time: a constraint may take seconds, and many more on a machine that does other things too.
fn compile(constraint: &Constraint) -> Result<Grammar, String> {
    let began = Instant::now();
    let compiled = GrammarCompiler::new(bytes()).compile(constraint).map_err(|error| error.to_string());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    compiled
}

fn refused(constraint: &Constraint, because: &str) {
    let problem = compile(constraint).unwrap_err();
    assert!(problem.contains(because), "{problem}");
}

#[test]
fn expressions() {
    compile(&Constraint::Regex("(a+)+b".into())).unwrap();
    let nested = format!("{}{}", "(".repeat(100_000), ")".repeat(100_000));
    refused(
        &Constraint::Regex(nested.into()),
        "exceed the maximum number of nested parentheses/brackets (250)",
    );
    for expression in ["x{1000000000}", "(x{1000}){1000}", "(((x{100}){100}){100}){100}"] {
        refused(&Constraint::Regex(expression.into()), "regex: it ");
    }
    refused(&Constraint::Regex("a".repeat(300_000).into()), "the expression has 300000 bytes");
}

#[test]
fn nesting() {
    let text = format!("{}{}", "{\"items\":".repeat(100_000), "}".repeat(100_000));
    assert!(Constraint::json_schema(&text).unwrap_err().to_string().contains("recursion limit exceeded"));
    let text = format!("{}{}", "{\"items\":".repeat(100), "{}".to_owned() + &"}".repeat(100));
    refused(&Constraint::json_schema(&text).unwrap(), "more than 64 inside each other");
    for (open, close) in [("(", ")"), ("[", "]"), ("~ ", "")] {
        let grammar = format!("start: {}\"a\"{}", open.repeat(100_000), close.repeat(100_000));
        refused(&Constraint::Lark(grammar.into()), "inside each other");
    }
    let grammar = format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
    refused(&Constraint::Gbnf(grammar.into()), "more than 48 groups inside each other");
}

#[test]
fn counts() {
    for (keyword, kind) in [("maxLength", "string"), ("maxItems", "array")] {
        let mut matcher =
            compile(&schema(json!({ "type": kind, keyword: 1_000_000_000 }))).unwrap().matcher();
        let (open, close) = if kind == "string" { (b'"', b'"') } else { (b'[', b']') };
        for byte in [open, close] {
            assert!(matcher.mask().unwrap().allows(u32::from(byte) + 4));
            matcher.advance(u32::from(byte) + 4).unwrap();
        }
        assert!(matcher.may_end());
    }
    // Such an answer never ends, but may begin.
    assert!(compile(&schema(json!({ "type": "string", "minLength": 1_000_000_000 }))).is_ok());
}

#[test]
fn products_and_references() {
    let option = |name: &str, value: &str| json!({ "type": "object", "properties": { name: { "const": value } }, "required": [name] });
    let one = |i: usize| json!({ "oneOf": [option(&format!("p{i}"), "a"), option(&format!("p{i}"), "b")] });
    let _ = compile(&schema(json!({ "allOf": (0..10).map(one).collect::<Vec<_>>() })));
    let problem = compile(&schema(json!({ "allOf": (0..40).map(one).collect::<Vec<_>>() }))).unwrap_err();
    assert!(problem.contains("schema too large") || problem.contains("seconds"), "{problem}");
    refused(&schema(json!({ "$ref": "#" })), "no token of the vocabulary");
    refused(&schema(json!({ "$ref": "http://localhost:1/s.json" })), "only references within the schema");
    // References that go in a circle, one to the next.
    let circle = |count: usize, to: &dyn Fn(usize) -> Value| {
        let definitions = (0..count).map(|i| (format!("d{i}"), to((i + 1) % count))).collect::<Map<_, _>>();
        schema(json!({ "$defs": definitions, "$ref": "#/$defs/d0" }))
    };
    let reference = |to: usize| json!({ "$ref": format!("#/$defs/d{to}") });
    let _ = compile(&circle(4000, &|to| json!({ "properties": { "x": reference(to) } })));
    let _ = compile(&circle(4000, &|to| json!({ "allOf": [reference(to)] })));
    let _ = compile(&circle(4000, &|to| json!({ "type": "object", "allOf": [reference(to)] })));
    compile(&circle(9000, &reference)).unwrap_err();
}

#[test]
fn grammars() {
    let rules = |count: usize, rule: &dyn Fn(usize) -> String| (0..count).map(rule).collect::<String>();
    let chain = rules(4000, &|i| format!("r{i}: \"x\" r{} | \"y\"\n", (i + 1) % 4000));
    let _ = compile(&Constraint::Lark(format!("start: r0\n{chain}").into()));
    let terminals = rules(4000, &|i| format!("R{i}: \"x\" R{}\n", i + 1));
    let _ = compile(&Constraint::Lark(format!("start: R0\n{terminals}R4000: \"y\"\n").into()));
    let doubling = rules(100, &|i| format!("R{i}: R{0} R{0}\n", i + 1));
    refused(&Constraint::Lark(format!("start: R0\n{doubling}R100: \"y\"\n").into()), "grammar: ");
    refused(
        &Constraint::Lark(format!("start: r0\n{}r100: \"y\"\n", doubling.to_lowercase()).into()),
        "grammar: ",
    );
    let doubling = rules(100, &|i| format!("r{i} ::= r{0} r{0}\n", i + 1));
    refused(&Constraint::Gbnf(format!("root ::= r0\n{doubling}r100 ::= \"y\"\n").into()), "grammar: ");
    refused(&Constraint::Lark("start: \"a\"\n".repeat(40_000).into()), "the limit is 262144");
}

/// What many different constraints leave behind is what the cache holds. Other tests use memory too, so this one has a
/// process of its own.
#[test]
fn thousands_of_schemas_leave_256_grammars() {
    let name = "constraint::bombs::thousands_of_schemas_leave_256_grammars";
    // On a busy machine, threads that compile spread over several arenas of the allocator, and each keeps memory.
    let one_arena = [("MALLOC_ARENA_MAX", "1")];
    testdata::child::in_child(name, "memory", &one_arena, compile_thousands_of_schemas);
}

fn compile_thousands_of_schemas() {
    let compiler = GrammarCompiler::new(bytes());
    let mut after = [0, 0];
    for count in 0..4_000 {
        let value =
            json!({ "type": "object", "properties": { (format!("p{count}")): { "type": "string" } } });
        compiler.compile(&schema(value)).unwrap();
        match count {
            1_000 => after[0] = resident(),
            3_999 => after[1] = resident(),
            _ => {}
        }
    }
    assert_eq!(compiler.num_cached(), cache::MAX_GRAMMARS);
    assert!(after[1] < after[0] + (24 << 20), "{after:?}");
}

/// The bytes of memory that the process has, where the system tells.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok()).unwrap_or(0) << 10
}
