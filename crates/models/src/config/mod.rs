//! A model's hyperparameters, whichever file they came from.

mod encoder;
mod gguf;
mod hugging_face;

use graph::ops::RopeStyle;

use crate::{Activation, Error, ExpertGroups, Routing, Temperature};

pub use encoder::EncoderConfig;
pub(crate) use encoder::{labels_of_gguf, labels_of_hugging_face, unnamed};
pub(crate) use gguf::GgufKeys;
pub(crate) use hugging_face::ConfigKeys;

/// What a checkpoint says about its model, in one vocabulary for GGUF metadata and Hugging Face `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where this was read from; for messages.
    pub source_name: String,
    /// The architecture as the source names it: `llama`, `LlamaForCausalLM`.
    pub architecture: String,
    /// The model's own name, if it says one.
    pub name: Option<String>,
    /// Rows of the embedding.
    pub vocab: usize,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The number of layers.
    pub layers: usize,
    /// How many layers follow them in the files that predict tokens further ahead. They are left out.
    pub prediction_layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// The heads of layers without window, if they may be others.
    pub global_heads: Option<GlobalHeads>,
    /// Whether layers without window take their keys for values, if the configuration says it.
    pub keys_as_values: Option<bool>,
    /// How many of the last layers read the keys and values of earlier ones.
    pub shared_layers: usize,
    /// The latents that all heads share, if attention has them. Heads then have the dims of queries, of which the last are
    /// rotated.
    pub latent: Option<LatentConfig>,
    /// Which layers choose positions themselves, if the configuration lists them. Others take the choice of the last one
    /// that does.
    pub indexed_layers: Option<Vec<bool>>,
    /// The width inside the feed-forward block.
    pub feed_forward: usize,
    /// The same for each layer, if they differ.
    pub layer_widths: Option<Vec<usize>>,
    /// How many standard deviations above their mean the gates of each layer begin, if they do not have their usual values.
    pub gate_cutoffs: Option<Vec<Option<f32>>>,
    /// Rows of a second embedding, and how much of it each layer takes, if there is one.
    pub layer_embedding: Option<[usize; 2]>,
    /// The residual streams, if there are several.
    pub streams: Option<StreamConfig>,
    /// The rank of projections next to attention, if there are some.
    pub low_rank: Option<usize>,
    /// The experts in place of that block.
    pub experts: Option<ExpertConfig>,
    /// What gates of experts are at most, and how far from 0 what they multiply may be, if there is a limit.
    pub gate_limit: Option<f32>,
    /// The gated delta nets in place of attention.
    pub delta: Option<DeltaConfig>,
    /// Tokens that each result of the short convolutions sees that are in place of attention.
    pub short_convolution: Option<usize>,
    /// The state spaces in place of attention, or in addition to it.
    pub state_space: Option<StateSpaceConfig>,
    /// The factors inside of layers.
    pub layer_multipliers: LayerMultipliers,
    /// The one block of each layer, if layers have but one.
    pub lone_blocks: Option<Vec<LoneBlock>>,
    /// Which layers keep a state per sequence in place of keys and values, if the configuration says so.
    pub recurrent_layers: Option<Vec<bool>>,
    /// Which layers have experts, if the configuration says so.
    pub sparse_layers: Option<Vec<bool>>,
    /// How many experts each token gets in each layer, if layers differ.
    pub experts_per_token: Option<Vec<usize>>,
    /// The longest sequence the model was made for.
    pub context_length: usize,
    /// `eps` of the norms.
    pub norm_eps: f32,
    /// The function of the feed-forward block, if the configuration says one.
    pub activation: Option<Activation>,
    /// The rotary embedding.
    pub rope: RopeConfig,
    /// The rotary embedding of layers that have the window, if it is another.
    pub local_rope: Option<RopeConfig>,
    /// Which dims form a pair in Hugging Face files, if the configuration says another order than the family's.
    pub rope_style: Option<RopeStyle>,
    /// How many pairs turn by time, height and width, if the configuration says it. In text these are one position.
    pub rope_sections: Option<[usize; 3]>,
    /// The factor on queries, if it is not 1.
    pub temperature: Option<Temperature>,
    /// Whether scores have biases by the positions of keys.
    pub alibi: bool,
    /// Which layers rotate queries and keys, if the configuration lists them.
    pub rotated_layers: Option<Vec<bool>>,
    /// How far back a token sees, itself included; `None` is all the way.
    pub window: Option<usize>,
    /// Which layers have the window, if the configuration lists them.
    pub windowed_layers: Option<Vec<bool>>,
    /// Whether both blocks of a layer read what the layer reads, if the configuration says it.
    pub parallel_residual: Option<bool>,
    /// How far from 0 queries, keys and values may be, if there is a limit.
    pub clip_qkv: Option<f32>,
    /// Whether queries and keys that are rotated are normalized, without weights.
    pub unit_queries: bool,
    /// Factors on what flows between the layers.
    pub multipliers: Multipliers,
    /// Attention scores `s` become `c · tanh(s / c)` for this `c`.
    pub attention_softcap: Option<f32>,
    /// Logits `s` become `c · tanh(s / c)` for this `c`.
    pub logit_softcap: Option<f32>,
    /// Whether scores of attention are divided by the number of the layer, which counts from 1.
    pub scores_fall: bool,
    /// Whether the logits come from the embedding itself, if the configuration says it.
    pub tied: Option<bool>,
    /// The projections that have no bias, by the stems of their canonical names; biases that files have are left out.
    pub without_bias: Vec<&'static str>,
    /// Keys of the file that other families read, and this one does not; only those that would make a difference.
    pub ignored_keys: Vec<String>,
}

