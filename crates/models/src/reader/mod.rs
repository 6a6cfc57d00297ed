//! Configurations of files, read as the families of their models mean them.

mod entries;

use serde::Deserialize;
use weights::Metadata;

use crate::architectures::{ARCHITECTURES, Architecture, EncoderArchitecture, Frame};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::{Config, Error};

/// The key that says what the others mean.
#[derive(Deserialize)]
struct Head {
    architectures: Option<Vec<String>>,
    model_type: Option<String>,
    position_embedding_type: Option<String>,
    text_config: Option<TextHead>,
}

/// That of the text half of a model that sees.
#[derive(Deserialize)]
struct TextHead {
    model_type: Option<String>,
}

impl Config {
    /// The architecture that a `config.json` names, whatever else is in it: of several the first that is known, and of none
    /// that of its `model_type`.
    ///
    /// # Errors
    /// If it is no JSON, or names none.
    pub(crate) fn architecture_of_hugging_face(source_name: &str, json: &str) -> Result<String, Error> {
        let head: Head = weights::from_json(json.as_bytes())
            .map_err(|error| Error::config(source_name, error.to_string()))?;
        let is_known = |name: &&String| {
            EncoderArchitecture::from_hugging_face(name).is_some()
                || Frame::from_hugging_face(name).is_some()
                || Architecture::from_hugging_face(name).is_ok()
        };
        let names = head.architectures.unwrap_or_default();
        let of_type = || Architecture::from_model_type(head.model_type.as_deref()?).map(str::to_string);
        names.iter().find(is_known).or(names.first()).cloned().or_else(of_type).ok_or_else(|| {
            let message = "`architectures` names none, and `model_type` is no known one: name the architecture with \
                           the model";
            Error::config(source_name, message)
        })
    }

    /// The architecture that a name stands for in a `config.json`: that of the text part of a frame, of Mistral 4, which has
    /// the name of Mistral 3 around it, and of the first files of Jina v3, which have the name of the model that it was made
    /// from.
    pub(crate) fn meant_architecture(json: &str, name: String) -> String {
        if let Some(frame) = Frame::from_hugging_face(&name) {
            return frame.text_architecture(json);
        }
        let Ok(head) = weights::from_json::<Head>(json.as_bytes()) else { return name };
        let of_text = head.text_config.and_then(|text| text.model_type);
        match &name[..] {
            "XLMRobertaModel" if head.position_embedding_type.as_deref() == Some("rotary") => {
                "JinaEmbeddingsV3Model".to_string()
            }
            "Mistral3ForConditionalGeneration" if of_text.as_deref() == Some("mistral4") => {
                "Mistral4ForCausalLM".to_string()
            }
            _ => name,
        }
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// If it is no JSON, a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_hugging_face(source_name: &str, json: &str) -> Result<Config, Error> {
        let architecture = Config::architecture_of_hugging_face(source_name, json)?;
        let architecture = Config::meant_architecture(json, architecture);
        Config::from_hugging_face_as(source_name, json, architecture)
    }

    /// As [`Config::from_hugging_face`], of an architecture that its reader knows.
    pub(crate) fn from_hugging_face_as(
        source_name: &str,
        json: &str,
        architecture: String,
    ) -> Result<Config, Error> {
        let json = weights::from_json(json.as_bytes())
            .map_err(|error| Error::config(source_name, error.to_string()))?;
        let (keys, of_text) = ConfigKeys::for_text_half(json);
        if let Some(encoder) = EncoderArchitecture::from_hugging_face(&architecture) {
            let mut keys = keys;
            encoder.renames.iter().for_each(|(own, shared)| keys.rename(own, shared));
            let mut keys = keys.for_family(encoder.family.map(|family| family.keys), None);
            if let Some(family) = encoder.family {
                (family.complete)(&mut keys).map_err(|message| Error::config(source_name, message))?;
            }
            return Config::from_keys(source_name, architecture, keys);
        }
        let family = Architecture::from_hugging_face(&architecture)?.of_text_half(of_text.as_deref());
        let read = |more: Option<&str>| {
            let mut keys = keys.for_family(Some(family.keys), more);
            (family.complete)(&mut keys).map_err(|message| Error::config(source_name, message))?;
            Config::from_keys(source_name, architecture.clone(), keys)
        };
        let mut config = read(None)?;
        let of_all = ARCHITECTURES.iter().flat_map(|other| other.keys).copied();
        // Files keep many keys that make no difference, such as a factor of 1.
        let matters = |key: &&str| read(Some(key)).map_or(true, |other| other != config);
        let ignored =
            keys.others(family.keys, of_all).into_iter().filter(matters).map(str::to_string).collect();
        config.ignored_keys = ignored;
        Ok(config)
    }

    /// Reads a GGUF file's metadata. `vocab` is the number of rows of the embedding, for files that do not say.
    ///
    /// # Errors
    /// If a key is missing or of the wrong kind, or the numbers contradict each other.
    pub fn from_gguf(metadata: &Metadata, vocab: usize) -> Result<Config, Error> {
        let family = Architecture::from_gguf(metadata.str("general.architecture")?).ok();
        Config::from_gguf_as(metadata, vocab, family)
    }

    /// As [`Config::from_gguf`], of a family that its reader knows.
    pub(crate) fn from_gguf_as(
        metadata: &Metadata,
        vocab: usize,
        family: Option<&Architecture>,
    ) -> Result<Config, Error> {
        let keys = GgufKeys { metadata, architecture: metadata.str("general.architecture")? };
        let mut config = Config::from_gguf_keys(keys, vocab)?;
        if let Some(family) = family {
            (family.gguf_quirks)(&keys, &mut config)?;
        }
        config.checked()
    }
}
