//! Flags that bound what clients may take of the server.

use std::time::Duration;

use serve::{ModelSettings, ServerConfig};

use crate::parse;

/// The help heading of these flags; `--help` alone shows them.
const HEADING: &str = "Limits";

/// Bounds of the server. Those that are not given are the server's own.
#[derive(clap::Args)]
#[command(next_help_heading = HEADING)]
pub(super) struct Limits {
    /// Largest body of a request [default: 33554432]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    max_body_bytes: Option<usize>,
    /// Most connections at once; further clients wait [default: 1024]
    #[arg(long, value_name = "N", value_parser = parse::count, hide_short_help = true)]
    max_connections: Option<std::num::NonZeroUsize>,
    /// Most connections of another machine [default: 64]
    #[arg(long, value_name = "N", value_parser = parse::count, hide_short_help = true)]
    max_connections_per_address: Option<std::num::NonZeroUsize>,
    /// Most requests of a model that wait; further ones are refused with 429 [default: 512]
    #[arg(long, value_name = "N", value_parser = parse::count, hide_short_help = true)]
    max_queue: Option<std::num::NonZeroUsize>,
    /// Time to send the head of a request [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds, hide_short_help = true)]
    header_timeout: Option<Duration>,
    /// Time to send the body of a request [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds, hide_short_help = true)]
    body_timeout: Option<Duration>,
    /// Time to keep a connection without requests [default: 75]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds, hide_short_help = true)]
    idle_timeout: Option<Duration>,
    /// Time to keep an answer that its client does not read [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds, hide_short_help = true)]
    write_timeout: Option<Duration>,
    /// Time to answer a request, including its time in the queue [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds, hide_short_help = true)]
    request_timeout: Option<Duration>,
    /// Time to finish running requests before the server ends [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds, hide_short_help = true)]
    drain_timeout: Option<Duration>,
}

impl Limits {
    /// The configuration with these bounds.
    pub(super) fn apply(&self, config: ServerConfig) -> ServerConfig {
        let write_timeout = self.write_timeout.unwrap_or(config.write_timeout);
        let max_queue = self.max_queue.map_or(config.models.max_queue, usize::from);
        ServerConfig {
            models: ModelSettings { max_queue, read_timeout: write_timeout, ..config.models },
            max_body_bytes: self.max_body_bytes.unwrap_or(config.max_body_bytes),
            max_connections: self.max_connections.map_or(config.max_connections, usize::from),
            max_connections_per_address: self
                .max_connections_per_address
                .map_or(config.max_connections_per_address, usize::from),
            header_timeout: self.header_timeout.unwrap_or(config.header_timeout),
            body_timeout: self.body_timeout.unwrap_or(config.body_timeout),
            idle_timeout: self.idle_timeout.unwrap_or(config.idle_timeout),
            write_timeout,
            request_timeout: self.request_timeout.or(config.request_timeout),
            drain_timeout: self.drain_timeout.unwrap_or(config.drain_timeout),
            ..config
        }
    }
}
