//! What says which model the weights of a checkpoint are of.

use std::path::Path;

use graph::ops::RopeStyle;
use tensor::{DType, Shape};
use weights::{Format, Metadata, QuantizationConfig, Weights};

use crate::architectures::{Architecture, CLASSIFIES, EncoderArchitecture, is_bare};
use crate::config::{labels_of_gguf, labels_of_hugging_face, unnamed};
use crate::names::NameTable;
use crate::{
    CheckpointOptions, ClassificationHead, Config, Decoder, EncoderConfig, Error, Rope, ScoreTokens,
    WeightTypes,
};

/// The labels of GGUF files whose head has the rows of two tokens, as llama.cpp's converter names them.
pub(crate) const YES_AND_NO: [&str; 2] = ["yes", "no"];

/// The matrix that makes scores of hidden states.
pub(super) const SCORES: &str = "cls.output.weight";

/// The head of a decoder that scores texts.
const SCORE_NAMES: NameTable = &[("score", "cls.output")];

/// The configuration of a checkpoint, not yet read, and its family.
pub(super) enum Description<'a> {
    /// The metadata of a GGUF file.
    Gguf { metadata: &'a Metadata, family: Family },
    /// A `config.json`; `architecture` is the name that was asked for, or else that of the file.
    HuggingFace { source: String, json: String, architecture: String, family: Family },
}

/// The row of a table of architectures that a model is of.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    Decoder(&'static Architecture),
    Encoder(&'static EncoderArchitecture),
}

impl Family {
    pub(crate) fn from_hugging_face(name: &str) -> Result<Family, Error> {
        match EncoderArchitecture::from_hugging_face(name) {
            Some(encoder) => Ok(Family::Encoder(encoder)),
            None => Ok(Family::Decoder(Architecture::from_hugging_face(name)?)),
        }
    }

    fn from_gguf(name: &str) -> Result<Family, Error> {
        match EncoderArchitecture::from_gguf(name) {
            Some(encoder) => Ok(Family::Encoder(encoder)),
            None => Ok(Family::Decoder(Architecture::from_gguf(name)?)),
        }
    }

    /// The Hugging Face name of the architecture that GGUF files call so.
    pub(super) fn hugging_face_name(gguf: &str) -> Option<&'static str> {
        Some(match Family::from_gguf(gguf).ok()? {
            Family::Encoder(encoder) => encoder.hugging_face,
            Family::Decoder(decoder) => decoder.hugging_face,
        })
    }
}

