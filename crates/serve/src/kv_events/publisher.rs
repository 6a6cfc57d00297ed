//! The sockets: one that sends each batch once, and one that sends the last ones again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::KvEventsConfig;
use super::batch::{Encoder, Event};
use crate::Error;

/// Batches that can be sent again.
const MAX_KEPT: usize = 10_000;
/// The number after the last batch that is sent again.
const END: i64 = -1;

/// Sends batches of events.
pub(super) struct Publisher {
    socket: PubSocket,
    topic: Bytes,
    encoder: Encoder,
    next: u64,
    kept: Arc<Mutex<Kept>>,
}

/// The last batches with their numbers.
type Kept = VecDeque<(u64, Bytes)>;

impl Publisher {
    /// Opens the sockets.
    ///
    /// # Errors
    /// If an endpoint cannot be bound.
    pub(super) async fn bind(
        config: &KvEventsConfig,
        topic: String,
        encoder: Encoder,
    ) -> Result<Publisher, Error> {
        let topic = Bytes::from(topic);
        let mut socket = PubSocket::new();
        bind(&mut socket, &config.endpoint).await?;
        let kept = Arc::new(Mutex::new(Kept::new()));
        if let Some(endpoint) = &config.replay_endpoint {
            let mut router = RouterSocket::new();
            bind(&mut router, endpoint).await?;
            tokio::spawn(replay(router, topic.clone(), Arc::clone(&kept)));
        }
        Ok(Publisher { socket, topic, encoder, next: 0, kept })
    }

    /// Sends a batch to those who listen, and keeps it for those who ask for it again.
    pub(super) async fn publish(&mut self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let (number, batch) = (self.next, Bytes::from(self.encoder.encode(events)));
        self.next += 1;
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back((number, batch.clone()));
            if kept.len() > MAX_KEPT {
                kept.pop_front();
            }
        }
        let frames = vec![self.topic.clone(), Bytes::copy_from_slice(&number.to_be_bytes()), batch];
        if let Err(error) = self.socket.send(message(frames)).await {
            tracing::warn!("cache events were not sent: {error}");
        }
    }
}

async fn bind(socket: &mut impl Socket, endpoint: &str) -> Result<(), Error> {
    let bound = socket.bind(endpoint).await;
    let bound = bound
        .map_err(|error| Error::KvEvents { endpoint: endpoint.to_string(), problem: error.to_string() })?;
    tracing::info!("cache events at {bound}");
    Ok(())
}

/// Answers each request for the batches from a number on: all that are kept, each as a message of its own, and an end mark.
async fn replay(mut router: RouterSocket, topic: Bytes, kept: Arc<Mutex<Kept>>) {
    while let Ok(request) = router.recv().await {
        let mut frames = request.into_vec();
        // The frames before the number come back with each answer: who asked, and with a REQ socket an empty one.
        let Some(first) = frames.pop().and_then(|frame| <[u8; 8]>::try_from(&frame[..]).ok()) else {
            tracing::debug!("a request for cache events is not a number of 8 bytes");
            continue;
        };
        let first = u64::from_be_bytes(first);
        let batches: Vec<(u64, Bytes)> = {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().filter(|(number, _)| *number >= first).cloned().collect()
        };
        let batches = batches.into_iter().map(|(number, batch)| (topic.clone(), number.to_be_bytes(), batch));
        for (topic, number, batch) in batches.chain([(Bytes::new(), END.to_be_bytes(), Bytes::new())]) {
            let answer = [topic, Bytes::copy_from_slice(&number), batch];
            let answer = frames.iter().cloned().chain(answer).collect();
            if let Err(error) = router.send(message(answer)).await {
                tracing::debug!("cache events were not sent again: {error}");
                break;
            }
        }
    }
}

fn message(frames: Vec<Bytes>) -> ZmqMessage {
    ZmqMessage::try_from(frames).expect("there are frames")
}
