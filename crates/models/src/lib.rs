//! What an architecture is: config and weights become a graph.
//!
//! Layer 2: knows `graph` and `weights`; builds graphs and runs none.
//!
//! [`Checkpoint::open`] reads a file or folder. Its [`Config`] and [`Architecture`] give a [`Decoder`], a model
//! as a value, from which everything else follows: the graph, the state, the parameter count. What
//! makes embeddings or scores and no text is an [`Encoder`], of an [`EncoderArchitecture`].

#![forbid(unsafe_code)]

pub mod architectures;
mod checkpoint;
mod config;
mod decoder;
mod encoder;
mod error;
mod export;
mod layers;
mod layout;
mod mix;
mod names;
mod rope;
pub mod state;
mod stored;

pub use architectures::{
    ARCHITECTURES, Architecture, ENCODERS, EncoderArchitecture, FRAMES, Frame, known_name, nearest_names,
};
pub use checkpoint::{Checkpoint, CheckpointOptions, Network, ScoreTokens};
pub use config::{
    Config, DeltaConfig, EncoderConfig, ExpertConfig, GlobalHeads, IndexerConfig, LatentConfig,
    LayerMultipliers, LoneBlock, Multipliers, RopeConfig, Scaling, StateSpaceConfig, StateSpaceHeads,
    StreamConfig,
};
pub use decoder::{Decoder, DecoderOutput, Layer, Mixer, Residual, WeightTypes};
pub use encoder::{Encoder, EncoderLayer, EncoderNorms, EncoderOutput, FeedForward, Positions, RelativeBias};
pub use error::Error;
pub use export::{Importance, QuantizeOptions, Quantizer};
pub use layers::{
    Activation, Alibi, Attention, Channel, ChannelStateSpace, ClassificationHead, ExpertGroups, Experts,
    Gated, GatedAndExperts, GatedDelta, GatedNorm, Indexer, LatentAttention, LayerEmbedding, Norm, Norms,
    Plain, QkNorm, Reach, Routing, Scores, SelfAttention, SharedExpert, ShortConvolution, StateSpace,
    Streams, Temperature,
};
pub use mix::{MIXES, Mix, MixModel};
pub use rope::Rope;
pub use state::{KeyValueCache, State};
