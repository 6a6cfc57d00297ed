//! Grammars of answers take what models write, and no more.

use super::*;

/// As GLM-4's.
const HEADERS: &str = "{%- if tools %}<|system|>\n{{ tools | tojson }}{% endif -%}
{%- for m in messages %}<|{{ m.role }}|>{{ m.metadata or '' }}\n{{ m.content }}{% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif %}{# observation #}";

#[test]
fn calls_may_stand_in_the_header_of_a_message() {
    let template = ChatTemplate::new(HEADERS).unwrap();
    let found = AnswerFormat::for_model(Some(&template), None);
    assert_eq!(found, format("glm-4", ""));
    let calls = "add\n{\"days\": 1}<|assistant|>get_weather\n{}";
    let check = |text: &str, expected: &[&str]| check_after("<|assistant|>", found, text, expected);
    check(calls, &["0:add({\"days\": 1})", "1:get_weather({})"]);
    check("\nadd\n{\"days\": 1}", &["\nadd\n{\"days\": 1}"]);
    check("add up\n{}", &["add up\n{}"]);
    check("adding\n{}", &["adding\n{}"]);
    check("add\nall of it", &["add\nall of it"]);
    check("other\n{}", &["other\n{}"]);
    let messages = [
        json!({"role": "user", "content": "Hello"}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"days\": 1}"}}]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "2"}),
    ];
    let prompt =
        template.render_chat(&crate::ChatContext { tools: None, ..crate::ChatContext::new(&messages) });
    let expected = "<|user|>\nHello<|assistant|>add\n{\"days\": 1}<|observation|>\n2<|assistant|>";
    assert_eq!(prompt.unwrap().text, expected);
}

#[test]
fn grammars_let_calls_stand_where_models_write_them() {
    let check = |name: &str, phase, is_parallel, choice: &ToolChoice, text: &str, expected: bool| {
        let own = format(name, name);
        let tokenizer = with_marks(&own);
        let tools = tools();
        let rules = AnswerRules { tools: &tools[1..], choice, only: None, is_parallel, phase, text: None };
        let grammar = own.grammar(&rules, &tokenizer).unwrap().unwrap();
        let grammar = GrammarCompiler::new(Arc::clone(&tokenizer)).compile(&Constraint::Lark(grammar.into()));
        let (taken, may_end) = accepted(grammar.unwrap().matcher(), &tokenizer, text);
        assert_eq!(taken == text && may_end, expected, "{name} {choice:?}: {taken:?} of {text:?}");
    };
    let call = "<|tools_prefix|>[{\"add\": {\"days\": 1}}]<|tools_suffix|>";
    let inside = format!("<|inner_prefix|>Hm. {call}");
    let (before, must) = (ReasoningPhase::Before, &ToolChoice::Required);
    for choice in [must, &ToolChoice::Auto] {
        let check = |text: &str, expected| check("apertus", before, true, choice, text, expected);
        check(&inside, true);
        check(&format!("{inside} So.<|inner_suffix|>One."), true);
        check(&format!("{inside} Again. {call}"), true);
        check(&format!("<|inner_prefix|>Hm.<|inner_suffix|>{call}"), true);
        check(call, true);
        check("<|inner_prefix|>Hm.<|inner_suffix|>One.", choice != must);
        check("<|inner_prefix|>Hm.", false);
        check(&inside.replace("days", "other"), false);
    }
    check("apertus", before, false, must, &inside, true);
    check("apertus", ReasoningPhase::Inside, true, must, &format!("Hm.{call}"), true);
    let tools = "<|open|>tools<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>argument key=\"days\" \
                 type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>";
    let empty = "<|open|>response<|sep|><|close|>response<|sep|>";
    let after = ReasoningPhase::After;
    check("kimi-k3", after, true, must, &format!("{empty}{tools}"), true);
    check("kimi-k3", after, true, must, tools, true);
    check("kimi-k3", after, true, must, &tools.replace(">2<", ">two<"), false);
    check("kimi-k3", after, true, must, &tools.replace("number", "string"), false);
    check("kimi-k3", after, true, must, empty, false);
    let said = empty.replace("<|close|>", "Look.<|close|>");
    check("kimi-k3", after, true, &ToolChoice::Auto, &format!("{said}{tools}<|close|>message<|sep|>"), true);
    for (text, in_auto, in_must) in [
        ("add\n{\"days\": 1}", true, true),
        ("add\n{\"days\": 1}<|assistant|>add\n{\"days\": 2}", true, true),
        ("add\n{\"other\": 1}", false, false),
        ("\nAll is well.", true, false),
    ] {
        check("glm-4", after, true, &ToolChoice::Auto, text, in_auto);
        check("glm-4", after, true, must, text, in_must);
    }
}

