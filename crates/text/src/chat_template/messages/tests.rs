//! Conversations of many shapes with the templates of many models.

use std::path::PathBuf;

use super::*;

const LONG_ID: &str = "call_abcdefghijklmnopqrstuvwx";

fn templates() -> Option<Vec<(String, ChatTemplate)>> {
    let folder = testdata::shared("chat-templates/templates")?;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let open = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, ChatTemplate::open(path).unwrap())
    };
    Some(paths.iter().map(open).collect())
}

fn open(name: &str) -> Option<ChatTemplate> {
    let folder = testdata::shared("chat-templates/templates")?;
    Some(ChatTemplate::open(folder.join(format!("{name}.jinja"))).unwrap())
}

fn adapt(template: &ChatTemplate, messages: &[Value]) -> Result<Vec<Value>, Error> {
    let traits = template.traits();
    Ok(traits.adapted(Conversation::read(messages)?.messages, &traits.rules))
}

fn adapted(template: &ChatTemplate, message: Value) -> Value {
    adapt(template, &[message]).unwrap().pop().unwrap()
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn user() -> Value {
    message("user", "Hello")
}

fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn caller(content: Value, calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": content, "tool_calls": calls})
}

fn result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

/// A tool as coding agents declare it.
fn tools() -> Vec<Value> {
    let parameters = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
        "properties": {
            "city": {"type": "string", "description": "A city"},
            "days": {"type": ["integer", "null"], "minimum": 1},
            "unit": {"enum": ["c", "f"]},
            "places": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "where": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            "other": {"$ref": "#/$defs/other"},
            "all": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["city"], "$defs": {"other": {"type": "string"}},
    });
    let function = |name: &str| json!({"name": name, "description": "d", "parameters": parameters});
    ["weather", "time"].map(|name| json!({"type": "function", "function": function(name)})).to_vec()
}

/// What a prompt should have.
struct Shape {
    name: &'static str,
    messages: Vec<Value>,
    texts: &'static [&'static str],
}

