//! What a model's files say of how it makes embeddings: those of sentence-transformers, or GGUF metadata.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use models::ScoreTokens;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use weights::Metadata;

use crate::Error;
use crate::pooling::Pooling;

/// How GGUF numbers the pooling of models that score texts.
pub(crate) const RANK: u32 = 4;

/// What files say; `None` is silence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EmbeddingConfig {
    pub(crate) pooling: Option<Pooling>,
    pub(crate) normalize: Option<bool>,
    /// Tokens of the longest text, those around it included.
    pub(crate) max_length: Option<usize>,
    /// Whether texts are in lower case before they are tokenized.
    pub(crate) lowercase: bool,
    /// Texts that belong before others, by what the others are for.
    pub(crate) prompts: BTreeMap<String, String>,
    /// Which of them is used unless another is chosen.
    pub(crate) default_prompt: Option<String>,
    /// Whether the tokens of a prompt are left out of the pooling.
    pub(crate) excludes_prompt: bool,
    /// The folders of the dense layers behind the pooling.
    pub(crate) dense: Vec<PathBuf>,
}

/// A row of `modules.json`.
#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    class: String,
}

/// `sentence_bert_config.json`
#[derive(Deserialize, Default)]
pub(crate) struct Transformer {
    pub(crate) max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
    /// The inputs that the model takes: `text`, `message`, and others.
    modality_config: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    processing_kwargs: ProcessingArguments,
}

/// Arguments of tokenizer and chat template.
#[derive(Deserialize, Default)]
struct ProcessingArguments {
    #[serde(default)]
    chat_template: Map<String, Value>,
}

impl Transformer {
    /// How texts become conversations, if the model takes those.
    pub(crate) fn message(&self) -> Option<MessageFormat> {
        let message = self.modality_config.as_ref()?.get("message")?;
        let variables = self.processing_kwargs.chat_template.clone();
        Some(MessageFormat { is_structured: message["format"] == "structured", variables })
    }

    /// Whether the files list inputs.
    pub(crate) fn lists_inputs(&self) -> bool {
        self.modality_config.is_some()
    }
}

/// How texts become a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MessageFormat {
    /// Whether contents are lists of parts.
    pub(crate) is_structured: bool,
    /// Variables of the chat template.
    pub(crate) variables: Map<String, Value>,
}

impl MessageFormat {
    /// The source of the chat template, if the files state one here, and the name of the one to use.
    pub(crate) fn template(&self) -> (Option<String>, String) {
        match self.variables.get("chat_template").and_then(Value::as_str) {
            Some(source) if source.contains('{') => (Some(source.to_string()), "default".to_string()),
            Some(name) => (None, name.to_string()),
            None => (None, "default".to_string()),
        }
    }
}

/// `config_sentence_transformers.json`
#[derive(Deserialize, Default)]
pub(crate) struct Prompts {
    #[serde(default)]
    pub(crate) prompts: BTreeMap<String, Option<String>>,
    pub(crate) default_prompt_name: Option<String>,
}

/// The configuration of the module that scores texts by tokens.
#[derive(Deserialize)]
struct LogitScore {
    true_token_id: u32,
    false_token_id: Option<u32>,
}

impl EmbeddingConfig {
    /// Reads the files in a model's folder, as far as they are there.
    ///
    /// # Errors
    /// If one is damaged, or asks for what is not supported.
    pub(crate) fn from_folder(folder: &Path) -> Result<EmbeddingConfig, Error> {
        let prompts: Prompts = read(&folder.join("config_sentence_transformers.json"))?.unwrap_or_default();
        let mut config = EmbeddingConfig {
            prompts: prompts.prompts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect(),
            default_prompt: prompts.default_prompt_name,
            ..EmbeddingConfig::default()
        };
        let path = folder.join("modules.json");
        let Some(modules) = read::<Vec<Module>>(&path)? else { return Ok(config) };
        config.normalize = Some(false);
        for module in modules {
            let own = within(&path, folder, &module.path)?;
            // The class stands behind the Python modules that hold it, which have moved.
            match module.class.rsplit('.').next().unwrap_or_default() {
                "Transformer" => config.transformer(&own.join("sentence_bert_config.json"))?,
                "Pooling" => config.pooling(&own.join("config.json"))?,
                "Dense" if config.pooling.is_some() && config.normalize == Some(false) => {
                    config.dense.push(own);
                }
                "Normalize" => config.normalize = Some(true),
                _ => {
                    let problem = format!("a module of the type {} is not supported", module.class);
                    return Err(Error::embedding(path.display(), problem));
                }
            }
        }
        Ok(config)
    }

