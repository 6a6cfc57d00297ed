//! Which format a template, or a vocabulary, belongs to.

use super::*;

#[test]
fn formats_are_found_in_templates() {
    let Some(folder) = testdata::shared("chat-templates/templates") else { return };
    let found = |name: &str| {
        let template = ChatTemplate::open(folder.join(format!("{name}.jinja"))).unwrap();
        let format = AnswerFormat::for_model(Some(&template), None);
        (format.tools.map_or("", |own| own.name), format.reasoning.map_or("", |own| own.name))
    };
    for (template, expected) in [
        ("Bielik-11B-v3.0-Instruct", ("hermes", "think")),
        ("ByteDance-Seed-OSS", ("seed-oss", "seed-oss")),
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", ("cohere", "cohere")),
        ("GLM-4.7-Flash", ("glm", "think")),
        ("GigaChat3-10B-A1.8B", ("gigachat-3.0", "")),
        ("GigaChat3.1-10B-A1.8B", ("gigachat", "")),
        ("Kimi-K2-Instruct", ("kimi", "")),
        ("LFM2.5-8B-A1B", ("lfm", "think")),
        ("MiMo-VL", ("hermes", "")),
        ("Mistral-Small-3.2-24B-Instruct-2506", ("mistral-id", "")),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("qwen3-coder", "think")),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ("hermes", "")),
        ("Qwen-QwQ-32B", ("hermes", "think")),
        ("Qwen-Qwen3-0.6B", ("hermes", "think")),
        ("Qwen3-Coder", ("qwen3-coder", "")),
        ("Reka-Edge", ("hermes", "think")),
        ("StepFun3.5-Flash", ("qwen3-coder", "think")),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", ("deepseek", "think")),
        ("deepseek-ai-DeepSeek-V3.1", ("deepseek-v3.1", "think")),
        ("deepseek_tool_call", ("deepseek", "")),
        ("llama-cpp-deepseek-r1", ("deepseek", "think")),
        ("meta-llama-Llama-3.1-8B-Instruct", ("llama3", "")),
        ("meta-llama-Llama-3.2-3B-Instruct", ("llama3", "")),
        ("fireworks-ai-llama-3-firefunction-v2", ("functools", "")),
        ("meetkai-functionary-medium-v3.2", ("functionary", "")),
        ("microsoft-Phi-3.5-mini-instruct", ("", "")),
        ("mistral_nemo_tool_call", ("mistral-list", "")),
        ("mistralai-Mistral-Nemo-Instruct-2407", ("mistral-list", "")),
        ("mistralrs-chatml", ("", "")),
        ("openai-gpt-oss-120b", ("harmony", "harmony")),
        ("smollm3", ("hermes", "think")),
        ("unsloth-mistral-Devstral-Small-2507", ("mistral", "")),
        ("upstage-Solar-Open-100B", ("solar", "solar")),
    ] {
        assert_eq!(found(template), expected, "{template}");
    }
}

