//! What a template takes, found by rendering probes.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::forms::{Forms, Pair, SHORT_ID};
use super::outline::Outline;
use super::reading::REASONING;
use super::rules::{Rule, Rules};
use super::sparse_tools::Needs;
use super::{ChatContext, ChatTemplate, Moment, sparse_tools};

/// What a template takes.
#[derive(Debug, Default)]
pub(in super::super) struct Traits {
    pub(super) forms: Forms,
    /// The rules that all conversations need.
    pub(super) rules: Rules,
    needs: Needs,
    /// Whether there must be a list of tools, if only an empty one.
    lists_tools: bool,
}

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
const NAME: &str = "probe_function";
const KEY: &str = "probe_key";
const TEXT: &str = "probe text";
const LONG_ID: &str = "call_abcdefghijklmnopqrstuvwx";

impl Traits {
    /// Renders probes.
    pub(super) fn for_template(template: &ChatTemplate) -> Traits {
        let forms = Forms::for_template(template);
        let (needs, lists_tools) = needs_of_tools(template);
        let mut traits = Traits { forms, needs, lists_tools, ..Traits::default() };
        traits.find_rules(template);
        traits
    }

    /// The messages in the order and in the forms that the template takes.
    pub(super) fn adapted(&self, messages: Vec<Value>, rules: &Rules) -> Vec<Value> {
        let mut messages = rules.arranged(messages);
        let mut ids = Vec::new();
        messages.iter_mut().for_each(|message| self.forms.bring(message, &mut ids));
        messages
    }

    /// The tools with the fields that the template reads.
    pub(super) fn tools_for(&self, tools: Option<&[Value]>) -> Option<Vec<Value>> {
        let tools = tools.or(if self.lists_tools { Some(&[]) } else { None })?;
        Some(sparse_tools::completed(tools, self.needs))
    }

    /// Tries each choice of rules on conversations that may need it, and takes the one that loses least.
    fn find_rules(&mut self, template: &ChatTemplate) {
        use Rule::*;
        let message = |role: &str| json!({"role": role, "content": TEXT});
        let [system, user, assistant] = [message("system"), message("user"), message("assistant")];
        let call =
            |id: &str| json!({"id": id, "type": "function", "function": {"name": NAME, "arguments": {}}});
        let caller = |content: Value, calls: &[Value]| json!({"role": "assistant", "content": content, "tool_calls": calls});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "name": NAME, "content": TEXT});
        let round = |content: Value| vec![user.clone(), caller(content, &[call("call_1")]), result("call_1")];
        let two = vec![
            user.clone(),
            caller(Value::Null, &[call("call_1"), call("call_2")]),
            result("call_1"),
            result("call_2"),
        ];
        let thought = {
            let mut round = round(json!(TEXT));
            round[1]["reasoning_content"] = json!("Thought.");
            round
        };
        let list = |messages: &[&Value]| messages.iter().copied().cloned().collect::<Vec<_>>();
        let after_round = |others: &[&Value]| [round(Value::Null), list(others)].concat();
        let turns = [
            list(&[&user, &user]),
            list(&[&user, &assistant, &assistant, &user]),
            list(&[&assistant, &user]),
            after_round(&[&user]),
        ];
        let later = [
            list(&[&system, &user, &system]),
            list(&[&system, &user, &assistant, &system, &user]),
            [list(&[&system]), after_round(&[&system])].concat(),
        ];
        if template.mentions("metadata", "observation") {
            self.choose(template, &[round(Value::Null)], &[&[NameCalls]]);
        }
        self.choose(
            template,
            &[round(Value::Null)],
            &[&[WriteCalls], &[WriteResults], &[WriteCalls, WriteResults]],
        );
        self.choose(template, &[round(json!(TEXT))], &[&[SplitText]]);
        self.choose(template, &[thought], &[&[JoinReasoning]]);
        self.choose(template, &[two], &[&[SplitCalls]]);
        self.choose(template, &[list(&[&system, &user])], &[&[FoldSystem]]);
        self.choose(template, &[list(&[&system, &system, &user])], &[&[MergeSystem]]);
        self.choose(template, &turns, &[&[Alternate]]);
        self.choose(template, &later, &[&[FoldLaterSystem]]);
    }

    fn choose(&mut self, template: &ChatTemplate, conversations: &[Vec<Value>], choices: &[&[Rule]]) {
        let mut least = self.losses(template, conversations, &self.rules);
        for choice in choices {
            let rules = self.rules.with(choice);
            let losses = if least == 0 { return } else { self.losses(template, conversations, &rules) };
            if losses < least {
                (least, self.rules) = (losses, rules);
            }
        }
    }

    /// How many texts are lost.
    fn losses(&self, template: &ChatTemplate, conversations: &[Vec<Value>], rules: &Rules) -> usize {
        /// More than all texts.
        const REFUSED: usize = 100;
        let of_one = |messages: &Vec<Value>| {
            let outline = Outline::new(messages);
            let prompt = template.render_probe(&self.adapted(outline.messages.clone(), rules));
            prompt.map_or(REFUSED, |prompt| outline.lost(&prompt).len())
        };
        conversations.iter().map(of_one).sum()
    }
}