    /// Reads GGUF metadata.
    ///
    /// # Errors
    /// If it asks for what is not supported.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<EmbeddingConfig, Error> {
        let key = format!("{}.pooling_type", metadata.str("general.architecture")?);
        let pooling = match metadata.optional::<u32>(&key)? {
            None | Some(0) => None,
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::Cls),
            Some(3) => Some(Pooling::Last),
            Some(RANK) => {
                let problem = format!("`{key}` is {RANK}: the model scores texts, and makes no embeddings");
                return Err(Error::embedding("GGUF metadata", problem));
            }
            Some(other) => {
                let problem = format!("`{key}` is {other}, expected 0 to 4");
                return Err(Error::embedding("GGUF metadata", problem));
            }
        };
        Ok(EmbeddingConfig { pooling, ..EmbeddingConfig::default() })
    }

    fn transformer(&mut self, path: &Path) -> Result<(), Error> {
        let file: Transformer = read(path)?.unwrap_or_default();
        if file.message().is_some() {
            let problem = "embeddings of conversations (`message` in `modality_config`) are not supported";
            return Err(Error::embedding(path.display(), problem));
        }
        let Transformer { max_seq_length, do_lower_case, .. } = file;
        if max_seq_length == Some(0) {
            return Err(Error::embedding(path.display(), "`max_seq_length` is 0"));
        }
        (self.max_length, self.lowercase) = (max_seq_length, do_lower_case);
        Ok(())
    }

    fn pooling(&mut self, path: &Path) -> Result<(), Error> {
        let wrong = |problem: String| Error::embedding(path.display(), problem);
        let file: BTreeMap<String, Value> =
            read(path)?.ok_or_else(|| wrong("there is no such file".into()))?;
        self.excludes_prompt = file.get("include_prompt").and_then(Value::as_bool) == Some(false);
        // Newer files say it by name, older ones by a truth value for each.
        let named = file.get("pooling_mode").and_then(Value::as_str).map(str::to_string).into_iter();
        let listed = file.iter().filter(|(_, value)| **value == Value::Bool(true));
        let listed = listed.filter_map(|(key, _)| Some(key.strip_prefix("pooling_mode_")?.to_string()));
        let modes: Vec<String> = named.chain(listed).collect();
        let [mode] = &modes[..] else {
            return Err(wrong(format!("asks for {modes:?}, expected exactly one way of pooling")));
        };
        self.pooling = Some(match &mode[..] {
            "mean" | "mean_tokens" => Pooling::Mean,
            "cls" | "cls_token" => Pooling::Cls,
            "lasttoken" => Pooling::Last,
            "max" | "max_tokens" => Pooling::Max,
            "mean_sqrt_len_tokens" => Pooling::MeanSqrtLen,
            "weightedmean" | "weightedmean_tokens" => Pooling::WeightedMean,
            _ => return Err(wrong(format!("pooling `{mode}` is not supported"))),
        });
        Ok(())
    }
}

/// The tokens that score a decoder's texts, as a module in its folder states them.
///
/// # Errors
/// If a file is damaged.
pub(crate) fn score_tokens(folder: &Path) -> Result<Option<ScoreTokens>, Error> {
    let path = folder.join("modules.json");
    for module in read::<Vec<Module>>(&path)?.unwrap_or_default() {
        if !module.class.ends_with(".LogitScore") {
            continue;
        }
        let own = within(&path, folder, &module.path)?.join("config.json");
        let LogitScore { true_token_id, false_token_id } =
            read(&own)?.ok_or_else(|| Error::embedding(own.display(), "there is no such file"))?;
        return Ok(Some(ScoreTokens { high: true_token_id, low: false_token_id }));
    }
    Ok(None)
}

