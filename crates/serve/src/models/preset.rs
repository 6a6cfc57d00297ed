//! Presets: names for a model with a system prompt, a chat template and parameters of their own.

use std::sync::OnceLock;

use pipelines::{AnswerFormat, ChatTemplate, Request, SamplingOptions, Tokenizer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::sampling::{Lengths, Sampling};

/// The longest name of a preset.
const MAX_NAME: usize = 128;

/// A preset as the catalog keeps it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PresetSpec {
    /// The name by which requests choose it.
    pub(crate) name: String,
    /// The id of its model.
    pub(crate) from: String,
    /// The system prompt of conversations that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<String>,
    /// The Jinja source of a chat template, in place of the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    /// Defaults of requests, under the names of Ollama's options.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) parameters: Map<String, Value>,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

/// A preset, ready for requests.
pub(crate) struct Preset {
    spec: PresetSpec,
    sampling: Sampling,
    lengths: Lengths,
    template: Option<ChatTemplate>,
    /// Of the settings.
    digest: String,
    /// Found when the template is first used.
    answer_format: OnceLock<AnswerFormat>,
}

impl PresetSpec {
    /// The same preset, with the settings of another where it has none.
    pub(super) fn or(self, other: PresetSpec) -> PresetSpec {
        let mut parameters = other.parameters;
        parameters.extend(self.parameters);
        let (system, template) = (self.system.or(other.system), self.template.or(other.template));
        PresetSpec { system, template, parameters, ..self }
    }

    /// Whether it is only another name for its model.
    pub(super) fn is_plain(&self) -> bool {
        self.system.is_none() && self.template.is_none() && self.parameters.is_empty()
    }
}

impl Preset {
    /// Checks a preset, and compiles its template.
    ///
    /// # Errors
    /// If the name or a parameter has a wrong value, or the template is not Jinja.
    pub(super) fn new(spec: PresetSpec) -> Result<Preset, ApiError> {
        check_name(&spec.name)?;
        let template = spec.template.as_deref().map(ChatTemplate::new).transpose();
        let template = template.map_err(|error| {
            ApiError::invalid(
                "template",
                format!("template: {error}; templates are Jinja, as of Hugging Face"),
            )
        })?;
        let lengths: Lengths = read(&spec.parameters)?;
        let sampling: Sampling = read(&spec.parameters)?;
        // The vocabulary is known once the model is loaded.
        let request = sampling.clone().request(SamplingOptions::default(), None)?;
        let request = Request { max_new_tokens: lengths.answer(), ..request };
        request.validate(usize::MAX).map_err(|error| ApiError::from(error).within("parameters"))?;
        if lengths.num_ctx == Some(0) {
            return Err(ApiError::invalid("parameters.num_ctx", "parameters.num_ctx is 0: give 1 or more"));
        }
        let settings = json!([spec.system, spec.template, spec.parameters]).to_string();
        let digest = blake3::hash(settings.as_bytes()).to_hex().to_string();
        Ok(Preset { spec, sampling, lengths, template, digest, answer_format: OnceLock::new() })
    }

    /// The preset as the catalog keeps it.
    pub(crate) fn spec(&self) -> &PresetSpec {
        &self.spec
    }

    /// The name by which requests choose it.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// A digest of the settings, in hexadecimal digits.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// How tokens are chosen where requests leave it open.
    pub(crate) fn sampling(&self) -> Sampling {
        self.sampling.clone()
    }

    /// How many tokens there may be where requests leave it open.
    pub(crate) fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// The chat template in place of the model's.
    pub(super) fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// How answers to prompts of its template are read, if it has one.
    pub(super) fn answer_format(&self, tokenizer: &Tokenizer) -> Option<AnswerFormat> {
        let template = self.template.as_ref()?;
        Some(*self.answer_format.get_or_init(|| AnswerFormat::for_model(Some(template), Some(tokenizer))))
    }

    /// Puts the system prompt before a conversation that has none; gives whether it did.
    pub(crate) fn instruct(&self, messages: &mut Vec<Value>) -> bool {
        let Some(system) = &self.spec.system else { return false };
        let is_system = |message: &Value| message["role"] == "system" || message["role"] == "developer";
        if messages.first().is_some_and(is_system) {
            return false;
        }
        messages.insert(0, json!({"role": "system", "content": system}));
        true
    }
}

/// Refuses names that could be taken for paths, or that could not be shown.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@/".contains(&byte);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains("..");
    if name.len() <= MAX_NAME && name.bytes().all(is_plain) && name.split('/').all(is_part) {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_NAME).collect();
    let message = format!(
        "the name `{}` cannot be used: give up to {MAX_NAME} letters, digits and `-_.:@/`, and no path",
        shown.escape_debug()
    );
    Err(ApiError::invalid("model", message))
}

fn read<T: DeserializeOwned>(parameters: &Map<String, Value>) -> Result<T, ApiError> {
    serde_json::from_value(Value::Object(parameters.clone()))
        .map_err(|error| ApiError::invalid("parameters", format!("parameters: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(fields: Value) -> Result<Preset, String> {
        let mut spec = json!({"name": "mario", "from": "storyteller", "created": 0});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Preset::new(serde_json::from_value(spec).unwrap()).map_err(|error| error.message)
    }

    #[test]
    fn names_are_no_paths() {
        for name in ["mario", "team/mario:7b", "a.b_c-d@1"] {
            assert!(preset(json!({"name": name})).is_ok(), "{name}");
        }
        let long = "x".repeat(129);
        for name in
            ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "a b", "a\\b", "\u{1b}[31m", &long]
        {
            let error = preset(json!({"name": name})).err().unwrap();
            assert!(error.contains("cannot be used") && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn wrong_parameters_and_templates_are_refused() {
        let error = |fields: Value| preset(fields).err().unwrap();
        assert!(error(json!({"parameters": {"temperature": "hot"}})).starts_with("parameters: invalid type"));
        assert!(error(json!({"parameters": {"top_p": 7}})).starts_with("parameters.top_p is 7"));
        assert!(error(json!({"parameters": {"num_ctx": 0}})).starts_with("parameters.num_ctx is 0"));
        assert!(error(json!({"template": "{{ .Prompt }}"})).contains("templates are Jinja"));
    }

    #[test]
    fn the_system_prompt_stands_before_conversations_without_one() {
        let preset = preset(json!({"system": "Be Mario."})).unwrap();
        let instructed = |messages: Value| {
            let mut messages = messages.as_array().unwrap().clone();
            preset.instruct(&mut messages);
            messages
                .iter()
                .map(|message| message["content"].as_str().unwrap().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(instructed(json!([{"role": "user", "content": "Hi"}])), ["Be Mario.", "Hi"]);
        for role in ["system", "developer"] {
            assert_eq!(instructed(json!([{"role": role, "content": "Be Luigi."}])), ["Be Luigi."]);
        }
    }
}
