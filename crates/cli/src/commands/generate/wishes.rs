//! What is wanted of every answer: the flags of a request that are not about sampling.

use pipelines::Request;
use pipelines::sampler::MAX_LOGPROBS;

/// The flags.
#[derive(clap::Args)]
pub(super) struct Wishes {
    /// End the text before this one, which is not printed; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// End the text at this token; may be given several times
    #[arg(long = "stop-token-id", value_name = "TOKEN")]
    stop_token_ids: Vec<u32>,
    /// Do not end before this many tokens
    #[arg(long, value_name = "N", default_value = "0")]
    min_new_tokens: usize,
    /// Go on after the model ends its text
    #[arg(long)]
    ignore_eos: bool,
    /// Log-probabilities of the tokens that are made, and of the N likeliest in their place
    #[arg(long, value_name = "N", requires = "json", value_parser = logprobs)]
    logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens, and of the N likeliest in their place; sets enable_echo
    #[arg(long, value_name = "N", requires = "json", value_parser = logprobs)]
    prompt_logprobs: Option<usize>,
}

impl Wishes {
    /// Whether prompts are to be scored.
    pub(super) fn scores_prompts(&self) -> bool {
        self.prompt_logprobs.is_some()
    }

    /// The texts that end answers.
    pub(super) fn stops(&self) -> &[String] {
        &self.stop
    }

    /// A request with all of it.
    pub(super) fn of(&self, request: Request) -> Request {
        Request {
            stop: self.stop.clone(),
            stop_token_ids: self.stop_token_ids.clone(),
            min_new_tokens: self.min_new_tokens,
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            ..request
        }
    }
}

fn logprobs(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|&count| count <= MAX_LOGPROBS);
    parsed.ok_or_else(|| format!("give a whole number from 0 to {MAX_LOGPROBS}"))
}