/// Shapes of conversations that agents send.
fn shapes() -> Vec<Shape> {
    let weather = || call(LONG_ID, "weather", json!("{\"city\": \"Zuerich\"}"));
    let time = || call("call_2", "time", json!({"city": "Genf"}));
    let round = |content: Value| vec![user(), caller(content, &[weather()]), result(LONG_ID, "cold")];
    let two = || {
        vec![
            user(),
            caller(Value::Null, &[weather(), time()]),
            result("call_2", "noon"),
            result(LONG_ID, "cold"),
        ]
    };
    let system = || message("system", "first rule");
    let later = || message("system", "second rule");
    let shape = |name, messages, texts| Shape { name, messages, texts };
    let then = |messages: Vec<Value>, others: &[Value]| [messages, others.to_vec()].concat();
    let before = |messages: Vec<Value>| [vec![system()], messages].concat();
    let answer = || message("assistant", "It is.");
    vec![
        shape(
            "system and developer",
            vec![system(), message("developer", "second rule"), user()],
            &["first rule", "second rule", "Hello"],
        ),
        shape(
            "three systems",
            vec![system(), later(), message("system", "third rule"), user()],
            &["first rule", "second rule", "third rule", "Hello"],
        ),
        shape(
            "system after the user",
            before(vec![user(), later()]),
            &["first rule", "Hello", "second rule"],
        ),
        shape(
            "developer after the user",
            before(vec![user(), message("developer", "second rule")]),
            &["first rule", "Hello", "second rule"],
        ),
        shape(
            "system in the middle",
            before(vec![user(), answer(), later(), message("user", "Why?")]),
            &["first rule", "Hello", "It is.", "second rule", "Why?"],
        ),
        shape(
            "system between users",
            vec![user(), later(), message("user", "Why?")],
            &["Hello", "second rule", "Why?"],
        ),
        shape(
            "system after a result",
            then(before(round(Value::Null)), &[later()]),
            &["first rule", "Hello", "Zuerich", "cold", "second rule"],
        ),
        shape(
            "system in a loop",
            then(
                before(round(Value::Null)),
                &[later(), caller(json!(""), &[time()]), result("call_2", "noon")],
            ),
            &["first rule", "Hello", "Zuerich", "cold", "second rule", "Genf", "noon"],
        ),
        shape(
            "user after a result",
            then(before(round(Value::Null)), &[message("user", "Why?")]),
            &["first rule", "Hello", "Zuerich", "cold", "Why?"],
        ),
        shape("two calls", two(), &["Hello", "Zuerich", "Genf", "cold", "noon"]),
        shape(
            "two calls and an answer",
            then(before(two()), &[answer(), message("user", "Why?")]),
            &["first rule", "Hello", "Zuerich", "Genf", "cold", "noon", "It is.", "Why?"],
        ),
        shape("null content", round(Value::Null), &["Hello", "weather", "Zuerich", "cold"]),
        shape("empty content", round(json!("")), &["Hello", "weather", "Zuerich", "cold"]),
        shape(
            "absent content",
            vec![user(), json!({"role": "assistant", "tool_calls": [weather()]}), result(LONG_ID, "cold")],
            &["Hello", "Zuerich", "cold"],
        ),
        shape(
            "text beside a call",
            then(before(round(json!("I look."))), &[answer()]),
            &["first rule", "Hello", "I look.", "Zuerich", "cold", "It is."],
        ),
        shape(
            "reasoning",
            vec![
                user(),
                json!({"role": "assistant", "content": "I look.", "reasoning_content": "Thought.", "tool_calls": [weather()]}),
                result(LONG_ID, "cold"),
            ],
            &["Hello", "I look.", "Zuerich", "cold"],
        ),
        shape(
            "no ids",
            vec![
                user(),
                caller(
                    json!(""),
                    &[json!({"function": {"name": "weather", "arguments": {"city": "Zuerich"}}})],
                ),
                json!({"role": "tool", "tool_name": "weather", "content": "cold"}),
            ],
            &["Hello", "Zuerich", "cold"],
        ),
        shape(
            "broken arguments",
            vec![
                user(),
                caller(json!(""), &[call("c", "weather", json!("{\"city\": Zuerich"))]),
                result("c", "cold"),
            ],
            &["Hello", "Zuerich", "cold"],
        ),
        shape(
            "a call without a result",
            vec![user(), caller(json!(""), &[weather()]), message("user", "Why?")],
            &["Hello", "Zuerich", "Why?"],
        ),
        shape(
            "a result without a call",
            vec![user(), result("c", "cold"), message("user", "Why?")],
            &["Hello", "cold", "Why?"],
        ),
        shape("two users", vec![user(), message("user", "Why?")], &["Hello", "Why?"]),
        shape("assistant first", before(vec![answer(), user()]), &["first rule", "It is.", "Hello"]),
        shape(
            "a call first",
            then(before(round(Value::Null)[1..].to_vec()), &[user()]),
            &["first rule", "Zuerich", "cold", "Hello"],
        ),
        shape("assistant last", vec![user(), answer()], &["Hello", "It is."]),
        shape("only a system", vec![system()], &["first rule"]),
    ]
}

#[test]
fn conversations_keep_all_texts_with_every_template() {
    let Some(templates) = templates() else { return };
    let mut problems = Vec::new();
    for (name, template) in &templates {
        let knows_tools = crate::answer::ToolFormat::for_template(template).is_some();
        for shape in shapes() {
            let tools = tools();
            for tools in [Some(&tools[..]), None] {
                let is_strange = tools.is_none() && knows_tools && shape.name.contains("call");
                if is_strange {
                    continue;
                }
                let problem = lost(template, &shape, tools);
                problems.extend(
                    problem.map(|problem| format!("{name}, {}, {}: {problem}", shape.name, tools.is_some())),
                );
            }
        }
    }
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
}

