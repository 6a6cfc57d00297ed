//! What a text generator is started with, beyond its plan.

use super::queue::QueueLimits;
use crate::ChatTemplate;

/// What a text generator is started with, beyond its plan.
#[derive(Debug, Default)]
pub struct TextGeneratorOptions {
    /// The template of conversations; without one, that of the model's files.
    pub chat_template: Option<ChatTemplate>,
    /// How much may wait; without limits, [`QueueLimits::new`] for the size of the cache.
    pub queue: Option<QueueLimits>,
}
