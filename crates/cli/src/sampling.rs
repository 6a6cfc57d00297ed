//! How tokens are chosen: what flags say, else what the model recommends, else defaults of our own.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use pipelines::SamplingParams;
use serde::Deserialize;

use crate::exit::BadModel;
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

/// What a model's `generation_config.json` recommends. Keys that we do not know are none of our business.
#[derive(Debug, Default, Deserialize)]
struct Recommended {
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl SamplingArguments {
    /// The parameters: flags, before the recommendations of a `generation_config.json` if there is one, before
    /// defaults.
    pub(crate) fn resolve(&self, generation_config: Option<&Path>) -> anyhow::Result<SamplingParams> {
        let Some(path) = generation_config.filter(|path| path.is_file()) else {
            return Ok(self.merged(&Recommended::default()));
        };
        let bad =
            |problem: String| BadModel(format!("{}: {problem}; mend or remove the file", path.display()));
        let json = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        let recommended = serde_json::from_slice(&json).map_err(|error| bad(error.to_string()))?;
        let params = self.merged(&recommended);
        // Flags were checked one by one, so what is wrong here is the file's.
        params.validate(usize::MAX).map_err(|error| bad(error.to_string()))?;
        Ok(params)
    }

    fn merged(&self, recommended: &Recommended) -> SamplingParams {
        let none = SamplingParams::default();
        let greedy = (recommended.do_sample == Some(false)).then_some(0.0);
        let top_k = self.top_k.or(recommended.top_k.map(|k| usize::try_from(k).unwrap_or(0)));
        SamplingParams {
            temperature: self.temperature.or(greedy).or(recommended.temperature).unwrap_or(0.7),
            top_k: Some(top_k.unwrap_or(40)).filter(|&k| k > 0),
            top_p: self.top_p.or(recommended.top_p).unwrap_or(none.top_p),
            min_p: self.min_p.or(recommended.min_p).unwrap_or(none.min_p),
            repetition_penalty: self
                .repetition_penalty
                .or(recommended.repetition_penalty)
                .unwrap_or(none.repetition_penalty),
            seed: self.seed.unwrap_or_else(drawn_seed),
            ..none
        }
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

    /// `(temperature, top-k, top-p)` of flags and the content of a `generation_config.json`.
    fn check(flags: &SamplingArguments, file: &str, expected: (f32, Option<usize>, f32)) {
        let params = flags.merged(&serde_json::from_str(file).unwrap());
        assert_eq!((params.temperature, params.top_k, params.top_p), expected, "{file}");
    }

    #[test]
    fn flags_before_recommendations_before_defaults() {
        let none = SamplingArguments::default();
        check(&none, "{}", (0.7, Some(40), 1.0));
        check(&none, r#"{"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}"#, (0.6, Some(40), 0.9));
        check(&none, r#"{"top_k": 0, "temperature": null}"#, (0.7, None, 1.0));
        check(&none, r#"{"top_k": -1}"#, (0.7, None, 1.0));
        check(&none, r#"{"do_sample": false, "temperature": 0.6}"#, (0.0, Some(40), 1.0));
        let flags = SamplingArguments { temperature: Some(1.5), top_k: Some(0), ..none };
        check(&flags, r#"{"do_sample": false, "top_k": 7, "top_p": 0.5}"#, (1.5, None, 0.5));
    }
}
