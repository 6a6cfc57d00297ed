//! What an architecture is: config and weights become a graph.
//!
//! Layer 2: knows `graph` and `weights`; builds graphs and runs none.
//!
//! [`Checkpoint::open`] reads a file or folder. Its [`Config`] and [`Architecture`] give a [`Model`]: a value from which
//! everything else follows: the graphs, the state, the parameter count. Its part that reads tokens is a [`Decoder`], or an
//! [`Encoder`] of an [`EncoderArchitecture`].

#![forbid(unsafe_code)]

pub mod architectures;
mod checkpoint;
mod config;
mod decoder;
mod encoder;
mod error;
mod export;
mod gguf_file;
mod key;
mod layers;
mod layout;
mod mix;
mod model;
mod names;
mod reader;
mod rope;
pub mod state;
mod stored;

pub use architectures::{
    ARCHITECTURES, Architecture, ENCODERS, EncoderArchitecture, FRAMES, Frame, known_name, nearest_names,
};
pub use checkpoint::{Checkpoint, CheckpointOptions, ScoreTokens};
pub use config::{
    Additions, Config, EncoderConfig, LayerLists, LayerMultipliers, LoneBlock, Multipliers, RopeConfig,
    Scaling,
};
pub use decoder::{Decoder, Layer, Residual};
pub use encoder::{Encoder, EncoderLayer, EncoderNorms, FeedForward, Positions, RelativeBias};
pub use error::Error;
pub use gguf_file::{Importance, QuantizeOptions, Quantizer};
pub use layers::{
    Activation, Alibi, Attention, AttentionConfig, AttentionGate, CenteredNorms, Channel, ChannelStateSpace,
    ClassificationHead, DeltaConfig, ExpertConfig, ExpertGroups, Experts, GateLimit, Gated, GatedAndExperts,
    GatedAndShortcut, GatedDelta, GatedNorm, GlobalHeads, Indexer, IndexerConfig, LatentAttention,
    LatentConfig, LayerEmbedding, Mixer, Norm, Norms, Plain, QkNorm, Reach, Routing, Scores, SelfAttention,
    SharedExpert, ShortConvolution, SideBySide, StateSpace, StateSpaceConfig, StateSpaceHeads, StreamConfig,
    Streams, Temperature, WeightTypes,
};
pub use mix::{MIXES, Mix, MixModel};
pub use model::{Model, Output, Parameters};
pub use rope::Rope;
pub use state::{KeyValueCache, State};