#[test]
fn arguments_are_those_that_are_declared() {
    let own = format("hermes", "");
    let tokenizer = with_marks(&own);
    let check = |parameters: Value, expected: bool| {
        let function = json!({"name": "f", "parameters": parameters});
        let tools = Tool::list(&[json!({"type": "function", "function": function})]).unwrap();
        let grammar = compiled(own, &tokenizer, &tools, &ToolChoice::Required).unwrap();
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>";
        let (taken, _) = accepted(grammar.matcher(), &tokenizer, call);
        assert_eq!(taken == call, expected, "{parameters}: {taken}");
    };
    let a = json!({"a": {"type": "integer"}});
    check(json!({"type": "object", "properties": a}), false);
    check(json!({"type": "object", "properties": a, "required": ["a"]}), false);
    check(json!({"type": "object", "properties": a, "additionalProperties": true}), true);
    check(json!({"type": "object", "properties": a, "additionalProperties": {"type": "integer"}}), true);
    check(
        json!({"type": "object", "properties": a, "patternProperties": {"^b$": {"type": "integer"}}}),
        true,
    );
    check(json!({"type": "object", "properties": a, "required": ["a", "b"]}), true);
    check(json!({"type": "object", "properties": {}}), true);
    check(json!({"type": "object"}), true);
}

#[test]
fn grammars_take_what_every_format_writes() {
    for format in FORMATS {
        let own = self::format(format.name, "");
        // Marks as tokens, as text, and with tokens inside them.
        for tokenizer in [with_marks(&own), with_tokens([]), with_tokens(["｜DSML｜", "tool"])] {
            for (choice, start) in [(ToolChoice::Required, ""), (ToolChoice::Auto, "Look. ")] {
                let grammar = compiled(own, &tokenizer, &tools(), &choice).unwrap();
                let start = match format.recipient() {
                    _ if format.bare || start.is_empty() => String::new(),
                    "" => start.to_owned(),
                    recipient => format!("{recipient}\n{start}"),
                };
                // The mark behind Harmony's calls ends the answer, as no part of it.
                let is_single = format.close == "<|call|>";
                for calls in calls().into_iter().filter(|calls| calls.len() == 1 || !is_single) {
                    let text = format!("{start}{}", written(format, &calls));
                    let (taken, may_end) = accepted(grammar.matcher(), &tokenizer, &text);
                    let rest = text[taken.len()..].trim_start_matches("<|call|>");
                    assert!(may_end && rest.is_empty(), "{} {choice:?}: {rest:?} of {text:?}", format.name);
                }
            }
        }
    }
}

#[test]
fn a_tool_that_is_named_is_called_once() {
    let two = [1, -2].map(|days| ("add", json!({ "days": days })));
    let choice = ToolChoice::Named("add".to_owned());
    for format in FORMATS {
        let own = self::format(format.name, "");
        let tokenizer = with_marks(&own);
        let grammar = compiled(own, &tokenizer, &tools(), &choice).unwrap();
        let one = written(format, &two[..1]);
        let (taken, may_end) = accepted(grammar.matcher(), &tokenizer, &one);
        assert!(may_end, "{}: {taken:?} of {one:?}", format.name);
        let again = written(format, &two);
        let (taken, _) = accepted(grammar.matcher(), &tokenizer, &again);
        assert!(taken.len() <= one.len(), "{}: {taken:?}", format.name);
    }
}

