//! Time to first token of prompts with a shared prefix, with and without prefix caching.

use std::sync::Arc;
use std::time::Instant;

use pipelines::{EventKind, Generator, Plan, Request, SamplingOptions, TextModel};

use super::limits::Limits;
use super::report::{Figure, median};
use super::{Work, prompt};
use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;

/// Tokens of each prompt after the shared prefix.
const OWN: usize = 16;

/// Prompts that arrive at once, after one with the same prefix was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedPrefix {
    pub(super) prompts: usize,
    /// Tokens of the shared prefix.
    pub(super) shared: usize,
}

impl SharedPrefix {
    /// The time to first token with and without prefix caching, alternately, and their ratio.
    pub(super) fn measure(
        self,
        model: &Arc<TextModel>,
        limits: &Limits,
        repetitions: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<Figure>> {
        let length = self.shared.saturating_add(OWN);
        if length >= limits.max_length {
            let problem =
                format!("prompts of {} shared tokens and {OWN} of their own: {limits}", self.shared);
            return Err(Usage(format!("{problem}; give a smaller --shared-prefix")).into());
        }
        let sequences = self.prompts.saturating_add(1);
        let work =
            Work { sequences, prompt: length, tokens: 1, depth: 0, flag: "--concurrency or --shared-prefix" };
        limits.check("the shared prefix", &work)?;
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for repetition in 0..=repetitions {
            let without = self.time_to_first_token(model, &limits.plan, false, interrupt)?;
            let with = self.time_to_first_token(model, &limits.plan, true, interrupt)?;
            // The first run faults pages in and is not counted.
            if repetition > 0 {
                off.push(without);
                on.push(with);
            }
        }
        let ratios = off.iter().zip(&on).map(|(off, on)| off / on).collect();
        let name = format!("time to first token, {} sharing {}", self.prompts, self.shared);
        Ok(vec![
            Figure { name: format!("{name}, no prefix caching"), depth: 0, unit: "ms", values: off },
            Figure { name: format!("{name}, prefix caching"), depth: 0, unit: "ms", values: on },
            Figure { name: "shorter with prefix caching".into(), depth: 0, unit: "times", values: ratios },
        ])
    }

    /// The median time from the arrival of all prompts to the first token of each, in milliseconds.
    fn time_to_first_token(
        self,
        model: &Arc<TextModel>,
        plan: &Plan,
        enable_prefix_caching: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<f64> {
        let plan = plan.with(|config| {
            config
                .max_length(self.shared + OWN + 1)
                .enable_prefix_caching(enable_prefix_caching)
                .max_cache_batch_size(self.prompts.saturating_add(1))
        })?;
        let mut generator = Generator::with_plan(Arc::clone(model), &plan)?;
        let vocab = model.vocab();
        let shared = prompt(0, self.shared, vocab);
        let request = |index| Request {
            prompt: [&shared[..], &prompt(index + 1, OWN, vocab)].concat(),
            sampling: SamplingOptions::GREEDY,
            max_new_tokens: Some(1),
            ignore_eos: true,
            ..Request::default()
        };
        generator.add(request(0))?;
        first_tokens(&mut generator, interrupt)?;
        for index in 1..=self.prompts {
            generator.add(request(index))?;
        }
        Ok(median(&first_tokens(&mut generator, interrupt)?))
    }
}

/// Runs the generator until it is idle; returns the milliseconds until the first token of each request.
fn first_tokens(generator: &mut Generator, interrupt: &Interrupt) -> anyhow::Result<Vec<f64>> {
    let start = Instant::now();
    let mut times = Vec::new();
    while !generator.is_idle() {
        if interrupt.asked() {
            return Err(Interrupted.into());
        }
        let events = generator.step()?;
        let tokens = events.iter().filter(|event| matches!(event.kind, EventKind::Token { .. })).count();
        times.extend(std::iter::repeat_n(start.elapsed().as_secs_f64() * 1e3, tokens));
    }
    Ok(times)
}