/// The folder of a module, which must lie in that of the model.
fn within(modules: &Path, folder: &Path, path: &str) -> Result<PathBuf, Error> {
    let inside =
        Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    match inside {
        true => Ok(folder.join(path)),
        false => {
            Err(Error::embedding(modules.display(), format!("the path {path:?} leads out of the folder")))
        }
    }
}

/// A JSON file, if it is there.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let bytes = match weights::read_file(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
    };
    weights::from_json(&bytes).map(Some).map_err(|error| Error::embedding(path.display(), error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// What a folder with these files says; the error without the folder.
    fn of(files: &[(&str, &str)]) -> Result<EmbeddingConfig, String> {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("perihelion-{}-modules-{}", std::process::id(), FOLDERS.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let config = EmbeddingConfig::from_folder(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        config.map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
    }

    const MODULES: &str = r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;

    #[test]
    fn reads_what_is_there() {
        assert_eq!(of(&[]).unwrap(), EmbeddingConfig::default());
        let pooling = r#"{"word_embedding_dimension": 8, "pooling_mode_cls_token": true,
            "pooling_mode_mean_tokens": false, "include_prompt": true}"#;
        let transformer = r#"{"max_seq_length": 256, "do_lower_case": true}"#;
        let prompts = r#"{"prompts": {"query": "query: ", "document": null}, "default_prompt_name": null}"#;
        let config = of(&[
            ("modules.json", MODULES),
            ("1_Pooling/config.json", pooling),
            ("sentence_bert_config.json", transformer),
            ("config_sentence_transformers.json", prompts),
        ])
        .unwrap();
        let expected = EmbeddingConfig {
            pooling: Some(Pooling::Cls),
            normalize: Some(false),
            max_length: Some(256),
            lowercase: true,
            prompts: [("query".to_string(), "query: ".to_string())].into(),
            default_prompt: None,
            excludes_prompt: false,
            dense: Vec::new(),
        };
        assert_eq!(config, expected);
        let newer = r#"{"embedding_dimension": 8, "pooling_mode": "lasttoken", "include_prompt": false}"#;
        let config = of(&[("modules.json", MODULES), ("1_Pooling/config.json", newer)]).unwrap();
        assert_eq!((config.pooling, config.excludes_prompt), (Some(Pooling::Last), true));
    }

    #[test]
    fn refuses_what_it_cannot_do() {
        let module = |path: &str, class: &str| format!(r#"[{{"path": "{path}", "type": "{class}"}}]"#);
        let refused = |files: &[(&str, &str)], expected: &str| assert_eq!(of(files).unwrap_err(), expected);
        refused(
            &[("modules.json", &module("2_Dense", "sentence_transformers.models.Dense"))],
            "modules.json: a module of the type sentence_transformers.models.Dense is not supported",
        );
        for path in ["../elsewhere", "/etc"] {
            let expected = format!("modules.json: the path \"{path}\" leads out of the folder");
            refused(&[("modules.json", &module(path, "x.Normalize"))], &expected);
        }
        refused(&[("modules.json", MODULES)], "1_Pooling/config.json: there is no such file");
        let two = r#"{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}"#;
        refused(
            &[("modules.json", MODULES), ("1_Pooling/config.json", two)],
            "1_Pooling/config.json: asks for [\"cls_token\", \"max_tokens\"], expected exactly one way of pooling",
        );
        refused(
            &[("modules.json", MODULES), ("sentence_bert_config.json", r#"{"max_seq_length": 0}"#)],
            "sentence_bert_config.json: `max_seq_length` is 0",
        );
        assert!(of(&[("modules.json", "[1]")]).unwrap_err().starts_with("modules.json: invalid type"));
    }
}
