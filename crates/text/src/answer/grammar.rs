//! Grammars of answers with tool calls.

use super::formats::{Separator, Syntax, ToolFormat};
use super::schema::Arguments;
use super::tool::{Tool, ToolChoice};
use super::writer::{FREE, Writer};
use super::{AnswerFormat, ReasoningFormat, ReasoningPhase};
use crate::{Constraint, Error, Tokenizer};

/// The rules for an answer: which calls it may or must have.
#[derive(Debug, Clone, Copy)]
pub struct AnswerRules<'a> {
    /// The tools that it may call.
    pub tools: &'a [Tool],
    /// Which of them, and whether it must.
    pub choice: &'a ToolChoice,
    /// The names of those that it may call; `None`: all.
    pub only: Option<&'a [String]>,
    /// Whether it may have several calls.
    pub is_parallel: bool,
    /// Where its prompt ends: [`ReasoningFormat::phase`].
    pub phase: ReasoningPhase,
    /// The form of an answer without calls: a grammar whose first rule is `start`. `None`: any text.
    pub text: Option<&'a str>,
}

impl AnswerRules<'_> {
    /// Whether several calls may come: a tool that is named is called once.
    fn may_repeat(&self) -> bool {
        self.is_parallel && !matches!(self.choice, ToolChoice::Named(_))
    }
}

impl AnswerFormat {
    /// The form of an answer whose text has a form, and which may reason before.
    ///
    /// # Errors
    /// If the form cannot be enforced.
    pub fn form(
        &self,
        form: &Constraint,
        phase: ReasoningPhase,
        tokenizer: &Tokenizer,
    ) -> Result<Constraint, Error> {
        if phase == ReasoningPhase::After && self.addressed().is_none() {
            return Ok(form.clone());
        }
        let text = form.to_lark(tokenizer)?;
        let rules = AnswerRules {
            tools: &[],
            choice: &ToolChoice::None,
            only: None,
            is_parallel: false,
            phase,
            text: Some(&text),
        };
        let grammar = self.grammar(&rules, tokenizer)?;
        Ok(grammar.map_or_else(|| form.clone(), |grammar| Constraint::Lark(grammar.into())))
    }

    /// The grammar of an answer; `None` if nothing is to be enforced. Reasoning is free.
    ///
    /// With [`ToolChoice::Auto`] text is free until a begin mark, or has its form; behind the mark, the name and the arguments
    /// are those of a declared tool. With [`ToolChoice::Required`] and [`ToolChoice::Named`] there is no text but reasoning.
    ///
    /// # Errors
    /// [`Error::Tools`] if a call must come and the format has none, or a schema has what this format cannot enforce.
    pub fn grammar(&self, rules: &AnswerRules<'_>, tokenizer: &Tokenizer) -> Result<Option<String>, Error> {
        let must = matches!(rules.choice, ToolChoice::Required | ToolChoice::Named(_));
        let may = must || rules.choice == &ToolChoice::Auto && !rules.tools.is_empty();
        let format = self.tools.filter(|_| may);
        if must && format.is_none() {
            let problem = "the model's chat template has no known format of calls; give one".to_owned();
            return Err(Error::Tools { field: "tool_choice".to_owned(), problem });
        }
        let text = rules.text.filter(|_| !must);
        if format.is_none() && text.is_none() {
            return Ok(None);
        }
        let mut writer = Writer::new(tokenizer);
        let calls = match format {
            Some(format) => Some((format, writer.section(format, rules)?)),
            None => None,
        };
        let text = text.map(|text| writer.rule("answer", &format!("%lark {{\n{text}\n}}")));
        let content = Content { calls, text, must, is_parallel: rules.may_repeat() };
        let has_channels =
            |own: &&ReasoningFormat| !own.lead.is_empty() && rules.phase != ReasoningPhase::After;
        let start = match (self.reasoning.filter(has_channels), self.addressed()) {
            (Some(own), _) => writer.channels(own, &content, rules.phase),
            (None, Some(own)) => writer.addressed(own, &content),
            (None, None) => match writer.with_calls_inside(self.reasoning, rules.phase, &content) {
                Some(start) => start,
                None => {
                    writer.before_body(self.reasoning, rules.phase) + &writer.body(self.reasoning, &content)
                }
            },
        };
        Ok(Some(writer.finish(&start)))
    }
}

