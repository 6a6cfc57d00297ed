//! The settings of a classifier's scores, from the files of sentence-transformers and `transformers`, or GGUF metadata.

use std::collections::BTreeMap;
use std::path::Path;

use models::ClassificationHead;
use serde::Deserialize;
use serde_json::Value;
use weights::Metadata;

use crate::Error;
use crate::activation::ScoreActivation;
use crate::plan::model_files::sentence_transformers::{MessageFormat, Prompts, Transformer, read};

/// The GGUF key for an activation other than llama.cpp's. GGUF defines none, so this one is ours.
pub(crate) const ACTIVATION_KEY: &str = "perihelion.classifier.activation";

/// The settings that files have; `None` where they have none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClassifierConfig {
    pub(crate) activation: Option<ScoreActivation>,
    /// Tokens of the longest text, those around it included.
    pub(crate) max_length: Option<usize>,
    /// The conversation that texts become.
    pub(crate) message: Option<MessageFormat>,
    /// Whether the tokenizer joins pairs, and no conversation.
    pub(crate) joins_by_tokenizer: bool,
    /// Instructions, by name.
    pub(crate) prompts: BTreeMap<String, String>,
    /// The one that is used unless another is chosen.
    pub(crate) default_prompt: Option<String>,
}

/// The keys of `config.json`.
#[derive(Deserialize, Default)]
struct Config {
    problem_type: Option<String>,
    /// Of sentence-transformers 4 and later.
    #[serde(default)]
    sentence_transformers: CrossEncoder,
    /// Of earlier versions.
    sbert_ce_default_activation_function: Option<String>,
}

/// `config_sentence_transformers.json`, or an object in `config.json`.
#[derive(Deserialize, Default)]
struct CrossEncoder {
    activation_fn: Option<String>,
}

/// `tokenizer_config.json`
#[derive(Deserialize, Default)]
struct TokenizerConfig {
    model_max_length: Option<Value>,
}

impl ClassifierConfig {
    /// Reads the files in a model's folder, as far as they are there.
    ///
    /// # Errors
    /// If one is damaged, or asks for an activation that is not supported.
    pub(crate) fn from_folder(folder: &Path) -> Result<ClassifierConfig, Error> {
        let beside = folder.join("config_sentence_transformers.json");
        let newest: CrossEncoder = read(&beside)?.unwrap_or_default();
        let path = folder.join("config.json");
        let Config { problem_type, sentence_transformers, sbert_ce_default_activation_function } =
            read(&path)?.unwrap_or_default();
        let older = sentence_transformers.activation_fn.or(sbert_ce_default_activation_function);
        let activation = match (newest.activation_fn, older) {
            (Some(class), _) => Some(activation_of(&class, &beside)?),
            (None, Some(class)) => Some(activation_of(&class, &path)?),
            (None, None) => problem_type.and_then(|problem| match &problem[..] {
                "regression" => Some(ScoreActivation::Identity),
                "multi_label_classification" => Some(ScoreActivation::Sigmoid),
                _ => None,
            }),
        };
        let Prompts { prompts, default_prompt_name } = read(&beside)?.unwrap_or_default();
        let transformer: Transformer = read(&folder.join("sentence_bert_config.json"))?.unwrap_or_default();
        let tokenizer: TokenizerConfig = read(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
        // Tokenizers without a limit store a number that does not fit into u64.
        let of_tokenizer = tokenizer.model_max_length.and_then(|length| length.as_u64());
        let of_tokenizer = of_tokenizer.and_then(|length| usize::try_from(length).ok());
        let max_length = transformer.max_seq_length.or(of_tokenizer).filter(|&length| length > 0);
        let message = transformer.message();
        Ok(ClassifierConfig {
            activation,
            max_length,
            // As sentence-transformers does: models that it saved read texts alone unless they list conversations.
            joins_by_tokenizer: message.is_none()
                && (transformer.lists_inputs() || folder.join("modules.json").exists()),
            message,
            prompts: prompts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect(),
            default_prompt: default_prompt_name,
        })
    }

    /// Reads GGUF metadata.
    ///
    /// # Errors
    /// If it asks for an activation that is not supported.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<ClassifierConfig, Error> {
        let activation = metadata.optional::<&str>(ACTIVATION_KEY)?.map(|name| {
            name.parse().map_err(|_| {
                Error::classifier(
                    "GGUF metadata",
                    format!("`{ACTIVATION_KEY}` is `{name}`, which is not known"),
                )
            })
        });
        Ok(ClassifierConfig { activation: activation.transpose()?, ..ClassifierConfig::default() })
    }

