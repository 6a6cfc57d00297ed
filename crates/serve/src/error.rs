//! Why a server cannot start, or had to end.

use std::path::PathBuf;

/// A server that cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model that cannot be planned or loaded.
    #[error("{name}: {source}")]
    Model {
        /// The model's id.
        name: String,
        /// Why.
        source: Box<pipelines::Error>,
    },

    /// Two models that requests could not tell apart.
    #[error("two models are named `{name}`: give one of them another id or alias")]
    DuplicateName {
        /// The id or alias that both have.
        name: String,
    },

    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// Why not.
        source: std::io::Error,
    },

    /// A server that everyone could use.
    #[error(
        "{address} can be reached from other machines, but there are no keys: give them with --key-file, or allow everyone with --insecure"
    )]
    Open {
        /// The address.
        address: String,
    },

    /// Cache events of more or fewer than one model that makes text: their receivers take a server for one model.
    #[error("cache events need exactly one model that makes text: start a server for each")]
    NoSingleGenerator,

    /// Cache events of a model whose cache shares nothing.
    #[error(
        "{model}: cache events need prefix caching, which is off: set --enable-prefix-caching and --cache-strategy paged"
    )]
    NoPrefixCaching {
        /// The model's id.
        model: String,
    },

    /// An endpoint of cache events that cannot be bound.
    #[error("cache events: cannot bind {endpoint}: {problem}")]
    KvEvents {
        /// The endpoint.
        endpoint: String,
        /// Why not.
        problem: String,
    },

    /// A file of keys that is not one.
    #[error("{}: {problem}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The line and what is wrong with it, or why it cannot be read.
        problem: String,
    },

    /// A file of certificates or keys of encrypted connections that is not one.
    #[error("{}: {problem}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The problem, or why it cannot be read.
        problem: String,
    },

    /// A catalog of models that is not one, or cannot be written.
    #[error("{}: {problem}", path.display())]
    Catalog {
        /// The file.
        path: PathBuf,
        /// Where it is wrong, or why it cannot be read or written.
        problem: String,
    },

    /// A collector of traces whose address is not one.
    #[error("traces: {0}")]
    Traces(String),

    /// A thread or a descriptor that the system refuses.
    #[error("cannot start the server: {0}")]
    Start(std::io::Error),
}