/// A rotary embedding as configurations describe it.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The base of the frequencies.
    pub theta: f64,
    /// Dims of each head that are rotated; 0 is none.
    pub dims: usize,
    /// How the frequencies are stretched.
    pub scaling: Option<Scaling>,
    /// What the frequency of each pair is divided by, if the checkpoint lists it; of LongRoPE's two lists that for
    /// sequences within the original context.
    pub factors: Option<Vec<f32>>,
    /// LongRoPE's list for longer sequences.
    pub long_factors: Option<Vec<f32>>,
}

/// Key and value heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalHeads {
    /// How many there are.
    pub kv_heads: usize,
    /// Dims of each; those of query heads are the same.
    pub head_dim: usize,
}

/// Several residual streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamConfig {
    /// How many there are.
    pub count: usize,
    /// Which of them layers compute.
    pub active: usize,
    /// Whether what layer embeddings read of it is multiplied with a vector.
    pub scaled: bool,
}

/// A mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertConfig {
    /// How many there are.
    pub count: usize,
    /// How many of them each token gets.
    pub per_token: usize,
    /// The width inside each.
    pub width: usize,
    /// The width inside an expert that every token gets as well.
    pub shared_width: Option<usize>,
    /// The width of what they read and compute, if it is not that of the model.
    pub latent: Option<usize>,
    /// How they are chosen; the weights say whether there is a correction.
    pub routing: Routing,
}

/// What latent attention keeps of a token, and makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentConfig {
    /// How wide latents are.
    pub rank: usize,
    /// How wide the latents of queries are; none is queries made at once.
    pub query_rank: Option<usize>,
    /// Dims of each value.
    pub value_dims: usize,
    /// What chooses the positions that a token attends to, if not all.
    pub indexer: Option<IndexerConfig>,
}

/// Heads that choose positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexerConfig {
    /// How many there are.
    pub heads: usize,
    /// Dims of each.
    pub dims: usize,
    /// How many positions they choose.
    pub positions: usize,
}

/// A gated delta net.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Query and key heads.
    pub key_heads: usize,
    /// Dims of queries and keys.
    pub key_dim: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Dims of values.
    pub value_dim: usize,
    /// Tokens that each result of its convolution sees.
    pub conv_width: usize,
    /// Whether value heads that follow each other have different key heads, and not the same.
    pub tiled: bool,
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateSpaceConfig {
    /// Its channels, of all heads together.
    pub channels: usize,
    /// The heads that channels are in, if those of a head share their steps.
    pub heads: Option<StateSpaceHeads>,
    /// What steps are projected from, if each channel has its own.
    pub step_rank: usize,
    /// Numbers that are kept of each channel.
    pub state_dim: usize,
    /// Tokens that each result of its convolution sees.
    pub conv_width: usize,
    /// The least and the largest step.
    pub step_limit: [f32; 2],
    /// Whether its gate comes behind its norm.
    pub gate_last: bool,
}

/// The heads of a state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpaceHeads {
    /// How many there are.
    pub count: usize,
    /// How many different inputs and outputs there are; each serves `count / groups` heads.
    pub groups: usize,
}

/// What a layer of one block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoneBlock {
    /// Attention.
    Attention,
    /// A state space.
    StateSpace,
    /// A feed-forward block.
    FeedForward,
}

