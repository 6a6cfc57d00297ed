//! A model's hyperparameters, whichever file they came from.

mod encoder;
mod gguf;
mod hugging_face;
mod layer_lists;
mod multipliers;

use graph::ops::RopeStyle;

use crate::key::{self, Key, Keyed, MAX_LAYERS, MAX_SIZE, MAX_WIDTH};
use crate::{
    Activation, AttentionConfig, DeltaConfig, Error, ExpertConfig, LatentConfig, StateSpaceConfig,
    StreamConfig, Temperature,
};

pub use encoder::EncoderConfig;
pub(crate) use encoder::{labels_of_gguf, labels_of_hugging_face, unnamed};
pub(crate) use hugging_face::{COMMON, ConfigKeys};
pub use layer_lists::{LayerLists, LoneBlock};
pub use multipliers::{LayerMultipliers, Multipliers};

/// What a checkpoint says about its model, in one vocabulary for GGUF metadata and Hugging Face `config.json`: the shape of
/// all models, and the parts that some have. Parts lie beside the blocks that they describe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Where this was read from; for messages.
    pub source_name: String,
    /// The architecture as the source names it: `llama`, `LlamaForCausalLM`.
    pub architecture: String,
    /// The model's own name, if it says one.
    pub name: Option<String>,
    /// Keys of the file that other families read, and this one does not; only those that would make a difference.
    pub ignored_keys: Vec<String>,
    /// Rows of the embedding.
    pub vocab: usize,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The number of layers.
    pub layers: usize,
    /// How many layers follow them in the files that predict tokens further ahead. They are left out.
    pub prediction_layers: usize,
    /// The width inside the feed-forward block.
    pub feed_forward: usize,
    /// The longest sequence the model was made for.
    pub context_length: usize,
    /// `eps` of the norms.
    pub norm_eps: f32,
    /// `eps` of the norms on what blocks add to the residual stream, if it is another.
    pub post_norm_eps: Option<f32>,
    /// Whether norms are RMS norms, of a family that has layer norms too.
    pub rms_norms: bool,
    /// The function of the feed-forward block, if the configuration says one.
    pub activation: Option<Activation>,
    /// Whether both blocks of a layer read what the layer reads, if the configuration says it.
    pub parallel_residual: Option<bool>,
    /// Logits `s` become `c · tanh(s / c)` for this `c`.
    pub logit_softcap: Option<f32>,
    /// Whether the logits come from the embedding itself, if the configuration says it.
    pub tied: Option<bool>,
    /// The heads of attention.
    pub attention: AttentionConfig,
    /// The rotary embedding.
    pub rope: RopeConfig,
    /// The rotary embedding of layers that have the window, if it is another.
    pub local_rope: Option<RopeConfig>,
    /// The factor on queries, if it is not 1.
    pub temperature: Option<Temperature>,
    /// The latents that all heads share, if attention has them. Heads then have the dims of queries, of which the last are
    /// rotated.
    pub latent: Option<LatentConfig>,
    /// The gated delta nets in place of attention.
    pub delta: Option<DeltaConfig>,
    /// Tokens that each result of the short convolutions sees that are in place of attention.
    pub short_convolution: Option<usize>,
    /// The state spaces in place of attention, or in addition to it.
    pub state_space: Option<StateSpaceConfig>,
    /// The experts in place of the feed-forward block.
    pub experts: Option<ExpertConfig>,
    /// What differs between layers.
    pub lists: LayerLists,
    /// What layers have in addition to their blocks.
    pub additions: Additions,
    /// Factors on what flows between the layers.
    pub multipliers: Multipliers,
    /// The factors inside of layers.
    pub layer_multipliers: LayerMultipliers,
    /// The projections that have no bias, by the stems of their canonical names; biases that files have are left out.
    pub without_bias: Vec<&'static str>,
}

impl Keyed for Config {
    const KEYS: &'static [Key<Config>] = &[
        Key::size("vocabulary size", ["vocab_size", "vocab_size"], MAX_SIZE, |config| &mut config.vocab),
        Key::size("hidden size", ["hidden_size", "embedding_length"], MAX_SIZE, |config| &mut config.hidden),
        Key::size("number of layers", ["num_hidden_layers", ""], MAX_LAYERS, |config| &mut config.layers),
        Key::any(["num_nextn_predict_layers", ""], |config| &mut config.prediction_layers),
        Key::any(["intermediate_size", ""], |config| &mut config.feed_forward),
        Key::size("context length", ["max_position_embeddings", "context_length"], usize::MAX, |config| {
            &mut config.context_length
        }),
        Key::any(["norm_eps", ""], |config| &mut config.norm_eps),
        Key::any(["post_norm_eps", ""], |config| &mut config.post_norm_eps),
        Key::any(["rms_norms", ""], |config| &mut config.rms_norms),
        Key::any(["hidden_act", ""], |config| &mut config.activation),
        Key::any(["use_parallel_residual", ""], |config| &mut config.parallel_residual),
        Key::positive("logit softcap", ["final_logit_softcapping", "final_logit_softcapping"], |config| {
            &mut config.logit_softcap
        }),
        Key::any(["tie_word_embeddings", ""], |config| &mut config.tied),
        Key::size(
            "width of short convolutions",
            ["short_convolution", "shortconv.l_cache"],
            MAX_WIDTH,
            |config| &mut config.short_convolution,
        ),
    ];
}

