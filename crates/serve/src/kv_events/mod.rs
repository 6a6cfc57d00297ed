//! Cache events for routers that choose between servers by what their caches hold, in vLLM's protocol over ZeroMQ.
//!
//! A PUB socket sends frames of topic, number and batch; a ROUTER socket sends the last batches again, from a number on
//! (vLLM 0.33.0, `vllm/distributed/kv_events.py`).

mod batch;
mod page_hashes;
mod publisher;

use std::fmt;
use std::sync::Arc;

pub use batch::KvEventsFormat;
pub use page_hashes::{KvEventsHash, VLLM_SEED};
use pipelines::{CacheEvent, CacheEvents};
use publisher::Publisher;
use tokio::sync::Mutex;

use crate::Error;
use batch::Encoder;
use page_hashes::PageHashes;

/// Where and how the server publishes which pages its cache holds.
///
/// The events hold the tokens of prompts and answers, and the sockets need no key: anyone who can connect can read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// The endpoint of the PUB socket, such as `tcp://127.0.0.1:5557`.
    pub endpoint: String,
    /// The endpoint of the ROUTER socket that sends batches again.
    pub replay_endpoint: Option<String>,
    /// The first frame; `kv@ADDRESS@MODEL` without one.
    pub topic: Option<String>,
    /// How batches are written.
    pub format: KvEventsFormat,
    /// How pages are named.
    pub hash: KvEventsHash,
    /// Whether pages of requests with a cache salt are published too. Each key of clients has a salt of its own.
    pub salted: bool,
}

impl KvEventsConfig {
    /// Events at an endpoint, with the defaults of all else.
    pub fn new(endpoint: impl Into<String>) -> KvEventsConfig {
        KvEventsConfig {
            endpoint: endpoint.into(),
            replay_endpoint: None,
            topic: None,
            format: KvEventsFormat::default(),
            hash: KvEventsHash::default(),
            salted: false,
        }
    }
}

/// The sockets of a model's cache events.
pub(crate) struct KvEvents {
    publisher: Mutex<Publisher>,
    hash: KvEventsHash,
    salted: bool,
}

impl KvEvents {
    /// Opens the sockets for the model of a server at an address.
    ///
    /// # Errors
    /// If an endpoint cannot be bound.
    pub(crate) async fn bind(
        config: &KvEventsConfig,
        address: &dyn fmt::Display,
        model: &str,
    ) -> Result<KvEvents, Error> {
        let topic = config.topic.clone().unwrap_or_else(|| format!("kv@{address}@{model}"));
        let publisher = Publisher::bind(config, topic, Encoder::new(config.format)).await?;
        Ok(KvEvents { publisher: Mutex::new(publisher), hash: config.hash.clone(), salted: config.salted })
    }

    /// Publishes the events of a generator until it has ended.
    pub(crate) async fn follow(self: Arc<Self>, events: CacheEvents) {
        let mut publisher = self.publisher.lock().await;
        let mut pages = PageHashes::new(&self.hash, self.salted);
        while let Some(events) = events.recv().await {
            publisher.publish(&pages.name(events)).await;
        }
        publisher.publish(&pages.name(vec![CacheEvent::Cleared])).await;
    }
}
