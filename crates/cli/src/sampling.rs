//! How tokens are chosen: what flags say, else what the model recommends, else defaults of our own.

use std::hash::{BuildHasher, RandomState};

use pipelines::config::ResolvedConfig;
use pipelines::{SamplingDefaults, SamplingParams};

use crate::model::{self, Source};
use crate::parse;

/// The flags.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct SamplingArguments {
    /// 0 always takes the likeliest token, 1 draws as the model predicts [default: 0.7 *]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    temperature: Option<f32>,
    /// Draw among the likeliest tokens that together have probability P [default: 1 *]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = top_p)]
    top_p: Option<f32>,
    /// Draw among tokens at least P times as likely as the likeliest [default: 0 *]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = min_p)]
    min_p: Option<f32>,
    /// Make tokens that occurred already less likely, if above 1 [default: 1 *]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = repetition_penalty)]
    repetition_penalty: Option<f32>,
    /// The same seed, prompt and options give the same text [default: drawn, and reported]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse::seed)]
    seed: Option<u64>,
}

/// What suits most models: neither dull nor wild.
const HOUSE: SamplingDefaults = SamplingDefaults {
    temperature: Some(0.7),
    top_k: Some(40),
    top_p: None,
    min_p: None,
    repetition_penalty: None,
};

/// The `top_k` that someone set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopK {
    /// None: the likeliest token, always.
    Greedy,
    /// Among so many; 0 or less is all.
    Among(i64),
}

impl SamplingArguments {
    /// The parameters for a model: flags and the `top_k` that was set, before the recommendations of its
    /// `generation_config.json` if there is one, before defaults.
    pub(crate) fn resolve(
        &self,
        source: &Source,
        resolved: &ResolvedConfig,
    ) -> anyhow::Result<SamplingParams> {
        let top_k = source.is_set("top_k").then(|| source.config().top_k.map_or(TopK::Greedy, TopK::Among));
        let file = model::generation_config(resolved);
        let recommended = file.as_deref().map(SamplingDefaults::from_generation_config).transpose()?;
        Ok(self.merged(top_k, recommended.unwrap_or_default()))
    }

    fn merged(&self, top_k: Option<TopK>, recommended: SamplingDefaults) -> SamplingParams {
        let nothing = SamplingDefaults::default();
        let (set, recommended) = match top_k {
            None => (nothing, recommended),
            Some(TopK::Greedy) => (SamplingDefaults { temperature: Some(0.0), ..nothing }, recommended),
            // Whoever sets how many tokens to draw among wants to draw, even where the model would not.
            Some(TopK::Among(k)) => (
                SamplingDefaults { top_k: Some(usize::try_from(k).unwrap_or(0)), ..nothing },
                SamplingDefaults { temperature: recommended.temperature.filter(|&t| t > 0.0), ..recommended },
            ),
        };
        let flags = SamplingDefaults {
            temperature: self.temperature,
            top_k: None,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
        };
        let params = flags.or(set).or(recommended).or(HOUSE).params();
        SamplingParams { seed: self.seed.unwrap_or_else(drawn_seed), ..params }
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.temperature = value)
}

fn top_p(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.top_p = value)
}

fn min_p(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.min_p = value)
}

fn repetition_penalty(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.repetition_penalty = value)
}

/// A seed that differs from run to run, and is short enough to be typed again.
fn drawn_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_before_recommendations_before_defaults() {
        let check = |flags: &SamplingArguments, top_k, recommended, expected: (f32, Option<usize>, f32)| {
            let params = flags.merged(top_k, recommended);
            assert_eq!((params.temperature, params.top_k, params.top_p), expected);
        };
        let (none, nothing) = (SamplingArguments::default(), SamplingDefaults::default());
        check(&none, None, nothing, (0.7, Some(40), 1.0));
        let recommended = SamplingDefaults { temperature: Some(0.6), top_p: Some(0.9), ..nothing };
        check(&none, None, recommended, (0.6, Some(40), 0.9));
        check(&none, Some(TopK::Greedy), recommended, (0.0, Some(40), 0.9));
        let greedy = SamplingDefaults { temperature: Some(0.0), top_k: Some(7), ..nothing };
        check(&none, None, greedy, (0.0, Some(7), 1.0));
        check(&none, Some(TopK::Among(3)), greedy, (0.7, Some(3), 1.0));
        let flags = SamplingArguments { temperature: Some(1.5), ..none };
        check(&flags, Some(TopK::Among(0)), greedy, (1.5, None, 1.0));
    }
}
