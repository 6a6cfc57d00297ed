//! What a text generator is started with, beyond its plan.

use std::time::Duration;

use super::queue::QueueLimits;
use crate::ChatTemplate;

/// What a text generator is started with, beyond its plan.
#[derive(Debug, Default)]
pub struct TextGeneratorOptions {
    /// The template of conversations; without one, that of the model's files.
    pub chat_template: Option<ChatTemplate>,
    /// How much may wait; without limits, [`QueueLimits::new`] for the size of the cache.
    pub queue: Option<QueueLimits>,
    /// How many requests may wait, if not as many as `queue` says ([`QueueLimits::with_requests`]).
    pub max_queue: Option<usize>,
    /// How long an answer that is not read is kept: [`Error::NotRead`](crate::Error::NotRead). Without a time, until its
    /// stream is dropped.
    pub read_timeout: Option<Duration>,
}
