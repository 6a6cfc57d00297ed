//! Chat templates against what jinja2 makes of them, and against what a hostile file may hold.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;

#[derive(serde::Deserialize)]
struct Expected {
    base: serde_json::Map<String, Value>,
    contexts: BTreeMap<String, serde_json::Map<String, Value>>,
    templates: BTreeMap<String, ExpectedTemplate>,
}

#[derive(serde::Deserialize)]
struct ExpectedTemplate {
    cases: BTreeMap<String, Case>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Case {
    Rendered { rendered: String },
    Refused { error: String },
}

/// 2025-07-26, noon.
const NOW: Duration = Duration::from_secs(1_753_531_200);

#[test]
fn templates_render_as_in_jinja2() {
    let Some(folder) = testdata::shared("chat-templates") else { return };
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("expected.json is readable");
    let expected: Expected = serde_json::from_str(&text).expect("expected.json has its shape");
    let mut problems = Vec::new();
    let mut cases = 0;
    for (name, template) in &expected.templates {
        let source =
            std::fs::read_to_string(folder.join(format!("templates/{name}.jinja"))).expect("a source");
        let program = ChatTemplate::new(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (case, outcome) in &template.cases {
            cases += 1;
            // Templates that llama.cpp renders: Python refuses to write the result of `map` as JSON, and its sandbox to
            // change a list.
            let is_refused_for =
                |reason| matches!(outcome, Case::Refused { error } if error.contains(reason));
            if is_refused_for("generator") || is_refused_for("'append'") {
                continue;
            }
            let problem = difference(&program, &expected.base, &expected.contexts[case], outcome);
            problems.extend(problem.map(|problem| format!("{name}, {case}: {problem}")));
        }
    }
    assert_eq!(cases, 41 * 15);
    assert!(problems.is_empty(), "{} of {cases} cases:\n{}", problems.len(), problems.join("\n"));
}

/// The difference between a rendering and its expected outcome.
fn difference(
    program: &ChatTemplate,
    base: &serde_json::Map<String, Value>,
    given: &serde_json::Map<String, Value>,
    outcome: &Case,
) -> Option<String> {
    let mut extra = base.clone();
    extra.extend(given.clone());
    for own in ["messages", "tools", "documents", "add_generation_prompt"] {
        extra.remove(own);
    }
    let list = |name: &str| given.get(name).and_then(Value::as_array).map(Vec::as_slice);
    let context = ChatContext {
        tools: list("tools"),
        documents: list("documents"),
        add_generation_prompt: given["add_generation_prompt"] == true,
        now: Moment::utc(UNIX_EPOCH + NOW),
        extra: Some(&extra),
        ..ChatContext::new(list("messages").expect("every context has messages"))
    };
    match (program.render(&context), outcome) {
        (Ok(text), Case::Rendered { rendered }) if text == *rendered => None,
        (Err(_), Case::Refused { error }) if !error.starts_with("TemplateError: ") => None,
        (Err(Error::ChatRefused { message, .. }), Case::Refused { error })
            if error.strip_prefix("TemplateError: ") == Some(&message) =>
        {
            None
        }
        (Ok(text), Case::Rendered { rendered }) => {
            Some(format!("\n  rendered {text:?}\n  expected {rendered:?}"))
        }
        (Ok(text), Case::Refused { error }) => Some(format!("\n  rendered {text:?}\n  expected {error}")),
        (Err(error), Case::Rendered { .. }) => Some(format!("failed: {error}")),
        (Err(error), Case::Refused { error: expected }) => {
            Some(format!("\n  failed: {error}\n  expected {expected}"))
        }
    }
}

const CHATML: &str = "{% for message in messages %}\n\
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' }}\n\
    {% endfor %}\n\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n";

const LLAMA: &str = "{{- bos_token }}\n\
    {%- if messages[0].role == 'system' %}\n    {%- set system = messages[0].content %}\n\
    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system = 'Be kind.' %}\n{%- endif %}\n\
    {{- '<|header|>system<|end|>\\n' + strftime_now('%d %b %Y') + ': ' + system }}\n\
    {%- for message in messages %}\n\
    {%- if message.role not in ['user', 'assistant'] %}{{ raise_exception('No ' ~ message.role ~ '!') }}{% endif %}\n\
    {{- '<|header|>' ~ message.role ~ '<|end|>' ~ message.content.strip() }}\n\
    {%- endfor %}\n{%- if tools is not none %}{{ '|' ~ tools | tojson }}{% endif %}";

fn conversation() -> Vec<Value> {
    vec![json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": " Hi\n"})]
}

fn render(source: &str) -> Result<String, Error> {
    let messages = conversation();
    let context =
        ChatContext { now: Moment::utc(UNIX_EPOCH + NOW), bos: Some("<s>"), ..ChatContext::new(&messages) };
    ChatTemplate::new(source)?.render(&context)
}

/// With limits that are soon reached.
fn render_hostile(source: &str) -> Result<String, Error> {
    let limits = Limits { fuel: 300_000, work: 8 << 20, ..Limits::default() };
    ChatTemplate::with_limits([("default", source)], limits)?.render(&ChatContext::new(&conversation()))
}

fn check(source: &str, expected: &str) {
    assert_eq!(render(source).unwrap_or_else(|error| panic!("{source}: {error}")), expected, "{source}");
}

fn check_fails(source: &str, words: &str) {
    let error = render_hostile(source).map(|text| text.len()).expect_err("too much").to_string();
    assert!(error.contains(words), "{}: {error}", &source[..source.len().min(200)]);
}

#[test]
fn conversations_are_framed() {
    check(
        CHATML,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    );
    check(LLAMA, "<s><|header|>system<|end|>\n26 Jul 2025: Be brief.<|header|>user<|end|>Hi");
}

#[test]
fn tools_keep_the_order_of_their_keys() {
    let messages = conversation();
    let tools = [json!({"type": "function", "a": {"name": "é", "b": [1.0, 1e-7, null, true]}})];
    let context = ChatContext {
        tools: Some(&tools),
        now: Moment::utc(UNIX_EPOCH + NOW),
        ..ChatContext::new(&messages)
    };
    let text = ChatTemplate::new(LLAMA).expect("a template").render(&context).expect("a prompt");
    let json = r#"[{"type": "function", "a": {"name": "é", "b": [1.0, 1e-07, null, true]}}]"#;
    assert_eq!(text.split_once('|').map(|_| text.rsplit_once("Hi|").map(|(_, json)| json)), Some(Some(json)));
}

#[test]
fn refusals_carry_the_templates_message() {
    let messages = [json!({"role": "robot", "content": ""})];
    let error = ChatTemplate::new(LLAMA).expect("a template").render(&ChatContext::new(&messages));
    assert!(matches!(error, Err(Error::ChatRefused { message, .. }) if message == "No robot!"));
}

#[test]
fn expressions_evaluate_as_in_python() {
    check("{{ [1, 2, 3][::-1] }}{{ 'abcd'[-3:-1] }}{{ [][::-1] }}{{ 'abc'[5:] }}", "[3, 2, 1]bc[]");
    check(
        "{{ 1 + 2 }} {{ 1 + 0.5 }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ 'a' ~ 1 ~ none }}",
        "3 1.5 ab [1, 2] a1None",
    );
    check(
        "{% set n = 3 %}{{ 'ab' * n }} {{ n * 2 }} {{ true }} {{ {'a': none} }}",
        "ababab 6 True {'a': None}",
    );
    check(
        "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "02",
    );
    check(
        "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
        "3",
    );
    check(
        "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}{{ tools is none }}",
        "1FalseTrue",
    );
    check("{{ {'a': [1, {}], 'b': []} | tojson(indent=1) }}", "{\n \"a\": [\n  1,\n  {}\n ],\n \"b\": []\n}");
    check(
        "{{ 'é\u{1}😀' | tojson(ensure_ascii=true) }}{{ '<é>' | tojson }}",
        r#""\u00e9\u0001\ud83d\ude00""<é>""#,
    );
}

#[test]
fn templates_are_found_where_models_keep_them() {
    let named =
        r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#;
    let named = ChatTemplate::from_tokenizer_config(named).expect("a template").expect("there is one");
    let tools = [json!({})];
    let plain = ChatContext::new(&[]);
    assert_eq!(named.render(&plain).expect("a prompt"), "d");
    assert_eq!(named.render(&ChatContext { tools: Some(&tools), ..plain }).expect("a prompt"), "t");
    assert!(ChatTemplate::from_tokenizer_config("{}").expect("JSON").is_none());
    assert!(ChatTemplate::from_tokenizer_config(r#"{"chat_template": 3}"#).is_err());

    let mut metadata = Metadata::new();
    assert!(ChatTemplate::from_gguf(&metadata).is_none());
    metadata.insert("tokenizer.chat_template", MetaValue::String("d".to_owned()));
    metadata.insert("tokenizer.chat_template.rag", MetaValue::String("r".to_owned()));
    let template = ChatTemplate::from_gguf(&metadata).expect("there is one");
    assert_eq!(template.names().collect::<Vec<_>>(), ["default", "rag"]);
    assert_eq!(template.render_named("rag", &plain).expect("a prompt"), "r");
    assert!(template.render_named("none", &plain).is_err());
}

/// Attack S6: templates that run commands where Python renders them.
#[test]
fn templates_reach_nothing_outside() {
    let marker = std::env::temp_dir().join(format!("perihelion-template-{}", std::process::id()));
    let command = format!("touch {}", marker.display());
    for payload in [
        "{{ ''.__class__.__mro__[1].__subclasses__()[104]('COMMAND', shell=True) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ ().__class__.__bases__[0].__subclasses__() }}",
        "{{ [].__class__.__mro__[-1].__subclasses__() }}",
        "{{ {}.__class__.__init__.__globals__ }}",
        "{{ messages.__class__.__init__.__globals__['__builtins__']['exec']('COMMAND') }}",
        "{{ messages[0].__init__.__globals__.os.system('COMMAND') }}",
        "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('COMMAND').read() }}",
        "{{ self._TemplateReference__context.cycler.__init__.__globals__.os.popen('COMMAND').read() }}",
        "{{ cycler.__init__.__globals__.os.popen('COMMAND').read() }}",
        "{{ joiner.__init__.__globals__.os.popen('COMMAND').read() }}",
        "{{ namespace.__init__.__globals__.os.popen('COMMAND').read() }}",
        "{{ lipsum.__globals__['os'].popen('COMMAND').read() }}",
        "{{ range.__globals__ }}",
        "{{ dict.mro() }}",
        "{{ raise_exception.__globals__['sys'].modules['os'].system('COMMAND') }}",
        "{{ strftime_now.__globals__['os'].system('COMMAND') }}",
        "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "{{ '%s' | format(messages.__class__.__mro__) }}",
        "{% for x in ().__class__.__base__.__subclasses__() %}{{ x()._module.__builtins__['__import__']('os').system('COMMAND') }}{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os.system('COMMAND') }}",
        "{% extends '/etc/passwd' %}",
        "{{ url_for.__globals__['current_app'].config }}",
        "{{ request.application.__globals__.__builtins__.open('/etc/passwd').read() }}",
        "{{ config.items() }}{{ import os }}",
        "{% set x = ''.join %}{{ x.__self__.__class__ }}",
        "{{ messages | map(attribute='__class__.__mro__') | list }}",
    ] {
        // What a name that is not there comes to is nothing.
        let text = render_hostile(&payload.replace("COMMAND", &command)).unwrap_or_default();
        for sign in ["class", "subprocess", "root:", "<function", "builtins", "module"] {
            assert!(!text.contains(sign), "{payload}: {text}");
        }
    }
    assert!(!marker.exists());
}

#[test]
fn endless_templates_are_stopped() {
    let loops = "{% for a in range(99999) %}".repeat(4) + &"{% endfor %}".repeat(4);
    check_fails(&loops, "too many steps");
    check_fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion limit");
    check_fails("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursion limit");
    check_fails("{% block a %}{{ self.a() }}{% endblock %}", "recursion limit");
    check_fails("{% include 'default' %}", "");
}

#[test]
fn deep_templates_are_refused() {
    check_fails(&format!("{{{{ {}1{} }}}}", "(".repeat(9999), ")".repeat(9999)), "");
    check_fails(&"{% if true %}".repeat(9999), "");
    check_fails(&format!("{{{{ 1{} }}}}", " | string".repeat(99_999)), "one tag");
    check_fails(&format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(60_000)), "elif");
    check_fails(&("{% set a = [] %}".to_owned() + &"{% set a = [a] %}".repeat(9999)), "nested too deeply");
    check_fails(
        &("{% set a = {} %}".to_owned() + &"{% set a = dict(a=a) %}".repeat(9999)),
        "nested too deeply",
    );
    check_fails("{% set n = namespace() %}{% set n.n = n %}{{ n }}", "namespace");
    check_fails("{% set n = namespace() %}{% set n.n = [n] %}{{ n }}", "namespace");
}

#[test]
fn large_texts_are_stopped() {
    let repeat = |body: &str| {
        format!("{{% set n = namespace(a='aaaa', l=[1]) %}}{{% for i in range(99999) %}}{body}{{% endfor %}}")
    };
    for body in [
        "{% set n.a = n.a ~ n.a %}",
        "{% set n.a = n.a + n.a %}",
        "{% set n.a = n.a * loop.index %}",
        "{% set n.a %}{{ n.a }}{{ n.a }}{% endset %}",
        "{% set n.a = n.a | replace('a', 'aa') %}",
        "{% set n.a = n.a.replace('a', 'aa') %}",
        "{% set n.a = [n.a, n.a] | join(n.a) %}",
        "{% set n.l = n.l + n.l %}",
        "{% set n.l = [n.l, n.l] %}",
        "{{ n.a }}{% set n.a = n.a ~ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}",
    ] {
        assert!(render_hostile(&repeat(body)).map(|text| text.len()).is_err(), "{body}");
    }
    check_fails("{% set n = 999999999999 %}{{ 'a' * n }}", "too many steps");
    check_fails("{{ '%999999999d' | format(1) }}", "too many steps");
    check_fails("{{ [1] | batch(999999999, 1) }}", "too many steps");
    check_fails("{{ 'a' * 99999999 }}", "too many steps");
    check_fails("{{ 'a' | indent(width=99999999, first=true) }}", "too many steps");
    check_fails("{{ ('a' * 3) * 99999999 }}", "too many steps");
    check_fails("{{ 'a'.center(99999999) }}", "too many steps");
    check_fails("{{ 'a'.zfill(99999999) }}", "too many steps");
    check_fails("{{ '\t'.expandtabs(99999999) }}", "too many steps");
    check_fails("{{ 'a' | center(width=99999999) }}", "too many steps");
    check_fails("{{ '%*d' % (99999999, 1) }}", "too many steps");
    check_fails("{{ '%99999999d' % 1 }}", "too many steps");
    check_fails("{{ '{:{w}}'.format(1, w=99999999) }}", "too many steps");
    check_fails("{{ ('%(a)s' * 99999) % {'a': 'a' * 99999} }}", "too many steps");
    check_fails("{{ ('{0}' * 99999).format('a' * 99999) }}", "too many steps");
    check_fails("{{ [1] * 999999 }}", "too many steps");
    check_fails("{{ ('a ' * 999999).split() }}", "too many steps");
    check_fails("{{ 2 ** 999999999 }}", "128 bits");
    check_fails("{{ [1] | random }}", "another prompt each time");
    check_fails("{% set a = '%' ~ 99999999 ~ 'd' %}{{ a | format(1) }}", "too many steps");
    check_fails("{% set a = '{:>99999999}' %}{{ a.format(1) }}", "too many steps");
    check_fails("{{ 'a' | indent(99999999, true) }}", "too many steps");
    check_fails("{{ {'a': [1] } | tojson(indent=99999999) }}", "indent");
    check_fails("{{ range(99999999) }}", "");
    // Large numbers that are not widths are allowed.
    let now = "{{ '%d of 20250726' % 1753531200 }}{{ '{} of 20250726'.format(1753531200) }}";
    assert_eq!(render_hostile(now).unwrap(), "1753531200 of 20250726".repeat(2));
    let long = "a".repeat(2 << 20);
    check_fails(&long, "the limit is");
}

#[test]
fn default_limits_are_reached_in_seconds() {
    let loops = "{% for a in range(99999) %}".repeat(4) + "{{ a }}" + &"{% endfor %}".repeat(4);
    let compare = "{% set b = 'b' %}{% set n = 1000000 %}{% set c = b * n %}{% for a in range(99999) %}\
        {% if c == c or c in [c] or c | length %}{% endif %}{% endfor %}";
    assert!(render(&loops).is_err());
    assert!(render(compare).is_err());
}

/// Small templates that render differently from jinja2. No model's template uses any of this.
const DIFFERENCES: &[&str] = &[
    // The parser knows no sign before a name, no tuple without brackets, no `self`, and no long escapes.
    "{{ +n }}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}",
    "{{ self is defined }}",
    r#"{{ "\x41\u00e9\U0001F642" }}"#,
    // Python's errors of values that compare, list or write here.
    r#"{{ [1, "a"] | sort }}"#,
    r#"{{ records | groupby("tags", default="-") | length }}"#,
    "{{ [big, 1e400] | tojson }}",
    "{% for i in namespace(a=1) %}{{ i }}{% endfor %}",
    // One and true are one key in Python, and an empty namespace is true.
    "{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}",
    "{% if namespace() %}a{% endif %}",
    // A string is not unpacked like a list.
    "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}",
    // To jinja2, a loop whose passes all end early has made none.
    "{% for i in l %}{% continue %}{% else %}none{% endfor %}",
    // HTML, Python's own names, and bytes.
    r#"{{ "<!-- x > y -->a &lt; b &nbsp;c" | striptags }}"#,
    r#"{{ "http://a.b/c x" | urlize }}"#,
    r#"{{ "abc".isidentifier() }}"#,
    r#"{{ "1abc".isidentifier() }}"#,
    r#"{{ "abc".encode() }}"#,
    r#"{{ "{!r}".format(s) }}"#,
    // A separator of ASCII next to a tag.
    "a\u{1c}{{- 'b' -}}\u{1c}",
];

#[derive(serde::Deserialize)]
struct Goldens {
    context: serde_json::Map<String, Value>,
    cases: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

#[test]
fn lists_in_namespaces_gain_and_lose_items() {
    let check = |source: &str, expected: &str| {
        let template = ChatTemplate::new(source).unwrap();
        assert_eq!(template.render(&ChatContext::new(&[])).unwrap(), expected, "{source}");
    };
    let begin = "{% set ns = namespace(list=[]) %}{% for i in range(3) %}{% set _ = ns.list.append(i * i) %}{% endfor %}";
    check(&format!("{begin}{{{{ ns.list }}}}"), "[0, 1, 4]");
    check(&format!("{begin}{{% set first = ns.list.pop(0) %}}{{{{ first }}}} {{{{ ns.list }}}}"), "0 [1, 4]");
    check(&format!("{begin}{{% set last = ns.list.pop() %}}{{{{ last }}}} {{{{ ns.list }}}}"), "4 [0, 1]");
    let template = ChatTemplate::new("{% set list = [1] %}{% set _ = list.append(2) %}").unwrap();
    assert!(template.render(&ChatContext::new(&[])).is_err(), "other lists stay as they are");
}

#[test]
fn small_templates_render_as_in_jinja2() {
    let goldens: Goldens =
        serde_json::from_str(include_str!("goldens.json")).expect("the goldens have their shape");
    let messages = goldens.context["messages"].as_array().expect("there are messages");
    let mut problems = Vec::new();
    for (source, expected) in goldens.cases.values().flatten() {
        let context = ChatContext { extra: Some(&goldens.context), ..ChatContext::new(messages) };
        let rendered = ChatTemplate::new(source).and_then(|template| template.render(&context));
        let is_same = match (&rendered, expected) {
            (Ok(rendered), Some(expected)) => rendered == expected,
            (rendered, expected) => rendered.is_err() && expected.is_none(),
        };
        if is_same == DIFFERENCES.contains(&source.as_str()) {
            problems.push(format!("{source:?}: {rendered:?}, not {expected:?}"));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}
