//! The wire formats of tool calls, as data: what models write, and how it is read.

use serde_json::{Map, Value};

use super::spaced_json;
use super::types::Types;

/// How a model writes its tool calls.
///
/// Several calls are `begin open` call `separator` call `close`, and a call is `before` NAME `between` ARGUMENTS
/// `after`. In these texts `{index}` is the number of a call, and `{id:9}` an id of nine letters and digits. They are
/// written as they stand; reading ignores the white space in them.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolFormat {
    /// The name, as in `--tool-format`.
    pub name: &'static str,
    /// Texts that begin calls wherever they occur; templates write the first.
    pub begin: &'static [&'static str],
    /// Whether calls may also begin an answer without any mark. Templates then write none.
    pub bare: bool,
    /// Between the begin mark and the first call.
    pub open: &'static str,
    /// In front of a name.
    pub before: &'static str,
    /// Between name and arguments.
    pub between: &'static str,
    /// Behind the arguments.
    pub after: &'static str,
    /// Between calls.
    pub separator: Separator,
    /// Behind the last call.
    pub close: &'static str,
    /// How a call is read, and how its arguments are written.
    pub syntax: Syntax,
    /// Whether calls may stand in the middle of the reasoning.
    pub in_reasoning: bool,
}

/// How calls follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// Between one begin mark and one `close`, with this text between calls.
    Calls(&'static str),
    /// Each with its own begin mark and `close`, with this text between them.
    Sections(&'static str),
}

/// How a call is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// A JSON object with the name and the arguments under keys such as `name` and `arguments`, in any order.
    Object,
    /// The name between marks, then the arguments as a JSON object.
    Named(Heads),
    /// Each argument between marks of its own, texts without quotes.
    Tagged(Tags),
    /// A call as in a program: `name(key='value')`.
    Literals(Literals),
}

/// The marks of [`Syntax::Named`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Begins a call; empty if the format's begin mark does.
    pub call: &'static str,
    /// Stands before the name and behind an id or a type; empty if there is none.
    pub name: &'static str,
    /// Stands before an id that follows the name; empty if there is none.
    pub id: &'static str,
    /// Begins the arguments.
    pub arguments: &'static str,
    /// Stands in the place of a name if text follows, in formats that name who gets each part of an answer; empty in all
    /// others. The prompt then ends with the begin mark.
    pub text: &'static str,
}

/// The marks of [`Syntax::Tagged`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Begins a call; empty if the format's begin mark does.
    pub call: &'static str,
    /// Ends the name; empty if the first key or the end of the call does. A quote inside the name ends it too.
    pub name_end: &'static str,
    /// Begins a key.
    pub key: &'static str,
    /// Ends a key.
    pub key_end: &'static str,
    /// The text between key and value that tells the type of the value.
    pub kinds: Option<Kinds>,
    /// Begins a value; empty if the end of the key does.
    pub value: &'static str,
    /// Around a value, and no part of it.
    pub padding: &'static str,
    /// Ends a value.
    pub value_end: &'static str,
    /// Behind each value, and between the marks of key and value if the latter has one.
    pub line: &'static str,
    /// Ends a call.
    pub end: &'static str,
}

/// How [`Tags`] tell the type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// By the first of these if it is a text, and by the second if it is not.
    Text([&'static str; 2]),
    /// By the name of its type in JSON, which is `number` of integers too.
    Type,
}

/// The punctuation of [`Syntax::Literals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literals {
    /// Begins a call; empty if its name does.
    pub call: &'static str,
    /// Behind the name.
    pub open: char,
    /// Between key and value.
    pub assign: char,
    /// Behind the last argument.
    pub close: char,
    /// Around strings, which have no escapes then. Empty: quotes as in Python, with its escapes.
    pub quote: &'static str,
}

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
        line: "\n",
        end: "</｜DSML｜invoke>",
    }),
    ..EMPTY
};