/// The form of the answer behind the reasoning.
struct Content {
    calls: Option<(&'static ToolFormat, Section)>,
    /// The rule of the text, if it has a form.
    text: Option<String>,
    /// Whether there must be a call.
    must: bool,
    is_parallel: bool,
}

/// One begin mark, and all up to its end.
struct Section {
    begin: String,
    rest: String,
    /// Between sections, if there may be several.
    repeat: Option<String>,
}

impl Writer<'_> {
    /// Reasoning and white space in front of what is enforced.
    fn before_body(&mut self, reasoning: Option<&ReasoningFormat>, phase: ReasoningPhase) -> String {
        let Some(reasoning) = reasoning.filter(|_| phase != ReasoningPhase::After) else {
            return String::new();
        };
        let rest = self.text_until(FREE, reasoning.end);
        if phase == ReasoningPhase::Inside {
            return format!("{rest} GAP ");
        }
        let begin = match self.is_plain(reasoning.begin) {
            true => self.new_rule("[lazy]", &self.literal(reasoning.begin)),
            false => self.literal(reasoning.begin),
        };
        format!("({begin} {rest} GAP)? ")
    }

    /// An answer whose calls may also stand in its reasoning, and which may then end there; `None` if the format has none
    /// of these, or the reasoning is over.
    fn with_calls_inside(
        &mut self,
        reasoning: Option<&ReasoningFormat>,
        phase: ReasoningPhase,
        content: &Content,
    ) -> Option<String> {
        let reasoning = reasoning.filter(|_| phase != ReasoningPhase::After)?;
        let (format, section) = content.calls.as_ref().filter(|(format, _)| format.in_reasoning)?;
        let has_plain_marks =
            [reasoning.begin, reasoning.end, format.begin[0]].map(|mark| self.is_plain(mark));
        if has_plain_marks.contains(&true) {
            return None;
        }
        let call = self.new_rule("", &format!("{} {}", self.literal(format.begin[0]), section.rest));
        let body = self.body(Some(reasoning), content);
        let many = if content.is_parallel { "+" } else { "" };
        let (end, after) = (self.literal(reasoning.end), if content.must { "TEXT" } else { &body[..] });
        let inside = format!("TEXT (({call} TEXT){many} ({end} GAP {after})? | {end} GAP {body})");
        Some(match phase {
            ReasoningPhase::Inside => inside,
            _ => format!("({} {inside} | {body})", self.literal(reasoning.begin)),
        })
    }

    /// The rules of the calls behind a begin mark.
    fn section(&mut self, format: &'static ToolFormat, rules: &AnswerRules<'_>) -> Result<Section, Error> {
        let is_parallel = rules.may_repeat();
        let (between, repeat) = match format.separator {
            Separator::Calls(between) if is_parallel => (Some(between), None),
            Separator::Sections(between) if is_parallel => (None, Some(self.literal(between))),
            _ => (None, None),
        };
        let (mut calls, mut more) = (Vec::new(), Vec::new());
        for (index, tool) in rules.tools.iter().enumerate() {
            let is_other = matches!(rules.choice, ToolChoice::Named(name) if *name != tool.name);
            if is_other || rules.only.is_some_and(|only| !only.contains(&tool.name)) {
                continue;
            }
            let arguments = Arguments::new(format, tool, format!("tools[{index}].function.parameters"));
            let arguments = arguments.write(self)?;
            let head = [format.before, &tool.name, format.between].concat();
            let rest = format!("{arguments} {}", self.literal(format.after));
            let Some(between) = between else {
                calls.push(self.new_rule("", &format!("{} {rest}", self.literal(&head))));
                continue;
            };
            // A separator is one literal with what follows it: the mark behind the last call may begin alike.
            let rest = self.new_rule("", &rest);
            calls.push(self.new_rule("", &format!("{} {rest}", self.literal(&head))));
            more.push(self.new_rule("", &format!("{} {rest}", self.literal(&[between, &head].concat()))));
        }
        let call = self.new_rule("", &calls.join(" | "));
        let more = if more.is_empty() { String::new() } else { format!("({})*", more.join(" | ")) };
        let (open, close) = (self.literal(format.open), self.literal(format.close));
        let rest = self.new_rule("", &format!("{open} {call} {more} {close}"));
        Ok(Section { begin: format.written_begin().to_owned(), rest, repeat })
    }

