//! Why a checkpoint is no model we can build.

/// Opening a checkpoint or building its graph failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files cannot be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The configuration is missing something or contradicts itself.
    #[error("{source_name}: {message}")]
    Config {
        /// The file, or the prefix of the metadata keys.
        source_name: String,
        /// The key and the facts.
        message: String,
    },
    /// The architecture is not one of [`crate::ARCHITECTURES`].
    #[error(
        "unsupported architecture `{found}`; the nearest that run here: {nearest}\nTransformers may run it, from a folder or \
         repo in safetensors: --engine huggingface (engine=\"huggingface\" in Python)\n`peri list` shows all that run here"
    )]
    Architecture {
        /// As the checkpoint names it.
        found: String,
        /// The names most like it that we know, in the same naming.
        nearest: String,
    },
    /// The model makes embeddings and no text.
    #[error("{name} is an encoder: it makes embeddings, not text")]
    NotADecoder {
        /// The architecture.
        name: String,
    },
    /// The model makes text, and no hidden states without a cache.
    #[error("{name} is a decoder, not an encoder")]
    NotAnEncoder {
        /// The architecture.
        name: String,
    },
    /// The model scores texts, and makes none.
    #[error("{name} scores texts by a head of its own: it makes no text")]
    ScoresTexts {
        /// The architecture.
        name: String,
    },
    /// The model has no head, and makes no text.
    #[error("{name} has no head: it makes embeddings, not text")]
    HasNoHead {
        /// The architecture.
        name: String,
    },
    /// The model has no classification head.
    #[error("{name} has no classification head: it makes no scores")]
    NotAClassifier {
        /// The architecture.
        name: String,
    },
    /// A weight is missing or has another shape than the configuration says.
    #[error("weight `{name}`: {message}")]
    Weight {
        /// The name, as the files have it.
        name: String,
        /// What was found and what was expected.
        message: String,
    },
    /// The weights are quantized by a scheme that is not read.
    #[error(
        "{file}: {scheme} is not supported (`{tensor}` is {ty}); supported are f32, f16, bf16, GPTQ, AWQ, FP8 \
         (e4m3), MXFP4, NVFP4, bitsandbytes, integers of compressed-tensors, and the blocks of GGUF files"
    )]
    Scheme {
        /// The file.
        file: String,
        /// What the scheme is called.
        scheme: &'static str,
        /// A tensor that shows it, as the file calls it.
        tensor: String,
        /// Its dtype and shape.
        ty: String,
    },
    /// There is not enough memory to read a weight.
    #[error(transparent)]
    Memory(Box<tensor::Error>),
    /// A file has changed since it was opened.
    #[error(transparent)]
    FileChanged(Box<tensor::Error>),
    /// The graph could not be built; with a checked configuration this is our bug.
    #[error(transparent)]
    Graph(#[from] graph::Error),
}

impl From<tensor::Error> for Error {
    fn from(error: tensor::Error) -> Error {
        match error {
            tensor::Error::FileChanged { .. } => Error::FileChanged(Box::new(error)),
            error => Error::Memory(Box::new(error)),
        }
    }
}

impl Error {
    /// The same of a weight by another name.
    pub(crate) fn naming(self, name_of: impl Fn(&str) -> String) -> Error {
        match self {
            Error::Weight { name, message } => Error::Weight { name: name_of(&name), message },
            other => other,
        }
    }

    /// The same, with what an index says of a weight that is missing.
    pub(crate) fn explained(self, weights: &weights::Weights) -> Error {
        match self {
            Error::Weight { name, message } => match weights.reason_of_absence(&name) {
                Some(reason) if !message.contains(&reason) => {
                    Error::Weight { message: format!("{message}; {reason}"), name }
                }
                _ => Error::Weight { name, message },
            },
            other => other,
        }
    }

    /// A complaint about the configuration.
    pub(crate) fn config(source_name: &str, message: impl Into<String>) -> Error {
        Error::Config { source_name: source_name.to_string(), message: message.into() }
    }
}
