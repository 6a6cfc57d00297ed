//! What to do about an error, and the code it ends with: what the crates below cannot know, since they know no flags.

use std::io::ErrorKind;

use pipelines::TextError;

use crate::exit::{FAILURE, MEMORY, MODEL, USAGE};

/// What to do where there is not enough memory.
pub(crate) const LESS: &str = "end other programs, or ask for fewer tokens or fewer sequences at once";

/// The exit code of an error, and what to do about it where its message does not say.
pub(crate) fn of(error: &pipelines::Error) -> (u8, Option<&'static str>) {
    use pipelines::Error;
    match error {
        error if is_out_of_memory(error) => (MEMORY, Some(LESS)),
        Error::Model(error) => (MODEL, model(error)),
        Error::Weights(error) => (MODEL, weights(error)),
        Error::Read { source, .. } => (MODEL, Some(file(source))),
        Error::Text(error) => text(error),
        Error::GenerationConfig { .. } => (MODEL, None),
        Error::Embedding { .. } => {
            (MODEL, Some("choose how with --pooling, or another model; `peri encode --help` says more"))
        }
        Error::NoPooling { .. } => (MODEL, Some("--pooling says how, `peri generate` writes")),
        Error::NotForText { .. } => (MODEL, Some("use `peri encode`, or choose a model that makes text")),
        Error::Embedder(_) => (USAGE, None),
        Error::EmptyText { .. } => (USAGE, Some("give texts that are not empty")),
        Error::TextTooLong { .. } => (USAGE, Some("--truncate leaves out the last tokens")),
        Error::OutOfMemory(_) => (MEMORY, None),
        Error::TooLong(_)
        | Error::Sampling(_)
        | Error::Request(_)
        | Error::PromptBeyondMaxLength { .. }
        | Error::Options(_)
        | Error::Config(_)
        | Error::ConfigFile { .. }
        | Error::Environment { .. }
        | Error::UnknownField(_)
        | Error::CacheTooSmall { .. }
        | Error::TooManyPages { .. } => (USAGE, None),
        Error::Several(errors) => (errors.first().map_or(USAGE, |error| of(error).0), None),
        Error::EmptyPrompt => (USAGE, Some("give a prompt that is not empty")),
        Error::PromptTooLong { .. } => (USAGE, Some("or choose a model with a longer context")),
        Error::UnknownToken { .. } => (MODEL, Some("the tokenizer and the weights are of different models")),
        Error::NoCandidate { .. } => {
            (FAILURE, Some("the weights may be damaged: compare them with where they came from"))
        }
        Error::NoChatTemplate => (USAGE, None),
        Error::Engine(engine::Error::Artifact { .. } | engine::Error::File { .. }) => (
            MODEL,
            Some("save it again with --save-to-serialized-model-path, or leave --serialized-model-path out"),
        ),
        Error::Engine(_) | Error::Defect(_) | Error::Stopped { .. } => (FAILURE, None),
        Error::Source(error) => source(error),
    }
}

/// The exit code of an error of a tokenizer or a chat template, and what to do about it.
pub(crate) fn text(error: &TextError) -> (u8, Option<&'static str>) {
    match error {
        TextError::Weights(error) => (MODEL, weights(error)),
        TextError::Read { source, .. } => (MODEL, Some(file(source))),
        TextError::Tokenizer { .. } => (
            MODEL,
            Some(
                "the model's tokenizer.json or tokenizer.model belongs beside its config.json; a GGUF file has its own",
            ),
        ),
        TextError::Encode(_) => (USAGE, None),
        TextError::ChatTemplate { .. } => {
            (MODEL, Some("the chat template is damaged, or made for another renderer"))
        }
        TextError::ChatUnfit { .. } => (
            USAGE,
            Some("give the messages as the template takes them, such as with texts as their `content`"),
        ),
        TextError::ChatRefused { .. } => {
            (USAGE, Some("change the conversation to what the model's chat template takes"))
        }
    }
}

/// Whether the system refused memory, also that for mapping a file.
fn is_out_of_memory(error: &pipelines::Error) -> bool {
    use pipelines::Error;
    match error {
        Error::Engine(error) => error.is_out_of_memory(),
        Error::Read { source, .. }
        | Error::Weights(weights::Error::Io { source, .. })
        | Error::Model(models::Error::Weights(weights::Error::Io { source, .. }))
        | Error::Text(
            TextError::Read { source, .. } | TextError::Weights(weights::Error::Io { source, .. }),
        )
        | Error::Source(sources::Error::Weights(weights::Error::Io { source, .. })) => {
            source.kind() == ErrorKind::OutOfMemory
        }
        _ => false,
    }
}

