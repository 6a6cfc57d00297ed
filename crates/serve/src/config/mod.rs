//! The settings of a server, as plain values.

mod address;
mod keep_alive;
mod models;
mod tls_files;

use std::net::SocketAddr;
use std::time::Duration;

use pipelines::ToolFormat;

pub use address::Address;
pub use keep_alive::KeepAlive;
pub(crate) use keep_alive::KeepAliveField;
pub use models::{ModelConfig, ModelKind, ModelSettings};
pub use tls_files::TlsFiles;

use crate::access::Keys;
use crate::kv_events::KvEventsConfig;
use crate::telemetry::{LogFormat, TraceConfig};

/// How a server listens, and what it refuses.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// The keys of clients.
    pub keys: Keys,
    /// Encrypts the connections of all addresses that are no sockets in the file system.
    pub tls: Option<TlsFiles>,
    /// Whether everyone may use it without a key, also from other machines.
    pub insecure: bool,
    /// Whether clients with different keys share cached prefixes. The time of an answer then tells one client whether
    /// another sent the same prompt.
    pub shared_cache: bool,
    /// Names that the server answers to without keys, in addition to its address and the names of this machine.
    pub allowed_hosts: Vec<String>,
    /// Pages of other origins that may call it: origins, `localhost` for all of this machine, or `*`.
    pub cors_origins: Vec<String>,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// Whether the line that coding agents put at the top of system prompts stays there. It differs from request to
    /// request, so that prompts with it share no prefix.
    pub keep_attribution_header: bool,
    /// How models write calls of tools; `None` is found in their chat templates.
    pub tool_format: Option<&'static ToolFormat>,
    /// Whether models reason before they answer, if they do and the request does not say.
    pub reasoning: bool,
    /// The most responses of `/v1/responses` that are kept; 0 keeps none.
    pub max_stored_responses: usize,
    /// The most bytes of them together.
    pub max_stored_bytes: usize,
    /// Where the server sends a span of each request to a model, if it does: only with the feature `otlp`.
    pub traces: Option<TraceConfig>,
    /// Where the server publishes which pages its cache holds, if it does.
    pub kv_events: Option<KvEventsConfig>,
    /// The most connections at once; further clients wait.
    pub max_connections: usize,
    /// The most connections of an address of another machine; further ones are closed.
    pub max_connections_per_address: usize,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a client may take to send the body of a request.
    pub body_timeout: Duration,
    /// How long a connection without requests is kept.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of what is sent to it.
    pub write_timeout: Duration,
    /// How long an answer may take, with its time in the queue; `None` for any time.
    pub request_timeout: Option<Duration>,
    /// The lines that it writes to standard error, one for each request.
    pub log: LogFormat,
    /// How long running requests may take once the server is to end; then they are cancelled.
    pub drain_timeout: Duration,
    /// How models come into memory and leave it.
    pub models: ModelSettings,
    /// The version of the program, with its commit if that is known; a part of `system_fingerprint`.
    pub build: String,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            addresses: vec![Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 8000)))],
            keys: Keys::default(),
            tls: None,
            insecure: false,
            shared_cache: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            max_body_bytes: 32 << 20,
            keep_attribution_header: false,
            tool_format: None,
            reasoning: true,
            max_stored_responses: 1000,
            max_stored_bytes: 64 << 20,
            traces: None,
            kv_events: None,
            max_connections: 1024,
            max_connections_per_address: 64,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(300),
            request_timeout: None,
            log: LogFormat::Off,
            drain_timeout: Duration::from_secs(30),
            models: ModelSettings::default(),
            build: env!("CARGO_PKG_VERSION").to_string(),
        }
    }
}
