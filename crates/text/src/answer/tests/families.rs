//! What single families write that no other does.

use super::*;

#[test]
fn calls_of_kimi_k3_have_types_and_stand_behind_the_text() {
    let own = format("kimi-k3", "kimi-k3");
    let argument = |key: &str, kind: &str, value: &str| {
        format!("<|open|>argument key=\"{key}\" type=\"{kind}\"<|sep|>{value}<|close|>argument<|sep|>")
    };
    let call = |name: &str, index: usize, arguments: &str| {
        format!("<|open|>call tool=\"{name}\" index=\"{index}\"<|sep|>{arguments}<|close|>call<|sep|>")
    };
    let first = call(
        "get_weather",
        1,
        &[argument("city", "string", "Paris <b>"), argument("days", "number", "3")].concat(),
    );
    let second = call("add", 2, &argument("deep", "object", "{\"a\": [1]}"));
    let tools = format!("<|open|>tools<|sep|>{first}{second}<|close|>tools<|sep|>");
    let calls = ["0:get_weather({\"city\": \"Paris <b>\", \"days\": 3})", "1:add({\"deep\": {\"a\": [1]}})"];
    let response = |text: &str| format!("<|open|>response<|sep|>{text}<|close|>response<|sep|>");
    let end = "<|close|>message<|sep|>";
    let thinking = "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>";
    check_after(
        thinking,
        own,
        &format!("Hm.<|close|>think<|sep|>{}{tools}{end}", response("Look:")),
        &["REASONING:Hm.", "Look:", calls[0], calls[1]],
    );
    let plain = "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>";
    check_after(plain, own, &format!("<|close|>response<|sep|>{tools}{end}"), &calls);
    check_after(plain, own, &format!("Hi.<|close|>response<|sep|>{end}"), &["Hi."]);
    // A value that is declared as a text is read as one, whatever type the model names.
    let text = format!("<|open|>tools<|sep|>{}", call("add", 1, &argument("city", "number", "5")));
    check_after(plain, own, &text, &["0:add({\"city\": \"5\"})"]);
}

#[test]
fn calls_of_muse_glimmer_are_messages_to_functions() {
    let own = format("muse-glimmer", "muse-glimmer");
    let check = |text: &str, expected: &[&str]| check_after("<|eot|><|start|>assistant", own, text, expected);
    let block = |name: &str, arguments: &str| {
        format!(
            "<atem:function_calls>\n<atem:invoke name=\"{name}\">\n{arguments}</atem:invoke>\n</atem:function_calls>"
        )
    };
    let days = "<atem:parameter name=\"days\">2</atem:parameter>\n";
    let city = "<atem:parameter name=\"city\"> Rome & <b> </atem:parameter>\n";
    let weather = block("get_weather", city);
    let (first, second) = ("0:get_weather({\"city\": \" Rome & <b> \"})", "1:add({\"days\": 2})");
    check(
        &format!(
            " to=self<|message|>Hm.<|eom|><|start|>assistant to=get_weather<|message|>{weather}<|eom|>\
             <|start|>assistant to=add<|message|>{}<|eot|>",
            block("add", days)
        ),
        &["REASONING:Hm.", first, second],
    );
    check(&format!(" to=add<|message|>{}", block("add", "")), &["0:add({})"]);
    check(
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hi.<|eot|>",
        &["REASONING:Hm.", "Hi."],
    );
    check(" to=user<|message|>Look.<|eom|>", &["Look."]);
    check(&format!(" to=user<|message|>Look. {weather}"), &["Look.", first]);
    let cut = " to=add<|message|><atem:function_calls>\n<atem:invoke name=\"add\">\n<atem:par";
    check(cut, &[&format!("0:add({{!<|start|>assistant{cut}")]);
    check(" to=other<|message|>x", &[" to=other<|message|>x"]);
}

