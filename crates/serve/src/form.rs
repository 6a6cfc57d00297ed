//! Fields that give answers a form: JSON of a schema, a regular expression, a choice, or a grammar.

use pipelines::Constraint;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::context::Context;
use crate::error::ApiError;

/// The form of answers, under the names of several APIs. A request gives at most one.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct FormFields {
    /// Text, a JSON object, or JSON of a schema.
    response_format: Option<ResponseFormat>,
    /// A form under the names of vLLM.
    structured_outputs: Option<StructuredOutputs>,
    /// A JSON schema.
    #[serde(alias = "json_schema")]
    #[schema(value_type = Option<Object>)]
    guided_json: Option<Value>,
    /// A regular expression that the whole answer matches.
    guided_regex: Option<String>,
    /// Texts, one of which the answer is.
    guided_choice: Option<Vec<String>>,
    /// A grammar in GBNF or Lark.
    #[serde(alias = "grammar")]
    guided_grammar: Option<String>,
}

/// The form of an answer in the OpenAI API.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// The schema.
        json_schema: NamedSchema,
    },
}

/// A schema and its name. Answers are always JSON of the schema, whatever `strict` says.
#[derive(Debug, Deserialize, ToSchema)]
struct NamedSchema {
    /// Without a schema, the answer is any JSON object.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
}

/// The form of an answer in the API of vLLM.
#[derive(Debug, Deserialize, ToSchema)]
struct StructuredOutputs {
    /// A JSON schema, or its text.
    #[schema(value_type = Option<Object>)]
    json: Option<Value>,
    /// A JSON object.
    json_object: Option<bool>,
    /// A regular expression that the whole answer matches.
    regex: Option<String>,
    /// Texts, one of which the answer is.
    choice: Option<Vec<String>>,
    /// A grammar in GBNF or Lark.
    grammar: Option<String>,
}

/// A constraint, and the field that gives it.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) field: &'static str,
    pub(crate) constraint: Constraint,
}

impl FormFields {
    /// The form, if one is given.
    ///
    /// # Errors
    /// If several are given.
    pub(crate) fn form(self, context: &Context) -> Result<Option<Form>, ApiError> {
        let mut forms = Vec::new();
        let mut add = |field, constraint: Option<Constraint>| {
            forms.extend(constraint.map(|constraint| Form { field, constraint }));
        };
        match self.response_format {
            None => {}
            Some(ResponseFormat::Text) => {
                context.note(|facts| facts.ignored.extend(["response_format".to_string()]));
            }
            Some(ResponseFormat::JsonObject) => add("response_format", Some(Constraint::JsonObject)),
            Some(ResponseFormat::JsonSchema { json_schema: NamedSchema { schema } }) => {
                add("response_format", Some(schema.map_or(Constraint::JsonObject, schema_of)));
            }
        }
        if let Some(outputs) = self.structured_outputs {
            let field = "structured_outputs";
            add(field, outputs.json.map(schema_of));
            add(field, outputs.json_object.filter(|&is_object| is_object).map(|_| Constraint::JsonObject));
            add(field, outputs.regex.map(|regex| Constraint::Regex(regex.into())));
            add(field, outputs.choice.map(Constraint::choice));
            add(field, outputs.grammar.map(|grammar| Constraint::grammar(&grammar)));
        }
        add("guided_json", self.guided_json.map(schema_of));
        add("guided_regex", self.guided_regex.map(|regex| Constraint::Regex(regex.into())));
        add("guided_choice", self.guided_choice.map(Constraint::choice));
        add("guided_grammar", self.guided_grammar.map(|grammar| Constraint::grammar(&grammar)));
        let form = forms.pop();
        match (&form, forms.pop()) {
            (Some(one), Some(other)) => {
                let message =
                    format!("the answer has two forms, of {} and {}: give one", other.field, one.field);
                Err(ApiError::invalid(one.field, message))
            }
            _ => Ok(form),
        }
    }
}

/// A schema, or the text of one.
pub(crate) fn schema_of(schema: Value) -> Constraint {
    let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
    Constraint::JsonSchema(parsed.unwrap_or(schema).into())
}
