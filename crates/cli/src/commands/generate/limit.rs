//! Answers that end because there is no room for more, which nobody asked for.

use pipelines::FinishReason;
use pipelines::config::ResolvedConfig;

use super::job::Job;

/// The most tokens of a prompt and its answer together, and why there are no more.
pub(super) struct Limit {
    max_length: usize,
    why: String,
}

impl Limit {
    /// That of a model as it is to run.
    pub(super) fn of(resolved: &ResolvedConfig) -> Limit {
        let memory = resolved.memory();
        let context = resolved.checkpoint().network.context_length();
        let why = match (memory.max_length < context, memory.length_inferred) {
            (false, _) => "all that the model's context holds".to_string(),
            (true, true) => format!("all that fits into memory, and the model's context holds {context}"),
            (true, false) => "what max_length says".to_string(),
        };
        Limit { max_length: memory.max_length, why }
    }

    /// A line if answers ended there, rather than where the model or `max_new_tokens` ended them.
    pub(super) fn cuts(&self, jobs: &[Job], max_new_tokens: Option<usize>) -> Option<String> {
        let is_cut = |job: &&Job| {
            job.finished == Some(FinishReason::Length)
                && max_new_tokens.is_none_or(|most| job.tokens.len() < most)
        };
        let count = jobs.iter().filter(is_cut).count();
        let which = match (count, jobs.len()) {
            (0, _) => return None,
            (1, 1) => "the answer ends because it and its prompt".to_string(),
            (count, all) => format!("{count} of {all} answers end because they and their prompts"),
        };
        Some(format!("{which} have come to {} tokens, {}", self.max_length, self.why))
    }
}
