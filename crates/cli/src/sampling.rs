//! How tokens are chosen: what flags say, else what the model recommends, else defaults of our own.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use pipelines::{SamplingDefaults, SamplingParams};

use crate::parse;

/// The flags.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct SamplingArguments {
    /// 0 always takes the likeliest token, 1 draws as the model predicts [default: 0.7 *]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    temperature: Option<f32>,
    /// Draw among the K likeliest tokens; 0 is all [default: 40 *]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = parse::whole)]
    top_k: Option<usize>,
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

impl SamplingArguments {
    /// The parameters: flags, before the recommendations of a `generation_config.json` if there is one, before
    /// defaults.
    pub(crate) fn resolve(&self, generation_config: Option<&Path>) -> anyhow::Result<SamplingParams> {
        let recommended = generation_config.map(SamplingDefaults::from_generation_config).transpose()?;
        Ok(self.merged(recommended.unwrap_or_default()))
    }

    fn merged(&self, recommended: SamplingDefaults) -> SamplingParams {
        let flags = SamplingDefaults {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
        };
        let params = flags.or(recommended).or(HOUSE).params();
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
        let check = |flags: &SamplingArguments, recommended, expected: (f32, Option<usize>, f32)| {
            let params = flags.merged(recommended);
            assert_eq!((params.temperature, params.top_k, params.top_p), expected);
        };
        let (none, nothing) = (SamplingArguments::default(), SamplingDefaults::default());
        check(&none, nothing, (0.7, Some(40), 1.0));
        let recommended = SamplingDefaults { temperature: Some(0.6), top_p: Some(0.9), ..nothing };
        check(&none, recommended, (0.6, Some(40), 0.9));
        let flags = SamplingArguments { temperature: Some(1.5), top_k: Some(0), ..none };
        check(&flags, recommended, (1.5, None, 0.9));
    }
}