impl<'a> Description<'a> {
    /// The description that comes with weights, under the options.
    ///
    /// # Errors
    /// If there is none, or it names no known architecture.
    pub(super) fn for_weights(
        weights: &'a Weights,
        config_json: &Path,
        options: &CheckpointOptions,
    ) -> Result<Description<'a>, Error> {
        if weights.format() == Format::Gguf {
            let metadata = weights.metadata();
            let family = match options.architecture {
                Some(name) => Family::from_hugging_face(name)?,
                None => Family::from_gguf(metadata.str("general.architecture")?)?,
            };
            return Ok(Description::Gguf { metadata, family });
        }
        let (source, json) = options.config_json(config_json)?;
        Description::for_config_json(source, json, options.architecture)
    }

    /// The description in the text of a `config.json`.
    ///
    /// # Errors
    /// If it names no known architecture.
    pub(super) fn for_config_json(
        source: String,
        json: String,
        architecture: Option<&str>,
    ) -> Result<Description<'a>, Error> {
        let architecture = match architecture {
            Some(name) => name.to_string(),
            None => Config::architecture_of_hugging_face(&source, &json)?,
        };
        let architecture = Config::meant_architecture(&json, architecture);
        let family = Family::from_hugging_face(&architecture)?;
        Ok(Description::HuggingFace { source, json, architecture, family })
    }

    pub(super) fn family(&self) -> Family {
        match self {
            Description::Gguf { family, .. } | Description::HuggingFace { family, .. } => *family,
        }
    }

    /// What files of the family call weights.
    pub(super) fn names(&self, weights: &Weights) -> Vec<NameTable> {
        match (self, self.family()) {
            (Description::Gguf { .. }, Family::Decoder(decoder)) => {
                vec![(decoder.gguf_names)(&|name| weights.get(name).is_some())]
            }
            (Description::Gguf { .. }, Family::Encoder(_)) => Vec::new(),
            (Description::HuggingFace { .. }, Family::Decoder(decoder)) => {
                decoder.names.iter().copied().chain([SCORE_NAMES]).collect()
            }
            (Description::HuggingFace { .. }, Family::Encoder(encoder)) => encoder.names.to_vec(),
        }
    }

    /// The decoder, with the head that scores texts if it has one.
    ///
    /// # Errors
    /// If the configuration is wrong about positions or labels.
    pub(super) fn decoder(
        &self,
        family: &Architecture,
        config: &Config,
        style: RopeStyle,
        tokens: Option<ScoreTokens>,
        types: &dyn WeightTypes,
    ) -> Result<Decoder, Error> {
        let mut decoder = (family.decoder)(config, Rope::all(config, style)?, types);
        let name = match self {
            Description::HuggingFace { architecture, .. } => architecture,
            Description::Gguf { .. } => "",
        };
        let classifies = family.classifies || name.ends_with(CLASSIFIES) || types.dtype(SCORES).is_some();
        let labels = match tokens {
            Some(tokens) => Some((unnamed(1), tokens.low.is_some())),
            None if classifies => Some(self.labels()?),
            None => None,
        };
        decoder.head = labels.map(|(labels, log_odds)| ClassificationHead::from_labels(labels, log_odds));
        decoder.bare = decoder.head.is_none() && is_bare(name);
        Ok(decoder)
    }

    /// How matrices were quantized, if the configuration says it. GGUF files say it of each tensor.
    pub(super) fn quantization(&self) -> Result<Option<QuantizationConfig>, Error> {
        match self {
            Description::Gguf { .. } => Ok(None),
            Description::HuggingFace { source, json, .. } => {
                Ok(QuantizationConfig::from_hugging_face(source, json)?)
            }
        }
    }

    /// The configuration; `embedding` is what is known of the embedding, for files that do not say its size.
    pub(super) fn config(&self, embedding: Option<(DType, Shape)>) -> Result<Config, Error> {
        match self {
            Description::Gguf { metadata, family } => {
                let vocab = embedding.and_then(|(_, shape)| shape.first().copied());
                let family = match family {
                    Family::Decoder(decoder) => Some(*decoder),
                    Family::Encoder(encoder) => encoder.family,
                };
                Config::from_gguf_as(metadata, vocab.unwrap_or(0), family)
            }
            Description::HuggingFace { source, json, architecture, .. } => {
                Config::from_hugging_face_as(source, json, architecture.clone())
            }
        }
    }

    /// What an encoder has in addition.
    pub(super) fn encoder_config(&self) -> Result<EncoderConfig, Error> {
        match self {
            Description::Gguf { metadata, .. } => EncoderConfig::from_gguf(metadata),
            Description::HuggingFace { source, json, .. } => EncoderConfig::from_hugging_face(source, json),
        }
    }

    /// The names of the labels of a decoder's head, and whether it has two rows for its one label.
    fn labels(&self) -> Result<(Vec<String>, bool), Error> {
        match self {
            Description::HuggingFace { source, json, .. } => {
                Ok((labels_of_hugging_face(source, json)?, false))
            }
            Description::Gguf { metadata, .. } => {
                let mut labels = labels_of_gguf(metadata)?;
                let log_odds = labels == YES_AND_NO;
                labels.truncate(if log_odds { 1 } else { labels.len() });
                Ok((labels, log_odds))
            }
        }
    }

    /// The order of the rows of queries and keys.
    pub(super) fn rope_style(
        &self,
        architecture: &Architecture,
        config: &Config,
        weights: &Weights,
        gguf: Option<RopeStyle>,
    ) -> RopeStyle {
        match self {
            Description::Gguf { metadata, .. } => gguf.unwrap_or_else(|| {
                // llama.cpp turns by several positions in halves only.
                let name = metadata.str("general.architecture").unwrap_or_default();
                let has_sections = metadata.get(&format!("{name}.rope.dimension_sections")).is_some();
                if has_sections { RopeStyle::HalfSplit } else { architecture.gguf_rope }
            }),
            // Meta's own checkpoints pair neighbouring rows, as the model was trained.
            Description::HuggingFace { .. } if crate::names::are_of_meta(weights.names()) => {
                RopeStyle::Interleaved
            }
            Description::HuggingFace { .. } => config.rope.style.unwrap_or(architecture.rope),
        }
    }
}