/// Factors inside of layers; 1 for most families.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerMultipliers {
    /// On what attention reads.
    pub attention_input: f32,
    /// On keys.
    pub key: f32,
    /// On the result of attention.
    pub attention_output: f32,
    /// On what a state space reads.
    pub state_space_input: f32,
    /// On what its first projection gives: its gate, values, inputs, outputs and steps.
    pub state_space_parts: [f32; 5],
    /// On the result of a state space.
    pub state_space_output: f32,
    /// On the gate of a feed-forward block.
    pub gate: f32,
    /// On the result of a feed-forward block.
    pub down: f32,
}

impl Default for LayerMultipliers {
    fn default() -> LayerMultipliers {
        LayerMultipliers {
            attention_input: 1.0,
            key: 1.0,
            attention_output: 1.0,
            state_space_input: 1.0,
            state_space_parts: [1.0; 5],
            state_space_output: 1.0,
            gate: 1.0,
            down: 1.0,
        }
    }
}

/// Factors that keep activations of the same size in models of all widths; 1 for most families.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multipliers {
    /// On the embedding.
    pub embedding: f32,
    /// On attention scores, if not `1 / sqrt(head_dim)`.
    pub attention: Option<f32>,
    /// On what each block adds to the residual stream.
    pub residual: f32,
    /// On logits.
    pub logits: f32,
}

impl Default for Multipliers {
    fn default() -> Multipliers {
        Multipliers { embedding: 1.0, attention: None, residual: 1.0, logits: 1.0 }
    }
}

/// How rotary frequencies are changed for contexts longer than the model was first trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Every frequency divided by `factor`.
    Linear {
        /// The stretch.
        factor: f64,
    },
    /// Llama 3.1's blend by wavelength.
    Llama3 {
        /// The stretch of long wavelengths.
        factor: f64,
        /// Wavelengths above `original_context / low_frequency` are stretched fully.
        low_frequency: f64,
        /// Wavelengths below `original_context / high_frequency` are kept.
        high_frequency: f64,
        /// The context before stretching, in tokens.
        original_context: f64,
    },
    /// YaRN's blend by number of turns.
    Yarn {
        /// The stretch of slow pairs.
        factor: f64,
        /// The context before stretching, in tokens.
        original_context: f64,
        /// Pairs that turn more often than this are kept.
        beta_fast: f64,
        /// Pairs that turn less often than this are stretched fully.
        beta_slow: f64,
        /// Whether the blend starts and ends with whole pairs.
        truncate: bool,
        /// The factor on rotated vectors.
        attention_factor: f64,
    },
    /// Only the first pairs turn, at the frequencies that they have among all.
    Proportional {
        /// How many pairs turn.
        pairs: usize,
        /// What their frequencies are divided by.
        factor: f64,
    },
    /// LongRoPE (Ding et al. 2024): each pair has a factor of its own. Of the two lists that models come with, one
    /// is chosen when a checkpoint is opened, as [`crate::CheckpointOptions::max_length`] says.
    LongRope {
        /// The context before stretching, in tokens.
        original_context: usize,
        /// The factor on rotated vectors.
        attention_factor: f64,
    },
}

impl Scaling {
    /// How long sequences can be, of the length that a configuration states. Those with YaRN may state what was before
    /// stretching; of those with linear scaling, some do and some do not, and stated is what we keep to.
    fn reach(scaling: Option<Scaling>, stated: usize) -> usize {
        match scaling {
            Some(Scaling::Yarn { factor, original_context, .. }) => {
                stated.max((original_context * factor) as usize)
            }
            _ => stated,
        }
    }
}

/// Sizes beyond these are no model but a damaged or hostile file.
const MAX_SIZE: usize = 1 << 24;
pub(crate) const MAX_LAYERS: usize = 1 << 12;
const MAX_HEAD: usize = 1 << 14;
const MAX_EXPERTS: usize = 1 << 12;
const MAX_CHOSEN: usize = 1 << 16;
const MAX_STREAMS: usize = 1 << 6;
const MAX_WIDTH: usize = 1 << 10;
/// They are held as f32.
const MAX_BIASES: usize = 1 << 24;

impl Config {
    /// That the file has keys of other families, if it has some that would make a difference.
    pub fn warning(&self) -> Option<String> {
        let keys: Vec<String> = self.ignored_keys.iter().map(|key| format!("`{key}`")).collect();
        (!keys.is_empty()).then(|| {
            format!(
                "{}: ignoring {}, which {} does not read",
                self.source_name,
                keys.join(", "),
                self.architecture
            )
        })
    }

