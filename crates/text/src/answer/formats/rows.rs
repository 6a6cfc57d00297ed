//! All formats of tool calls, a row for each.

use super::{Heads, Kinds, Literals, Separator, Syntax, Tags, ToolFormat};

/// A format without any texts, from which the others differ.
const EMPTY: ToolFormat = ToolFormat {
    name: "",
    begin: &[],
    bare: false,
    open: "",
    before: "",
    between: "",
    after: "",
    separator: Separator::Sections(""),
    close: "",
    syntax: Syntax::Object,
    in_reasoning: false,
};

/// Objects as most models write them.
const OBJECT: ToolFormat =
    ToolFormat { before: r#"{"name": ""#, between: r#"", "arguments": "#, after: "}", ..EMPTY };

const HERMES: ToolFormat = ToolFormat {
    name: "hermes",
    begin: &["<tool_call>"],
    open: "\n",
    separator: Separator::Sections("\n"),
    close: "\n</tool_call>",
    ..OBJECT
};

const NO_HEADS: Heads = Heads { call: "", name: "", id: "", arguments: "", text: "" };

const PYTHON: Literals = Literals { call: "", open: '(', assign: '=', close: ')', quote: "" };

/// Qwen3-Coder's.
const TAGS: Tags = Tags {
    call: "<function=",
    name_end: ">",
    key: "<parameter=",
    key_end: ">",
    kinds: None,
    value: "",
    padding: "\n",
    quotes: ["", ""],
    value_end: "</parameter>",
    line: "\n",
    end: "</function>",
};

/// GLM's.
const ARGUMENT_TAGS: Tags = Tags {
    call: "",
    name_end: "",
    key: "<arg_key>",
    key_end: "</arg_key>",
    kinds: None,
    value: "<arg_value>",
    padding: "",
    quotes: ["", ""],
    value_end: "</arg_value>",
    line: "",
    end: "</tool_call>",
};

/// DeepSeek's since V3.2.
const DSML: ToolFormat = ToolFormat {
    name: "deepseek-v3.2",
    begin: &["<｜DSML｜function_calls>"],
    open: "\n",
    before: "<｜DSML｜invoke name=\"",
    between: "\">\n",
    after: "</｜DSML｜invoke>",
    separator: Separator::Calls("\n"),
    close: "\n</｜DSML｜function_calls>",
    syntax: Syntax::Tagged(Tags {
        call: "<｜DSML｜invoke name=\"",
        name_end: "\">",
        key: "<｜DSML｜parameter name=\"",
        key_end: "\" string=\"",
        kinds: Some(Kinds::Text(["true", "false"])),
        value: "\">",
        padding: "",
        value_end: "</｜DSML｜parameter>",
        end: "</｜DSML｜invoke>",
        ..TAGS
    }),
    ..EMPTY
};

/// All formats. If several read what a template writes, the first that would write the same counts, or else the first.
pub const FORMATS: &[ToolFormat] = &[
    // Qwen 2.5 and 3, Hermes, Granite 4, MiMo, Reka, Ling 2.
    HERMES,
    // Qwen3-Coder, Nemotron 3, Step 3.5 and 3.7.
    ToolFormat {
        name: "qwen3-coder",
        begin: &["<tool_call>"],
        open: "\n",
        before: "<function=",
        between: ">\n",
        after: "</function>",
        separator: Separator::Sections("\n"),
        close: "\n</tool_call>",
        syntax: Syntax::Tagged(TAGS),
        ..EMPTY
    },
    ToolFormat {
        name: "seed-oss",
        begin: &["<seed:tool_call>"],
        open: "\n",
        before: "<function=",
        between: ">\n",
        after: "</function>",
        separator: Separator::Sections("\n"),
        close: "\n</seed:tool_call>",
        syntax: Syntax::Tagged(Tags { padding: "", ..TAGS }),
        ..EMPTY
    },
    ToolFormat {
        name: "minimax",
        begin: &["<minimax:tool_call>"],
        open: "\n",
        before: "<invoke name=\"",
        between: "\">\n",
        after: "</invoke>",
        separator: Separator::Calls("\n"),
        close: "\n</minimax:tool_call>",
        syntax: Syntax::Tagged(Tags {
            call: "<invoke name=\"",
            name_end: "\">",
            key: "<parameter name=\"",
            key_end: "\">",
            padding: "",
            end: "</invoke>",
            ..TAGS
        }),
        ..EMPTY
    },
    // GLM 4.7, Laguna.
    ToolFormat {
        name: "glm",
        begin: &["<tool_call>"],
        after: "</tool_call>",
        syntax: Syntax::Tagged(ARGUMENT_TAGS),
        ..EMPTY
    },
    ToolFormat {
        name: "glm-4.5",
        begin: &["<tool_call>"],
        between: "\n",
        after: "</tool_call>",
        separator: Separator::Sections("\n"),
        syntax: Syntax::Tagged(Tags { line: "\n", ..ARGUMENT_TAGS }),
        ..EMPTY
    },
    // LongCat-Flash.
    ToolFormat {
        name: "longcat",
        begin: &["<longcat_tool_call>"],
        close: "\n</longcat_tool_call>",
        ..HERMES
    },
    // LongCat-Flash-Lite and LongCat 2.
    ToolFormat {
        name: "longcat-2",
        begin: &["<longcat_tool_call>"],
        between: "\n",
        after: "</longcat_tool_call>",
        separator: Separator::Sections("\n"),
        syntax: Syntax::Tagged(Tags {
            key: "<longcat_arg_key>",
            key_end: "</longcat_arg_key>",
            value: "<longcat_arg_value>",
            value_end: "</longcat_arg_value>",
            line: "\n",
            end: "</longcat_tool_call>",
            ..ARGUMENT_TAGS
        }),
        ..EMPTY
    },
    // Hy3.
    ToolFormat {
        name: "hy3",
        begin: &["<tool_calls:opensource>"],
        open: "\n",
        before: "<tool_call:opensource>",
        between: "<tool_sep:opensource>\n",
        after: "</tool_call:opensource>",
        separator: Separator::Calls("\n"),
        close: "\n</tool_calls:opensource>",
        syntax: Syntax::Tagged(Tags {
            call: "<tool_call:opensource>",
            name_end: "<tool_sep:opensource>",
            key: "<arg_key:opensource>",
            key_end: "</arg_key:opensource>",
            value: "<arg_value:opensource>",
            value_end: "</arg_value:opensource>",
            line: "\n",
            end: "</tool_call:opensource>",
            ..ARGUMENT_TAGS
        }),
        ..EMPTY
    },
    ToolFormat {
        name: "minicpm-5",
        begin: &["<function name=\""],
        between: "\">",
        after: "</function>",
        syntax: Syntax::Tagged(Tags {
            call: "",
            name_end: "\">",
            key: "<param name=\"",
            key_end: "\">",
            padding: "",
            quotes: ["<![CDATA[", "]]>"],
            value_end: "</param>",
            line: "",
            ..TAGS
        }),
        ..EMPTY
    },
    // Each call is a message of its own to the function.
    ToolFormat {
        name: "muse-glimmer",
        begin: &["<|start|>assistant to={name}<|message|><atem:function_calls>", "<atem:function_calls>"],
        open: "\n",
        before: "<atem:invoke name=\"",
        between: "\">\n",
        after: "</atem:invoke>",
        close: "\n</atem:function_calls>",
        syntax: Syntax::Tagged(Tags {
            call: "<atem:invoke name=\"",
            name_end: "\">",
            key: "<atem:parameter name=\"",
            key_end: "\">",
            padding: "",
            value_end: "</atem:parameter>",
            end: "</atem:invoke>",
            ..TAGS
        }),
        ..EMPTY
    },
    // GLM-4. Text begins with a line break there.
    ToolFormat {
        name: "glm-4",
        begin: &["<|assistant|>"],
        bare: true,
        between: "\n",
        separator: Separator::Calls("<|assistant|>"),
        syntax: Syntax::Named(Heads { arguments: "\n", ..NO_HEADS }),
        ..EMPTY
    },
    // Mistral 7B 0.3, Nemo.
    ToolFormat {
        name: "mistral-list",
        begin: &["[TOOL_CALLS]"],
        open: "[",
        separator: Separator::Calls(", "),
        close: "]",
        ..OBJECT
    },
    // Mistral Small 3.2.
    ToolFormat {
        name: "mistral-id",
        begin: &["[TOOL_CALLS]"],
        between: "[CALL_ID]{id:9}[ARGS]",
        syntax: Syntax::Named(Heads { id: "[CALL_ID]", arguments: "[ARGS]", ..NO_HEADS }),
        ..EMPTY
    },
    // Devstral, Magistral, Mistral Medium.
    ToolFormat {
        name: "mistral",
        begin: &["[TOOL_CALLS]"],
        between: "[ARGS]",
        syntax: Syntax::Named(Heads { id: "[CALL_ID]", arguments: "[ARGS]", ..NO_HEADS }),
        ..EMPTY
    },
    // Phi-4-mini.
    ToolFormat {
        name: "phi",
        begin: &["<|tool_call|>"],
        open: "[",
        separator: Separator::Calls(", "),
        close: "]<|/tool_call|>",
        ..OBJECT
    },
    // Granite 3.
    ToolFormat {
        name: "granite",
        begin: &["<|tool_call|>", "<tool_call>"],
        open: "[",
        separator: Separator::Calls(", "),
        close: "]",
        ..OBJECT
    },
    // Firefunction, Phi-4-mini by a common template.
    ToolFormat {
        name: "functools",
        begin: &["functools"],
        open: "[",
        separator: Separator::Calls(", "),
        close: "]",
        ..OBJECT
    },
    // DeepSeek V3, R1.
    ToolFormat {
        name: "deepseek",
        begin: &["<｜tool▁calls▁begin｜>"],
        before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        between: "\n```json\n",
        after: "\n```<｜tool▁call▁end｜>",
        separator: Separator::Calls("\n"),
        close: "<｜tool▁calls▁end｜>",
        syntax: Syntax::Named(Heads {
            call: "<｜tool▁call▁begin｜>",
            name: "<｜tool▁sep｜>",
            arguments: "```json",
            ..NO_HEADS
        }),
        ..EMPTY
    },
    // DeepSeek V3.1.
    ToolFormat {
        name: "deepseek-v3.1",
        begin: &["<｜tool▁calls▁begin｜>"],
        before: "<｜tool▁call▁begin｜>",
        between: "<｜tool▁sep｜>",
        after: "<｜tool▁call▁end｜>",
        separator: Separator::Calls(""),
        close: "<｜tool▁calls▁end｜>",
        syntax: Syntax::Named(Heads {
            call: "<｜tool▁call▁begin｜>",
            arguments: "<｜tool▁sep｜>",
            ..NO_HEADS
        }),
        ..EMPTY
    },
    DSML,
    ToolFormat {
        name: "deepseek-v4",
        begin: &["<｜DSML｜tool_calls>"],
        close: "\n</｜DSML｜tool_calls>",
        ..DSML
    },
    // A space begins the name of each mark.
    ToolFormat {
        name: "deepseek-v4.1",
        begin: &["<｜DSML｜ calls>"],
        open: "\n",
        before: "<｜DSML｜ invoke name=\"",
        between: "\">\n",
        after: "</｜DSML｜ invoke>",
        separator: Separator::Calls("\n"),
        close: "\n</｜DSML｜ calls>",
        syntax: Syntax::Tagged(Tags {
            call: "<｜DSML｜ invoke name=\"",
            name_end: "\">",
            key: "<｜DSML｜ parameter name=\"",
            key_end: "\" string=\"",
            kinds: Some(Kinds::Text(["true", "false"])),
            value: "\">",
            padding: "",
            value_end: "</｜DSML｜ parameter>",
            end: "</｜DSML｜ invoke>",
            ..TAGS
        }),
        ..EMPTY
    },
    ToolFormat {
        name: "kimi-k3",
        begin: &["<|open|>tools<|sep|>"],
        before: "<|open|>call tool=\"",
        between: "\" index=\"{index}\"<|sep|>",
        after: "<|close|>call<|sep|>",
        separator: Separator::Calls(""),
        close: "<|close|>tools<|sep|>",
        syntax: Syntax::Tagged(Tags {
            call: "<|open|>call tool=\"",
            name_end: "<|sep|>",
            key: "<|open|>argument key=\"",
            key_end: "\" type=\"",
            kinds: Some(Kinds::Type),
            value: "\"<|sep|>",
            padding: "",
            quotes: ["", ""],
            value_end: "<|close|>argument<|sep|>",
            line: "",
            end: "<|close|>call<|sep|>",
        }),
        ..EMPTY
    },
    ToolFormat {
        name: "kimi",
        begin: &["<|tool_calls_section_begin|>"],
        before: "<|tool_call_begin|>functions.",
        between: ":{index}<|tool_call_argument_begin|>",
        after: "<|tool_call_end|>",
        separator: Separator::Calls(""),
        close: "<|tool_calls_section_end|>",
        syntax: Syntax::Named(Heads {
            call: "<|tool_call_begin|>",
            name: "functions.",
            arguments: "<|tool_call_argument_begin|>",
            ..NO_HEADS
        }),
        ..EMPTY
    },
    ToolFormat {
        name: "solar",
        begin: &["<|begin|>assistant<|tool_calls|>"],
        before: "<|tool_call:begin|>{id:10}<|tool_call:name|>",
        between: "<|tool_call:args|>",
        after: "<|tool_call:end|>",
        separator: Separator::Calls(""),
        syntax: Syntax::Named(Heads {
            call: "<|tool_call:begin|>",
            name: "<|tool_call:name|>",
            arguments: "<|tool_call:args|>",
            ..NO_HEADS
        }),
        ..EMPTY
    },
    // gpt-oss. Its template writes old calls as the second of these marks does.
    ToolFormat {
        name: "harmony",
        begin: &[
            "<|start|>assistant<|channel|>commentary to=functions.",
            "<|start|>assistant to=functions.",
            "<|start|>assistant<|channel|>analysis to=functions.",
        ],
        between: " <|constrain|>json<|message|>",
        syntax: Syntax::Named(Heads { arguments: "<|message|>", ..NO_HEADS }),
        close: "<|call|>",
        ..EMPTY
    },
    ToolFormat {
        name: "cohere",
        begin: &["<|START_ACTION|>"],
        open: "[\n    ",
        before: r#"{"tool_call_id": "{index}", "tool_name": ""#,
        between: r#"", "parameters": "#,
        separator: Separator::Calls(",\n    "),
        close: "\n]<|END_ACTION|>",
        ..OBJECT
    },
    // Command R+, whose prompts ask for this.
    ToolFormat {
        name: "command-r",
        begin: &["Action:\n```json", "Action: ```json", "Action:```json"],
        open: "\n[\n    ",
        before: "{\n        \"tool_name\": \"",
        between: "\",\n        \"parameters\": ",
        after: "\n    }",
        separator: Separator::Calls(",\n    "),
        close: "\n]```",
        ..OBJECT
    },
    // Nemotron 2.
    ToolFormat {
        name: "nemotron",
        begin: &["<TOOLCALL>"],
        open: "[",
        separator: Separator::Calls(", "),
        close: "]</TOOLCALL>",
        ..OBJECT
    },
    // Apriel 1.5.
    ToolFormat {
        name: "apriel",
        begin: &["<tool_calls>"],
        open: "[",
        separator: Separator::Calls(", "),
        close: "]</tool_calls>",
        ..OBJECT
    },
    ToolFormat {
        name: "apertus",
        begin: &["<|tools_prefix|>"],
        open: "[",
        before: "{\"",
        between: "\": ",
        after: "}",
        separator: Separator::Calls(", "),
        close: "]<|tools_suffix|>",
        syntax: Syntax::Named(Heads { call: "{\"", arguments: "\":", ..NO_HEADS }),
        in_reasoning: true,
        ..EMPTY
    },
    // Functionary 3.2.
    ToolFormat {
        name: "functionary",
        begin: &[">>>"],
        between: "\n",
        syntax: Syntax::Named(Heads { arguments: "\n", text: "all", ..NO_HEADS }),
        ..EMPTY
    },
    ToolFormat { name: "gigachat", begin: &["<|function_call|>"], ..OBJECT },
    ToolFormat {
        name: "gigachat-3.0",
        begin: &["<|message_sep|>\n\nfunction call<|role_sep|>"],
        open: "\n",
        ..OBJECT
    },
    // LFM2.
    ToolFormat {
        name: "lfm",
        begin: &["<|tool_call_start|>"],
        open: "[",
        between: "(",
        after: ")",
        separator: Separator::Calls(", "),
        close: "]<|tool_call_end|>",
        syntax: Syntax::Literals(PYTHON),
        ..EMPTY
    },
    // MiniCPM 3.
    ToolFormat {
        name: "minicpm-3",
        begin: &["<|tool_call_start|>\n```python", "<|tool_call_start|>```python"],
        open: "\n",
        between: "(",
        after: ")",
        separator: Separator::Calls("\n"),
        close: "\n```\n<|tool_call_end|>",
        syntax: Syntax::Literals(PYTHON),
        ..EMPTY
    },
    // FunctionGemma.
    ToolFormat {
        name: "function-gemma",
        begin: &["<start_function_call>"],
        before: "call:",
        between: "{",
        after: "}",
        close: "<end_function_call>",
        syntax: Syntax::Literals(Literals {
            call: "call:",
            open: '{',
            assign: ':',
            close: '}',
            quote: "<escape>",
        }),
        ..EMPTY
    },
    ToolFormat {
        name: "gemma-4",
        begin: &["<|tool_call>"],
        before: "call:",
        between: "{",
        after: "}",
        close: "<tool_call|>",
        syntax: Syntax::Literals(Literals {
            call: "call:",
            open: '{',
            assign: ':',
            close: '}',
            quote: "<|\"|>",
        }),
        ..EMPTY
    },
    // Gemma 3, whose template knows no tools: prompts ask for this.
    ToolFormat {
        name: "gemma",
        begin: &["```tool_code"],
        open: "\n",
        between: "(",
        after: ")",
        separator: Separator::Calls("\n"),
        close: "\n```",
        syntax: Syntax::Literals(PYTHON),
        ..EMPTY
    },
    // Llama 3.1 to 3.3.
    ToolFormat {
        name: "llama3",
        begin: &["<|python_tag|>"],
        bare: true,
        between: r#"", "parameters": "#,
        separator: Separator::Calls("; "),
        ..OBJECT
    },
    // Llama 4, and models that were asked for this.
    ToolFormat {
        name: "pythonic",
        begin: &["<|python_start|>"],
        bare: true,
        open: "[",
        between: "(",
        after: ")",
        separator: Separator::Calls(", "),
        close: "]",
        syntax: Syntax::Literals(PYTHON),
        ..EMPTY
    },
    // Models that were asked for JSON.
    ToolFormat { name: "json", bare: true, separator: Separator::Calls("\n"), ..OBJECT },
];
