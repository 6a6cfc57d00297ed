//! What an architecture is: config and weights become a graph.
//!
//! Floor 2: knows `graph` and `weights`; builds graphs and runs none.
//!
//! [`Checkpoint::open`] reads a file or folder. Its [`Config`] and [`Architecture`] give a [`Decoder`], a model
//! as a value, from which everything else follows: the graph, the bytes per cached token, the parameter count.

#![forbid(unsafe_code)]

pub mod architectures;
mod checkpoint;
mod config;
mod decoder;
mod error;
mod layers;
mod rope;

pub use architectures::{ARCHITECTURES, Architecture};
pub use checkpoint::{Checkpoint, CheckpointOptions};
pub use config::{Config, ExpertConfig, Multipliers, RopeConfig, Scaling};
pub use decoder::{Decoder, Layer, Step, WeightTypes};
pub use error::Error;
pub use layers::{Attention, Experts, FeedForward, Norm, Norms, QkNorm, SharedExpert, Temperature};
pub use rope::Rope;
