//! A model's hyperparameters, whichever file they came from.

mod gguf;
mod hugging_face;

use crate::Error;

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
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// The width inside the feed-forward block.
    pub feed_forward: usize,
    /// The longest sequence the model was made for.
    pub context_length: usize,
    /// `eps` of the norms.
    pub norm_eps: f32,
    /// The base of the rotary frequencies.
    pub rope_theta: f64,
    /// Dims of each head that are rotated.
    pub rope_dims: usize,
    /// How the rotary frequencies are stretched.
    pub rope_scaling: Option<Scaling>,
    /// What the frequency of each pair is divided by, if the configuration lists it.
    pub rope_factors: Option<Vec<f32>>,
    /// Which layers rotate queries and keys, if the configuration lists them.
    pub rotated_layers: Option<Vec<bool>>,
    /// How far back a token sees, itself included; `None` is all the way.
    pub window: Option<usize>,
    /// The first layers, whose tokens see all the way whatever the window.
    pub full_layers: usize,
    /// Factors on what flows between the layers.
    pub multipliers: Multipliers,
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
    /// What logits are divided by.
    pub logit_divisor: f32,
}

impl Default for Multipliers {
    fn default() -> Multipliers {
        Multipliers { embedding: 1.0, attention: None, residual: 1.0, logit_divisor: 1.0 }
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
        /// The factor on rotated vectors.
        attention_factor: f64,
    },
    /// LongRoPE (Ding et al. 2024): each pair has a factor of its own. Of the two lists that models come with, we
    /// use that for sequences within the original context, and let no sequence be longer.
    LongRope {
        /// The context before stretching, in tokens.
        original_context: usize,
        /// The factor on rotated vectors.
        attention_factor: f64,
    },
}

impl Scaling {
    /// How long sequences can be, of the length that a configuration states.
    fn usable_context(scaling: Option<Scaling>, stated: usize) -> usize {
        match scaling {
            Some(Scaling::LongRope { original_context, .. }) => stated.min(original_context),
            _ => stated,
        }
    }
}

/// Sizes beyond these are no model but a damaged or hostile file.
const MAX_SIZE: usize = 1 << 24;
const MAX_LAYERS: usize = 1 << 12;
const MAX_HEAD: usize = 1 << 14;

impl Config {
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
            ("feed-forward size", self.feed_forward, MAX_SIZE),
            ("context length", self.context_length, usize::MAX),
            ("number of rotated dims", self.rope_dims, self.head_dim),
        ];
        for (what, size, limit) in sizes {
            if size == 0 || size > limit {
                return Err(self.error(format!("the {what} is {size}, expected 1 to {limit}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(self.error(format!(
                "{} heads cannot share {} key-value heads evenly",
                self.heads, self.kv_heads
            )));
        }
        if !self.rope_dims.is_multiple_of(2) {
            return Err(self.error(format!("{} rotated dims are no whole number of pairs", self.rope_dims)));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return Err(
                self.error(format!("the norm's eps is {}, expected a small positive number", self.norm_eps))
            );
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 1.0) {
            return Err(self.error(format!("the rope theta is {}, expected more than 1", self.rope_theta)));
        }
        if let Some(layers) = &self.rotated_layers
            && layers.len() != self.layers
        {
            return Err(self.error(format!(
                "{} layers, but {} in the list of rotated ones",
                self.layers,
                layers.len()
            )));
        }
        let Multipliers { embedding, attention, residual, logit_divisor } = self.multipliers;
        for (what, factor) in [
            ("embedding multiplier", embedding),
            ("attention multiplier", attention.unwrap_or(1.0)),
            ("residual multiplier", residual),
            ("logit divisor", logit_divisor),
        ] {
            if !factor.is_normal() {
                return Err(self.error(format!("the {what} is {factor}, expected a number other than 0")));
            }
        }
        Ok(self)
    }

    fn error(&self, message: String) -> Error {
        Error::config(&self.source_name, message)
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
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            feed_forward: 96,
            context_length: 128,
            norm_eps: 1e-5,
            rope_theta: 10000.0,
            rope_dims: 16,
            rope_scaling: None,
            rope_factors: None,
            rotated_layers: None,
            window: None,
            full_layers: 0,
            multipliers: Multipliers::default(),
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
        assert!(refusal(Config { rope_dims: 18, ..small() }).contains("18"));
        assert!(refusal(Config { norm_eps: f32::NAN, ..small() }).contains("NaN"));
        assert_eq!(
            refusal(Config { rotated_layers: Some(vec![true]), ..small() }),
            "test: 2 layers, but 1 in the list of rotated ones"
        );
        let multipliers = Multipliers { logit_divisor: 0.0, ..Multipliers::default() };
        assert_eq!(
            refusal(Config { multipliers, ..small() }),
            "test: the logit divisor is 0, expected a number other than 0"
        );
    }
}