    /// Whether a layer keeps a state per sequence in place of keys and values, as far as the configuration says.
    pub(crate) fn is_recurrent(&self, layer: usize) -> bool {
        self.recurrent_layers.as_ref().is_some_and(|layers| layers[layer])
    }

    /// Checks that the numbers fit each other, so that nothing built from them divides by zero or overflows.
    ///
    /// # Errors
    /// With the names and values of the two that disagree.
    pub(crate) fn checked(self) -> Result<Config, Error> {
        let sizes = [
            ("vocabulary size", self.vocab, MAX_SIZE),
            ("hidden size", self.hidden, MAX_SIZE),
            ("number of layers", self.layers, MAX_LAYERS),
            ("number of heads", self.heads, MAX_SIZE),
            ("number of key-value heads", self.kv_heads, MAX_SIZE),
            ("head size", self.head_dim, MAX_HEAD),
            // Layers of state spaces may have no such block.
            ("feed-forward size", self.feed_forward.max(usize::from(self.state_space.is_some())), MAX_SIZE),
            ("context length", self.context_length, usize::MAX),
            ("width of short convolutions", self.short_convolution.unwrap_or(1), MAX_WIDTH),
        ];
        let experts = self.experts.map(|experts| {
            [
                ("number of experts", experts.count, MAX_EXPERTS),
                ("number of experts per token", experts.per_token, experts.count),
                ("feed-forward size of experts", experts.width, MAX_SIZE),
                ("feed-forward size of the shared expert", experts.shared_width.unwrap_or(1), MAX_SIZE),
                ("latent size of experts", experts.latent.unwrap_or(1), MAX_SIZE),
            ]
        });
        let latent = self.latent.map(|latent| {
            [
                ("latent size", latent.rank, MAX_HEAD),
                ("latent size of queries", latent.query_rank.unwrap_or(1), MAX_SIZE),
                ("value size", latent.value_dims, MAX_HEAD),
                ("number of rotated dims", self.rope.dims, self.head_dim.saturating_sub(1)),
            ]
        });
        let indexer = self.latent.and_then(|latent| latent.indexer).map(|indexer| {
            [
                ("number of heads that choose positions", indexer.heads, MAX_HEAD),
                ("size of heads that choose positions", indexer.dims, MAX_HEAD),
                ("number of chosen positions", indexer.positions, MAX_CHOSEN),
                ("number of rotated dims", self.rope.dims, indexer.dims),
            ]
        });
        let delta = self.delta.map(|delta| {
            [
                ("number of key heads of delta nets", delta.key_heads, MAX_HEAD),
                ("number of value heads of delta nets", delta.value_heads, MAX_HEAD),
                ("key size of delta nets", delta.key_dim, MAX_HEAD),
                ("value size of delta nets", delta.value_dim, MAX_HEAD),
                ("width of convolutions", delta.conv_width, MAX_HEAD),
            ]
        });
        let latent = latent.into_iter().flatten().chain(indexer.into_iter().flatten());
        let parts = experts.into_iter().flatten().chain(delta.into_iter().flatten()).chain(latent);
        for (what, size, limit) in sizes.into_iter().chain(parts) {
            if size == 0 || size > limit {
                return Err(self.error(format!("the {what} is {size}, expected 1 to {limit}")));
            }
        }
        if let Some(state_space) = self.state_space {
            state_space.check().map_err(|message| self.error(message))?;
        }
        self.experts.map_or(Ok(()), |experts| experts.check()).map_err(|message| self.error(message))?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(self.error(format!(
                "{} heads cannot share {} key-value heads evenly",
                self.heads, self.kv_heads
            )));
        }
        if let Some(DeltaConfig { key_heads, value_heads, .. }) = self.delta
            && !value_heads.is_multiple_of(key_heads)
        {
            return Err(self.error(format!(
                "{value_heads} value heads of delta nets cannot share {key_heads} key heads evenly"
            )));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return Err(
                self.error(format!("the norm's eps is {}, expected a small positive number", self.norm_eps))
            );
        }
        let global_head_dim = self.global_heads.map_or(self.head_dim, |heads| heads.head_dim);
        self.rope.check(global_head_dim).map_err(|message| self.error(message))?;
        self.local_rope
            .as_ref()
            .map_or(Ok(()), |rope| rope.check(self.head_dim))
            .map_err(|message| self.error(message))?;
        for (kind, listed) in [
            ("rotated", &self.rotated_layers),
            ("windowed", &self.windowed_layers),
            ("sparse", &self.sparse_layers),
            ("indexed", &self.indexed_layers),
            ("recurrent", &self.recurrent_layers),
        ] {
            let count = listed.as_ref().map_or(self.layers, Vec::len);
            if count != self.layers {
                let message = format!("{} layers, but {count} in the list of {kind} ones", self.layers);
                return Err(self.error(message));
            }
        }
        if let Some(blocks) = self.lone_blocks.as_ref().filter(|blocks| blocks.len() != self.layers) {
            let message = format!("{} layers, but {} in the list of their blocks", self.layers, blocks.len());
            return Err(self.error(message));
        }
        self.check_layers().map_err(|message| self.error(message))?;
        for (what, limit) in [
            ("attention softcap", self.attention_softcap),
            ("logit softcap", self.logit_softcap),
            ("limit of queries, keys and values", self.clip_qkv),
            ("limit of gates", self.gate_limit),
        ] {
            if let Some(limit) = limit.filter(|limit| !(limit.is_finite() && *limit > 0.0)) {
                return Err(self.error(format!("the {what} is {limit}, expected a positive number")));
            }
        }
        if let Some(LatentConfig { indexer: Some(_), query_rank, .. }) = self.latent {
            if query_rank.is_none() {
                return Err(
                    self.error("positions are chosen by latents of queries, but there are none".into())
                );
            }
            if self.indexed_layers.as_ref().is_some_and(|layers| !layers[0]) {
                return Err(
                    self.error("the first layer takes the positions that an earlier one chose".into())
                );
            }
        }
        if let Some(Temperature { growth, context, .. }) = self.temperature
            && !(growth.is_finite() && growth >= 0.0 && context > 0)
        {
            let message = format!("queries cannot grow by {growth} every {context} tokens");
            return Err(self.error(message));
        }
        if self.alibi && self.heads.saturating_mul(self.context_length) > MAX_BIASES {
            let (heads, context) = (self.heads, self.context_length);
            let message = format!("{context} positions have too many biases for {heads} heads");
            return Err(self.error(message));
        }
        let Multipliers { embedding, attention, residual, logits } = self.multipliers;
        for (what, factor) in [
            ("embedding multiplier", embedding),
            ("attention multiplier", attention.unwrap_or(1.0)),
            ("residual multiplier", residual),
            ("logit multiplier", logits),
        ]
        .into_iter()
        .chain(self.layer_multipliers.all())
        {
            if !factor.is_normal() {
                return Err(self.error(format!("the {what} is {factor}, expected a number other than 0")));
            }
        }
        Ok(self)
    }

    /// Checks what differs between layers, and what they have in addition to their blocks.
    fn check_layers(&self) -> Result<(), String> {
        let within = |what: &str, size: usize, limit: usize| match size {
            0 => Err(format!("the {what} is 0, expected 1 to {limit}")),
            size if size > limit => Err(format!("the {what} is {size}, expected 1 to {limit}")),
            _ => Ok(()),
        };
        if let Some(GlobalHeads { kv_heads, head_dim }) = self.global_heads {
            within("head size of layers without window", head_dim, MAX_HEAD)?;
            if kv_heads == 0 || !self.heads.is_multiple_of(kv_heads) {
                return Err(format!(
                    "{} heads cannot share {kv_heads} key-value heads of layers without window evenly",
                    self.heads
                ));
            }
        }
        for &width in self.layer_widths.iter().flatten() {
            within("feed-forward size of a layer", width, MAX_SIZE)?;
        }
        for &per_token in self.experts_per_token.iter().flatten() {
            within("number of experts per token of a layer", per_token, self.experts.map_or(0, |e| e.count))?;
        }
        let lists = [
            ("feed-forward sizes", self.layer_widths.as_ref().map(Vec::len)),
            ("shares of gates", self.gate_cutoffs.as_ref().map(Vec::len)),
            ("experts per token", self.experts_per_token.as_ref().map(Vec::len)),
        ];
        for (what, count) in lists {
            if let Some(count) = count.filter(|&count| count != self.layers) {
                return Err(format!("{} layers, but {count} in the list of {what}", self.layers));
            }
        }
        if let Some(cutoff) = self.gate_cutoffs.iter().flatten().flatten().find(|cutoff| !cutoff.is_finite())
        {
            return Err(format!("gates cannot begin {cutoff} standard deviations above their mean"));
        }
        if let Some([rows, width]) = self.layer_embedding {
            within("number of rows of the second embedding", rows, MAX_SIZE)?;
            within("width of the second embedding", width, MAX_SIZE)?;
        }
        if let Some(StreamConfig { count, active, .. }) = self.streams {
            within("number of residual streams", count, MAX_STREAMS)?;
            if active >= count {
                return Err(format!("layers compute residual stream {active} of {count}"));
            }
        }
        self.low_rank.map_or(Ok(()), |rank| within("rank next to attention", rank, MAX_SIZE))?;
        self.check_shared_layers()
    }

    /// Each of the last layers needs one of its kind before them.
    fn check_shared_layers(&self) -> Result<(), String> {
        let (layers, shared) = (self.layers, self.shared_layers);
        if shared == 0 {
            return Ok(());
        }
        let Some(windowed) = self.windowed_layers.as_ref().filter(|_| self.window.is_some()) else {
            return Err(format!("{shared} layers share keys, but no list says which layers have a window"));
        };
        let split = layers.checked_sub(shared).and_then(|first| windowed.split_at_checked(first));
        let Some((own, others)) = split.filter(|(own, _)| !own.is_empty()) else {
            return Err(format!("{shared} of {layers} layers share the keys of earlier ones"));
        };
        match others.iter().find(|kind| !own.contains(kind)) {
            Some(kind) => {
                let kind = if *kind { "with" } else { "without" };
                Err(format!("layers {kind} a window share keys, but none of the first {} has one", own.len()))
            }
            None => Ok(()),
        }
    }

    /// Makes the choice that LongRoPE leaves: beyond the original context its long factors hold, within it the short
    /// ones, which let no sequence be longer. It is made once for all sequences, as a token's key would otherwise
    /// depend on how long its sequence becomes.
    pub(crate) fn for_length(mut self, max_length: Option<usize>) -> Config {
        for rope in [Some(&mut self.rope), self.local_rope.as_mut()].into_iter().flatten() {
            let Some(Scaling::LongRope { original_context, .. }) = rope.scaling else { continue };
            match rope.long_factors.take() {
                Some(long) if max_length > Some(original_context) => rope.factors = Some(long),
                _ => self.context_length = self.context_length.min(original_context),
            }
        }
        self
    }

    fn error(&self, message: String) -> Error {
        Error::config(&self.source_name, message)
    }
}