/// What tools need, and whether there must be a list of them.
fn needs_of_tools(template: &ChatTemplate) -> (Needs, bool) {
    let messages = [user()];
    let extra = super::card_variables(template, None, Moment::utc(UNIX_EPOCH));
    let context = ChatContext { extra: extra.as_ref(), ..ChatContext::new(&messages) };
    let renders = |tools: Option<&[Value]>| template.render(&ChatContext { tools, ..context }).is_ok();
    let tool = |function: Value| json!({"type": "function", "function": function});
    let sparse =
        [tool(json!({"name": NAME})), tool(json!({"name": NAME, "description": "d", "parameters": {}}))];
    let types =
        json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "null"}}});
    let types = [tool(json!({"name": NAME, "description": "d", "parameters": types}))];
    let improves = |tools: &[Value], needs| {
        !renders(Some(tools)) && renders(Some(&sparse_tools::completed(tools, needs)))
    };
    let all = Needs { all_fields: true, plain_types: false };
    let plain = Needs { all_fields: true, plain_types: true };
    let needs = Needs { all_fields: improves(&sparse, all), plain_types: improves(&types, plain) };
    (needs, !renders(None) && renders(Some(&[])))
}

impl Forms {
    fn for_template(template: &ChatTemplate) -> Forms {
        let writes = |messages: &[Value], present: &[&str], absent: &[&str]| {
            template.render_probe(messages).is_some_and(|prompt| {
                present.iter().all(|text| prompt.contains(text))
                    && !absent.iter().any(|text| prompt.contains(text))
            })
        };
        let parts = json!([{"type": "text", "text": TEXT}]);
        let of_role = |role: &str| Pair {
            text: writes(&conversation(role, &json!(TEXT)), &[TEXT], &[]),
            parts: writes(&conversation(role, &parts), &[TEXT], &["'type'", "\"type\"", "\\\"type\\\""]),
        };
        let object = json!({KEY: TEXT});
        let written = json!(object.to_string());
        let takes = |id| {
            let forms = [&object, &written];
            let contents = [Value::Null, json!("")];
            let mut rounds =
                forms.iter().flat_map(|form| contents.iter().map(|content| round(content, form, id)));
            rounds.any(|round| template.render_probe(&round).is_some())
        };
        // The call may be the last message, but mostly is not.
        let any = |content: &Value, present: &[&str], length: usize| {
            let forms = [&object, &written];
            forms.iter().any(|form| writes(&round(content, form, SHORT_ID)[..length], present, &["None"]))
        };
        let empty_if = |present: &[&str], length| Pair {
            text: any(&json!(""), present, length),
            parts: any(&Value::Null, present, length),
        };
        let tries: [(&[&str], usize); 4] = [(&[NAME], 3), (&[NAME], 2), (&[], 3), (&[], 2)];
        let empty = tries.iter().map(|(present, length)| empty_if(present, *length));
        let empty = empty.into_iter().find(|empty| empty.text || empty.parts).unwrap_or_default();
        let content = if empty.parts || !empty.text { Value::Null } else { json!("") };
        let plain = format!("\"{KEY}\"");
        let quoted = [format!("'{KEY}'"), format!("\\\"{KEY}")];
        let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
        let caller = |form: &Value| round(&content, form, SHORT_ID)[..2].to_vec();
        let reads = |name: &&str| {
            let fields = [&object, &written].map(|form| {
                let mut round = round(&content, form, SHORT_ID);
                round[1][*name] = json!("Thought.");
                round
            });
            let last = json!({"role": "assistant", "content": "a", *name: "Thought."});
            let others = [vec![user(), last]];
            fields.iter().chain(&others).any(|messages| writes(messages, &["Thought."], &[]))
        };
        Forms {
            contents: ROLES.iter().map(|role| (*role, of_role(role))).collect(),
            empty,
            arguments: Pair {
                text: writes(&caller(&written), &[&plain, TEXT], &quoted),
                parts: writes(&caller(&object), &[KEY, TEXT], &quoted),
            },
            reasoning: REASONING.into_iter().find(|name| reads(name)),
            knows_developer: template.mentions("'developer'", "") || template.mentions("\"developer\"", ""),
            has_short_ids: !takes(LONG_ID) && takes(SHORT_ID),
        }
    }
}

fn user() -> Value {
    json!({"role": "user", "content": "Hello"})
}

/// A call and its result.
fn round(content: &Value, arguments: &Value, id: &str) -> Vec<Value> {
    let call = json!({"id": id, "type": "function", "function": {"name": NAME, "arguments": arguments}});
    vec![
        user(),
        json!({"role": "assistant", "content": content, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "name": NAME, "content": TEXT}),
    ]
}

/// A conversation in which a message of this role has this content.
fn conversation(role: &str, content: &Value) -> Vec<Value> {
    let message = json!({"role": role, "content": content});
    match role {
        "system" => vec![message, user()],
        "assistant" => vec![user(), message, user()],
        "tool" => {
            let mut round = round(&json!(""), &json!({KEY: "x"}), SHORT_ID);
            round[2]["content"] = content.clone();
            round
        }
        _ => vec![message],
    }
}
