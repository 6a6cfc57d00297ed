//! Flags for cache events, which routers read.

use clap::ValueEnum;
use serve::{KvEventsConfig, KvEventsFormat, KvEventsHash, VLLM_SEED};

/// Where and how the server publishes what its cache holds.
#[derive(clap::Args)]
#[command(next_help_heading = "Cache events")]
pub(super) struct KvEventsFlags {
    /// Publish which pages the cache holds at this ZeroMQ endpoint, in vLLM's protocol
    ///
    /// Such as tcp://127.0.0.1:5557. The events hold the tokens of prompts, which anyone who can connect can read.
    #[arg(long = "kv-events", value_name = "ENDPOINT", hide_short_help = true)]
    endpoint: Option<String>,
    /// Send the last 10,000 batches again at this endpoint
    #[arg(long = "kv-events-replay", value_name = "ENDPOINT", requires = "endpoint", hide_short_help = true)]
    replay: Option<String>,
    /// First frame of each message [default: kv@ADDRESS@MODEL]
    #[arg(long = "kv-events-topic", value_name = "TEXT", requires = "endpoint", hide_short_help = true)]
    topic: Option<String>,
    /// Write events as arrays or as maps
    #[arg(long = "kv-events-format", value_name = "FORMAT", default_value = "array", hide_short_help = true)]
    format: Format,
    /// Name pages by internal hashes, or by those of vLLM's --prefix-caching-hash-algo sha256_cbor
    #[arg(long = "kv-events-hash", value_name = "RULE", default_value = "internal", hide_short_help = true)]
    hash: Hash,
    /// Seed of vllm-sha256-cbor: the PYTHONHASHSEED of vLLM and the router
    #[arg(long = "kv-events-seed", value_name = "TEXT", default_value = VLLM_SEED, hide_short_help = true)]
    seed: String,
    /// Publish pages of requests with a cache salt or an API key too
    #[arg(long = "kv-events-salted", requires = "endpoint", hide_short_help = true)]
    salted: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Array,
    Map,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Hash {
    Internal,
    VllmSha256Cbor,
}

impl KvEventsFlags {
    pub(super) fn config(&self) -> Option<KvEventsConfig> {
        Some(KvEventsConfig {
            endpoint: self.endpoint.clone()?,
            replay_endpoint: self.replay.clone(),
            topic: self.topic.clone(),
            format: match self.format {
                Format::Array => KvEventsFormat::Array,
                Format::Map => KvEventsFormat::Map,
            },
            hash: match self.hash {
                Hash::Internal => KvEventsHash::Internal,
                Hash::VllmSha256Cbor => KvEventsHash::VllmSha256Cbor { seed: self.seed.clone() },
            },
            salted: self.salted,
        })
    }
}