    /// An answer after its reasoning.
    fn body(&mut self, reasoning: Option<&ReasoningFormat>, content: &Content) -> String {
        let silent = reasoning.map_or(&[][..], |own| own.silent);
        let silent: Vec<String> = silent.iter().map(|mark| self.literal(mark)).collect();
        let silent = silent.join(" | ");
        let text = content.text.as_ref().map(|text| match &silent[..] {
            "" => text.clone(),
            marks => format!("({marks})? {text} ({marks})?"),
        });
        match (&content.calls, text) {
            (Some((_, section)), None) if content.must => {
                let calls = self.calls(section);
                // Marks of an empty text may stand before calls.
                if silent.is_empty() { calls } else { format!("({silent})? ({silent})? {calls}") }
            }
            (Some((_, section)), Some(text)) => format!("({} | {text})", self.calls(section)),
            (Some((format, section)), None) => self.free_body(format, section, &silent, content.is_parallel),
            (None, text) => text.unwrap_or_default(),
        }
    }

    /// One or more calls, and nothing else.
    fn calls(&mut self, section: &Section) -> String {
        let whole = format!("{} {}", self.literal(&section.begin), section.rest);
        let whole = self.new_rule("", &whole);
        let between = section.repeat.as_ref();
        between.map_or(whole.clone(), |between| format!("{whole} ({between} {whole})*"))
    }

    /// Any text up to a call.
    fn free_body(
        &mut self,
        format: &ToolFormat,
        section: &Section,
        silent: &str,
        is_parallel: bool,
    ) -> String {
        if format.bare {
            let plain = match format.syntax {
                Syntax::Named(_) => r"[^a-zA-Z0-9_-](?s:.*)",
                Syntax::Literals(_) => r"[ \n]{0,4}[^\[ \n](?s:.*)",
                _ => r"[ \n]{0,4}[^{ \n](?s:.*)",
            };
            self.rule("PLAIN", &format!("/{plain}/"));
            return format!("({} | PLAIN)?", section.rest);
        }
        let free = match silent {
            "" => "TEXT".to_owned(),
            marks => format!("TEXT (({marks}) TEXT)*"),
        };
        let (plain, special): (Vec<&str>, Vec<&str>) =
            format.begin.iter().copied().partition(|mark| self.is_plain(mark));
        if !special.is_empty() {
            let (begin, many) = (self.one_of(&special), if is_parallel { "*" } else { "?" });
            return format!("{free} ({begin} {} {free}){many}", section.rest);
        }
        let head = self.new_rule("[lazy]", &format!("TEXT {}", self.one_of(&plain)));
        match is_parallel {
            true => format!("({head} {})* {free}", section.rest),
            false => format!("({head} {} | {free})", section.rest),
        }
    }

    /// An answer whose calls and texts all begin with the name of who gets them, the first behind the prompt.
    fn addressed(&mut self, format: &ToolFormat, content: &Content) -> String {
        let text = self.literal(&[format.recipient(), format.between].concat());
        let begin = self.literal(format.begin[0]);
        let calls = content.calls.as_ref().map(|(_, section)| match content.is_parallel {
            true => format!("{} ({begin} {})*", section.rest, section.rest),
            false => section.rest.clone(),
        });
        let text = match (&content.text, &calls) {
            _ if content.must => None,
            (Some(form), _) => Some(format!("{text} {form}")),
            (None, Some(calls)) => {
                let head = self.new_rule("[lazy]", &format!("TEXT {begin}"));
                Some(format!("{text} (TEXT | {head} {calls})"))
            }
            (None, None) => Some(format!("{text} TEXT")),
        };
        let parts = calls.into_iter().chain(text).collect::<Vec<_>>().join(" | ");
        format!("({begin})? ({parts})")
    }

