//! Errors of finding and downloading models.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{MemoryBytes, SupportedEncoding, UnknownName, WeightsFormat};

/// A problem with a model's name, its repository, the hub, the network or the disk.
/// `Debug` prints the message too, so that `main` shows it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid name: it would lead outside the cache, or breaks the rules of hubs.
    #[error("{what} `{}`: {problem}", name.escape_debug())]
    InvalidName {
        /// What it should name.
        what: &'static str,
        /// The name.
        name: String,
        /// The rule it breaks.
        problem: &'static str,
    },
    /// An invalid setting.
    #[error("{field} is {value}: {fix}")]
    Field {
        /// The name of the setting, as configurations have it.
        field: &'static str,
        /// Its value.
        value: String,
        /// What to give instead.
        fix: String,
    },
    /// An invalid environment variable.
    #[error("{variable} is `{}`: {problem}", value.escape_debug())]
    Setting {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What to give instead.
        problem: &'static str,
    },
    /// Neither on this machine nor on the hub.
    #[error(
        "no repository {repo} at {endpoint}, and no such path on this machine: check the spelling; if it is private, set HF_TOKEN"
    )]
    MissingRepo {
        /// The repository.
        repo: String,
        /// The hub that was asked.
        endpoint: String,
    },
    /// The repository exists, and has no such branch, tag or commit.
    #[error("{repo} has no revision `{revision}`")]
    MissingRevision {
        /// The repository.
        repo: String,
        /// The branch, tag or commit.
        revision: String,
    },
    /// The repository has no such file.
    #[error("{repo} has no file `{file}`{}", nearest_file(nearest))]
    MissingFile {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// The file that was probably meant.
        nearest: Option<String>,
    },
    /// The repository asks for terms to be accepted, or for rights.
    #[error(
        "{repo} is gated or private (status {status}): {}",
        if *with_token { "the token does not give access; accept its terms on the hub's page of the model" }
        else { "accept its terms on the hub's page of the model, and set HF_TOKEN" }
    )]
    Gated {
        /// The repository.
        repo: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// The hub limits the rate of requests, and waiting did not help or would take over a minute.
    #[error("{endpoint} limits the rate of requests (status 429){}", wait(retry_after))]
    RateLimited {
        /// The hub.
        endpoint: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// Not in the cache, and the network is off (`HF_HUB_OFFLINE`).
    #[error("{what} is not in the cache at {}, and HF_HUB_OFFLINE is set: unset it to download, or run `peri pull` where there is a network", cache.display())]
    Offline {
        /// The repository or file.
        what: String,
        /// The cache.
        cache: PathBuf,
    },
    /// Not in the cache, and this build has no downloads.
    #[error("{what} is not in the cache at {}, and this build has no downloads (cargo feature `hub`)", cache.display())]
    NoDownloads {
        /// The repository or file.
        what: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The hub could not be reached, or the connection broke, each time it was tried.
    #[error("{url}: {problem}{}", tried(*tries))]
    Network {
        /// What was asked for.
        url: String,
        /// What happened the last time.
        problem: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The server's certificate is not trusted.
    #[error("{url}: {problem}")]
    Untrusted {
        /// What was asked for.
        url: String,
        /// What is wrong with the certificate.
        problem: String,
    },
    /// The server did not answer as a hub does.
    #[error("{url}: {problem}")]
    Protocol {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        problem: String,
    },
    /// A file arrived damaged, and was removed.
    #[error("{repo}: `{file}` arrived damaged and was removed: its {digest} is {found}, expected {expected}")]
    WrongDigest {
        /// The repository, or the server of a file of the web.
        repo: String,
        /// The file.
        file: String,
        /// The kind of digest.
        digest: &'static str,
        /// The digest of what arrived.
        found: String,
        /// The digest that the hub states, or that the address demands.
        expected: String,
    },
    /// The disk has no room.
    #[error("{}: the download needs {}, but {} is free", path.display(), MemoryBytes(*needed), MemoryBytes(*available))]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// Bytes still to be written.
        needed: u64,
        /// Bytes that are free.
        available: u64,
    },
    /// A link in the cache that leads outside it.
    #[error("{}: the link leads outside the cache, to {}", path.display(), target.display())]
    Escapes {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A damaged file in the cache.
    #[error("{}: {problem}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Only a hub knows this, and the repository is a local folder.
    #[error("{repo} is a local folder, but {what} exists only for repositories on a hub")]
    NotOnline {
        /// The folder.
        repo: String,
        /// What was asked.
        what: &'static str,
    },
    /// A repository without weights.
    #[error("{repo} has no .gguf, .safetensors or PyTorch file")]
    NoWeights {
        /// The repository.
        repo: String,
    },
    /// A repository that has the model in other formats.
    #[error("{repo} has no weights in {format}: it has {}", formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", "))]
    MissingFormat {
        /// The repository.
        repo: String,
        /// The format that was asked for.
        format: WeightsFormat,
        /// The formats it has.
        formats: Vec<WeightsFormat>,
    },
    /// A part of the model is missing.
    #[error("{repo} lacks {part}, which belongs to the same model as {of}")]
    MissingPart {
        /// The repository.
        repo: String,
        /// The file that is missing.
        part: String,
        /// One that is there.
        of: String,
    },
    /// A repository with several models to choose from.
    #[error("{repo} has weights in several encodings: choose one of {}", names(encodings))]
    SeveralEncodings {
        /// The repository.
        repo: String,
        /// The encodings.
        encodings: Vec<SupportedEncoding>,
    },
    /// A repository with several files to choose from.
    #[error("{repo} has several models: name one of the files {}", files.join(", "))]
    SeveralFiles {
        /// The repository.
        repo: String,
        /// The first file of each.
        files: Vec<String>,
    },
    /// A repository that has the model in other encodings.
    #[error("{repo} has no weights in {encoding}: it has {}", names(encodings))]
    MissingEncoding {
        /// The repository.
        repo: String,
        /// The encoding that was asked for.
        encoding: SupportedEncoding,
        /// The encodings it has.
        encodings: Vec<SupportedEncoding>,
    },
    /// A repository without files of a label.
    #[error("{repo} has no weights labelled {label}: it has {}", files.join(", "))]
    MissingLabel {
        /// The repository.
        repo: String,
        /// The label that was asked for.
        label: String,
        /// The first file of each model it has.
        files: Vec<String>,
    },
    /// The name of a file promises one encoding and its content has another.
    #[error("{file}: the name says {name}, the content is {content}: rename the file")]
    Contradiction {
        /// The file.
        file: String,
        /// The encoding the name promises.
        name: SupportedEncoding,
        /// The encoding of most of its matrices.
        content: SupportedEncoding,
    },
    /// A weights file in an unsupported encoding.
    #[error("{file}: {problem}")]
    UnknownEncoding {
        /// The file.
        file: String,
        /// What it holds instead.
        problem: String,
    },
    /// A name that is not one of a fixed list.
    #[error(transparent)]
    UnknownName(#[from] UnknownName),
    /// A file of weights that cannot be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        |source| Error::Io { path: path.to_path_buf(), source }
    }
}

fn tried(tries: u32) -> String {
    if tries > 1 { format!(" (tried {tries} times)") } else { String::new() }
}

fn wait(retry_after: &Option<Duration>) -> String {
    retry_after.map_or_else(
        || ": try again later".to_string(),
        |wait| format!(": try again in {} s", wait.as_secs()),
    )
}

fn nearest_file(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |file| format!(": did you mean `{file}`?"))
}

fn names(encodings: &[SupportedEncoding]) -> String {
    match encodings {
        [] => "none that runs here".to_string(),
        _ => encodings.iter().map(|encoding| encoding.name()).collect::<Vec<_>>().join(", "),
    }
}