fn source(error: &sources::Error) -> (u8, Option<&'static str>) {
    use sources::Error;
    match error {
        Error::InvalidName { .. }
        | Error::Field { .. }
        | Error::MissingLabel { .. }
        | Error::UnknownName(_)
        | Error::Setting { .. }
        | Error::NotOnline { .. }
        | Error::MissingRevision { .. }
        | Error::MissingFile { .. }
        | Error::MissingFormat { .. }
        | Error::MissingEncoding { .. } => (USAGE, None),
        Error::SeveralEncodings { .. } => (USAGE, Some("say --quantization-encoding")),
        Error::SeveralFiles { .. } => (USAGE, None),
        Error::Weights(error) => (MODEL, weights(error)),
        Error::NoWeights { .. } => (MODEL, Some("name the folder or file that holds the weights")),
        Error::MissingPart { .. } => {
            (MODEL, Some("the model is incomplete: bring the file from where the others are from"))
        }
        Error::MissingRepo { .. }
        | Error::Gated { .. }
        | Error::Offline { .. }
        | Error::NoDownloads { .. }
        | Error::Contradiction { .. }
        | Error::UnknownEncoding { .. } => (MODEL, None),
        Error::Escapes { .. } | Error::Cache { .. } => {
            (MODEL, Some("delete the repository's folder in the cache, and pull it again"))
        }
        Error::Untrusted { .. } => (
            FAILURE,
            Some("if a proxy stands before the network, set SSL_CERT_FILE to a file with its certificate"),
        ),
        Error::Network { .. } => (FAILURE, Some("check the network; what has arrived is kept")),
        Error::WrongDigest { .. } => (FAILURE, Some("try again")),
        Error::DiskFull { .. } => (FAILURE, Some("free some, or set HF_HUB_CACHE to another disk")),
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => (MODEL, Some(file(source))),
        Error::RateLimited { .. } | Error::Protocol { .. } | Error::Io { .. } => (FAILURE, None),
    }
}

fn model(error: &models::Error) -> Option<&'static str> {
    use models::Error;
    match error {
        Error::Weights(error) => weights(error),
        Error::Architecture { .. } => {
            Some("choose a model of a supported architecture; `peri list` shows all")
        }
        Error::Config { .. } => {
            Some("a folder needs the config.json that its weights came with; a GGUF file has its own")
        }
        Error::Weight { .. } => {
            Some("the weights and the configuration belong to different models, or one is damaged")
        }
        Error::Scheme { .. } => {
            Some("take the model's own weights in bfloat16 or float16, or a GGUF file of it")
        }
        Error::NotADecoder { .. } => Some("use `peri encode`, or choose a model that makes text"),
        Error::NotAnEncoder { .. } | Error::Graph(_) => None,
    }
}

fn weights(error: &weights::Error) -> Option<&'static str> {
    use weights::Error;
    match error {
        Error::Io { source, .. } => Some(file(source)),
        Error::UnknownFormat { .. } => Some("give a GGUF, safetensors or PyTorch file, or a folder with one"),
        Error::Contradiction { .. } => Some("rename the file after its content"),
        Error::Malformed { .. } => Some("the file may be incomplete: compare it with where it came from"),
        Error::Refused { .. } => Some("convert it to safetensors where you trust it"),
        Error::NoWeights { .. } => Some("name the folder or file that holds the weights"),
        Error::SeveralModels { .. } => None,
        _ => Some("choose another file of this model, or convert it anew"),
    }
}

fn file(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => {
            "check the path: a model is a file, a folder, or the name of a repo such as org/name"
        }
        ErrorKind::PermissionDenied => "ask for permission to read it",
        _ => "check that it is a file or folder that can be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_has_a_code_of_its_own() {
        let packing = || engine::Error::OutOfMemory { what: "packing weight `w`".to_string(), bytes: 1 };
        let traced = || {
            let stack = Box::new(std::backtrace::Backtrace::disabled());
            engine::Error::Traced { error: Box::new(packing()), stack }
        };
        let refused = || std::io::Error::from(ErrorKind::OutOfMemory);
        let errors = [
            packing().into(),
            traced().into(),
            engine::Error::from(tensor::Error::OutOfMemory { bytes: 1 }).into(),
            weights::Error::Io { path: "w".into(), source: refused() }.into(),
            models::Error::Weights(weights::Error::Io { path: "w".into(), source: refused() }).into(),
            pipelines::Error::Read { path: "w".into(), source: refused() },
            TextError::Read { path: "tokenizer.json".into(), source: refused() }.into(),
        ];
        for error in errors {
            assert_eq!(of(&error), (MEMORY, Some(LESS)), "{error}");
        }
    }
}