impl StateSpaceConfig {
    /// Checks that the numbers fit each other.
    fn check(&self) -> Result<(), String> {
        let heads = self.heads.unwrap_or(StateSpaceHeads { count: 1, groups: 1 });
        for (what, size, limit) in [
            ("number of channels of state spaces", self.channels, MAX_SIZE),
            ("number of heads of state spaces", heads.count, self.channels),
            ("number of groups of state spaces", heads.groups, heads.count),
            ("rank of steps of state spaces", self.step_rank.max(1), MAX_SIZE),
            ("number of states", self.state_dim, MAX_HEAD),
            ("number of states of all groups", heads.groups.saturating_mul(self.state_dim), MAX_SIZE),
            ("width of convolutions of state spaces", self.conv_width, MAX_WIDTH),
        ] {
            if size == 0 || size > limit {
                return Err(format!("the {what} is {size}, expected 1 to {limit}"));
            }
        }
        let StateSpaceHeads { count, groups } = heads;
        if !self.channels.is_multiple_of(count) {
            return Err(format!(
                "{} channels of state spaces are no whole number for {count} heads",
                self.channels
            ));
        }
        if !count.is_multiple_of(groups) {
            return Err(format!("{count} heads of state spaces cannot share {groups} groups evenly"));
        }
        let [least, largest] = self.step_limit;
        if !(least >= 0.0 && least.is_finite() && largest >= least) {
            return Err(format!("the steps of state spaces are limited to {least} to {largest}"));
        }
        Ok(())
    }
}

