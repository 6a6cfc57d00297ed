//! Cache events for routers that choose between servers by what their caches hold, in vLLM's protocol over ZeroMQ.
//!
//! A PUB socket sends frames of topic, number and batch; a ROUTER socket sends the last batches again, from a number on
//! (vLLM 0.33.0, `vllm/distributed/kv_events.py`).

mod batch;
mod page_hashes;
mod publisher;

pub use batch::KvEventsFormat;
pub use page_hashes::{KvEventsHash, VLLM_SEED};
use pipelines::{CacheEvents, TextGenerator};
use publisher::Publisher;
use tokio::runtime::Runtime;

use crate::listener::Address;
use crate::Error;
use batch::Encoder;
use page_hashes::PageHashes;

/// Where the server tells which pages its cache holds, and how.
///
/// The events hold the tokens of prompts and answers, and the sockets ask for no key: who can connect can read them.
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

    /// Opens the sockets, and publishes the events of a generator for as long as it lives.
    ///
    /// # Errors
    /// If prefix caching is off, or an endpoint cannot be bound.
    pub(crate) fn start(
        &self,
        runtime: &Runtime,
        generator: &TextGenerator,
        model: &str,
        address: &Address,
    ) -> Result<(), Error> {
        let config = generator.model().plan().config();
        if !config.enable_prefix_caching {
            return Err(Error::NoPrefixCaching { model: model.to_string() });
        }
        let topic = self.topic.clone().unwrap_or_else(|| format!("kv@{address}@{model}"));
        let pages = PageHashes::new(&self.hash, self.salted);
        let publisher = runtime.block_on(Publisher::bind(self, topic, Encoder::new(self.format)))?;
        runtime.spawn(run(publisher, pages, generator.cache_events()));
        Ok(())
    }
}

/// Publishes events until the generator has ended.
async fn run(mut publisher: Publisher, mut pages: PageHashes, events: CacheEvents) {
    while let Some(events) = events.recv().await {
        publisher.publish(&pages.name(events)).await;
    }
}