/// Schemas that clients send, and schemas that no format can write.
fn schemas() -> Vec<Value> {
    let one = |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let mut schemas = vec![
        one(json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null})),
        one(json!({})),
        one(json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2})),
        one(json!({"type": "array"})),
        one(json!({"type": ["string", "integer", "null"]})),
        one(json!({"type": ["array", "null"], "items": {"type": "string"}})),
        one(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        one(json!({"type": "object"})),
        one(json!({"enum": ["a", 1, null, true]})),
        one(json!({"enum": [1, "1"]})),
        one(json!({"enum": []})),
        one(json!({"const": "x"})),
        one(json!({"type": "string", "pattern": "^a+$", "minLength": 2})),
        one(json!({"type": "string", "format": "uri"})),
        one(json!({"type": "string", "minLength": 2, "maxLength": 3})),
        one(json!({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]})),
        one(json!({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer", "minimum": 5}]})),
        one(json!({"anyOf": [{"enum": ["x", "y"]}, {"type": "array", "items": {"enum": ["x"]}}]})),
        one(json!({"type": "integer", "minimum": 1, "nullable": true})),
        one(json!({"not": {}})),
        one(json!({"$ref": "#/nowhere"})),
        one(json!({"type": "strange"})),
        one(json!(false)),
        json!({}),
        json!({"type": "object"}),
        json!({"type": "string"}),
        json!({"required": ["x"]}),
        json!({"properties": null, "required": 3}),
        json!({"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]}),
        json!({"type": "object", "properties": {"": {}, "a b": {}, "é/:=<>'\"": {"type": "string"}, "\n": {}}}),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
    ];
    let tree = json!({"type": "object", "properties": {
        "text": {"$ref": "#/$defs/Text"}, "next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}}});
    let text = json!({"type": "string"});
    for root in [one(json!({"$ref": "#/$defs/Tree"})), json!({"$ref": "#/$defs/Tree"})] {
        let mut root = root;
        root["$defs"] = json!({"Tree": tree, "Text": text, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}]}});
        schemas.push(root);
    }
    let mut endless = one(json!({"$ref": "#/$defs/Loop"}));
    endless["$defs"] = json!({"Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "array", "items": {"$ref": "#/$defs/Loop"}}]}});
    schemas.push(endless);
    let deep = (0..100)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner, "minItems": 1}));
    schemas.push(one(deep));
    schemas
}

/// Tools that are not strict are never refused, and no choice of tokens leads to a place that none leads out of.
#[test]
fn every_format_can_write_every_schema_or_a_simpler_one() {
    // One of each way to write arguments.
    let names = [
        "hermes",
        "apertus",
        "qwen3-coder",
        "glm",
        "minimax",
        "deepseek-v3.2",
        "kimi-k3",
        "glm-4",
        "lfm",
        "gemma-4",
        "functionary",
    ];
    for format in names.map(|name| ToolFormat::named(name).unwrap()) {
        let own = self::format(format.name, "");
        let tokenizer = with_marks(&own);
        for (number, schema) in schemas().into_iter().enumerate() {
            let function = json!({"name": "f", "parameters": schema});
            let tool = Tool::list(&[json!({"type": "function", "function": function})]).unwrap().remove(0);
            let forms = [tool.clone(), tool.relaxed(), tool.open()];
            let compile =
                |tool: &Tool| compiled(own, &tokenizer, std::slice::from_ref(tool), &ToolChoice::Required);
            let grammars = forms.iter().filter_map(|tool| compile(tool).ok()).collect::<Vec<_>>();
            assert!(!grammars.is_empty() && compile(&forms[2]).is_ok(), "{}: {schema}", format.name);
            for grammar in grammars {
                walk(grammar.matcher(), &tokenizer, number as u64);
            }
        }
    }
}

/// Takes tokens that are allowed, as good as at random.
fn walk(mut matcher: Matcher, tokenizer: &Tokenizer, seed: u64) {
    let mut random = seed;
    let mut text = String::new();
    for _ in 0..50 {
        if matcher.is_complete() {
            return;
        }
        let mask = matcher.mask().unwrap();
        let allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32).filter(|id| mask.allows(*id)).collect();
        assert!(!allowed.is_empty() || matcher.may_end(), "nothing follows {text:?}");
        if allowed.is_empty() {
            return;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = allowed[(random >> 33) as usize % allowed.len()];
        text.push_str(&tokenizer.token(id).unwrap_or_default());
        matcher.advance(id).unwrap();
    }
}

/// The grammars of all formats compile, for marks that are special tokens and marks that are not; and they take what the
/// model's template writes.
#[test]
fn grammars_of_all_formats_compile_and_take_calls() {
    let real = testdata::shared("storyteller/hf").map(|path| Arc::new(Tokenizer::open(path).unwrap()));
    // Types that every format can enforce.
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let function = json!({"name": "add", "parameters": {"type": "object", "properties": properties}});
    let tools = Tool::list(&[json!({"type": "function", "function": function})]).unwrap();
    let arguments = json!({"city": "a b", "days": 2});
    for format in FORMATS {
        for reasoning in [None, ReasoningFormat::named(format.name), ReasoningFormat::named("think")] {
            let own = AnswerFormat { tools: Some(format), reasoning };
            for tokenizer in [Some(with_marks(&own)), real.clone()].into_iter().flatten() {
                let compiler = GrammarCompiler::new(Arc::clone(&tokenizer));
                let compile = |choice: &ToolChoice, phase, text| {
                    let rules =
                        AnswerRules { tools: &tools, choice, only: None, is_parallel: true, phase, text };
                    let grammar = own.grammar(&rules, &tokenizer).unwrap().unwrap();
                    let compiled = compiler.compile(&Constraint::Lark(grammar.clone().into()));
                    compiled.unwrap_or_else(|error| panic!("{} {choice:?}: {error}\n{grammar}", format.name))
                };
                for phase in [ReasoningPhase::Before, ReasoningPhase::Inside, ReasoningPhase::After] {
                    compile(&ToolChoice::Auto, phase, None);
                    compile(&ToolChoice::Auto, phase, Some("start: %json {\"type\": \"object\"}"));
                    compile(&ToolChoice::Named("add".to_owned()), phase, None);
                }
                let lead = reasoning.map_or("", |own| own.lead);
                let written = written(format, &[("add", arguments.clone())]);
                let written = written.strip_prefix(lead).unwrap_or(&written);
                let grammar = compile(&ToolChoice::Required, ReasoningPhase::Before, None);
                let (taken, may_end) = accepted(grammar.matcher(), &tokenizer, written);
                // The mark behind Harmony's calls ends the answer, as no part of it.
                let rest = written[taken.len()..].trim_start_matches("<|call|>");
                assert!(may_end && rest.is_empty(), "{}: {rest:?} of {written:?}", format.name);
            }
        }
    }
}
