//! Flags of a request that are not about sampling.

use pipelines::Request;
use pipelines::sampler::MAX_LOGPROBS;

use crate::structured_output::StructuredOutputFlags;

/// The flags.
#[derive(clap::Args)]
pub(super) struct RequestFlags {
    /// Stop before this text; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Stop at this token; repeatable
    #[arg(long = "stop-token-id", value_name = "TOKEN", hide_short_help = true)]
    stop_token_ids: Vec<u32>,
    /// Generate at least this many tokens
    #[arg(long, value_name = "N", default_value = "0", hide_short_help = true)]
    min_new_tokens: usize,
    /// Continue past the model's end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Add the log-probability of each generated token, and of the N likeliest tokens at its position
    #[arg(long, value_name = "N", requires = "json", value_parser = logprobs, hide_short_help = true)]
    logprobs: Option<usize>,
    /// The same for the tokens of the prompt; sets enable_echo
    #[arg(long, value_name = "N", requires = "json", value_parser = logprobs, hide_short_help = true)]
    prompt_logprobs: Option<usize>,
    #[command(flatten)]
    structured_output: StructuredOutputFlags,
}

impl RequestFlags {
    /// Whether prompts are scored.
    pub(super) fn scores_prompts(&self) -> bool {
        self.prompt_logprobs.is_some()
    }

    /// The stop strings.
    pub(super) fn stops(&self) -> &[String] {
        &self.stop
    }

    /// The request with these flags applied.
    ///
    /// # Errors
    /// If the file of a schema or grammar cannot be read.
    pub(super) fn apply(&self, request: Request) -> anyhow::Result<Request> {
        Ok(Request {
            stop: self.stop.clone(),
            stop_token_ids: self.stop_token_ids.clone(),
            min_new_tokens: self.min_new_tokens,
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            constraint: self.structured_output.constraint()?,
            ..request
        })
    }
}

fn logprobs(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|&count| count <= MAX_LOGPROBS);
    parsed.ok_or_else(|| format!("give a whole number from 0 to {MAX_LOGPROBS}"))
}
