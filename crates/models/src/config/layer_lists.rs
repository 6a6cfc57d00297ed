//! What differs between the layers of a model.

use crate::key::{self, Key, Keyed, MAX_EXPERTS, MAX_SIZE};

/// What differs between layers, an entry for each. Without a list, the family decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerLists {
    /// Which layers choose positions themselves. Others take the choice of the last one that does.
    pub indexed: Option<Vec<bool>>,
    /// How many query heads attention has.
    pub heads: Option<Vec<usize>>,
    /// The width inside each feed-forward block.
    pub widths: Option<Vec<usize>>,
    /// The numbers of the function of each feed-forward block, in the order of `layers::XIELU`; only GGUF files have
    /// them here, and others among the weights.
    pub xielu: Option<Vec<[f32; 4]>>,
    /// How many standard deviations above their mean the gates of each layer begin, if they do not have their usual values.
    pub gate_cutoffs: Option<Vec<Option<f32>>>,
    /// The bound of gates of experts after their function, and of what they multiply; 0 is none.
    pub gate_limits: Option<Vec<f32>>,
    /// The same of other feed-forward blocks.
    pub shared_gate_limits: Option<Vec<f32>>,
    /// The one block of each layer, if layers have but one.
    pub lone_blocks: Option<Vec<LoneBlock>>,
    /// Which layers keep a state per sequence in place of keys and values.
    pub recurrent: Option<Vec<bool>>,
    /// Which layers have experts.
    pub sparse: Option<Vec<bool>>,
    /// How many experts each token gets.
    pub experts_per_token: Option<Vec<usize>>,
    /// The base of the rotation of each layer, if it is not that of the configuration's rotary embedding; 0 is no rotation.
    pub thetas: Option<Vec<f64>>,
    /// Which layers rotate queries and keys.
    pub rotated: Option<Vec<bool>>,
    /// Which layers have the window.
    pub windowed: Option<Vec<bool>>,
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

impl Keyed for LayerLists {
    const KEYS: &'static [Key<LayerLists>] = &[
        Key::size("feed-forward size of a layer", ["layer_widths", ""], MAX_SIZE, |lists| &mut lists.widths),
        Key::any(["layer_rope_theta", ""], |lists| &mut lists.thetas),
        Key::size("number of heads of a layer", ["num_attention_heads_per_layer", ""], MAX_SIZE, |lists| {
            &mut lists.heads
        }),
        Key::any(["swiglu_limits", ""], |lists| &mut lists.gate_limits),
        Key::any(["swiglu_limits_shared", ""], |lists| &mut lists.shared_gate_limits),
        Key::any(["recurrent_layers", ""], |lists| &mut lists.recurrent),
        Key::any(["sparse_layers", ""], |lists| &mut lists.sparse),
        Key::size(
            "number of experts per token of a layer",
            ["experts_per_token", ""],
            MAX_EXPERTS,
            |lists| &mut lists.experts_per_token,
        ),
    ];
}

impl LayerLists {
    /// Whether a layer keeps a state per sequence in place of keys and values, as far as the configuration says.
    pub(crate) fn is_recurrent(&self, layer: usize) -> bool {
        self.recurrent.as_ref().is_some_and(|layers| layers[layer])
    }

    /// The bases of rotations that differ, in the order of the first layers that have them.
    pub(crate) fn bases(&self) -> Vec<f64> {
        let mut bases = Vec::new();
        for &theta in self.thetas.iter().flatten().filter(|&&theta| theta != 0.0) {
            if !bases.contains(&theta) {
                bases.push(theta);
            }
        }
        bases
    }

    /// Checks that all lists have an entry for each layer.
    pub(crate) fn check(&self, layers: usize) -> Result<(), String> {
        fn count<T>(list: &Option<Vec<T>>) -> Option<usize> {
            list.as_ref().map(Vec::len)
        }
        for (what, count) in [
            ("list of rotated ones", count(&self.rotated)),
            ("list of windowed ones", count(&self.windowed)),
            ("list of sparse ones", count(&self.sparse)),
            ("list of indexed ones", count(&self.indexed)),
            ("list of recurrent ones", count(&self.recurrent)),
            ("list of their blocks", count(&self.lone_blocks)),
            ("list of heads", count(&self.heads)),
            ("list of feed-forward sizes", count(&self.widths)),
            ("list of shares of gates", count(&self.gate_cutoffs)),
            ("list of limits of gates", count(&self.gate_limits)),
            ("list of limits of other gates", count(&self.shared_gate_limits)),
            ("list of numbers of activations", count(&self.xielu)),
            ("list of bases", count(&self.thetas)),
            ("list of experts per token", count(&self.experts_per_token)),
        ] {
            if let Some(count) = count.filter(|&count| count != layers) {
                return Err(format!("{layers} layers, but {count} in the {what}"));
            }
        }
        key::check(self)?;
        if let Some(theta) = self.bases().into_iter().find(|theta| !(theta.is_finite() && *theta > 1.0)) {
            return Err(format!("the rope theta of a layer is {theta}, expected 0 or more than 1"));
        }
        let limits = [&self.gate_limits, &self.shared_gate_limits].into_iter().flatten().flatten();
        if let Some(limit) = limits.copied().find(|limit| !(limit.is_finite() && *limit >= 0.0)) {
            return Err(format!("the limit of a layer's gates is {limit}, expected 0 or a positive number"));
        }
        match self.gate_cutoffs.iter().flatten().flatten().find(|cutoff| !cutoff.is_finite()) {
            Some(cutoff) => Err(format!("gates cannot begin {cutoff} standard deviations above their mean")),
            None => Ok(()),
        }
    }
}