/// Why a prompt is not as it should be.
fn lost(template: &ChatTemplate, shape: &Shape, tools: Option<&[Value]>) -> Option<String> {
    let context = ChatContext {
        tools,
        bos: Some("<s>"),
        eos: Some("</s>"),
        now: Moment::utc(UNIX_EPOCH),
        ..ChatContext::new(&shape.messages)
    };
    let prompt = match template.render_chat(&context) {
        Ok(ChatPrompt { text, ignored }) if ignored.is_empty() => text,
        Ok(ChatPrompt { text, ignored }) => return Some(format!("ignored {ignored:?}: {text}")),
        Err(error) => return Some(error.to_string()),
    };
    let counts = shape.texts.iter().map(|text| (text, prompt.matches(text).count()));
    let wrong: Vec<_> = counts.filter(|(text, count)| *count != 1 && **text != "weather").collect();
    (!wrong.is_empty()).then(|| format!("{wrong:?} in {:?}", &prompt[prompt.len().saturating_sub(900)..]))
}

#[test]
fn tools_without_a_description_or_parameters_render_with_every_template() {
    let Some(templates) = templates() else { return };
    let sparse = [
        json!({"name": "weather"}),
        json!({"name": "weather", "description": null, "parameters": null}),
        json!({"name": "weather", "description": "d"}),
        json!({"name": "weather", "parameters": {}}),
        json!({"name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}),
    ];
    for (name, template) in &templates {
        for function in &sparse {
            let tools = [json!({"type": "function", "function": function})];
            let messages = [user()];
            let context = ChatContext {
                tools: Some(&tools),
                bos: Some("<s>"),
                eos: Some("</s>"),
                ..ChatContext::new(&messages)
            };
            let prompt =
                template.render_chat(&context).unwrap_or_else(|error| panic!("{name}, {function}: {error}"));
            assert!(!prompt.text.contains("None"), "{name}, {function}: {}", prompt.text);
        }
    }
}

#[test]
fn reasoning_gets_the_name_that_the_template_reads() {
    let Some(templates) = templates() else { return };
    let mut read = 0;
    for (name, template) in &templates {
        let Some(field) = template.traits().forms.reasoning else { continue };
        read += 1;
        for given in reading::REASONING {
            let message = json!({"role": "assistant", "content": "a", given: "Thought."});
            assert_eq!(adapted(template, message)[field], "Thought.", "{name}");
        }
    }
    assert!(read >= 12, "{read}");
    for (name, field) in [
        ("openai-gpt-oss-120b", "thinking"),
        ("LFM2.5-8B-A1B", "thinking"),
        ("upstage-Solar-Open-100B", "reasoning"),
    ] {
        assert_eq!(open(name).unwrap().traits().forms.reasoning, Some(field), "{name}");
    }
}

#[test]
fn reasoning_before_a_call_is_in_the_prompt() {
    for (name, written) in [
        ("openai-gpt-oss-120b", "<|start|>assistant<|channel|>analysis<|message|>Thought.\n\nI look.<|end|>"),
        ("Qwen-Qwen3-0.6B", "<think>\nThought.\n</think>\n\nI look."),
        ("LFM2.5-8B-A1B", "<think>Thought.</think>I look."),
        ("upstage-Solar-Open-100B", "<|begin|>assistant<|think|>Thought.<|end|>"),
    ] {
        let Some(template) = open(name) else { return };
        let mut messages =
            vec![user(), caller(json!("I look."), &[call("c", "weather", json!("{}"))]), result("c", "cold")];
        messages[1]["reasoning_content"] = json!("Thought.");
        let prompt = template.render_chat(&ChatContext::new(&messages)).unwrap().text;
        assert!(prompt.contains(written), "{name}: {prompt}");
    }
}

#[test]
fn contents_take_the_form_of_the_template() {
    let texts = ChatTemplate::new("{% for m in messages %}{{ m.role + m.content }}{% endfor %}").unwrap();
    let parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    let parts = ChatTemplate::new(parts).unwrap();
    let repr = ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    let (text, list) = (json!("ab"), json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]));
    for (template, from, to) in
        [(&texts, &list, &text), (&texts, &text, &text), (&repr, &list, &text), (&parts, &list, &list)]
    {
        let message = adapted(template, json!({"role": "user", "content": from}));
        assert_eq!(message["content"], *to, "{from}");
    }
    let message = adapted(&parts, json!({"role": "user", "content": "ab"}));
    assert_eq!(message["content"], json!([{"type": "text", "text": "ab"}]));
    let result = adapted(&texts, json!({"role": "tool", "content": {"a": [1, null]}}));
    assert_eq!(result["content"], "{\"a\":[1,null]}");
}

