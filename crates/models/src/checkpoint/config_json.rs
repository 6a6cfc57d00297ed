//! The model that a `config.json` describes, whose weights are not there.

use graph::ops::RopeStyle;
use tensor::DType;

use super::description::{Description, Family};
use crate::{Config, Error, Model, WeightTypes};

impl Model {
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
    ) -> Result<(Config, Model), Error> {
        let description = Description::for_config_json(source.to_string(), json.to_string(), architecture)?;
        let config = description.config(None)?;
        description.quantization()?;
        let types = Unseen { tied: config.tied == Some(true) };
        let model = match description.family() {
            Family::Encoder(family) => family.build(&config, &description.encoder_config()?, &types)?.into(),
            Family::Decoder(family) => {
                description.decoder(family, &config, RopeStyle::HalfSplit, None, &types)?.into()
            }
        };
        Ok((config, model))
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
