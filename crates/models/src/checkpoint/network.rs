//! The model of a checkpoint, whichever kind it is.

use graph::ops::RopeStyle;
use tensor::DType;
use weights::QuantizationConfig;

use crate::architectures::{Architecture, CLASSIFIES, EncoderArchitecture, is_bare};
use crate::config::labels_of_hugging_face;
use crate::{
    ClassificationHead, Config, Decoder, DecoderOutput, Encoder, EncoderConfig, Error, Rope, WeightTypes,
};

/// The model of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub enum Network {
    /// It makes text.
    Decoder(Decoder),
    /// It makes embeddings, or scores.
    Encoder(Encoder),
}

impl Network {
    /// The model that a `config.json` describes, whose weights are not there. What only weights say is taken as it is in
    /// most models: no biases but those of the architecture, and an output of its own unless the configuration ties it.
    /// `source` stands for the file in messages; `architecture` is the Hugging Face name, if not the one in the file.
    ///
    /// # Errors
    /// If the configuration cannot be read, or the architecture is unknown.
    pub fn from_config_json(
        source: &str,
        json: &str,
        architecture: Option<&str>,
    ) -> Result<(Config, Network), Error> {
        let architecture = match architecture {
            Some(name) => name.to_string(),
            None => Config::architecture_of_hugging_face(source, json)?,
        };
        let architecture = Config::meant_architecture(json, architecture);
        let config = Config::from_hugging_face_as(source, json, architecture.clone())?;
        QuantizationConfig::from_hugging_face(source, json)?;
        let types = Unseen { tied: config.tied == Some(true) };
        let network = match EncoderArchitecture::from_hugging_face(&architecture) {
            Some(encoder) => {
                let own = EncoderConfig::from_hugging_face(source, json)?;
                Network::Encoder(encoder.build(&config, &own, &types)?)
            }
            None => {
                let family = Architecture::from_hugging_face(&architecture)?;
                let ropes = Rope::all(&config, RopeStyle::HalfSplit)?;
                let mut decoder = (family.decoder)(&config, ropes, &types);
                decoder.bare = is_bare(&architecture);
                if family.classifies || architecture.ends_with(CLASSIFIES) {
                    let labels = labels_of_hugging_face(source, json)?;
                    decoder.head = Some(ClassificationHead::of_one_layer(labels, false));
                }
                Network::Decoder(decoder)
            }
        };
        Ok((config, network))
    }

    /// Tokens of the longest sequence it was made for.
    pub fn context_length(&self) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.context_length,
            Network::Encoder(encoder) => encoder.context_length(),
        }
    }

    /// The head that scores texts, if it has one.
    pub fn head(&self) -> Option<&ClassificationHead> {
        match self {
            Network::Decoder(decoder) => decoder.head.as_ref(),
            Network::Encoder(encoder) => encoder.head.as_ref(),
        }
    }

    /// Whether it makes text: it is a decoder with the head for it.
    pub fn makes_text(&self) -> bool {
        matches!(self, Network::Decoder(decoder) if decoder.output() == DecoderOutput::Logits)
    }

    /// Rows of its embedding.
    pub fn vocab(&self) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.vocab,
            Network::Encoder(encoder) => encoder.vocab,
        }
    }

    /// Bytes of cache for each token; encoders have none.
    pub fn cache_bytes_per_token(&self, cache_dtype: DType) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.state().bytes_per_token(cache_dtype),
            Network::Encoder(_) => 0,
        }
    }

    /// Bytes of each slot for a state of a sequence; 0 of encoders, and of decoders that keep nothing of a sequence but its
    /// tokens.
    pub fn state_bytes_per_slot(&self) -> usize {
        match self {
            Network::Decoder(decoder) => decoder.state().bytes_per_slot(),
            Network::Encoder(_) => 0,
        }
    }

    /// The number of weights.
    ///
    /// # Errors
    /// If the graph cannot be built because the sizes of blocks disagree.
    pub fn parameters(&self) -> Result<usize, Error> {
        match self {
            Network::Decoder(decoder) => decoder.parameters(),
            Network::Encoder(encoder) => encoder.parameters(),
        }
    }

    /// The number of weights that compute each token.
    ///
    /// # Errors
    /// As [`Network::parameters`].
    pub fn active_parameters(&self) -> Result<usize, Error> {
        match self {
            Network::Decoder(decoder) => decoder.active_parameters(),
            Network::Encoder(encoder) => encoder.parameters(),
        }
    }
}

/// The weights of a model of which only the configuration is there.
struct Unseen {
    /// Whether the embedding is the output as well.
    tied: bool,
}

impl WeightTypes for Unseen {
    fn dtype(&self, name: &str) -> Option<DType> {
        (name == "output.weight" && !self.tied).then_some(DType::BF16)
    }
}
