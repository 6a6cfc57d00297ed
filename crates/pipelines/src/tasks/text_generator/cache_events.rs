//! Changes to the pages that prefix caching lends, for readers outside of the worker.

use async_channel::{Receiver, Sender, TrySendError};

use crate::run::generator::Generator;
use crate::run::kv_cache::CacheEvent;

/// Batches that a reader may be behind. One that is further behind gets everything anew.
const HIGH_WATER: usize = 1024;

/// Changes to the pages that prefix caching can lend, in batches: those of a step, or of more. The first batch is
/// [`CacheEvent::Cleared`] and all the pages there are, so it brings any reader up to date; so does a later one that begins
/// with `Cleared`, after the cache was reset or the reader fell behind. Without prefix caching there are no batches.
#[derive(Debug)]
pub struct CacheEvents(Receiver<Vec<CacheEvent>>);

impl CacheEvents {
    /// The next batch, for a thread that may wait; `None` if the generator has ended.
    pub fn recv_blocking(&self) -> Option<Vec<CacheEvent>> {
        self.0.recv_blocking().ok()
    }

    /// The next batch, for a task; `None` if the generator has ended.
    pub async fn recv(&self) -> Option<Vec<CacheEvent>> {
        self.0.recv().await.ok()
    }
}

/// The readers of a generator's cache events.
#[derive(Default)]
pub(super) struct CacheReaders(Vec<CacheReader>);

struct CacheReader {
    batches: Sender<Vec<CacheEvent>>,
    /// Whether it gets everything anew with its next batch.
    is_behind: bool,
}

impl CacheReaders {
    /// A channel, whose end is handed to the worker.
    pub(super) fn channel() -> (Sender<Vec<CacheEvent>>, CacheEvents) {
        let (batches, received) = async_channel::bounded(HIGH_WATER);
        (batches, CacheEvents(received))
    }

    pub(super) fn add(&mut self, batches: Sender<Vec<CacheEvent>>) {
        self.0.push(CacheReader { batches, is_behind: true });
    }

    /// Sends the changes since last time.
    pub(super) fn publish(&mut self, generator: &mut Generator) {
        if self.0.is_empty() {
            return;
        }
        let Some(prefixes) = generator.prefixes_mut() else { return };
        let changes = prefixes.take_events();
        self.0.retain_mut(|reader| {
            let batch = if reader.is_behind && !reader.batches.is_full() {
                prefixes.record_events()
            } else if changes.is_empty() || reader.is_behind {
                return !reader.batches.is_closed();
            } else {
                changes.clone()
            };
            let sent = reader.batches.try_send(batch);
            reader.is_behind = matches!(sent, Err(TrySendError::Full(_)));
            !matches!(sent, Err(TrySendError::Closed(_)))
        });
        if self.0.is_empty() {
            prefixes.ignore_events();
        }
    }
}
