//! Arguments of a tool as rules of a grammar, in the syntax of a format.

use serde_json::{Map, Value, json};

use super::formats::{Literals, Syntax, Tags, ToolFormat};
use super::grammar::Writer;
use super::reader::types;
use super::tool::Tool;
use crate::Error;

/// The arguments of a tool.
pub(super) struct Arguments<'a> {
    pub(super) format: &'static ToolFormat,
    pub(super) tool: &'a Tool,
    /// The schema's place in the request.
    pub(super) field: String,
}

/// A string as Python writes it if there is no apostrophe in it. All others are written as JSON has them.
const PYTHON_STRING: &str = r#"/'([^'\\\x00-\x1f]|\\[nrt\\'"])*'/"#;
/// Keywords that say nothing of what is valid.
const NOTES: [&str; 10] = [
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$id",
];
/// Keywords of an object whose arguments are written one by one. Arguments that are not declared are never made.
const OBJECT: [&str; 6] = ["type", "properties", "required", "additionalProperties", "$defs", "definitions"];
/// Keywords of a text that is not in quotes.
const STRING: [&str; 5] = ["type", "enum", "const", "minLength", "maxLength"];

impl Arguments<'_> {
    /// The terms of the arguments, without what stands around them.
    ///
    /// # Errors
    /// [`Error::Tools`] names the keyword that cannot be enforced.
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<String, Error> {
        match &self.format.syntax {
            Syntax::Object | Syntax::Named(_) => Ok(json_rule(&self.tool.parameters)),
            Syntax::Tagged(tags) => self.tagged(tags, writer),
            Syntax::Literals(literals) => {
                let separator = if literals.quote.is_empty() { ", " } else { "," };
                self.object(&self.tool.parameters, &self.field, literals, separator, writer)
            }
        }
    }

    /// Each argument between its marks, in the order of the schema.
    fn tagged(&self, tags: &Tags, writer: &mut Writer<'_>) -> Result<String, Error> {
        let mut terms = Vec::new();
        for (key, schema, is_required) in self.properties(&self.tool.parameters, &self.field)? {
            let gap = if tags.value.is_empty() { "" } else { tags.line };
            let middle = writer.literal(&[tags.key_end, gap, tags.value, tags.padding].concat());
            let head = format!("{} {} {middle}", writer.literal(tags.key), writer.plain(key));
            let end = [tags.padding, tags.value_end].concat();
            let value = match text_pattern(schema, &self.place(&self.field, key))? {
                Some(Text::Pattern(pattern)) => writer.text_until(&pattern, &end),
                Some(Text::Choice(texts)) => {
                    let texts: Vec<String> = texts.iter().map(|text| writer.plain(text)).collect();
                    format!("({}) {}", texts.join(" | "), writer.literal(&end))
                }
                None => format!("{} {}", json_rule(&self.with_definitions(schema)), writer.literal(&end)),
            };
            let rule = writer.new_rule("", &format!("{head} {value} {}", writer.literal(tags.line)));
            terms.push(if is_required { rule } else { rule + "?" });
        }
        Ok(terms.join(" "))
    }

    /// Keys and values with separators between them.
    fn object(
        &self,
        schema: &Value,
        place: &str,
        literals: &Literals,
        separator: &str,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        // From the last argument to the first: the rule for the rest before any argument is written, and after one is.
        let (mut fresh, mut begun) = (String::new(), String::new());
        for (key, schema, is_required) in self.properties(schema, place)?.into_iter().rev() {
            let head = writer.plain(&format!("{key}{}", literals.assign));
            let value = self.value(schema, &self.place(place, key), literals, writer)?;
            let item = writer.new_rule("", &format!("{head} {value}"));
            let comma = writer.literal(separator);
            let or = |skip: &str| if is_required { String::new() } else { format!(" | {}", some(skip)) };
            let (first, next) =
                (format!("{item} {begun}{}", or(&fresh)), format!("{comma} {item} {begun}{}", or(&begun)));
            (fresh, begun) = (writer.new_rule("", &first), writer.new_rule("", &next));
        }
        Ok(fresh)
    }

    /// A value; texts and what holds them have quotes of their own in some formats.
    fn value(
        &self,
        schema: &Value,
        place: &str,
        literals: &Literals,
        writer: &mut Writer<'_>,
    ) -> Result<String, Error> {
        let quote = literals.quote;
        let kinds = types(schema);
        let kinds: Vec<&str> = kinds.iter().flatten().map(String::as_str).collect();
        if quote.is_empty() && kinds == ["string"] && only(schema, &["type"], place).is_ok() {
            return Ok(format!("({PYTHON_STRING} | {})", json_rule(schema)));
        }
        if quote.is_empty()
            || (!kinds.is_empty() && !kinds.iter().any(|kind| matches!(*kind, "string" | "array" | "object")))
        {
            return Ok(json_rule(&self.with_definitions(schema)));
        }
        match kinds[..] {
            ["string"] => Ok(match text_pattern(schema, place)? {
                Some(Text::Choice(texts)) => {
                    let texts: Vec<String> = texts.iter().map(|text| writer.plain(text)).collect();
                    let quote = writer.literal(quote);
                    format!("{quote} ({}) {quote}", texts.join(" | "))
                }
                text => {
                    let pattern = text.map_or("TEXT".to_owned(), Text::pattern);
                    format!("{} {}", writer.literal(quote), writer.text_until(&pattern, quote))
                }
            }),
            ["array"] => {
                only(schema, &["type", "items"], place)?;
                let item = self.value(&schema["items"], &format!("{place}/items"), literals, writer)?;
                let item = writer.new_rule("", &item);
                Ok(format!("\"[\" ({item} (\",\" {item})*)? \"]\""))
            }
            ["object"] => {
                let inner = self.object(schema, place, literals, ",", writer)?;
                Ok(format!("\"{{\" {inner} \"}}\""))
            }
            _ => Err(problem(place, "type", "is not one type, as this model's format of calls needs")),
        }
    }

    /// Name, schema and necessity of each property.
    fn properties<'s>(
        &self,
        schema: &'s Value,
        place: &str,
    ) -> Result<Vec<(&'s str, &'s Value, bool)>, Error> {
        only(schema, &OBJECT, place)?;
        let none = Map::new();
        let properties = schema["properties"].as_object();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let undeclared = required.iter().find(|key| !properties.unwrap_or(&none).contains_key(**key));
        if let Some(key) = undeclared {
            return Err(problem(place, "required", &format!("names {key:?}, which is not declared")));
        }
        let properties = properties.into_iter().flatten();
        Ok(properties.map(|(key, schema)| (&key[..], schema, required.contains(&&key[..]))).collect())
    }

    /// A part of the schema with the definitions that it may refer to.
    fn with_definitions(&self, schema: &Value) -> Value {
        let mut schema = schema.clone();
        for key in ["$defs", "definitions"] {
            if let (Some(own), Some(definitions)) = (schema.as_object_mut(), self.tool.parameters.get(key)) {
                own.entry(key).or_insert_with(|| definitions.clone());
            }
        }
        schema
    }

    fn place(&self, place: &str, key: &str) -> String {
        format!("{place}/properties/{}", key.replace('~', "~0").replace('/', "~1"))
    }
}