#[test]
fn texts_of_minicpm_5_may_be_quoted() {
    let call =
        |value: &str| format!("<function name=\"add\"><param name=\"city\">{value}</param></function>");
    let check = |value: &str, expected: &str| {
        check("minicpm-5", &call(value), &[&format!("0:add({{\"city\": {expected}}})")]);
    };
    check("Rome", "\"Rome\"");
    check("<![CDATA[a\n</param> & ]] ]>]]>", r#""a\n</param> & ]] ]>""#);
    check("a<![CDATA[<b>]]>c", "\"a<b>c\"");
    check("<![CDATA[]]>", "\"\"");
    check("<![CDAT", "\"<![CDAT\"");
    let two = "Look: <function name=\"add\"><param name=\"note\"><![CDATA[null]]></param><param name=\"days\">3</param>\
        </function><function name=\"add\"></function>";
    super::tests::check("minicpm-5", two, &["Look:", "0:add({\"note\": null, \"days\": 3})", "1:add({})"]);
    super::tests::check(
        "minicpm-5",
        "<function name=\"add\"><param name=\"city\"><![CDATA[x</param></function>",
        &[
            "0:add({\"city\": \"x</param></function>!<function name=\"add\"><param name=\"city\"><![CDATA[x</param></function>",
        ],
    );
}

#[test]
fn calls_of_minicpm_3_are_lines_of_python() {
    let own = format("minicpm-3", "minicpm-3");
    let check = |text: &str, expected: &[&str]| check_after("<|im_start|>assistant\n", own, text, expected);
    check(
        "<|thought_start|>\nI call.\n<|thought_end|>\n<|tool_call_start|>\n```python\nget_weather(city=\"a\",days=2)\n\
         add(days=-1)\n```\n<|tool_call_end|>\nDone.",
        &[
            "REASONING:I call.",
            "0:get_weather({\"city\": \"a\", \"days\": 2})",
            "1:add({\"days\": -1})",
            "Done.",
        ],
    );
    check(
        "<|tool_call_start|>\n```python\nimport os\n```",
        &["<|tool_call_start|>\n```python\nimport os\n```"],
    );
}

#[test]
fn calls_of_deepseek_v4_1_have_spaced_marks() {
    let parameter = |key: &str, text: bool, value: &str| {
        format!("<｜DSML｜ parameter name=\"{key}\" string=\"{text}\">{value}</｜DSML｜ parameter>\n")
    };
    let call = |name: &str, parameters: String| {
        format!("<｜DSML｜ invoke name=\"{name}\">\n{parameters}</｜DSML｜ invoke>\n")
    };
    let first = call("get_weather", parameter("city", true, "Rome") + &parameter("days", false, "2"));
    let text = format!("Look.\n\n<｜DSML｜ calls>\n{first}{}</｜DSML｜ calls>", call("add", String::new()));
    check(
        "deepseek-v4.1",
        &text,
        &["Look.", "0:get_weather({\"city\": \"Rome\", \"days\": 2})", "1:add({})"],
    );
}

#[test]
fn marks_of_functionary_begin_calls_of_declared_functions_alone() {
    let own = format("functionary", "");
    let check = |text: &str, expected: &[&str]| check_after("Hi>>>", own, text, expected);
    check("all\nHello", &["Hello"]);
    check("all\nTry\n>>> add(1, 2)\n3\n>>> x", &["Try\n>>> add(1, 2)\n3\n>>> x"]);
    check("all\na >>>b\n{\"x\": 1}", &["a >>>b\n{\"x\": 1}"]);
    check("all\n>>> all([])\nTrue >>>allow\n1", &[">>> all([])\nTrue >>>allow\n1"]);
    check("all\nLook.>>>add\n{\"days\": 1}", &["Look.", "0:add({\"days\": 1})"]);
    check("all\n>>>>>>add\n{\"days\": 1}", &[">>>", "0:add({\"days\": 1})"]);
    check("add \n{\"days\": 1}>>>all\nDone.", &["0:add({\"days\": 1})", "Done."]);
    check("addition\n{}", &["addition\n{}"]);
}

#[test]
fn apertus_may_call_in_the_middle_of_its_reasoning() {
    let own = format("apertus", "apertus");
    let call = "<|tools_prefix|>[{\"add\": {\"days\": 1}}]<|tools_suffix|>";
    let prompt = "<|assistant_start|>";
    check_after(
        prompt,
        own,
        &format!("<|inner_prefix|>Let me see. {call} So it is one.<|inner_suffix|>One."),
        &["REASONING:Let me see.", "0:add({\"days\": 1})", "REASONING:So it is one.", "One."],
    );
    check_after(
        prompt,
        own,
        &format!("<|inner_prefix|>Hm.{call}"),
        &["REASONING:Hm.", "0:add({\"days\": 1})"],
    );
    check_after(
        prompt,
        own,
        "<|inner_prefix|>Hm. <|tools_prefix|>none<|inner_suffix|>One.",
        &["REASONING:Hm. <|tools_prefix|>none", "One."],
    );
    check_after(prompt, own, &format!("One.{call}"), &["One.", "0:add({\"days\": 1})"]);
}
