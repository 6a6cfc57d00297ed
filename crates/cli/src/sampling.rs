//! Sampling parameters: flags override the model's recommendation, which overrides our defaults.

use pipelines::config::UseCase;
use pipelines::{Plan, Request, SamplingOptions, random_seed};

use crate::model::ModelSource;
use crate::parse;
use crate::settings::SAMPLING;

/// The flags.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct SamplingArguments {
    /// Temperature; 0 is greedy [default: 0.7 *]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature, help_heading = SAMPLING)]
    temperature: Option<f32>,
    /// Sample from total probability P [default: 1 *]
    ///
    /// Only the likeliest tokens that together reach probability P can be drawn.
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = top_p, help_heading = SAMPLING)]
    top_p: Option<f32>,
    /// Cut tokens below P times the top probability
    ///
    /// Only tokens at least P times as likely as the likeliest can be drawn [default: 0 *]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = min_p, help_heading = SAMPLING)]
    min_p: Option<f32>,
    /// Penalty on repeated tokens [default: 1 *]
    ///
    /// Values above 1 make tokens that already occurred less likely.
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        value_parser = repetition_penalty,
        help_heading = SAMPLING
    )]
    repetition_penalty: Option<f32>,
    /// Lower a token's logit by X for each time it occurs in the answer [default: 0]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        value_parser = frequency_penalty,
        help_heading = SAMPLING,
        hide_short_help = true
    )]
    frequency_penalty: Option<f32>,
    /// Lower a token's logit by X once it occurs in the answer [default: 0]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        value_parser = presence_penalty,
        help_heading = SAMPLING,
        hide_short_help = true
    )]
    presence_penalty: Option<f32>,
    /// Add X to a token's logit; repeatable
    #[arg(
        long,
        value_name = "TOKEN=X",
        allow_negative_numbers = true,
        value_parser = parse::logit_bias,
        help_heading = SAMPLING,
        hide_short_help = true
    )]
    logit_bias: Vec<(u32, f32)>,
    /// Random seed [default: random, printed]
    ///
    /// The same seed, prompt and options give the same text.
    #[arg(
        long,
        short,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse::seed,
        help_heading = SAMPLING
    )]
    seed: Option<u64>,
}

impl SamplingArguments {
    /// A request with the sampling parameters of the flags and of a `top_k` from any source, then the model's
    /// recommendation, then our defaults. The seed is random unless given.
    pub(crate) fn request(&self, source: &ModelSource, plan: &Plan) -> Request {
        let top_k = source.is_set("top_k").then_some(source.config().top_k);
        Request {
            sampling: self.over(top_k, plan.recommended_sampling()),
            seed: self.seed.unwrap_or_else(random_seed),
            logit_bias: self.logit_bias.iter().copied().collect(),
            ..Request::default()
        }
    }

    /// Flags override `top_k`, which overrides recommendations, which override defaults.
    fn over(&self, top_k: Option<Option<i64>>, recommended: SamplingOptions) -> SamplingOptions {
        let set = match top_k {
            None => SamplingOptions::default(),
            Some(None) => SamplingOptions::GREEDY,
            Some(Some(k)) => {
                SamplingOptions { top_k: Some(usize::try_from(k).unwrap_or(0)), ..SamplingOptions::default() }
            }
        };
        let flags = SamplingOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            ..SamplingOptions::default()
        };
        flags.or(set).or(recommended).or(UseCase::Prompt.sampling())
    }
}

pub(crate) fn temperature(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.temperature = value)
}

pub(crate) fn top_p(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.top_p = value)
}

pub(crate) fn min_p(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.min_p = value)
}

pub(crate) fn repetition_penalty(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.repetition_penalty = value)
}

pub(crate) fn frequency_penalty(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.frequency_penalty = value)
}

pub(crate) fn presence_penalty(text: &str) -> Result<f32, String> {
    parse::sampling(text, |params, value| params.presence_penalty = value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_recommendations_override_defaults() {
        let check = |flags: &SamplingArguments, top_k, recommended, expected: (f32, Option<usize>, f32)| {
            let params = flags.over(top_k, recommended).params();
            assert_eq!((params.temperature, params.top_k, params.top_p), expected);
        };
        let (none, nothing) = (SamplingArguments::default(), SamplingOptions::default());
        check(&none, None, nothing, (0.7, Some(40), 1.0));
        let recommended = SamplingOptions { temperature: Some(0.6), top_p: Some(0.9), ..nothing };
        check(&none, None, recommended, (0.6, Some(40), 0.9));
        check(&none, Some(None), recommended, (0.0, Some(40), 0.9));
        let greedy = SamplingOptions { temperature: Some(0.0), top_k: Some(7), ..nothing };
        check(&none, None, greedy, (0.0, Some(7), 1.0));
        check(&none, Some(Some(3)), greedy, (0.7, Some(3), 1.0));
        let flags = SamplingArguments { temperature: Some(1.5), ..none };
        check(&flags, Some(Some(0)), greedy, (1.5, None, 1.0));
    }
}
