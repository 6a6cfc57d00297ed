//! The architectures we know. To add one, write the file and add a row to [`ARCHITECTURES`].

mod bert;
mod exaone4;
mod gemma;
mod gemma2;
mod gemma3;
mod granite;
mod granite_moe;
mod llama;
mod mistral;
mod mixtral;
mod mpnet;
mod olmo2;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod roberta;
mod smollm3;

use graph::ops::RopeStyle;

use crate::{Config, Decoder, Encoder, EncoderConfig, Error, Rope, WeightTypes};

/// How checkpoints name an architecture, and how their configuration becomes a model.
#[derive(Debug, Clone, Copy)]
pub struct Architecture {
    /// The name in a Hugging Face `config.json`.
    pub hugging_face: &'static str,
    /// The name in GGUF's `general.architecture`.
    pub gguf: &'static str,
    /// The order of query and key rows in GGUF files. (Hugging Face files are always half-split.)
    pub gguf_rope: RopeStyle,
    /// Whether the weights of norms in Hugging Face files are less by 1 than what norms multiply by. (GGUF files
    /// hold the latter.)
    pub zero_centered_norms: bool,
    /// The model of a configuration and its ropes, as [`Rope::all`] has them. The weights say what configurations
    /// leave out: ties and biases.
    pub decoder: fn(&Config, Vec<Rope>, &dyn WeightTypes) -> Decoder,
}

/// Every architecture, in the order `peri list` prints.
pub const ARCHITECTURES: &[Architecture] = &[
    // Before Mistral and Mixtral, whose GGUF files call themselves Llamas: the first row of a name is taken.
    llama::LLAMA,
    mistral::MISTRAL,
    mistral::MINISTRAL,
    mistral::MINISTRAL3,
    mistral::MISTRAL3,
    mixtral::MIXTRAL,
    qwen2::QWEN2,
    qwen2_moe::QWEN2_MOE,
    qwen3::QWEN3,
    qwen3_moe::QWEN3_MOE,
    granite::GRANITE,
    granite_moe::GRANITE_MOE,
    phi3::PHI3,
    smollm3::SMOLLM3,
    olmo2::OLMO2,
    olmo2::OLMO3,
    olmoe::OLMOE,
    exaone4::EXAONE4,
    gemma::GEMMA,
    gemma2::GEMMA2,
    gemma3::GEMMA3,
    gemma3::GEMMA3_VISION,
];

/// How checkpoints name an encoder, and how their configuration becomes one.
#[derive(Debug, Clone, Copy)]
pub struct EncoderArchitecture {
    /// The name in a Hugging Face `config.json`.
    pub hugging_face: &'static str,
    /// The name in GGUF's `general.architecture`.
    pub gguf: &'static str,
    /// The encoder of a configuration. The weights say whether there are token types.
    pub encoder: fn(&Config, &EncoderConfig, &dyn WeightTypes) -> Result<Encoder, Error>,
}

/// Every encoder, in the order `peri list` prints.
pub const ENCODERS: &[EncoderArchitecture] = &[
    // Before RoBERTa, whose GGUF files call themselves BERTs: the first row of a name is taken.
    bert::BERT,
    bert::BERT_MASKED,
    mpnet::MPNET,
    mpnet::MPNET_MASKED,
    roberta::ROBERTA,
    roberta::ROBERTA_MASKED,
    roberta::XLM_ROBERTA,
    roberta::XLM_ROBERTA_MASKED,
];

impl EncoderArchitecture {
    /// The encoder with a GGUF name.
    pub fn from_gguf(name: &str) -> Option<&'static EncoderArchitecture> {
        ENCODERS.iter().find(|encoder| encoder.gguf == name)
    }

    /// The encoder with a Hugging Face name.
    pub fn from_hugging_face(name: &str) -> Option<&'static EncoderArchitecture> {
        ENCODERS.iter().find(|encoder| encoder.hugging_face == name)
    }
}

impl Architecture {
    /// The architecture with a GGUF name.
    ///
    /// # Errors
    /// If there is none, listing those there are.
    pub fn from_gguf(name: &str) -> Result<&'static Architecture, Error> {
        find(name, |architecture| architecture.gguf, |encoder| encoder.gguf)
    }

    /// The architecture with a Hugging Face name.
    ///
    /// # Errors
    /// If there is none, listing those there are.
    pub fn from_hugging_face(name: &str) -> Result<&'static Architecture, Error> {
        find(name, |architecture| architecture.hugging_face, |encoder| encoder.hugging_face)
    }
}

fn find(
    name: &str,
    key: fn(&Architecture) -> &'static str,
    encoder_key: fn(&EncoderArchitecture) -> &'static str,
) -> Result<&'static Architecture, Error> {
    ARCHITECTURES.iter().find(|architecture| key(architecture) == name).ok_or_else(|| {
        let encoders = ENCODERS.iter().map(encoder_key);
        if encoders.clone().any(|encoder| encoder == name) {
            return Error::NotADecoder { name: name.to_string() };
        }
        let mut supported: Vec<&str> = ARCHITECTURES.iter().map(key).chain(encoders).collect();
        supported.dedup();
        Error::Architecture { found: name.to_string(), supported: supported.join(", ") }
    })
}