impl ExpertConfig {
    /// Checks that the numbers of the routing fit each other.
    fn check(&self) -> Result<(), String> {
        let Routing { groups, scale, .. } = self.routing;
        if !scale.is_normal() {
            return Err(format!(
                "the factor on shares of experts is {scale}, expected a number other than 0"
            ));
        }
        let Some(ExpertGroups { count, chosen, best }) = groups else { return Ok(()) };
        if count == 0 || !self.count.is_multiple_of(count) {
            return Err(format!("{} experts cannot form {count} groups evenly", self.count));
        }
        let size = self.count / count;
        if best > size {
            return Err(format!("{best} experts score each group, but it has {size}"));
        }
        if chosen == 0 || chosen > count || self.per_token > chosen * size {
            let expected = self.per_token.div_ceil(size);
            return Err(format!(
                "{chosen} groups of {size} experts are chosen, expected {expected} to {count}"
            ));
        }
        Ok(())
    }
}

impl LayerMultipliers {
    /// Each of them, and what it is.
    fn all(&self) -> Vec<(&'static str, f32)> {
        let single = [
            ("factor on what attention reads", self.attention_input),
            ("factor on keys", self.key),
            ("factor on the result of attention", self.attention_output),
            ("factor on what state spaces read", self.state_space_input),
            ("factor on the result of state spaces", self.state_space_output),
            ("factor on gates", self.gate),
            ("factor on the result of feed-forward blocks", self.down),
        ];
        let parts =
            self.state_space_parts.map(|factor| ("factor on a part of what state spaces read", factor));
        single.into_iter().chain(parts).collect()
    }
}

