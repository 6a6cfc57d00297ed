//! The time spent loading, reading prompts and generating.

use std::io::Write;
use std::time::{Duration, Instant};

use pipelines::{EventKind, FinishReason, Request};

use super::sample::Sample;

/// Times, for the closing line.
pub(super) struct Clock {
    load: Duration,
    /// Steps that read prompts, which may generate tokens of other sequences too.
    prompt: Duration,
    /// Steps that only generated tokens, and the number of these tokens.
    decode: Duration,
    decoded: usize,
    first_token: Option<Duration>,
    /// When the first step began, or the last one ended.
    since: Option<Instant>,
    step: Option<Step>,
    /// Steps that ended.
    steps: usize,
    /// Whether the second step, before which weights may be packed, only generated tokens.
    second_decodes: bool,
}

/// The events of a step, as far as they came: they have one time.
struct Step {
    ended: Instant,
    predicted: usize,
    /// Whether one of the tokens is the first of its answer.
    has_first: bool,
}

impl Clock {
    pub(super) fn new(load: Duration) -> Clock {
        let (prompt, decode) = (Duration::ZERO, Duration::ZERO);
        let (first_token, since, step) = (None, None, None);
        Clock { load, prompt, decode, decoded: 0, first_token, since, step, steps: 0, second_decodes: false }
    }

    /// Counts an event that happened at a time. `is_first` tells whether its answer has no token yet.
    pub(super) fn count(&mut self, at: Instant, event: &EventKind, is_first: bool) {
        if let EventKind::Started { .. } = event {
            // The time is that of the beginning of the step.
            self.since.get_or_insert(at);
            return;
        }
        if self.step.as_ref().is_some_and(|step| step.ended != at) {
            self.end_step();
        }
        let step = self.step.get_or_insert(Step { ended: at, predicted: 0, has_first: false });
        let predicted = match event {
            EventKind::Token { .. } => true,
            EventKind::Finished { reason, .. } => *reason != FinishReason::Length,
            _ => false,
        };
        if predicted {
            step.predicted += 1;
            step.has_first |= is_first;
        }
    }

    /// Adds the time of the step whose events came last.
    fn end_step(&mut self) {
        let (Some(step), Some(since)) = (self.step.take(), self.since) else { return };
        let time = step.ended.saturating_duration_since(since);
        self.since = Some(step.ended);
        self.steps += 1;
        let reads_prompts = step.predicted == 0 || step.has_first;
        self.second_decodes |= self.steps == 2 && !reads_prompts;
        if reads_prompts {
            self.prompt += time;
            if step.predicted > 0 {
                self.first_token.get_or_insert(self.prompt + self.decode);
            }
        } else {
            self.decode += time;
            self.decoded += step.predicted;
        }
    }

    /// Prints the closing line on standard error. Packing the weights after the first step took so long, if they were packed.
    pub(super) fn report(&mut self, samples: &[Sample], request: &Request, packing: Option<Duration>) {
        self.end_step();
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let mut facts = vec![format!("load {:.0} ms", milliseconds(self.load))];
        if let Some(packing) = packing.filter(|packing| packing.as_millis() > 0) {
            let second = if self.second_decodes { &mut self.decode } else { &mut self.prompt };
            *second = second.saturating_sub(packing);
            facts.push(format!("packing {:.0} ms", milliseconds(packing)));
        }
        if let Some(first_token) = self.first_token {
            let prompt = samples.iter().map(|sample| sample.prompt_tokens).sum();
            facts.push(format!("prompt {prompt} tokens, {:.1} tok/s", rate(prompt, self.prompt)));
            facts.push(format!("first token {:.1} ms", milliseconds(first_token)));
        }
        if self.decoded > 0 {
            let made: usize = samples.iter().map(|sample| sample.tokens.len()).sum();
            facts.push(format!("decode {made} tokens, {:.1} tok/s", rate(self.decoded, self.decode)));
        }
        if request.sampling.params().temperature > 0.0 {
            facts.push(format!("seed {}", request.seed));
        }
        // A closed standard error changes nothing.
        let _ = writeln!(std::io::stderr(), "\n[{}]", facts.join(" | "));
    }
}
