//! Arguments between marks of their own, whose texts have no quotes.

use serde_json::{Value, json};

use super::{
    Arguments, BARE, CHOICE, STRING, choice, json_rule, only, place_of, problem, text_pattern, union,
};
use crate::Error;
use crate::answer::formats::{Kinds, Tags};
use crate::answer::reader::is_json;
use crate::answer::types::Types;
use crate::answer::writer::{FREE, Writer};

/// The name of an argument that is not declared.
const KEY: &str = r"/[\w$@.:\/ -]+/";

/// What may stand for a value.
#[derive(Default)]
struct RawValue {
    /// The texts among them.
    text: Option<Text>,
    /// The schemas of the others, which are JSON.
    json: Vec<Value>,
}

/// Texts without quotes.
enum Text {
    /// As a regular expression.
    Pattern(String),
    Choice(Vec<String>),
}

impl Text {
    fn is_free(&self) -> bool {
        matches!(self, Text::Pattern(pattern) if pattern == FREE)
    }
}

impl RawValue {
    fn text(text: Text) -> RawValue {
        RawValue { text: Some(text), json: Vec::new() }
    }

    /// Adds the values of another choice. False if the texts of both cannot be told apart in one rule.
    fn add(&mut self, other: RawValue) -> bool {
        self.json.extend(other.json);
        self.text = match (self.text.take(), other.text) {
            (text, None) | (None, text) => text,
            (Some(Text::Choice(mut own)), Some(Text::Choice(more))) => {
                own.extend(more);
                Some(Text::Choice(own))
            }
            (Some(one), Some(other)) if one.is_free() || other.is_free() => {
                Some(Text::Pattern(FREE.to_owned()))
            }
            _ => return false,
        };
        true
    }

    /// Whether a reader that knows the types alone reads only values that the schema allows.
    fn is_unambiguous(&self, types: Types) -> bool {
        let is_bare = |schema: &Value| only(schema, &BARE, "").is_ok();
        match &self.text {
            None => true,
            Some(text) if text.is_free() => self.json.iter().all(is_bare),
            Some(Text::Pattern(_)) => self.json.is_empty(),
            Some(Text::Choice(texts)) => texts.iter().all(|text| !is_json(text, types)),
        }
    }
}

impl<'a> Arguments<'a> {
    /// Each argument between its marks, in the order of the schema.
    pub(super) fn tagged(
        &mut self,
        tags: &Tags,
        schema: &'a Value,
        place: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        let members = self.object(schema, place)?;
        let mut terms = Vec::new();
        for (key, schema, is_required) in members.properties {
            if key.trim() != key || key.contains(tags.key_end.trim()) {
                return Err(problem(place, "properties", &format!("has {key:?}, which no mark can hold")));
            }
            let value = self.tagged_value(tags, schema, &place_of(place, key), writer)?;
            let head = format!("{} {}", writer.literal(tags.key), writer.plain(key));
            let rule = writer.new_rule("", &format!("{head} {value} {}", writer.literal(tags.line)));
            terms.push(if is_required { rule } else { rule + "?" });
        }
        if let Some(others) = members.others {
            let value = self.tagged_value(tags, others, place, writer)?;
            let head = format!("{} {KEY}", writer.literal(tags.key));
            let rule = writer.new_rule("", &format!("{head} {value} {}", writer.literal(tags.line)));
            terms.push(rule + "*");
        }
        Ok(terms.join(" "))
    }

    /// All between a key and the end of its value.
    fn tagged_value(
        &mut self,
        tags: &Tags,
        schema: &'a Value,
        place: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        let raw = self.raw(schema, place)?;
        if tags.kinds.is_none() && !raw.is_unambiguous(self.types(schema)) {
            return Err(problem(place, "type", "allows texts that look like its other values"));
        }
        let RawValue { text, json } = raw;
        let middle = |types: Types| tags.middle(types) + tags.padding;
        let end = [tags.padding, tags.value_end].concat();
        let mut values = Vec::new();
        let covers_json = tags.kinds.is_none() && text.as_ref().is_some_and(Text::is_free);
        if let Some(text) = text {
            let text = match text {
                Text::Pattern(pattern) => writer.text_until(&pattern, &end),
                Text::Choice(texts) if texts.iter().any(|text| text.contains(tags.value_end)) => {
                    return Err(problem(place, "enum", "has a text with the mark that ends a value"));
                }
                Text::Choice(texts) => {
                    let texts: Vec<String> = texts.iter().map(|text| writer.plain(text)).collect();
                    format!("({}) {}", texts.join(" | "), writer.literal(&end))
                }
            };
            values.push(format!("{} {text}", writer.literal(&middle(Types::STRING))));
        }
        let end = writer.literal(&end);
        if tags.kinds == Some(Kinds::Type) {
            for schema in &json {
                let all = Types::from_schema(&self.tool.parameters, schema).without(Types::STRING);
                for types in all.each() {
                    let middle = writer.literal(&middle(types));
                    let is_only = all.each().nth(1).is_none();
                    let only =
                        if is_only { schema.clone() } else { json!({ "allOf": [schema, types.schema()] }) };
                    values.push(format!("{middle} {} {end}", json_rule(&self.with_definitions(&only))));
                }
            }
        } else if !json.is_empty() && !covers_json {
            let json = if let [one] = &json[..] { one.clone() } else { json!({ "anyOf": json }) };
            let middle = writer.literal(&middle(Types::OBJECT));
            values.push(format!("{middle} {} {end}", json_rule(&self.with_definitions(&json))));
        }
        match &values[..] {
            [] => Err(problem(place, "type", "allows no value")),
            [only] => Ok(only.clone()),
            _ => Ok(format!("({})", values.join(" | "))),
        }
    }

    /// What may stand for a value of a schema.
    fn raw(&mut self, schema: &'a Value, place: &str) -> Result<RawValue, Error> {
        self.enter(place)?;
        let schema = self.resolved(schema);
        let types = self.types(schema);
        let raw = if types == Types::NONE {
            RawValue::default()
        } else if !types.meets(Types::STRING) {
            RawValue { text: None, json: vec![schema.clone()] }
        } else if let Some(values) = choice(schema) {
            only(schema, &CHOICE, place)?;
            let values: Vec<&Value> =
                values.into_iter().filter(|value| types.meets(Types::from_value(value))).collect();
            let texts: Vec<String> =
                values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect();
            let others: Vec<&&Value> = values.iter().filter(|value| !value.is_string()).collect();
            let json = if others.is_empty() { Vec::new() } else { vec![json!({ "enum": others })] };
            RawValue { text: (!texts.is_empty()).then_some(Text::Choice(texts)), json }
        } else if let Some((key, choices)) = union(schema) {
            only(schema, &[key], place)?;
            self.check_union(key, choices, place)?;
            let mut all = RawValue::default();
            for choice in choices {
                if !all.add(self.raw(choice, place)?) {
                    return Err(problem(place, key, "has texts of several forms"));
                }
            }
            all
        } else if types == Types::STRING {
            only(schema, &STRING, place)?;
            RawValue::text(Text::Pattern(text_pattern(schema)))
        } else {
            only(schema, &BARE, place)?;
            let others = types.without(Types::STRING);
            RawValue {
                text: Some(Text::Pattern(FREE.to_owned())),
                json: others.each().map(Types::schema).collect(),
            }
        };
        self.depth -= 1;
        Ok(raw)
    }
}