#[test]
fn problems_name_the_message_and_the_part() {
    let template = ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    let check = |message: Value, expected: &str| {
        let error = adapt(&template, &[user(), message]).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error, Error::ChatMessage { index: 1, .. }));
    };
    let image = json!({"type": "image_url", "image_url": {"url": "x"}});
    check(
        json!({"role": "user", "content": [{"type": "text", "text": "a"}, image]}),
        "messages[1].content[1]: has the type image_url; only text is supported",
    );
    check(json!({"role": "user", "content": [{"type": "text"}]}), "messages[1].content[0]: has no text");
    check(
        json!({"role": "user", "content": 5}),
        "messages[1].content: is neither a text nor a list of parts",
    );
    check(json!("Hello"), "messages[1]: is not an object");
    check(json!({"role": "assistant", "tool_calls": [{}, 1]}), "messages[1].tool_calls[1]: is not an object");
    let strange = [
        json!({"tool_calls": 1, "content": null}),
        json!({"tool_calls": [{"function": 1, "id": 1}]}),
        json!({"role": 5, "tool_call_id": 5, "name": 5, "reasoning": 5, "thinking": [1, {}]}),
        json!({"role": "tool", "tool_call_id": 5, "name": 5, "tool_name": [], "content": true}),
    ];
    assert!(adapt(&template, &strange).is_ok() && adapt(&template, &[json!({})]).is_ok());
}

#[test]
fn arguments_take_the_form_of_the_template() {
    let (object, text) = (json!({"city": "a", "n": 1}), json!("{\"city\":\"a\",\"n\":1}"));
    let of = |name: &str, arguments: &Value| {
        let template = open(name)?;
        let message = adapted(&template, caller(Value::Null, &[call("abcdefghi", "f", arguments.clone())]));
        Some(message["tool_calls"][0]["function"]["arguments"].clone())
    };
    for (name, from, to) in [
        ("GLM-4.7-Flash", &text, &object),
        ("Qwen3-Coder", &text, &object),
        ("LFM2.5-8B-A1B", &text, &object),
        ("deepseek-ai-DeepSeek-V3.1", &text, &object),
        ("meta-llama-Llama-3.1-8B-Instruct", &text, &object),
        ("mistralai-Mistral-Nemo-Instruct-2407", &text, &object),
        ("Qwen-QwQ-32B", &text, &object),
        ("Qwen-Qwen3-0.6B", &text, &text),
        ("meetkai-functionary-medium-v3.2", &object, &text),
    ] {
        let Some(arguments) = of(name, from) else { return };
        assert_eq!(arguments, *to, "{name}");
    }
    // Models err: their arguments stay in sight.
    let broken = json!("{\"a\"");
    assert_eq!(of("GLM-4.7-Flash", &broken), Some(json!({"invalid_arguments": "{\"a\""})));
    assert_eq!(of("GLM-4.7-Flash", &json!("[1]")), Some(json!({"invalid_arguments": "[1]"})));
    assert_eq!(of("GLM-4.7-Flash", &json!(json!("{\"a\": 1}").to_string())), Some(json!({"a": 1})));
    assert_eq!(of("meetkai-functionary-medium-v3.2", &broken), Some(broken));
}

