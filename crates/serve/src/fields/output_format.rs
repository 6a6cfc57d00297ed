//! Fields that give answers a form: JSON of a schema, a regular expression, a choice, or a grammar.

use pipelines::Constraint;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::generation::{OutputFormat, schema_constraint};
use crate::state::Context;

/// The form of answers, under the names of several APIs. A request gives at most one.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = FormFields)]
pub(crate) struct OutputFormatFields {
    /// Text, a JSON object, or JSON of a schema.
    response_format: Option<ResponseFormat>,
    /// A form under the names of vLLM.
    structured_outputs: Option<StructuredOutputs>,
    /// A JSON schema.
    #[serde(alias = "json_schema")]
    #[schema(value_type = Option<Object>)]
    guided_json: Option<Value>,
    /// A regular expression that the whole answer matches.
    #[serde(alias = "regex")]
    guided_regex: Option<String>,
    /// Texts, one of which the answer is.
    guided_choice: Option<Vec<String>>,
    /// A grammar in GBNF or Lark.
    #[serde(alias = "grammar", alias = "ebnf")]
    guided_grammar: Option<String>,
}

/// The form of an answer in the OpenAI API, and in the shapes that other servers have given it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    /// Any text.
    Text,
    /// A JSON object.
    #[serde(alias = "json")]
    JsonObject {
        /// The schema of the object.
        #[serde(alias = "value")]
        #[schema(value_type = Option<Object>)]
        schema: Option<Value>,
        #[serde(flatten)]
        others: Map<String, Value>,
    },
    /// JSON of a schema.
    JsonSchema {
        /// The schema.
        json_schema: Option<NamedSchema>,
        /// The schema without its name, in place of `json_schema`.
        #[serde(alias = "value")]
        #[schema(value_type = Option<Object>)]
        schema: Option<Value>,
        #[serde(flatten)]
        others: Map<String, Value>,
    },
    /// A text that matches a regular expression as a whole.
    Regex {
        /// The expression.
        #[serde(alias = "value")]
        pattern: String,
        #[serde(flatten)]
        others: Map<String, Value>,
    },
    /// A text of a grammar in GBNF or Lark.
    #[serde(alias = "ebnf")]
    Grammar {
        /// The grammar.
        #[serde(alias = "value")]
        grammar: String,
        #[serde(flatten)]
        others: Map<String, Value>,
    },
}

/// A schema and its name. Answers are always JSON of the schema, whatever `strict` says.
#[derive(Debug, Deserialize, ToSchema)]
struct NamedSchema {
    /// Without a schema, the answer is any JSON object.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
}

/// Fields that say nothing of a form but its name, or that it holds, which it does in any case.
const NAMES_OF_FORMS: [&str; 3] = ["name", "description", "strict"];

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

impl OutputFormatFields {
    /// The form, if one is given.
    ///
    /// # Errors
    /// If several are given.
    pub(crate) fn into_format(self, context: &Context) -> Result<Option<OutputFormat>, ApiError> {
        let mut forms = Vec::new();
        let mut add = |field, constraint: Option<Constraint>| {
            forms.extend(constraint.map(|constraint| OutputFormat { field, constraint }));
        };
        if let Some(format) = self.response_format {
            add("response_format", format.constraint(context)?);
        }
        if let Some(outputs) = self.structured_outputs {
            let field = "structured_outputs";
            add(field, outputs.json.map(schema_constraint));
            add(field, outputs.json_object.filter(|&is_object| is_object).map(|_| Constraint::JsonObject));
            add(field, outputs.regex.map(|regex| Constraint::Regex(regex.into())));
            add(field, outputs.choice.map(Constraint::choice));
            add(field, outputs.grammar.map(|grammar| Constraint::grammar(&grammar)));
        }
        add("guided_json", self.guided_json.map(schema_constraint));
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

impl ResponseFormat {
    /// The constraint, if there is one. Fields without effect are noted.
    ///
    /// # Errors
    /// If the schema is missing, or there are two.
    fn constraint(self, context: &Context) -> Result<Option<Constraint>, ApiError> {
        let object = |schema: Option<Value>| schema.map_or(Constraint::JsonObject, schema_constraint);
        let (constraint, others) = match self {
            ResponseFormat::Text => {
                context.note(|facts| facts.ignored.extend(["response_format".to_string()]));
                return Ok(None);
            }
            ResponseFormat::JsonObject { schema, others } => (object(schema), others),
            ResponseFormat::JsonSchema { json_schema: Some(named), schema: None, others } => {
                (object(named.schema), others)
            }
            ResponseFormat::JsonSchema { json_schema: None, schema: Some(schema), others } => {
                (schema_constraint(schema), others)
            }
            ResponseFormat::JsonSchema { json_schema, .. } => {
                let count = if json_schema.is_some() { "two schemas" } else { "no schema" };
                let message =
                    format!("response_format has {count}: give one, in `json_schema.schema` or in `schema`");
                return Err(ApiError::invalid("response_format", message));
            }
            ResponseFormat::Regex { pattern, others } => (Constraint::Regex(pattern.into()), others),
            ResponseFormat::Grammar { grammar, others } => (Constraint::grammar(&grammar), others),
        };
        let ignored = others.keys().filter(|name| !NAMES_OF_FORMS.contains(&&name[..]));
        let ignored = ignored.map(|name| format!("response_format.{name}"));
        context.note(|facts| facts.ignored.extend(ignored));
        Ok(Some(constraint))
    }
}
