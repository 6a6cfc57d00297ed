//! The time spent loading, reading prompts and generating.

use std::io::Write;
use std::time::Duration;

use pipelines::{Event, EventKind, FinishReason, Request};

use super::job::Job;

/// Times, for the closing line.
pub(super) struct Clock {
    load: Duration,
    /// Steps that read prompts, which may generate tokens of other sequences too.
    prompt: Duration,
    /// Steps that only generated tokens, and the number of these tokens.
    decode: Duration,
    decoded: usize,
    first_token: Option<Duration>,
}

impl Clock {
    pub(super) fn new(load: Duration) -> Clock {
        let (prompt, decode) = (Duration::ZERO, Duration::ZERO);
        Clock { load, prompt, decode, decoded: 0, first_token: None }
    }

    /// Counts a step, before the jobs take its events.
    pub(super) fn count(&mut self, time: Duration, events: &[Event], jobs: &[Job]) {
        let first = |event: &Event| jobs.iter().any(|job| job.id == event.id && job.tokens.is_empty());
        let predicted = |event: &&Event| match event.kind {
            EventKind::Token { .. } => true,
            EventKind::Finished { reason, .. } => reason != FinishReason::Length,
            _ => false,
        };
        let predicted: Vec<&Event> = events.iter().filter(predicted).collect();
        if predicted.is_empty() || predicted.iter().any(|event| first(event)) {
            self.prompt += time;
            if !predicted.is_empty() {
                self.first_token.get_or_insert(self.prompt + self.decode);
            }
        } else {
            self.decode += time;
            self.decoded += predicted.len();
        }
    }

    /// Prints the closing line on standard error.
    pub(super) fn report(&self, jobs: &[Job], request: &Request) {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let mut facts = vec![format!("load {:.0} ms", milliseconds(self.load))];
        if let Some(first_token) = self.first_token {
            let prompt = jobs.iter().map(|job| job.prompt_tokens).sum();
            facts.push(format!("prompt {prompt} tokens, {:.1} tok/s", rate(prompt, self.prompt)));
            facts.push(format!("first token {:.1} ms", milliseconds(first_token)));
        }
        if self.decoded > 0 {
            let made: usize = jobs.iter().map(|job| job.tokens.len()).sum();
            facts.push(format!("decode {made} tokens, {:.1} tok/s", rate(self.decoded, self.decode)));
        }
        if request.sampling.params().temperature > 0.0 {
            facts.push(format!("seed {}", request.seed));
        }
        // A closed standard error changes nothing.
        let _ = writeln!(std::io::stderr(), "\n[{}]", facts.join(" | "));
    }
}