impl RopeConfig {
    /// Checks that the numbers fit heads of a size.
    fn check(&self, head_dim: usize) -> Result<(), String> {
        let RopeConfig { theta, dims, .. } = *self;
        if dims > head_dim {
            return Err(format!("the number of rotated dims is {dims}, expected at most {head_dim}"));
        }
        if !dims.is_multiple_of(2) {
            return Err(format!("{dims} rotated dims are no whole number of pairs"));
        }
        if !(theta.is_finite() && theta > 1.0) {
            return Err(format!("the rope theta is {theta}, expected more than 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn small() -> Config {
        Config {
            source_name: "test".into(),
            architecture: "llama".into(),
            name: None,
            vocab: 32,
            hidden: 64,
            layers: 2,
            prediction_layers: 0,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            global_heads: None,
            keys_as_values: None,
            shared_layers: 0,
            latent: None,
            indexed_layers: None,
            feed_forward: 96,
            layer_widths: None,
            gate_cutoffs: None,
            layer_embedding: None,
            streams: None,
            low_rank: None,
            experts: None,
            gate_limit: None,
            delta: None,
            short_convolution: None,
            state_space: None,
            layer_multipliers: LayerMultipliers::default(),
            lone_blocks: None,
            recurrent_layers: None,
            sparse_layers: None,
            experts_per_token: None,
            context_length: 128,
            norm_eps: 1e-5,
            activation: None,
            rope: RopeConfig { theta: 10000.0, dims: 16, scaling: None, factors: None, long_factors: None },
            local_rope: None,
            rope_style: None,
            rope_sections: None,
            temperature: None,
            alibi: false,
            rotated_layers: None,
            window: None,
            windowed_layers: None,
            parallel_residual: None,
            clip_qkv: None,
            unit_queries: false,
            multipliers: Multipliers::default(),
            attention_softcap: None,
            logit_softcap: None,
            scores_fall: false,
            tied: None,
            without_bias: Vec::new(),
            ignored_keys: Vec::new(),
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let refusal = |config: Config| config.checked().unwrap_err().to_string();
        assert!(small().checked().is_ok());
        assert_eq!(
            refusal(Config { heads: 0, ..small() }),
            "test: the number of heads is 0, expected 1 to 16777216"
        );
        assert_eq!(
            refusal(Config { kv_heads: 3, ..small() }),
            "test: 4 heads cannot share 3 key-value heads evenly"
        );
        assert_eq!(
            refusal(Config { layers: 100_000, ..small() }),
            "test: the number of layers is 100000, expected 1 to 4096"
        );
        let rope = |dims| RopeConfig { dims, ..small().rope };
        assert!(
            refusal(Config { rope: rope(18), ..small() }).contains("rotated dims is 18, expected at most 16")
        );
        assert!(refusal(Config { local_rope: Some(rope(3)), ..small() }).contains("3 rotated dims"));
        assert!(refusal(Config { logit_softcap: Some(-1.0), ..small() }).contains("the logit softcap is -1"));
        let shared = |windowed_layers| {
            let windowed_layers = Some(windowed_layers);
            Config { shared_layers: 1, window: Some(4), windowed_layers, ..small() }
        };
        assert!(shared(vec![true; 2]).checked().is_ok());
        assert_eq!(
            refusal(shared(vec![true, false])),
            "test: layers without a window share keys, but none of the first 1 has one"
        );
        let streams = Some(StreamConfig { count: 2, active: 2, scaled: true });
        assert_eq!(refusal(Config { streams, ..small() }), "test: layers compute residual stream 2 of 2");
        assert_eq!(
            refusal(Config { layer_widths: Some(vec![96]), ..small() }),
            "test: 2 layers, but 1 in the list of feed-forward sizes"
        );
        let global_heads = Some(GlobalHeads { kv_heads: 3, head_dim: 16 });
        assert!(
            refusal(Config { global_heads, ..small() }).contains("4 heads cannot share 3 key-value heads")
        );
        let experts = |count, per_token| {
            let (width, routing) = (96, Routing::default());
            let experts = ExpertConfig { count, per_token, width, shared_width: None, latent: None, routing };
            Config { experts: Some(experts), ..small() }
        };
        assert!(experts(8, 8).checked().is_ok());
        assert_eq!(refusal(experts(8, 9)), "test: the number of experts per token is 9, expected 1 to 8");
        assert_eq!(refusal(experts(5000, 1)), "test: the number of experts is 5000, expected 1 to 4096");
        let routed = |routing: Routing| {
            let (count, per_token, width) = (8, 3, 96);
            let experts = ExpertConfig { count, per_token, width, shared_width: None, latent: None, routing };
            refusal(Config { experts: Some(experts), ..small() })
        };
        let grouped = |count: usize, chosen: usize, best: usize| {
            routed(Routing { groups: Some(ExpertGroups { count, chosen, best }), ..Routing::default() })
        };
        assert_eq!(grouped(3, 1, 1), "test: 8 experts cannot form 3 groups evenly");
        assert_eq!(grouped(4, 2, 3), "test: 3 experts score each group, but it has 2");
        assert_eq!(grouped(4, 1, 2), "test: 1 groups of 2 experts are chosen, expected 2 to 4");
        assert_eq!(grouped(4, 5, 2), "test: 5 groups of 2 experts are chosen, expected 2 to 4");
        assert!(routed(Routing { scale: 0.0, ..Routing::default() }).contains("shares of experts is 0"));
        let latent = |rank: usize, query_rank: Option<usize>, indexer: Option<IndexerConfig>| {
            let latent = LatentConfig { rank, query_rank, value_dims: 5, indexer };
            let rope = RopeConfig { dims: 6, ..small().rope };
            refusal(Config { latent: Some(latent), rope, ..small() })
        };
        assert_eq!(latent(0, None, None), "test: the latent size is 0, expected 1 to 16384");
        let indexer = IndexerConfig { heads: 2, dims: 8, positions: 9 };
        let message = "test: positions are chosen by latents of queries, but there are none";
        assert_eq!(latent(4, None, Some(indexer)), message);
        let narrow = IndexerConfig { dims: 4, ..indexer };
        assert_eq!(
            latent(4, Some(3), Some(narrow)),
            "test: the number of rotated dims is 6, expected 1 to 4"
        );
        let all = LatentConfig { rank: 4, query_rank: None, value_dims: 5, indexer: None };
        let all = refusal(Config { latent: Some(all), ..small() });
        assert_eq!(all, "test: the number of rotated dims is 16, expected 1 to 15");
        assert!(refusal(Config { norm_eps: f32::NAN, ..small() }).contains("NaN"));
        let space = |channels, count, groups| {
            let space = StateSpaceConfig {
                channels,
                heads: Some(StateSpaceHeads { count, groups }),
                step_rank: 0,
                state_dim: 16,
                conv_width: 4,
                step_limit: [0.0, f32::INFINITY],
                gate_last: false,
            };
            Config { state_space: Some(space), feed_forward: 0, ..small() }
        };
        assert!(space(48, 6, 2).checked().is_ok());
        assert_eq!(
            refusal(space(50, 6, 2)),
            "test: 50 channels of state spaces are no whole number for 6 heads"
        );
        assert_eq!(refusal(space(48, 6, 4)), "test: 6 heads of state spaces cannot share 4 groups evenly");
        assert!(refusal(space(1 << 23, 1 << 22, 1 << 22)).contains("the number of states of all groups is"));
        assert_eq!(
            refusal(Config { rotated_layers: Some(vec![true]), ..small() }),
            "test: 2 layers, but 1 in the list of rotated ones"
        );
        let multipliers = Multipliers { logits: 0.0, ..Multipliers::default() };
        assert_eq!(
            refusal(Config { multipliers, ..small() }),
            "test: the logit multiplier is 0, expected a number other than 0"
        );
    }
}
