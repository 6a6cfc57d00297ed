//! Rotary position embedding: the angle each pair of dims turns by per position.

use graph::ops::{RopeStyle, RopeTable};
use graph::{Builder, Value};
use tensor::Tensor;

use crate::{Config, Error, RopeConfig, Scaling};

/// The factor of pairs that do not turn.
pub(crate) const ENDLESS: f32 = 1e30;

/// The rotary embedding of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Which dims form a pair. A property of the files: GGUF files of the llama family hold query and key rows
    /// in interleaved order, Hugging Face files in half-split order.
    pub style: RopeStyle,
    /// Radians per position of each pair.
    pub inverse_frequencies: Vec<f32>,
    /// A factor on the rotated vectors (YaRN's attention factor), usually 1.
    pub scale: f32,
}

impl Rope {
    /// The embeddings of a configuration: that of all layers, and after it that of layers with a window, if it is
    /// another; or one for each base that layers have. None, if no dims are rotated.
    ///
    /// # Errors
    /// As [`Rope::new`].
    pub fn all(config: &Config, style: RopeStyle) -> Result<Vec<Rope>, Error> {
        let of_base = |theta| RopeConfig { theta, ..config.rope.clone() };
        let ropes: Vec<RopeConfig> = match config.lists.thetas {
            Some(_) => config.lists.bases().into_iter().map(of_base).collect(),
            None => [Some(&config.rope), config.local_rope.as_ref()].into_iter().flatten().cloned().collect(),
        };
        let ropes = ropes.iter().filter(|rope| rope.dims > 0).map(|rope| Rope::new(rope, style));
        ropes.collect::<Result<_, _>>().map_err(|message| Error::config(&config.source_name, message))
    }

    /// The embedding that a configuration describes: `theta^(-2i/dims)`, scaled, then divided by per-pair
    /// factors if there are some.
    ///
    /// # Errors
    /// If the factors are not one per pair, or the scaling makes no sense.
    pub fn new(config: &RopeConfig, style: RopeStyle) -> Result<Rope, String> {
        let (mut frequencies, scale) = scaled(&config.base(), config);
        if let Some(factors) = &config.factors {
            if factors.len() != frequencies.len() {
                return Err(format!(
                    "{} rope factors for {} rotated pairs",
                    factors.len(),
                    frequencies.len()
                ));
            }
            // GGUF files say so that a pair does not turn.
            let divided = |by: f32| if by >= ENDLESS { f64::INFINITY } else { f64::from(by) };
            frequencies
                .iter_mut()
                .zip(factors)
                .for_each(|(frequency, &factor)| *frequency /= divided(factor));
        }
        let inverse_frequencies: Vec<f32> =
            frequencies.into_iter().map(|frequency| frequency as f32).collect();
        if !(scale.is_finite() && inverse_frequencies.iter().all(|frequency| frequency.is_finite())) {
            return Err("the rope frequencies or their factor are not finite".into());
        }
        Ok(Rope { style, inverse_frequencies, scale: scale as f32 })
    }

    /// The cosines and sines of positions: u32[tokens] → f32[tokens, 2, pairs]
    pub(crate) fn table(&self, graph: &mut Builder, positions: Value) -> Result<Value, Error> {
        let frequencies = Tensor::from_slice([self.inverse_frequencies.len()], &self.inverse_frequencies);
        let frequencies = graph.constant(frequencies);
        Ok(graph.op(RopeTable { scale: self.scale }, &[positions, frequencies])?)
    }
}

impl RopeConfig {
    /// The frequencies after scaling, before they are divided by factors.
    pub(crate) fn frequencies(&self) -> Vec<f64> {
        scaled(&self.base(), self).0
    }

    /// The frequencies before scaling: `theta^(-2i/dims)`.
    fn base(&self) -> Vec<f64> {
        (0..self.dims / 2).map(|i| self.theta.powf(-2.0 * i as f64 / self.dims as f64)).collect()
    }
}

/// The frequencies after scaling, and the attention factor.
fn scaled(base: &[f64], config: &RopeConfig) -> (Vec<f64>, f64) {
    match config.scaling {
        None => (base.to_vec(), 1.0),
        Some(Scaling::Proportional { pairs, factor }) => {
            let turned =
                |(pair, frequency): (usize, &f64)| if pair < pairs { frequency / factor } else { 0.0 };
            (base.iter().enumerate().map(turned).collect(), 1.0)
        }
        Some(Scaling::Linear { factor }) => (base.iter().map(|f| f / factor).collect(), 1.0),
        Some(Scaling::Llama3 { factor, low_frequency, high_frequency, original_context }) => {
            let scale = |f: &f64| llama3(*f, factor, low_frequency, high_frequency, original_context);
            (base.iter().map(scale).collect(), 1.0)
        }
        Some(Scaling::LongRope { attention_factor, .. }) => (base.to_vec(), attention_factor),
        Some(Scaling::Yarn {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            truncate,
            attention_factor,
        }) => {
            let ends = [beta_fast, beta_slow].map(|turns| pair_that_turns(turns, config, original_context));
            let ramp = yarn_ramp(config.dims, ends, truncate);
            let blend = |(i, f): (usize, &f64)| f / factor * ramp(i) + f * (1.0 - ramp(i));
            (base.iter().enumerate().map(blend).collect(), attention_factor)
        }
    }
}

/// Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones kept, and those
/// between blended.
fn llama3(frequency: f64, factor: f64, low: f64, high: f64, original_context: f64) -> f64 {
    let wavelength = 2.0 * std::f64::consts::PI / frequency;
    if wavelength < original_context / high {
        frequency
    } else if wavelength > original_context / low {
        frequency / factor
    } else {
        let smooth = (original_context / wavelength - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

/// YaRN (Peng et al. 2023, section 3.2): 0 for pairs that turn often over the original context, 1 for those that turn
/// seldom, linear in the pair's index between the two `ends`.
fn yarn_ramp(dims: usize, ends: [f64; 2], truncate: bool) -> impl Fn(usize) -> f64 {
    let [low, high] = if truncate { [ends[0].floor(), ends[1].ceil()] } else { ends };
    let (low, high) = (low.max(0.0), high.min(dims as f64 - 1.0));
    move |pair| ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
}

/// The index, which need not be whole, of the pair that turns so many times over the original context.
fn pair_that_turns(times: f64, config: &RopeConfig, original_context: f64) -> f64 {
    let turn = 2.0 * std::f64::consts::PI;
    config.dims as f64 * (original_context / (times * turn)).ln() / (2.0 * config.theta.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(scaling: Option<Scaling>) -> RopeConfig {
        RopeConfig { theta: 500_000.0, dims: 128, scaling, ..RopeConfig::default() }
    }

    #[test]
    fn llama3_keeps_fast_pairs_and_stretches_slow_ones() {
        let scaling = Scaling::Llama3 {
            factor: 8.0,
            low_frequency: 1.0,
            high_frequency: 4.0,
            original_context: 8192.0,
        };
        let plain = Rope::new(&config(None), RopeStyle::HalfSplit).unwrap().inverse_frequencies;
        let scaled = Rope::new(&config(Some(scaling)), RopeStyle::HalfSplit).unwrap().inverse_frequencies;
        assert_eq!(plain[0], 1.0);
        assert_eq!(scaled[..20], plain[..20]);
        assert_eq!(scaled[63], plain[63] / 8.0);
        assert!(scaled.windows(2).all(|pair| pair[0] > pair[1]), "still descending through the blend");
    }

    #[test]
    fn yarn_is_linear_scaling_for_slow_pairs() {
        let scaling = Scaling::Yarn {
            factor: 4.0,
            original_context: 32768.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention_factor: 1.5,
        };
        let plain = Rope::new(&config(None), RopeStyle::HalfSplit).unwrap();
        let scaled = Rope::new(&config(Some(scaling)), RopeStyle::HalfSplit).unwrap();
        assert_eq!(scaled.scale, 1.5);
        assert_eq!(scaled.inverse_frequencies[0], plain.inverse_frequencies[0]);
        assert_eq!(scaled.inverse_frequencies[63], plain.inverse_frequencies[63] / 4.0);
    }

    #[test]
    fn only_the_first_pairs_turn_in_proportion() {
        let scaling = Some(Scaling::Proportional { pairs: 16, factor: 2.0 });
        let plain = Rope::new(&config(None), RopeStyle::HalfSplit).unwrap().inverse_frequencies;
        let rope = Rope::new(&config(scaling), RopeStyle::HalfSplit).unwrap();
        assert_eq!(rope.inverse_frequencies[..16], plain[..16].iter().map(|f| f / 2.0).collect::<Vec<_>>());
        assert_eq!(rope.inverse_frequencies[16..], [0.0; 48]);
        let factors = [vec![2.0; 16], vec![ENDLESS; 48]].concat();
        let same = RopeConfig { factors: Some(factors), ..config(None) };
        assert_eq!(Rope::new(&same, RopeStyle::HalfSplit).unwrap(), rope);
    }

    #[test]
    fn factors_are_one_per_pair() {
        let rope = RopeConfig { factors: Some(vec![1.0]), ..config(None) };
        let config = Config { rope, ..crate::config::tests::small() };
        let error = Rope::all(&config, RopeStyle::Interleaved).unwrap_err();
        assert_eq!(error.to_string(), "test: 1 rope factors for 64 rotated pairs");
    }
}
