//! How texts become vectors: what requests ask for, and what the model's files say.

use crate::Error;
use crate::error::InvalidField;
use crate::plan::model_files::sentence_transformers::EmbeddingConfig;
use crate::pooling::Pooling;
use crate::tasks::embedding_model::EmbeddingModel;
use crate::tasks::vectors::{EmbeddingPrompt, Truncate, chosen_prompt, invalid_prompt};

/// How texts become vectors. What a request leaves open is as the embedder was started, and what that leaves open is
/// as the model's files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingParameters {
    /// How hidden states become one vector. Where the files are silent: the mean for encoders, and for decoders an
    /// error.
    pub pooling: Option<Pooling>,
    /// Whether vectors have the length 1. Where the files are silent, they have.
    pub normalize: Option<bool>,
    /// The first so many dims alone, normalized after the others are cut off. For models that were trained for that
    /// (Matryoshka). All of them, unless asked otherwise.
    pub dimensions: Option<usize>,
    /// What happens to texts that are too long: they are refused, unless asked otherwise.
    pub truncate: Option<Truncate>,
    /// The most tokens of a text, those that the model wants around it included; at most and by default as many as the
    /// model takes.
    pub max_tokens: Option<usize>,
    /// What stands before every text that is no tokens yet.
    pub prompt: Option<EmbeddingPrompt>,
}

/// How the texts of one request become vectors: every choice made.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingSettings {
    pub(super) pooling: Pooling,
    pub(super) normalize: bool,
    pub(super) dimensions: usize,
    pub(super) truncate: Truncate,
    pub(super) max_tokens: Option<usize>,
    pub(super) prompt: String,
}

impl EmbeddingSettings {
    /// What the parameters say, or else the model's files.
    ///
    /// # Errors
    /// If the parameters do not fit the model, or a decoder's files do not say how to pool.
    pub(super) fn for_model(
        model: &EmbeddingModel,
        parameters: &EmbeddingParameters,
    ) -> Result<EmbeddingSettings, Error> {
        let Some(pooling) = parameters.pooling.or(model.pooling()) else {
            let architecture = model.plan().architecture().to_string();
            return Err(Error::NoPooling { architecture });
        };
        let files = model.files();
        let defaults = EmbeddingSettings {
            pooling,
            normalize: files.normalize.unwrap_or(true),
            dimensions: model.dimensions(),
            truncate: Truncate::default(),
            max_tokens: None,
            prompt: String::new(),
        };
        defaults.resolve(model, parameters, prompt(files, parameters.prompt.as_ref()))
    }

    /// What the parameters say, or else as here.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub(super) fn with(
        &self,
        model: &EmbeddingModel,
        parameters: &EmbeddingParameters,
    ) -> Result<EmbeddingSettings, Error> {
        let text = match &parameters.prompt {
            Some(given) => prompt(model.files(), Some(given)),
            None => Ok(self.prompt.clone()),
        };
        self.resolve(model, parameters, text)
    }

    fn resolve(
        &self,
        model: &EmbeddingModel,
        parameters: &EmbeddingParameters,
        prompt: Result<String, InvalidField>,
    ) -> Result<EmbeddingSettings, Error> {
        let too_many = parameters.dimensions.and_then(|dims| within("dimensions", dims, model.dimensions()));
        match (prompt, too_many) {
            (Ok(prompt), None) => Ok(EmbeddingSettings {
                pooling: parameters.pooling.unwrap_or(self.pooling),
                normalize: parameters.normalize.unwrap_or(self.normalize),
                dimensions: parameters.dimensions.unwrap_or(self.dimensions),
                truncate: parameters.truncate.unwrap_or(self.truncate),
                max_tokens: parameters.max_tokens.or(self.max_tokens),
                prompt,
            }),
            (prompt, too_many) => Err(Error::Embedder(too_many.into_iter().chain(prompt.err()).collect())),
        }
    }
}

fn within(field: &'static str, value: usize, limit: usize) -> Option<InvalidField> {
    let fix = || format!("give 1 to {limit}, which is what the model has");
    (value == 0 || value > limit).then(|| InvalidField { field, value: value.to_string(), fix: fix() })
}

/// The text of the prompt.
fn prompt(files: &EmbeddingConfig, wanted: Option<&EmbeddingPrompt>) -> Result<String, InvalidField> {
    let text = chosen_prompt(&files.prompts, files.default_prompt.as_deref(), wanted)?.unwrap_or_default();
    if files.excludes_prompt && !text.is_empty() {
        let fix =
            "the model leaves the tokens of prompts out of its pooling, which is not supported: give none";
        return Err(invalid_prompt(&format!("{text:?}"), fix.to_string()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_named_or_given() {
        let prompts = [("query".to_string(), "query: ".to_string())].into();
        let config = EmbeddingConfig { prompts, ..EmbeddingConfig::default() };
        let named = |name: &str| Some(EmbeddingPrompt::Named(name.to_string()));
        assert_eq!(prompt(&config, None).unwrap(), "");
        assert_eq!(prompt(&config, named("query").as_ref()).unwrap(), "query: ");
        assert_eq!(prompt(&config, Some(&EmbeddingPrompt::Text("find ".into()))).unwrap(), "find ");
        let error = prompt(&config, named("passage").as_ref()).unwrap_err().to_string();
        assert_eq!(error, "prompt is passage: the model's files name query");
        let usual = EmbeddingConfig { default_prompt: Some("query".into()), ..config };
        assert_eq!(prompt(&usual, None).unwrap(), "query: ");
        let excluding = EmbeddingConfig { excludes_prompt: true, ..usual };
        assert!(prompt(&excluding, None).unwrap_err().to_string().contains("not supported"));
        assert_eq!(prompt(&excluding, Some(&EmbeddingPrompt::Text(String::new()))).unwrap(), "");
    }
}
