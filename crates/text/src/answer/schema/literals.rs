//! Arguments as a program writes them, in quotes of JSON, of Python, or of the format's own.

use serde_json::{Value, json};

use super::{
    ANY, Arguments, BARE, CHOICE, STRING, choice, json_rule, only, place_of, problem, text_pattern, union,
};
use crate::Error;
use crate::answer::formats::Literals;
use crate::answer::reader::is_key;
use crate::answer::types::Types;
use crate::answer::writer::{AnyValue, FREE, Writer};

/// A string as Python writes it if there is no apostrophe in it. All others are written as JSON has them.
const PYTHON_STRING: &str = r#"/'([^'\\\x00-\x1f]|\\[nrt\\'"])*'/"#;
/// The name of an argument that is not declared.
const NAME: &str = "/[A-Za-z_][A-Za-z0-9_]*/";
/// The name of a member that is not declared.
const KEY: &str = r"/[\w$@.+\/-]+/";
/// Keywords of a list.
const ARRAY: [&str; 5] = ["type", "nullable", "items", "minItems", "maxItems"];
/// The most items that a list may be bound to.
const MAX_ITEMS: u64 = 1000;

impl<'a> Arguments<'a> {
    /// Keys and values with separators between them.
    pub(super) fn members(
        &mut self,
        literals: &Literals,
        (schema, place): (&'a Value, &str),
        separator: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        let members = self.object(schema, place)?;
        let is_nested = self.depth > 0;
        if let Some(others) = members.others {
            let value = self.value(literals, others, place, writer)?;
            let key = if literals.assign == '=' { NAME } else { KEY };
            let item =
                writer.new_rule("", &format!("{key} {} {value}", writer.plain(&literals.assign.to_string())));
            return Ok(format!("({item} ({} {item})*)?", writer.literal(separator)));
        }
        // From the last argument to the first: the rule for the rest before any argument is written, and after one is.
        let (mut fresh, mut begun) = (String::new(), String::new());
        for (key, schema, is_required) in members.properties.into_iter().rev() {
            if !is_key(key, is_nested) {
                let why = format!("has {key:?}, which is no name in this model's format of calls");
                return Err(problem(place, "properties", &why));
            }
            let head = writer.plain(&format!("{key}{}", literals.assign));
            let value = self.value(literals, schema, &place_of(place, key), writer)?;
            let item = writer.new_rule("", &format!("{head} {value}"));
            let comma = writer.literal(separator);
            let or = |skip: &str| if is_required { String::new() } else { format!(" | {}", some(skip)) };
            let (first, next) =
                (format!("{item} {begun}{}", or(&fresh)), format!("{comma} {item} {begun}{}", or(&begun)));
            (fresh, begun) = (writer.new_rule("", &first), writer.new_rule("", &next));
        }
        Ok(fresh)
    }

    /// A value, as a term. Schemas that refer to themselves become rules that do.
    fn value(
        &mut self,
        literals: &Literals,
        schema: &'a Value,
        place: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        let schema = self.resolved(schema);
        if let Some(rule) = self.rules.get(&std::ptr::from_ref(schema)) {
            return Ok(rule.clone());
        }
        let rule = writer.reserve();
        self.rules.insert(std::ptr::from_ref(schema), rule.clone());
        self.enter(place)?;
        let body = match literals.quote {
            "" => self.python(schema, place)?,
            _ => self.quoted(literals, schema, place, writer)?,
        };
        self.depth -= 1;
        Ok(writer.rule(&rule, &body))
    }

    /// A value of JSON, of which Python may write the plain ones otherwise.
    fn python(&mut self, schema: &'a Value, place: &str) -> Result<String, Error> {
        let bare = self.bare_types(schema, place)?;
        let words = [
            (Types::STRING, PYTHON_STRING),
            (Types::BOOLEAN, "\"True\" | \"False\""),
            (Types::NULL, "\"None\""),
        ];
        let words =
            words.into_iter().filter(|(types, _)| bare.meets(*types)).map(|(_, word)| word.to_owned());
        let json = json_rule(&self.with_definitions(schema));
        Ok(words.chain([json]).collect::<Vec<_>>().join(" | "))
    }

    /// The types of which a schema allows all values.
    fn bare_types(&mut self, schema: &'a Value, place: &str) -> Result<Types, Error> {
        self.enter(place)?;
        let schema = self.resolved(schema);
        let mut bare = Types::NONE;
        if only(schema, &BARE, place).is_ok() {
            bare = self.types(schema);
        } else if let Some((key, choices)) = union(schema)
            && only(schema, &[key], place).is_ok()
            && self.check_union(key, choices, place).is_ok()
        {
            for choice in choices {
                bare = bare | self.bare_types(choice, place)?;
            }
        }
        self.depth -= 1;
        Ok(bare)
    }

    /// A value whose strings have the format's own quotes.
    fn quoted(
        &mut self,
        literals: &Literals,
        schema: &'a Value,
        place: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        let types = self.types(schema);
        if types == Types::NONE {
            return Err(problem(place, "type", "allows no value"));
        }
        if let Some(values) = choice(schema) {
            only(schema, &CHOICE, place)?;
            let values = values.into_iter().filter(|value| types.meets(Types::from_value(value)));
            let written = values.map(|value| one_of(literals, value, place, writer));
            return Ok(written.collect::<Result<Vec<_>, _>>()?.join(" | "));
        }
        if let Some((key, choices)) = union(schema) {
            only(schema, &[key], place)?;
            self.check_union(key, choices, place)?;
            let mut rules = Vec::new();
            for choice in choices {
                rules.push(self.value(literals, choice, place, writer)?);
            }
            return Ok(rules.join(" | "));
        }
        if only(schema, &BARE, place).is_ok() {
            let any = writer.any(literals);
            return Ok(types.each().map(|one| any.of(one)).collect::<Vec<_>>().join(" | "));
        }
        let own = types.without(Types::NULL);
        let value = self.typed(literals, (schema, own), place, writer)?;
        Ok(if own == types { value } else { format!("{value} | \"null\"") })
    }

    /// A value of one type.
    fn typed(
        &mut self,
        literals: &Literals,
        (schema, own): (&'a Value, Types),
        place: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        if own == Types::STRING {
            only(schema, &STRING, place)?;
            let text = writer.text_until(&text_pattern(schema), literals.quote);
            return Ok(format!("{} {text}", writer.literal(literals.quote)));
        }
        if own == Types::ARRAY {
            return self.array(literals, schema, place, writer);
        }
        if own == Types::OBJECT {
            let inner = self.members(literals, (schema, place), ",", writer)?;
            return Ok(format!("\"{{\" {inner} \"}}\""));
        }
        if own.meets(Types::STRING | Types::ARRAY | Types::OBJECT) {
            return Err(problem(place, "type", "is not one type, as this model's format of calls needs"));
        }
        let mut scalar = self.with_definitions(schema);
        if let Some(keywords) = scalar.as_object_mut() {
            keywords.remove("nullable");
            keywords.extend(own.schema().as_object().cloned().unwrap_or_default());
        }
        Ok(json_rule(&scalar))
    }

    fn array(
        &mut self,
        literals: &Literals,
        schema: &'a Value,
        place: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        only(schema, &ARRAY, place)?;
        let items = schema.get("items").unwrap_or(&ANY);
        let item = self.value(literals, items, &format!("{place}/items"), writer)?;
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let most = schema["maxItems"].as_u64();
        if least.max(most.unwrap_or(0)) > MAX_ITEMS || most.is_some_and(|most| most < least) {
            return Err(problem(
                place,
                "minItems",
                &format!("and `maxItems` are no bounds up to {MAX_ITEMS}"),
            ));
        }
        let more = match (least.saturating_sub(1), most.map(|most| most.saturating_sub(1))) {
            (0, None) => "*".to_owned(),
            (least, None) => format!("{{{least},}}"),
            (least, Some(most)) => format!("{{{least},{most}}}"),
        };
        let empty = if least == 0 { "?" } else { "" };
        Ok(match most {
            Some(0) => "\"[]\"".to_owned(),
            Some(1) => format!("\"[\" ({item}){empty} \"]\""),
            _ => format!("\"[\" ({item} (\",\" {item}){more}){empty} \"]\""),
        })
    }
}

impl AnyValue {
    /// A value of one type.
    fn of(&self, types: Types) -> String {
        match types {
            Types::STRING => self.string.clone(),
            Types::ARRAY => self.array.clone(),
            Types::OBJECT => self.object.clone(),
            scalar => json_rule(&scalar.schema()),
        }
    }
}

impl Writer<'_> {
    /// The rules of values of any schema, in a format's own quotes. They are written once.
    fn any(&mut self, literals: &Literals) -> AnyValue {
        if let Some(any) = &self.any {
            return any.clone();
        }
        let text = self.text_until(FREE, literals.quote);
        let string = self.new_rule("", &format!("{} {text}", self.literal(literals.quote)));
        let [value, array, object] = [self.reserve(), self.reserve(), self.reserve()];
        self.rule(&array, &format!("\"[\" ({value} (\",\" {value})*)? \"]\""));
        let item = self.new_rule("", &format!("{KEY} \":\" {value}"));
        self.rule(&object, &format!("\"{{\" ({item} (\",\" {item})*)? \"}}\""));
        let any = AnyValue { string, array, object };
        let of_each = Types::ALL.each().map(|types| any.of(types)).collect::<Vec<_>>();
        self.rule(&value, &of_each.join(" | "));
        self.any = Some(any.clone());
        any
    }
}

/// One value of several.
fn one_of(literals: &Literals, value: &Value, place: &str, writer: &mut Writer<'_>) -> Result<String, Error> {
    let quote = writer.literal(literals.quote);
    match value {
        Value::String(text) if text.contains(literals.quote) => {
            Err(problem(place, "enum", "has a text with a mark of this model's format of calls"))
        }
        Value::String(text) => Ok(format!("{quote} {} {quote}", writer.plain(text))),
        Value::Array(_) | Value::Object(_) => {
            Err(problem(place, "enum", "is not of texts, numbers and words"))
        }
        scalar => Ok(json_rule(&json!({ "const": scalar }))),
    }
}

/// A term, or the term of nothing.
fn some(term: &str) -> &str {
    if term.is_empty() { "\"\"" } else { term }
}