/// A text without quotes.
enum Text {
    Pattern(String),
    Choice(Vec<String>),
}

impl Text {
    fn pattern(self) -> String {
        match self {
            Text::Pattern(pattern) => pattern,
            Text::Choice(_) => "TEXT".to_owned(),
        }
    }
}

/// The text of a schema whose values are written without quotes; `None` if they are JSON.
fn text_pattern(schema: &Value, place: &str) -> Result<Option<Text>, Error> {
    let Some(kinds) = types(schema) else {
        only(schema, &[], place)?;
        return Ok(Some(Text::Pattern("TEXT".to_owned())));
    };
    if !kinds.iter().any(|kind| kind == "string") {
        return Ok(None);
    }
    // Of a text that may be a number too, the words alone tell.
    only(schema, if kinds.len() == 1 { &STRING } else { &["type"] }, place)?;
    let choice =
        schema["enum"].as_array().cloned().or_else(|| schema.get("const").map(|value| vec![value.clone()]));
    if let Some(values) = choice {
        let texts = values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>();
        return texts
            .map(|texts| Some(Text::Choice(texts)))
            .ok_or_else(|| problem(place, "enum", "is not of texts"));
    }
    let bound = |key: &str| schema[key].as_u64();
    Ok(Some(Text::Pattern(match (bound("minLength"), bound("maxLength")) {
        (None, None) => "TEXT".to_owned(),
        (least, most) => {
            let most = most.map_or_else(String::new, |most| most.to_string());
            format!("/(?s:.{{{},{most}}})/", least.unwrap_or(0))
        }
    })))
}

/// A rule of JSON. What may hold anything is an object, as arguments are.
fn json_rule(schema: &Value) -> String {
    format!("%json {}", if schema.is_null() { json!({}) } else { schema.clone() })
}

/// A term, or the term of nothing.
fn some(term: &str) -> &str {
    if term.is_empty() { "\"\"" } else { term }
}

/// Checks that a schema has no keywords but these and notes.
fn only(schema: &Value, keywords: &[&str], place: &str) -> Result<(), Error> {
    let own = schema.as_object().into_iter().flatten().map(|(key, _)| &key[..]);
    match own.into_iter().find(|key| !keywords.contains(key) && !NOTES.contains(key)) {
        Some(key) => Err(problem(place, key, "cannot be enforced in this model's format of calls")),
        None => Ok(()),
    }
}

fn problem(place: &str, keyword: &str, problem: &str) -> Error {
    Error::Tools { field: place.to_owned(), problem: format!("`{keyword}` {problem}") }
}