/// The biases of keys are held as f32.
const MAX_BIASES: usize = 1 << 24;

/// What layers have in addition to their blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Additions {
    /// Rows of a second embedding, and how much of it each layer takes, if there is one.
    pub layer_embedding: Option<[usize; 2]>,
    /// The residual streams, if there are several.
    pub streams: Option<StreamConfig>,
    /// The rank of projections next to attention, if there are some.
    pub low_rank: Option<usize>,
}

/// A rotary embedding as configurations describe it.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// Which dims form a pair in Hugging Face files, if the configuration says another order than the family's.
    pub style: Option<RopeStyle>,
    /// Pairs of dims that rotate by time, height and width (M-RoPE), if the configuration says it. Text has one position for
    /// all three.
    pub sections: Option<[usize; 3]>,
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

    /// Checks that the numbers fit each other, so that nothing built from them divides by zero or overflows.
    ///
    /// # Errors
    /// With the names and values of the two that disagree.
    pub(crate) fn checked(self) -> Result<Config, Error> {
        match self.check() {
            Ok(()) => Ok(self),
            Err(message) => Err(Error::config(&self.source_name, message)),
        }
    }

    fn check(&self) -> Result<(), String> {
        key::check(self)?;
        // Layers of state spaces may have no such block.
        let least = usize::from(self.state_space.is_some());
        key::check_size("feed-forward size", self.feed_forward.max(least), MAX_SIZE)?;
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return Err(format!("the norm's eps is {}, expected a small positive number", self.norm_eps));
        }
        if let Some(eps) = self.post_norm_eps.filter(|eps| !(eps.is_finite() && *eps >= 0.0)) {
            return Err(format!("the eps of norms behind blocks is {eps}, expected a small positive number"));
        }
        self.attention.check()?;
        self.check_positions()?;
        let head_dim = self.attention.head_dim;
        self.latent.map_or(Ok(()), |latent| latent.check(head_dim, self.rope.dims))?;
        self.delta.map_or(Ok(()), |delta| delta.check())?;
        self.state_space.map_or(Ok(()), |space| space.check())?;
        self.experts.map_or(Ok(()), |experts| experts.check())?;
        self.additions.check()?;
        key::check(&self.multipliers)?;
        key::check(&self.layer_multipliers)?;
        self.lists.check(self.layers)?;
        self.check_lists()
    }

    /// Checks the rotary embeddings, biases by position and the temperature.
    fn check_positions(&self) -> Result<(), String> {
        self.rope.check(self.attention.global_head_dim())?;
        self.local_rope.as_ref().map_or(Ok(()), |rope| rope.check(self.attention.head_dim))?;
        let (heads, context) = (self.attention.heads, self.context_length);
        if self.attention.alibi && heads.saturating_mul(context) > MAX_BIASES {
            return Err(format!("{context} positions have too many biases for {heads} heads"));
        }
        match self.temperature {
            Some(Temperature { growth, context, .. })
                if !(growth.is_finite() && growth >= 0.0 && context > 0) =>
            {
                Err(format!("queries cannot grow by {growth} every {context} tokens"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the lists of layers against what they list.
    fn check_lists(&self) -> Result<(), String> {
        for &per_token in self.lists.experts_per_token.iter().flatten() {
            let count = self.experts.map_or(0, |experts| experts.count);
            key::check_size("number of experts per token of a layer", per_token, count)?;
        }
        for &heads in self.lists.heads.iter().flatten() {
            key::check_shares(heads, "heads of a layer", self.attention.kv_heads, "key-value heads")?;
        }
        let chooses = self.latent.is_some_and(|latent| latent.indexer.is_some());
        if chooses && self.lists.indexed.as_ref().is_some_and(|layers| !layers[0]) {
            return Err("the first layer takes the positions that an earlier one chose".into());
        }
        self.check_shared_layers()
    }

    /// Each of the last layers needs one of its kind before them.
    fn check_shared_layers(&self) -> Result<(), String> {
        let (layers, shared) = (self.layers, self.attention.shared_layers);
        if shared == 0 {
            return Ok(());
        }
        let Some(windowed) = self.lists.windowed.as_ref().filter(|_| self.attention.window.is_some()) else {
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

    /// The factors of a GGUF file without those of pairs that only layers with a window have.
    pub(crate) fn own_factors(&self, mut factors: Vec<f32>) -> Vec<f32> {
        if self.local_rope.as_ref().is_some_and(|local| local.dims == 2 * factors.len()) {
            factors.truncate(self.rope.dims / 2);
        }
        factors
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
}

impl Additions {
    /// Checks that the numbers fit each other.
    fn check(&self) -> Result<(), String> {
        if let Some([rows, width]) = self.layer_embedding {
            key::check_size("number of rows of the second embedding", rows, MAX_SIZE)?;
            key::check_size("width of the second embedding", width, MAX_SIZE)?;
        }
        self.streams.map_or(Ok(()), |streams| streams.check())?;
        self.low_rank.map_or(Ok(()), |rank| key::check_size("rank next to attention", rank, MAX_SIZE))
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
    use crate::{ExpertGroups, GlobalHeads, IndexerConfig, Routing, StateSpaceHeads};

    pub(crate) fn small() -> Config {
        Config {
            source_name: "test".into(),
            architecture: "llama".into(),
            vocab: 32,
            hidden: 64,
            layers: 2,
            feed_forward: 96,
            context_length: 128,
            norm_eps: 1e-5,
            attention: AttentionConfig { heads: 4, kv_heads: 2, head_dim: 16, ..AttentionConfig::default() },
            rope: RopeConfig { theta: 10000.0, dims: 16, ..RopeConfig::default() },
            ..Config::default()
        }
    }

    fn attention(change: impl FnOnce(&mut AttentionConfig)) -> Config {
        let mut config = small();
        change(&mut config.attention);
        config
    }

    fn lists(lists: LayerLists) -> Config {
        Config { lists, ..small() }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let refusal = |config: Config| config.checked().unwrap_err().to_string();
        assert!(small().checked().is_ok());
        assert_eq!(
            refusal(attention(|own| own.heads = 0)),
            "test: the number of heads is 0, expected 1 to 16777216"
        );
        assert_eq!(
            refusal(attention(|own| own.kv_heads = 3)),
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
            let lists = LayerLists { windowed: Some(windowed_layers), ..LayerLists::default() };
            let own = AttentionConfig { shared_layers: 1, window: Some(4), ..small().attention };
            Config { attention: own, lists, ..small() }
        };
        assert!(shared(vec![true; 2]).checked().is_ok());
        assert_eq!(
            refusal(shared(vec![true, false])),
            "test: layers without a window share keys, but none of the first 1 has one"
        );
        let streams = Some(StreamConfig { count: 2, active: 2, scaled: true });
        let additions = Additions { streams, ..Additions::default() };
        assert_eq!(refusal(Config { additions, ..small() }), "test: layers compute residual stream 2 of 2");
        assert_eq!(
            refusal(lists(LayerLists { widths: Some(vec![96]), ..LayerLists::default() })),
            "test: 2 layers, but 1 in the list of feed-forward sizes"
        );
        let global_heads = Some(GlobalHeads { kv_heads: 3, head_dim: 16 });
        let error = refusal(attention(|own| own.global_heads = global_heads));
        assert!(error.contains("4 heads cannot share 3 key-value heads"), "{error}");
        let experts = |count, per_token| {
            let experts = ExpertConfig { count, per_token, width: 96, ..ExpertConfig::default() };
            Config { experts: Some(experts), ..small() }
        };
        assert!(experts(8, 8).checked().is_ok());
        assert_eq!(refusal(experts(8, 9)), "test: the number of experts per token is 9, expected 1 to 8");
        assert_eq!(refusal(experts(5000, 1)), "test: the number of experts is 5000, expected 1 to 4096");
        let routed = |routing: Routing| {
            let experts =
                ExpertConfig { count: 8, per_token: 3, width: 96, routing, ..ExpertConfig::default() };
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
                norm_eps: None,
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
            refusal(lists(LayerLists { rotated: Some(vec![true]), ..LayerLists::default() })),
            "test: 2 layers, but 1 in the list of rotated ones"
        );
        let multipliers = Multipliers { logits: 0.0, ..Multipliers::default() };
        assert_eq!(
            refusal(Config { multipliers, ..small() }),
            "test: the logit multiplier is 0, expected a number other than 0"
        );
    }
}