/// All formats. If several read what a template writes, the first that would write the same counts, or else the first.
pub const FORMATS: &[ToolFormat] = &[
    // Qwen 2.5 and 3, Hermes, Granite 4, MiMo, Reka.
    ToolFormat {
        name: "hermes",
        begin: &["<tool_call>"],
        open: "\n",
        separator: Separator::Sections("\n"),
        close: "\n</tool_call>",
        ..OBJECT
    },
    // Qwen3-Coder, Nemotron 3, Step 3.5.
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
    // GLM 4.7.
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
            line: "\n",
            end: "</｜DSML｜ invoke>",
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

impl ToolFormat {
    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static ToolFormat> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The names that [`ToolFormat::named`] takes.
    pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// All texts of the format, to find special tokens in.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'static str> {
        let quote = match &self.syntax {
            Syntax::Literals(literals) => literals.quote,
            _ => "",
        };
        let own = [self.open, self.before, self.between, self.after, self.close, quote];
        let tags = match &self.syntax {
            Syntax::Tagged(tags) => [tags.key, tags.key_end, tags.value, tags.value_end, tags.end],
            Syntax::Named(heads) => [heads.call, heads.name, heads.id, heads.arguments, ""],
            _ => [""; 5],
        };
        self.begin.iter().copied().chain(own).chain(tags)
    }

    /// The name under which text stands, if it needs one as calls do; empty if not.
    pub(super) fn recipient(&self) -> &'static str {
        match &self.syntax {
            Syntax::Named(heads) => heads.text,
            _ => "",
        }
    }

    /// The begin mark as written; a format whose calls may stand bare writes none.
    pub(super) fn written_begin(&self) -> &'static str {
        if self.bare { "" } else { self.begin[0] }
    }

    /// Calls as templates write them, without texts that vary. Arguments are on one line, with spaces.
    pub(super) fn write(&self, calls: &[(&str, &Map<String, Value>)]) -> String {
        let calls = calls.iter().map(|(name, arguments)| {
            [self.before, name, self.between, &self.arguments(arguments), self.after].concat()
        });
        let calls = calls.collect::<Vec<_>>();
        let section = |calls: &str| [self.written_begin(), self.open, calls, self.close].concat();
        match self.separator {
            Separator::Calls(between) => section(&calls.join(between)),
            Separator::Sections(between) => {
                calls.iter().map(|call| section(call)).collect::<Vec<_>>().join(between)
            }
        }
    }

    fn arguments(&self, arguments: &Map<String, Value>) -> String {
        match &self.syntax {
            Syntax::Object | Syntax::Named(_) => spaced_json(&Value::Object(arguments.clone())),
            Syntax::Tagged(tags) => arguments.iter().map(|(key, value)| tags.write(key, value)).collect(),
            Syntax::Literals(literals) => {
                let separator = if literals.quote.is_empty() { ", " } else { "," };
                literals.members(arguments, separator)
            }
        }
    }
}

impl Tags {
    /// All between a key and its value of one of these types.
    pub(super) fn middle(&self, types: Types) -> String {
        let gap = match self.kinds {
            Some(Kinds::Text([text, _])) if types == Types::STRING => text,
            Some(Kinds::Text([_, other])) => other,
            Some(Kinds::Type) if types.meets(Types::NUMBER) => "number",
            Some(Kinds::Type) => types.names().first().copied().unwrap_or("null"),
            None if self.value.is_empty() => "",
            None => self.line,
        };
        [self.key_end, gap, self.value].concat()
    }

    fn write(&self, key: &str, value: &Value) -> String {
        let types = Types::of_value(value);
        let value = value.as_str().map_or_else(|| spaced_json(value), str::to_owned);
        let (padding, end, line) = (self.padding, self.value_end, self.line);
        [self.key, key, &self.middle(types), padding, &value, padding, end, line].concat()
    }
}

impl Literals {
    fn members(&self, members: &Map<String, Value>, separator: &str) -> String {
        let written = members.iter().map(|(key, value)| format!("{key}{}{}", self.assign, self.write(value)));
        written.collect::<Vec<_>>().join(separator)
    }

    fn write(&self, value: &Value) -> String {
        let is_python = self.quote.is_empty();
        match value {
            Value::String(text) if !is_python => [self.quote, text, self.quote].concat(),
            Value::String(text) if !text.contains(['\'', '\\', '\n', '\r']) => format!("'{text}'"),
            Value::Array(items) if !is_python => {
                let items: Vec<String> = items.iter().map(|item| self.write(item)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Object(members) if !is_python => format!("{{{}}}", self.members(members, ",")),
            other => spaced_json(other),
        }
    }
}
