//! Fields of chat that would change answers in ways that the server does not support: it refuses them, except the values
//! that ask for nothing.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::state::Context;

/// The fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(crate) struct UnsupportedFields {
    /// Only `["text"]`.
    #[schema(value_type = Option<Vec<String>>)]
    modalities: Option<Value>,
    /// Refused: the models make text only.
    #[schema(value_type = Option<Object>)]
    audio: Option<Value>,
    /// Refused.
    #[schema(value_type = Option<Object>)]
    prediction: Option<Value>,
    /// Refused: the server searches nothing.
    #[schema(value_type = Option<Object>)]
    web_search_options: Option<Value>,
    /// Only false: answers are not kept.
    #[schema(value_type = Option<bool>)]
    store: Option<Value>,
    /// Refused: the model's own template is used.
    #[schema(value_type = Option<String>)]
    chat_template: Option<Value>,
}

impl UnsupportedFields {
    /// Refuses fields that ask for something, and notes the others as ignored.
    ///
    /// # Errors
    /// If a field asks for what is not supported.
    pub(crate) fn check(&self, context: &Context) -> Result<(), ApiError> {
        // The values that ask for nothing, and why others are refused.
        let fields = [
            ("modalities", &self.modalities, Some(json!(["text"])), "the models make text only"),
            ("audio", &self.audio, None, "the models make text only"),
            ("prediction", &self.prediction, None, "predicted outputs are not supported"),
            ("web_search_options", &self.web_search_options, None, "the server searches nothing"),
            ("store", &self.store, Some(json!(false)), "answers are not kept: use /v1/responses"),
            ("chat_template", &self.chat_template, None, "templates of requests are not taken"),
        ];
        for (name, value, nothing, reason) in fields {
            match value {
                None => {}
                Some(value) if Some(value) == nothing.as_ref() => {
                    context.note(|facts| facts.ignored.extend([name.to_string()]));
                }
                Some(_) => return Err(ApiError::invalid(name, format!("{name}: {reason}"))),
            }
        }
        Ok(())
    }
}