/// Templates of models that are not among the shared ones, as far as they write calls.
#[test]
fn formats_are_found_in_what_templates_write() {
    let found = |calls: &str, prompt: &str| {
        let source = format!(
            "{{%- if tools %}}{{{{ tools | tojson }}}}{{% endif %}}\
             {{%- for m in messages %}}[{{{{ m.role }}}}]{{{{ m.content or '' }}}}{{% if m.tool_calls %}}{calls}{{% endif %}}\
             {{%- endfor %}}{{% if add_generation_prompt %}}[assistant]{prompt}{{% endif %}}"
        );
        ToolFormat::for_template(&ChatTemplate::new(&source).unwrap()).map_or("", |format| format.name)
    };
    let each = |call: &str, separator: &str| {
        format!(
            "{{% for c in m.tool_calls %}}{{% set f = c.function %}}{call}\
             {{% if not loop.last %}}{separator}{{% endif %}}{{% endfor %}}"
        )
    };
    let object = each(r#"{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}"#, ", ");
    assert_eq!(found(&format!("<TOOLCALL>[{object}]</TOOLCALL>"), "<think>\n\n"), "nemotron");
    assert_eq!(found(&format!("\n<tool_calls>[{object}]</tool_calls>"), ""), "apriel");
    let keyed = each(r#"{"{{ f.name }}": {{ f.arguments | tojson }}}"#, ", ");
    assert_eq!(found(&format!("<|tools_prefix|>[{keyed}]<|tools_suffix|>"), ""), "apertus");
    let action = each(
        "    {\n        \"tool_name\": \"{{ f.name }}\",\n        \"parameters\": {{ f.arguments | tojson(indent=4) }}\n    }",
        ",\n",
    );
    assert_eq!(found(&format!("\nAction:\n```json\n[\n{action}\n]```\n"), ""), "command-r");
    let invoke = each(
        "\n<{{ d }}invoke name=\"{{ f.name }}\">\n{% for k, v in f.arguments | items %}\
         <{{ d }}parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">\
         {{ v if v is string else v | tojson }}</{{ d }}parameter>{% endfor %}\n</{{ d }}invoke>",
        "",
    );
    for (block, name) in [("function_calls", "deepseek-v3.2"), ("tool_calls", "deepseek-v4")] {
        let calls =
            format!("{{% set d = '｜DSML｜' %}}\n\n<{{{{ d }}}}{block}>{invoke}\n</{{{{ d }}}}{block}>");
        assert_eq!(found(&calls, "<think>"), name);
    }
    let spaced = invoke.replace("invoke", " invoke").replace("parameter", " parameter");
    let calls = format!("{{% set d = '｜DSML｜' %}}\n\n<{{{{ d }}}} calls>{spaced}\n</{{{{ d }}}} calls>");
    assert_eq!(found(&calls, "<think>"), "deepseek-v4.1");
    let named = each("{{ '>>>' + f.name + '\\n' + f.arguments | tojson }}", "");
    assert_eq!(found(&named, ">>>"), "functionary");
    let tagged = |begin: &str, key: &str, middle: &str, value_end: &str, end: &str| {
        let pair = format!("{key}{{{{ k }}}}{middle}{{{{ v }}}}{value_end}");
        each(&format!("{begin}{{% for k, v in f.arguments | items %}}{pair}{{% endfor %}}{end}"), "\n")
    };
    let named = "<longcat_tool_call>{{ f.name }}\n";
    let middle = "</longcat_arg_key>\n<longcat_arg_value>";
    let longcat =
        tagged(named, "<longcat_arg_key>", middle, "</longcat_arg_value>\n", "</longcat_tool_call>");
    assert_eq!(found(&longcat, "<longcat_think>\n"), "longcat-2");
    let single = each(r#"{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}"#, "");
    assert_eq!(found(&format!("<longcat_tool_call>\n{single}\n</longcat_tool_call>\n"), ""), "longcat");
    let named = "<function name=\"{{ f.name }}\">";
    assert_eq!(found(&tagged(named, "<param name=\"", "\">", "</param>", "</function>"), ""), "minicpm-5");
    let python =
        each("{{ f.name }}({% for k, v in f.arguments | items %}{{ k }}={{ v | tojson }}{% endfor %})\n", "");
    let python = format!("<|tool_call_start|>\n```python\n{python}```\n<|tool_call_end|>\n");
    assert_eq!(found(&python, ""), "minicpm-3");
    assert_eq!(found("", ""), "");
}

/// As Hy3's, whose marks all end alike.
const SUFFIXED: &str = "{% set end = ':opensource' -%}
{%- if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
[{{ m.role }}]{%- if m.role == 'assistant' -%}
{{ '<think{}></think{}>'.format(end, end) }}{{ m.content or '' }}{{ '<tool_calls{}>\n'.format(end) }}
{%- for c in m.tool_calls -%}
{{ '<tool_call{}>'.format(end) }}{{ c.function.name }}{{ '<tool_sep{}>\n'.format(end) }}
{%- for k, v in c.function.arguments.items() -%}
{{ '<arg_key{}>'.format(end) }}{{ k }}{{ '</arg_key{}>\n<arg_value{}>'.format(end, end) }}{{ v }}
{{- '</arg_value{}>\n'.format(end) }}
{%- endfor -%}
{{ '</tool_call{}>\n'.format(end) }}
{%- endfor -%}
{{ '</tool_calls{}>'.format(end) }}
{%- else -%}{{ m.content }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{{ '<think{}>'.format(end) }}{%- endif -%}";

/// A template like Muse Glimmer's, in which each call is a message to its function.
const MESSAGES: &str = "{% if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
{%- if m.reasoning_content %}<|start|>assistant to=self<|message|>{{ m.reasoning_content }}<|eom|>{% endif -%}
{%- if m.tool_calls -%}
{%- for c in m.tool_calls -%}
{{ '<|start|>assistant to=' + c.function.name + '<|message|>' }}<atem:function_calls>
{{ '<atem:invoke name=\"' + c.function.name + '\">' }}
{% for k, v in c.function.arguments.items() -%}
{{ '<atem:parameter name=\"' + k + '\">' }}{{ v }}</atem:parameter>
{% endfor -%}
</atem:invoke>
</atem:function_calls>{{ '<|eot|>' if loop.last else '<|eom|>' }}
{%- endfor -%}
{%- else -%}
<|start|>{{ m.role }}{{ ' to=user' if m.role == 'assistant' }}<|message|>{{ m.content }}<|eot|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}";

#[test]
fn formats_are_found_in_templates_of_suffixes_and_of_messages() {
    for (source, name) in [(SUFFIXED, "hy3"), (MESSAGES, "muse-glimmer")] {
        let template = ChatTemplate::new(source).unwrap();
        let found = AnswerFormat::for_model(Some(&template), None);
        assert_eq!(found, format(name, name));
        let answer = two_calls(&template).unwrap();
        let (calls, _) = read(events(found, "<|start|>assistant", &[&answer]));
        assert_eq!(calls[1], ("add".to_owned(), json!({"days": 2})), "{name}");
    }
}

/// As Kimi K3's, whose marks are made of parts.
const PARTS: &str = "{% macro open(tag, more='') %}<|open|>{{ tag }}{{ more }}<|sep|>{% endmacro -%}
{%- macro close(tag) %}<|close|>{{ tag }}<|sep|>{% endmacro -%}
{%- if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
{{- open('message', ' role=\"' + m.role + '\"') -}}
{%- if m.role == 'assistant' -%}
{{- open('think') + close('think') + open('response') + (m.content or '') + close('response') -}}
{%- if m.tool_calls -%}
{{- open('tools') -}}
{%- for c in m.tool_calls -%}
{{- open('call', ' tool=\"' + c.function.name + '\" index=\"' + loop.index | string + '\"') -}}
{%- for k, v in c.function.arguments.items() -%}
{{- open('argument', ' key=\"' + k + '\" type=\"' + ('string' if v is string else 'number') + '\"') -}}
{{- v -}}{{- close('argument') -}}
{%- endfor -%}
{{- close('call') -}}
{%- endfor -%}
{{- close('tools') -}}
{%- endif -%}
{%- else -%}{{- m.content -}}{%- endif -%}
{{- close('message') -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- open('message', ' role=\"assistant\"') + open('think') -}}{%- endif -%}";

#[test]
fn formats_are_found_in_templates_that_put_marks_together() {
    let template = ChatTemplate::new(PARTS).unwrap();
    let found = AnswerFormat::for_model(Some(&template), None);
    assert_eq!(found, format("kimi-k3", "kimi-k3"));
    let answer = two_calls(&template).unwrap();
    let (calls, _) = read(events(AnswerFormat { reasoning: None, ..found }, "", &[&answer]));
    assert_eq!(calls[1], ("add".to_owned(), json!({"days": 2})));
}

#[test]
fn formats_are_found_in_the_vocabulary_if_the_template_only_reads_tools() {
    let tokenizer = with_marks(&format("lfm", ""));
    let found = |source: &str| {
        let template = ChatTemplate::new(source).unwrap();
        AnswerFormat::for_model(Some(&template), Some(&tokenizer)).tools.map_or("", |own| own.name)
    };
    let messages = "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}\n{% endfor %}";
    assert_eq!(found(&format!("{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{messages}")), "lfm");
    assert_eq!(found(messages), "");
    for format in FORMATS {
        let Some(found) = ToolFormat::in_vocabulary(&with_marks(&self::format(format.name, ""))) else {
            continue;
        };
        // MiniCPM 3 begins calls with the token that begins LFM2's, and with more text behind it.
        assert!(format.begin[0].starts_with(found.begin[0]), "{}", format.name);
    }
    assert_eq!(ToolFormat::in_vocabulary(&with_tokens([])), None);
}

/// Every shared template that writes two calls writes what its format reads, and what the grammar takes.
#[test]
fn two_calls_of_templates_are_read() {
    let Some(folder) = testdata::shared("chat-templates/templates") else { return };
    let mut num_read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let template = ChatTemplate::open(&path).unwrap();
        let format = AnswerFormat::for_model(Some(&template), None);
        let (Some(_), Some(answer)) = (format.tools, two_calls(&template)) else { continue };
        let (calls, _) = read(events(AnswerFormat { reasoning: None, ..format }, "", &[&answer]));
        let [(one, first), (other, second)] = &calls[..] else { panic!("{path:?}: {calls:?} of {answer}") };
        assert_eq!((&one[..], &other[..]), ("get_weather", "add"), "{path:?}");
        assert_eq!((first, second), (&json!({"city": "a b"}), &json!({"days": 2})), "{path:?}");
        num_read += 1;
    }
    assert!(num_read >= 20, "{num_read}");
}

/// What a template writes of two calls, in one of the forms that templates take.
fn two_calls(template: &ChatTemplate) -> Option<String> {
    let declared = ["get_weather", "add"].map(|name| {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
        let function = json!({"name": name, "description": "d", "parameters": parameters});
        json!({"type": "function", "function": function})
    });
    let user = json!({"role": "user", "content": "Hello"});
    let calls = |as_text: bool| {
        let call = |name: &str, id: &str, arguments: Value| {
            let arguments = if as_text { json!(arguments.to_string()) } else { arguments };
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        [
            call("get_weather", "call12345", json!({"city": "a b"})),
            call("add", "call54321", json!({"days": 2})),
        ]
    };
    let forms = [(false, json!("")), (true, json!("")), (false, Value::Null), (true, Value::Null)];
    forms.into_iter().find_map(|(as_text, content)| {
        let message = json!({"role": "assistant", "content": content, "tool_calls": calls(as_text)});
        let messages = [user.clone(), message];
        let context = crate::ChatContext {
            tools: Some(&declared),
            add_generation_prompt: false,
            bos: Some("<s>"),
            eos: Some("</s>"),
            ..crate::ChatContext::new(&messages)
        };
        let written = template.render(&context).ok()?;
        let answer = written.rsplit_once("Hello")?.1;
        let is_whole = answer.contains("a b") && !answer.contains("\\\"city") && !answer.contains("'city'");
        (is_whole && answer.contains("add")).then(|| answer.to_owned())
    })
}