#[test]
fn ids_of_calls_become_short_for_templates_that_take_no_others() {
    let Some(template) = open("mistralai-Mistral-Nemo-Instruct-2407") else { return };
    let messages = [user(), caller(json!(""), &[call(LONG_ID, "f", json!({}))]), result(LONG_ID, "1")];
    let messages_adapted = adapt(&template, &messages).unwrap();
    assert_eq!(messages_adapted[1]["tool_calls"][0]["id"], "000000000");
    assert_eq!(messages_adapted[2]["tool_call_id"], "000000000");
    let template = open("Qwen-Qwen3-0.6B").unwrap();
    assert_eq!(adapt(&template, &messages).unwrap()[1]["tool_calls"][0]["id"], LONG_ID);
}

#[test]
fn developer_is_system_unless_the_template_knows_it() {
    for (name, role) in [("Qwen-Qwen3-0.6B", "system"), ("openai-gpt-oss-120b", "developer")] {
        let Some(template) = open(name) else { return };
        assert_eq!(adapted(&template, message("developer", "Be brief."))["role"], role, "{name}");
    }
}

/// Templates with rules of their own about system messages.
#[test]
fn later_system_messages_stay_where_the_template_writes_them() {
    let chatml = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}\
        {% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let last_wins = "{% set n = namespace(s='') %}{% for m in messages if m.role == 'system' %}{% set n.s = m.content %}\
        {% endfor %}{{ n.s }}{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let none = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}\
        {% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let messages = [
        message("system", "A"),
        message("system", "B"),
        user(),
        message("assistant", "C"),
        message("system", "D"),
        message("user", "E"),
    ];
    let later = "<user><system>\nD\n</system>\n\nE";
    for (source, expected) in [
        (chatml, "<system>A<system>B<user>Hello<assistant>C<system>D<user>E".to_owned()),
        (strict, format!("<system>A\n\nB<user>Hello<assistant>C{later}")),
        (last_wins, format!("A\n\nB<user>Hello<assistant>C{later}")),
        (none, format!("<user>A\n\nB\n\nHello<assistant>C{later}")),
    ] {
        let template = ChatTemplate::new(source).unwrap();
        let prompt = template.render_chat(&ChatContext::new(&messages)).unwrap();
        assert_eq!(prompt.text, expected, "{source}");
    }
}

#[test]
fn texts_without_a_place_are_named() {
    let template =
        ChatTemplate::new("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}").unwrap();
    let messages = [user(), message("assistant", "a"), message("assistant", "b")];
    let prompt = template.render_chat(&ChatContext::new(&messages)).unwrap();
    assert_eq!(prompt.ignored, [(1, ".content".to_owned()), (2, ".content".to_owned())]);
}

#[test]
fn probes_of_hostile_templates_are_cheap() {
    let source = "{% if messages | length > 1 or messages[0].content is not string %}\
        {% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}x";
    let template = ChatTemplate::new(source).unwrap();
    let start = std::time::Instant::now();
    adapt(&template, &[user()]).unwrap();
    assert!(crate::answer::ToolFormat::for_template(&template).is_none());
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn refusals_name_the_message_at_fault() {
    let source = "{% for m in messages %}{% if 'x' in m.content %}{{ raise_exception('no x') }}{% endif %}{{ 1 + m.n }}\
        {% endfor %}";
    let template = ChatTemplate::new(source).unwrap();
    let blamed =
        |messages: &[Value]| template.render_chat(&ChatContext::new(messages)).unwrap_err().to_string();
    let message = |role: &str, content: &str, n: Value| json!({"role": role, "content": content, "n": n});
    let (user, assistant) = (message("user", "a", json!(1)), message("assistant", "b", json!(1)));
    let refused = blamed(&[user.clone(), assistant.clone(), message("user", "x", json!(1)), assistant]);
    assert!(refused.ends_with("conversation: messages[2]: no x"), "{refused}");
    let unfit = blamed(&[user, message("assistant", "b", json!("y"))]);
    assert!(unfit.contains("messages[1]: "), "{unfit}");
    let template = ChatTemplate::new("{{ raise_exception('never') }}").unwrap();
    let messages = [json!({"role": "user", "content": "a"})];
    let error = template.render_chat(&ChatContext::new(&messages)).unwrap_err().to_string();
    assert!(error.ends_with("conversation: never"), "{error}");
}