    /// The activation, or the usual one for the number of labels.
    pub(crate) fn activation(&self, head: &ClassificationHead) -> ScoreActivation {
        let usual = if head.labels.len() == 1 { ScoreActivation::Sigmoid } else { ScoreActivation::Softmax };
        self.activation.unwrap_or(usual)
    }
}

/// The activation of a class of PyTorch, whose name stands behind the Python modules that hold it.
fn activation_of(class: &str, path: &Path) -> Result<ScoreActivation, Error> {
    match class.rsplit('.').next().unwrap_or_default() {
        "Identity" => Ok(ScoreActivation::Identity),
        "Sigmoid" => Ok(ScoreActivation::Sigmoid),
        "Softmax" => Ok(ScoreActivation::Softmax),
        _ => {
            let problem =
                format!("the activation {class} is not supported; known: Identity, Sigmoid, Softmax");
            Err(Error::classifier(path.display(), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a folder with these files, or the error without the folder's name.
    fn of(files: &[(&str, &str)]) -> Result<ClassifierConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let config = ClassifierConfig::from_folder(folder.path());
        config.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn files_name_the_activation_and_the_length() {
        let head = |labels: usize| ClassificationHead {
            labels: vec![String::new(); labels],
            activation: None,
            bias: true,
            norm: None,
            mean: false,
            output_bias: true,
            log_odds: false,
        };
        let silent = of(&[]).unwrap();
        assert_eq!(silent, ClassifierConfig::default());
        assert_eq!(silent.activation(&head(1)), ScoreActivation::Sigmoid);
        assert_eq!(silent.activation(&head(3)), ScoreActivation::Softmax);
        let activation = |files: &[(&str, &str)]| of(files).unwrap().activation;
        let identity = r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}"#;
        assert_eq!(activation(&[("config.json", identity)]), Some(ScoreActivation::Identity));
        let older = r#"{"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}"#;
        assert_eq!(activation(&[("config.json", older)]), Some(ScoreActivation::Sigmoid));
        let newest = r#"{"activation_fn": "torch.nn.modules.activation.Softmax", "prompts": {}}"#;
        let both = [("config.json", identity), ("config_sentence_transformers.json", newest)];
        assert_eq!(activation(&both), Some(ScoreActivation::Softmax));
        for (problem, expected) in [
            ("regression", Some(ScoreActivation::Identity)),
            ("multi_label_classification", Some(ScoreActivation::Sigmoid)),
            ("single_label_classification", None),
        ] {
            let json = format!(r#"{{"problem_type": "{problem}"}}"#);
            assert_eq!(activation(&[("config.json", &json)]), expected);
        }
        let length = |number: &str| {
            let json = format!(r#"{{"model_max_length": {number}}}"#);
            of(&[("tokenizer_config.json", &json)]).unwrap().max_length
        };
        assert_eq!((length("512"), length("1000000000000000019884624838656")), (Some(512), None));
        let error = of(&[("config.json", &identity.replace("linear.Identity", "activation.GELU"))]);
        assert_eq!(
            error.unwrap_err(),
            "config.json: the activation torch.nn.modules.activation.GELU is not supported; known: Identity, Sigmoid, \
             Softmax"
        );
    }
}