    /// An answer in parts with a header each, as in gpt-oss. The prompt ends with the lead of the first.
    fn channels(&mut self, format: &ReasoningFormat, content: &Content, phase: ReasoningPhase) -> String {
        let own = |text: &'static str| text.strip_prefix(format.lead);
        let lead = self.literal(format.lead);
        let end = self.text_until(FREE, format.end);
        let thought = self.literal(own(format.begin).unwrap_or(format.begin));
        let texts = format.silent.iter().filter_map(|text| own(text)).map(|text| self.literal(text));
        let texts = texts.collect::<Vec<_>>().join(" | ");
        let call = content.calls.as_ref().map(|(_, section)| {
            let begin = section.begin.strip_prefix(format.lead).unwrap_or(&section.begin);
            format!("{} {}", self.literal(begin), section.rest)
        });
        let last = format.cut.rsplit_once(format.lead).map_or("", |(_, last)| last);
        let text = content.text.as_ref().map(|text| format!("{} {text}", self.literal(last)));
        let has_form = content.must || text.is_some();
        let part = if has_form { thought } else { format!("({thought} | {texts})") };
        let free = (!has_form).then(|| format!("({texts}) TEXT"));
        let last = call.into_iter().chain(text).chain(free).collect::<Vec<_>>().join(" | ");
        let part = self.new_rule("", &format!("{part} {end} {lead}"));
        let first = if phase == ReasoningPhase::Inside { format!("{end} {lead} ") } else { String::new() };
        format!("{first}{part}* ({last})")
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::{Value, json};

    use super::*;
    use crate::SkipSpecial;
    use crate::answer::writer::TERMINALS;
    use crate::tokenizer::GgufVocabulary;

    /// Bytes, `</s>` and then these special tokens, from 257.
    fn tokenizer(special: &[&'static str]) -> Tokenizer {
        let bytes = (0..=255).map(|byte| Cow::Owned(format!("<0x{byte:02X}>")));
        let special = ["</s>"].iter().chain(special).map(|name| Cow::Borrowed(*name));
        let tokens: Vec<Cow<'_, str>> = bytes.chain(special).collect();
        let token_types = (0..tokens.len()).map(|id| if id < 256 { 6 } else { 3 }).collect();
        let vocabulary = GgufVocabulary {
            model: "llama",
            tokens,
            token_types: Some(token_types),
            eos: Some(256),
            ..Default::default()
        };
        Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap()
    }

    fn tool(name: &str, parameters: &Value) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    }

    fn grammar(
        format: (&str, &str),
        choice: &ToolChoice,
        parameters: &[Value],
        special: &[&'static str],
    ) -> Result<Option<String>, Error> {
        let names = ["f", "g"];
        let tools: Vec<Value> =
            names.iter().zip(parameters).map(|(name, parameters)| tool(name, parameters)).collect();
        let tools = Tool::list(&tools)?;
        let format =
            AnswerFormat { tools: ToolFormat::named(format.0), reasoning: ReasoningFormat::named(format.1) };
        let rules = AnswerRules {
            tools: &tools,
            choice,
            only: None,
            is_parallel: true,
            phase: ReasoningPhase::Before,
            text: None,
        };
        format.grammar(&rules, &tokenizer(special))
    }

    fn check(format: (&str, &str), choice: &ToolChoice, special: &[&'static str], expected: &[&str]) {
        let objects = [json!({"type": "object"}), json!({"type": "object", "properties": {}})];
        let grammar = grammar(format, choice, &objects, special).unwrap().unwrap();
        let rules = grammar.strip_suffix(TERMINALS).unwrap();
        assert_eq!(rules.lines().map(str::trim_end).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn forms_begin_after_the_reasoning() {
        let format = AnswerFormat { tools: None, reasoning: ReasoningFormat::named("think") };
        let (form, tokenizer) = (Constraint::choice(["yes".to_string()]), tokenizer(&[]));
        let of = |format: AnswerFormat, phase| format.form(&form, phase, &tokenizer).unwrap();
        assert_eq!(of(format, ReasoningPhase::After), form);
        let Constraint::Lark(within) = of(format, ReasoningPhase::Before) else { panic!("a grammar") };
        assert!(within.contains("think>") && within.contains("answer"), "{within}");
    }

    #[test]
    fn calls_are_written_as_the_template_writes_them() {
        check(
            ("hermes", ""),
            &ToolChoice::Required,
            &[],
            &[
                r#"start: r5 ("\n" r5)*"#,
                r#"r1: "{\"name\": \"f\", \"arguments\": " %json {"type":"object"} "}""#,
                r#"r2: "{\"name\": \"g\", \"arguments\": " %json {"type":"object","properties":{}} "}""#,
                "r3: r1 | r2",
                r#"r4: "\n" r3  "\n</tool_call>""#,
                r#"r5: "<tool_call>" r4"#,
            ],
        );
    }

    #[test]
    fn text_is_free_up_to_a_begin_mark() {
        check(
            ("mistral", ""),
            &ToolChoice::Named("g".to_owned()),
            &["[TOOL_CALLS]", "[ARGS]"],
            &[
                "start: r4",
                r#"r1: "g" <[258]> %json {"type":"object","properties":{}}"#,
                "r2: r1",
                "r3:  r2",
                "r4: <[257]> r3",
            ],
        );
        check(
            ("hermes", "think"),
            &ToolChoice::Auto,
            &["<think>", "</think>"],
            &[
                r#"start: (<[257]> TEXT <[258]> GAP)? (r5 r4)* TEXT"#,
                r#"r1: "{\"name\": \"f\", \"arguments\": " %json {"type":"object"} "}""#,
                r#"r2: "{\"name\": \"g\", \"arguments\": " %json {"type":"object","properties":{}} "}""#,
                "r3: r1 | r2",
                r#"r4: "\n" r3  "\n</tool_call>""#,
                r#"r5[lazy]: TEXT "<tool_call>""#,
            ],
        );
    }

    #[test]
    fn nothing_is_enforced_without_tools() {
        assert_eq!(grammar(("hermes", ""), &ToolChoice::Auto, &[], &[]).unwrap(), None);
        assert_eq!(grammar(("hermes", ""), &ToolChoice::None, &[json!({})], &[]).unwrap(), None);
        assert_eq!(grammar(("", ""), &ToolChoice::Auto, &[json!({})], &[]).unwrap(), None);
        let error = grammar(("", ""), &ToolChoice::Required, &[json!({})], &[]).unwrap_err().to_string();
        assert!(error.starts_with("tool_choice: the model's chat template has no known format"), "{error}");
    }

    #[test]
    fn schemas_that_cannot_be_enforced_are_named() {
        let check = |format: &str, parameters: Value, expected: &str| {
            let error = grammar((format, ""), &ToolChoice::Auto, &[parameters], &[]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        let object = |schema: Value| json!({"type": "object", "properties": {"a/b": schema}});
        check(
            "qwen3-coder",
            object(json!({"type": "string", "pattern": "^a"})),
            "tools[0].function.parameters/properties/a~1b: `pattern` cannot be enforced in this model's format of calls",
        );
        check(
            "glm",
            json!({"anyOf": []}),
            "tools[0].function.parameters: `anyOf` cannot be enforced in this model's format of calls",
        );
        check(
            "lfm",
            json!({"required": ["x"]}),
            "tools[0].function.parameters: `required` names \"x\", which is not declared",
        );
        check(
            "gemma-4",
            object(json!({"type": ["string", "array"], "minItems": 1})),
            "tools[0].function.parameters/properties/a~1b: `type` is not one type, as this model's format of calls needs",
        );
        let pattern = object(json!({"type": "string", "pattern": "^a"}));
        assert!(grammar(("hermes", ""), &ToolChoice::Auto, &[pattern], &[]).unwrap().is_some());
    }

    #[test]
    fn constraints_begin_after_reasoning() {
        let start = |tools: &[Tool], reasoning: &str, phase| {
            let format = AnswerFormat {
                tools: ToolFormat::named("hermes"),
                reasoning: ReasoningFormat::named(reasoning),
            };
            let tokenizer = tokenizer(&["<think>", "</think>", "<|channel|>", "<|message|>"]);
            let rules = AnswerRules {
                tools,
                choice: &ToolChoice::Auto,
                only: None,
                is_parallel: false,
                phase,
                text: Some("start: %json {}"),
            };
            let grammar = format.grammar(&rules, &tokenizer).unwrap().unwrap();
            assert!(grammar.contains("answer: %lark {\nstart: %json {}\n}\n"));
            grammar.lines().next().unwrap().to_owned()
        };
        let check = |reasoning, phase, expected| assert_eq!(start(&[], reasoning, phase), expected);
        check("", ReasoningPhase::Before, "start: answer");
        check("think", ReasoningPhase::Inside, "start: TEXT <[258]> GAP answer");
        check("think", ReasoningPhase::Before, "start: (<[257]> TEXT <[258]> GAP)? answer");
        check("think", ReasoningPhase::After, "start: answer");
        check("harmony", ReasoningPhase::Before, "start: r2* (<[259]> \"final\" <[260]> answer)");
        let tools = Tool::list(&[tool("f", &json!({}))]).unwrap();
        assert_eq!(start(&tools, "think", ReasoningPhase::After), "start: (r4 | answer)");
    }

    #[test]
    fn budgets_end_with_the_end_mark() {
        let think = ReasoningFormat::named("think").unwrap();
        let own = tokenizer(&["<think>", "</think>"]);
        let tokens = think.cut_tokens(&own).unwrap();
        assert!(
            tokens.contains(&258) && own.decode(&tokens, SkipSpecial::Yes).ends_with("\n\n"),
            "{tokens:?}"
        );
        let format = AnswerFormat { tools: ToolFormat::named("mistral"), reasoning: Some(think) };
        let tokenizer = tokenizer(&["<think>", "[ARGS]", "<|other|>", "[TOOL_CALLS]"]);
        assert_eq!(format.special_tokens(&tokenizer), [257, 258, 260]);
    }
}
