//! The warning about answers cut short by a context length that the user did not choose.

use pipelines::{FinishReason, OutOfMemory, Plan};

use super::sample::Sample;
use crate::model::ModelSource;

/// The context length of a run.
pub(super) struct LengthLimit {
    max_length: usize,
    /// Where it comes from; `None` if the user set it.
    cause: Option<String>,
}

impl LengthLimit {
    /// The limit a model runs with.
    pub(super) fn new(source: &ModelSource, plan: &Plan) -> Result<LengthLimit, OutOfMemory> {
        let (max_length, context) = (plan.max_length()?, plan.context_length());
        let cause = if max_length >= context {
            Some("the model's context".to_string())
        } else if source.is_set("max_length") {
            None
        } else {
            Some(format!("as many as fit into memory; the model's context is {context}"))
        };
        Ok(LengthLimit { max_length, cause })
    }

    /// A warning if the limit ended answers, rather than the model or `max_new_tokens`.
    pub(super) fn warning(&self, samples: &[Sample], max_new_tokens: Option<usize>) -> Option<String> {
        let cause = self.cause.as_ref()?;
        let is_cut = |sample: &&Sample| {
            sample.finished == Some(FinishReason::Length)
                && max_new_tokens.is_none_or(|most| sample.tokens.len() < most)
        };
        let count = samples.iter().filter(is_cut).count();
        let answers = match (count, samples.len()) {
            (0, _) => return None,
            (1, 1) => "the answer was cut".to_string(),
            (count, all) => format!("{count} of {all} answers were cut"),
        };
        Some(format!("{answers}: prompt and answer reached {} tokens ({cause})", self.max_length))
    }
}
