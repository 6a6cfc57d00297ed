//! The exit code of each error, and advice that names flags, which the crates below do not know.

use std::io::ErrorKind;

use pipelines::TextError;

/// Something failed while running.
pub(crate) const FAILURE: u8 = 1;
/// Wrong arguments, or a prompt that the model cannot take.
pub(crate) const USAGE: u8 = 2;
/// The model cannot be opened.
pub(crate) const MODEL: u8 = 3;
/// Not enough memory.
pub(crate) const MEMORY: u8 = 4;

/// Advice if memory runs out.
pub(crate) const LESS: &str = "close other programs, or use fewer tokens or fewer sequences at once";

/// The exit code of an error, and advice if its message has none.
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
            (MODEL, Some("choose another --pooling or another model; see `peri encode --help`"))
        }
        Error::NoPooling { .. } => (MODEL, Some("choose with --pooling, or use `peri generate` for text")),
        Error::NotForText { is_classifier: true, .. } => {
            (MODEL, Some("use `peri rerank` or `peri classify`, or choose a model that generates text"))
        }
        Error::NotForText { .. } => (MODEL, Some("use `peri encode`, or choose a model that generates text")),
        Error::NotForEmbeddings { .. } => {
            (MODEL, Some("use `peri rerank` or `peri classify`, or choose a model that embeds"))
        }
        Error::NotARanker { .. } => (MODEL, Some("use `peri classify`, or choose a model that ranks")),
        Error::Classifier { .. } => (MODEL, Some("choose another model, or correct the file")),
        Error::TokenType { .. } => (MODEL, Some("the tokenizer and the weights are of different models")),
        Error::Embedder(_) => (USAGE, None),
        Error::EmptyText { .. } => (USAGE, Some("give texts that are not empty")),
        Error::TextTooLong { .. } | Error::PairTooLong { .. } => {
            (USAGE, Some("use --truncate to cut the last tokens"))
        }
        Error::OutOfMemory(_) => (MEMORY, None),
        Error::TooLong(_)
        | Error::Sampling(_)
        | Error::Request(_)
        | Error::PromptBeyondMaxLength { .. }
        | Error::PromptTooLarge { .. }
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
            (FAILURE, Some("the weights may be damaged: compare them with the original"))
        }
        Error::NoChatTemplate | Error::NoGraph { .. } => (USAGE, None),
        Error::Worker { .. } => (MODEL, None),
        Error::Engine(engine::Error::Artifact { .. } | engine::Error::File { .. }) => (
            MODEL,
            Some("save it again with --save-to-serialized-model-path, or leave --serialized-model-path out"),
        ),
        Error::Source(error) => source(error),
        _ => (FAILURE, None),
    }
}

/// The exit code of an error of a tokenizer or a chat template, and advice.
pub(crate) fn text(error: &TextError) -> (u8, Option<&'static str>) {
    match error {
        TextError::Weights(error) => (MODEL, weights(error)),
        TextError::Read { source, .. } => (MODEL, Some(file(source))),
        TextError::Tokenizer { .. } => (
            MODEL,
            Some(
                "put the model's tokenizer.json, or another file of its tokenizer, next to its config.json; a GGUF file contains its own",
            ),
        ),
        TextError::Encode(_) | TextError::Constraint(_) | TextError::Tools { .. } => (USAGE, None),
        TextError::ChatTemplate { .. } => {
            (MODEL, Some("the chat template is damaged, or made for another renderer"))
        }
        TextError::ChatUnfit { .. } | TextError::ChatMessage { .. } => {
            (USAGE, Some("give messages in the form the template expects, such as a text as `content`"))
        }
        TextError::ChatRefused { .. } => {
            (USAGE, Some("change the conversation to one that the model's chat template accepts"))
        }
        _ => (FAILURE, None),
    }
}

/// Whether the system refused memory, including memory for mapping a file.
fn is_out_of_memory(error: &pipelines::Error) -> bool {
    use pipelines::Error;
    match error {
        Error::Engine(error) => error.is_out_of_memory(),
        Error::Model(models::Error::Memory(_)) => true,
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
        Error::SeveralEncodings { .. } => (USAGE, Some("choose with --quantization-encoding")),
        Error::SeveralFiles { .. } => (USAGE, None),
        Error::Weights(error) => (MODEL, weights(error)),
        Error::NoWeights { .. } => (MODEL, Some("name the folder or file that holds the weights")),
        Error::MissingPart { .. } => {
            (MODEL, Some("the model is incomplete: get the missing file from its source"))
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
        Error::Untrusted { .. } => {
            (FAILURE, Some("behind a proxy, set SSL_CERT_FILE to a file with its certificate"))
        }
        Error::Network { .. } => (FAILURE, Some("check the network; downloaded parts are kept")),
        Error::WrongDigest { .. } => (FAILURE, Some("try again")),
        Error::DiskFull { .. } => (FAILURE, Some("free some, or set HF_HUB_CACHE to another disk")),
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => (MODEL, Some(file(source))),
        _ => (FAILURE, None),
    }
}

fn model(error: &models::Error) -> Option<&'static str> {
    use models::Error;
    match error {
        Error::Weights(error) => weights(error),
        Error::Config { .. } => {
            Some("a folder needs the config.json of its weights; a GGUF file contains its own")
        }
        Error::Weight { .. } => {
            Some("the weights and the configuration belong to different models, or one is damaged")
        }
        Error::Scheme { .. } => Some("use the model's weights in bfloat16 or float16, or a GGUF file"),
        Error::NotADecoder { .. } => Some("use `peri encode`, or choose a model that generates text"),
        Error::Memory(_) => Some(LESS),
        _ => None,
    }
}

fn weights(error: &weights::Error) -> Option<&'static str> {
    use weights::Error;
    match error {
        Error::Io { source, .. } => Some(file(source)),
        Error::UnknownFormat { .. } => Some("give a GGUF, safetensors or PyTorch file, or a folder with one"),
        Error::Contradiction { .. } => Some("rename the file to match its content"),
        Error::Malformed { .. } => Some("the file may be incomplete: compare it with the original"),
        Error::Refused { .. } => Some("convert it to safetensors on a machine where you can trust it"),
        Error::NoWeights { .. } => Some("name the folder or file that holds the weights"),
        Error::SeveralModels { .. } => None,
        _ => Some("choose another file of this model, or convert it again"),
    }
}

fn file(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => {
            "check the path: a model is a file, a folder, or the name of a repo such as org/name"
        }
        ErrorKind::PermissionDenied => "check its permissions",
        _ => "check that it is a readable file or folder",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_out_of_memory_errors_exit_with_4() {
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
