//! One sequence from its first token to its end: logits in, events out.

use std::ops::Range;
use std::sync::Arc;

use super::event::{EventKind, FinishReason, TokenLogprobs, Warning};
use super::guide::Guide;
use super::reasoning::ReasoningLimit;
use super::request::Request;
use text::constraint::{Matcher, TokenMask};
use text::stop_strings::{StopSearch, StopStrings};
use text::{Detokenizer, SkipSpecial, Tokenizer};

use crate::Error;
use crate::error::InvalidField;
use crate::run::batch::Slice;
use crate::run::kv_cache::Sequence;
use crate::run::runner::Logits;
use crate::run::sampler::{Logprobs, Row, Sampled, Sampler, TokenCounts};
use crate::sampling::{LogprobsMode, SamplingOptions, SamplingParams};

/// What the generator keeps of a sequence in addition to its tokens.
pub(super) struct Active {
    /// Without its prompt, which the sequence has.
    request: Request,
    /// How its tokens are chosen.
    params: SamplingParams,
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    /// Empty where the sampling does not look back.
    history: TokenCounts,
    stops: StopSearch,
    /// If the answer must have a form.
    guide: Option<Guide>,
    /// If its reasoning has a budget.
    reasoning: Option<ReasoningLimit>,
    /// Tokens that follow the last one in any case, and were reported with it.
    forced: Vec<u32>,
    /// What cannot be chosen before `min_new_tokens`.
    forbidden: Vec<u32>,
    /// The mask of the only tokens that can be chosen, if the request names them.
    allowed: Option<Vec<u32>>,
    /// How many of the most probable tokens to report for each of the prompt's.
    scores: Option<usize>,
    /// To be reported with the first step.
    warning: Option<Warning>,
    started: bool,
    /// Tokens of the prompt that were reported.
    echoed: usize,
    /// Tokens of the answer so far.
    generated: usize,
    /// Tokens of the answer that were made before the request, until they are taken note of.
    made_before: Vec<u32>,
}

/// A sequence's part of a step.
pub(super) struct Run<'a> {
    /// The sequence before the step.
    pub(super) sequence: &'a Sequence,
    /// What ran of it.
    pub(super) slice: &'a Slice,
    /// The logits of the step.
    pub(super) logits: &'a Logits,
    /// Its rows of them.
    pub(super) rows: Range<usize>,
}

/// What a step means for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its prompt has not been read to the end.
    Reading,
    /// It grew by this token.
    Grew(u32),
    /// It is over.
    Over,
}

impl Active {
    /// `defaults` say what the request's sampling leaves open.
    ///
    /// # Errors
    /// If the answer has ended before the end of what was made of it.
    pub(super) fn new(
        mut request: Request,
        matcher: Option<Matcher>,
        defaults: SamplingOptions,
        tokenizer: &Arc<Tokenizer>,
        enable_echo: bool,
    ) -> Result<Active, Error> {
        let made_before = request.prompt.split_off(request.prompt_tokens());
        let params = request.params(defaults);
        let wanted = request.scores();
        let scores = wanted.filter(|_| enable_echo);
        let reports_prompt = request.echo || scores.is_some();
        let before: &[u32] = if reports_prompt { &[] } else { &request.prompt };
        let skip = if request.show_special_tokens { SkipSpecial::No } else { SkipSpecial::Yes };
        let mut detokenizer = Detokenizer::after(Arc::clone(tokenizer), skip, before)
            .showing(request.shown_special_tokens.clone());
        if matcher.is_some() && !reports_prompt {
            detokenizer.begin();
        }
        let (ignored, eos): (Vec<u32>, Vec<u32>) =
            tokenizer.eos_ids().iter().partition(|_| request.ignore_eos);
        let guide = |matcher| Guide::new(matcher, request.stop_token_ids.clone(), ignored);
        let mut active = Active {
            guide: matcher.map(guide),
            reasoning: request.reasoning.clone().map(|budget| ReasoningLimit::new(budget, tokenizer)),
            forced: Vec::new(),
            forbidden: eos.into_iter().chain(request.stop_token_ids.iter().copied()).collect(),
            allowed: request.allowed_token_ids.as_deref().map(mask_of),
            history: if params.uses_history() {
                TokenCounts::new(&request.prompt)
            } else {
                TokenCounts::default()
            },
            stops: StopSearch::new(Arc::new(StopStrings::new(&request.stop))),
            warning: (wanted.is_some() && scores.is_none()).then_some(Warning::EchoDisabled),
            started: false,
            echoed: if reports_prompt { 0 } else { request.prompt.len() },
            generated: 0,
            made_before,
            params,
            scores,
            tokenizer: Arc::clone(tokenizer),
            detokenizer,
            request: Request { prompt: Vec::new(), ..request },
        };
        if !reports_prompt {
            active.replay()?;
        }
        Ok(active)
    }

    /// Whether logits of the whole prompt are wanted.
    pub(super) fn scores_prompt(&self) -> bool {
        self.scores.is_some()
    }

    /// Whether its answer must have a form.
    pub(super) fn is_guided(&self) -> bool {
        self.guide.is_some()
    }

    /// The grammar's matcher, if the request has a constraint.
    pub(super) fn guide(&mut self) -> Option<&mut Guide> {
        self.guide.as_mut()
    }

    /// The tokens that follow the one that the last step chose in any case.
    pub(super) fn take_forced(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.forced)
    }

    /// Reports what a step brings.
    ///
    /// # Errors
    /// If there is no token to choose, or its constraint cannot be enforced any further.
    pub(super) fn take(
        &mut self,
        run: &Run<'_>,
        sampler: &mut Sampler,
        events: &mut Vec<EventKind>,
    ) -> Result<Outcome, Error> {
        if !self.started {
            self.started = true;
            let cached_tokens = run.slice.cached.min(run.sequence.prompt);
            let prefix_end = run.sequence.prefix_end;
            events.push(EventKind::Started { cached_tokens, prefix_end });
            events.extend(self.warning.take().map(EventKind::Warning));
        }
        self.report_prompt(run, events);
        if self.echoed == run.sequence.prompt {
            self.replay()?;
        }
        if !run.slice.predicts {
            return Ok(Outcome::Reading);
        }
        if run.sequence.tokens.len() >= run.sequence.max_tokens {
            self.finish(FinishReason::Length, events);
            return Ok(Outcome::Over);
        }
        let mask = self.guide.as_mut().map(Guide::mask).transpose()?;
        let cut = self.cut(mask.as_ref()).map(|token| mask_of(&[token]));
        let both = self.allowed.as_ref().zip(mask.as_ref()).map(|(own, mask)| {
            own.iter().zip(mask.words()).map(|(own, word)| own & word).collect::<Vec<u32>>()
        });
        let logits = run.logits.row(run.rows.end - 1);
        let processor = self.request.logits_processor.as_ref();
        let generated = &run.sequence.tokens[run.sequence.prompt..];
        let changed = processor.map(|processor| processor.apply(generated, logits)).transpose()?;
        let row = Row {
            logits: changed.as_deref().unwrap_or(logits),
            params: &self.params,
            history: &self.history,
            position: run.sequence.tokens.len() as u64,
            allowed: cut
                .as_deref()
                .or(both.as_deref())
                .or(mask.as_ref().map(TokenMask::words))
                .or(self.allowed.as_deref()),
            forbidden: &self.forbidden_after(generated),
        };
        let mut sampled = sampler.sample(&row)?;
        let token = sampled.token;
        if changed.is_some() && self.params.logprobs_mode == LogprobsMode::Raw {
            sampled.logprobs = self.params.logprobs.map(|top| Logprobs::from_logits(logits, token, top));
        }
        let room = run.sequence.max_tokens - run.sequence.tokens.len();
        let over = self.accept(sampled, room == 1, events)? || self.accept_forced(room - 1, events)?;
        Ok(if over { Outcome::Over } else { Outcome::Grew(token) })
    }

    /// The token that must come next because the reasoning has spent its budget, unless the constraint forbids it.
    fn cut(&mut self, mask: Option<&TokenMask>) -> Option<u32> {
        let reasoning = self.reasoning.as_mut()?;
        let token = reasoning.forced()?;
        if mask.is_some_and(|mask| !mask.allows(token)) {
            reasoning.give_up();
            return None;
        }
        Some(token)
    }

    /// Reports the tokens that follow in any case, up to so many, and says whether one is the last. Their logits are not
    /// computed, so they wait for their steps if these are to be reported.
    fn accept_forced(&mut self, room: usize, events: &mut Vec<EventKind>) -> Result<bool, Error> {
        while self.params.logprobs.is_none()
            && let Some(token) = self.guide.as_ref().and_then(Guide::forced)
            && (self.may_stop() || !self.forbidden.contains(&token))
        {
            let is_last = self.forced.len() + 1 == room;
            if self.accept(Sampled { token, logprobs: None }, is_last, events)? {
                return Ok(true);
            }
            self.forced.push(token);
        }
        Ok(false)
    }

    /// The tokens that cannot be chosen behind those of the answer so far.
    fn forbidden_after(&self, generated: &[u32]) -> Vec<u32> {
        let ends = self.request.bad_words.iter().filter_map(|word| {
            let (last, others) = word.split_last()?;
            generated.ends_with(others).then_some(*last)
        });
        let early: &[u32] = if self.may_stop() { &[] } else { &self.forbidden };
        ends.chain(early.iter().copied()).collect()
    }

    /// Whether as many tokens were made as must be.
    fn may_stop(&self) -> bool {
        self.generated >= self.request.min_new_tokens
    }

    /// Reports the tokens of the prompt, as far as their log-probabilities are known where they are wanted: row `i`
    /// of the prompt predicts token `i + 1`. What ran before a preemption was reported then.
    fn report_prompt(&mut self, run: &Run<'_>, events: &mut Vec<EventKind>) {
        let prompt = run.sequence.prompt;
        let read = run.slice.cached + run.slice.tokens.len();
        let known = if self.scores.is_some() { (read + 1).min(prompt) } else { prompt };
        // The position whose logits are the first row.
        let first = read - run.rows.len();
        for position in self.echoed..known {
            let token = run.sequence.tokens[position];
            let logprobs = self.scores.filter(|_| position > 0).map(|top| {
                let row = run.logits.row(run.rows.start + position - 1 - first);
                TokenLogprobs::new(token, Logprobs::from_logits(row, token, top), &self.detokenizer)
            });
            let text = self.detokenizer.push(token).unwrap_or_default();
            events.push(EventKind::PromptToken { token, text, logprobs });
        }
        self.echoed = self.echoed.max(known);
    }

    /// Reports a chosen token, and says whether it is the last.
    fn accept(&mut self, sampled: Sampled, full: bool, events: &mut Vec<EventKind>) -> Result<bool, Error> {
        let token = sampled.token;
        if let Some(reason) = self.ends_with(token) {
            return Ok(self.finish(reason, events));
        }
        let logprobs =
            sampled.logprobs.map(|logprobs| TokenLogprobs::new(token, logprobs, &self.detokenizer));
        let (text, stop) = self.note(token)?;
        events.push(EventKind::Token { token, text, logprobs });
        if let Some(stop) = stop {
            let reason = FinishReason::StopString(stop);
            events.push(EventKind::Finished { reason, text: String::new() });
            return Ok(true);
        }
        if self.guide.as_ref().is_some_and(Guide::is_complete) {
            return Ok(self.finish(FinishReason::Stop, events));
        }
        Ok(full && self.finish(FinishReason::Length, events))
    }

    /// Why the answer ends if this token comes, which is then no part of it.
    fn ends_with(&self, token: u32) -> Option<FinishReason> {
        if !self.request.ignore_eos && self.tokenizer.eos_ids().contains(&token) {
            Some(FinishReason::Stop)
        } else {
            self.request.stop_token_ids.contains(&token).then_some(FinishReason::StopToken(token))
        }
    }

    /// Takes note of a token of the answer. Returns the text that is complete with it, and the stop string that it ends.
    fn note(&mut self, token: u32) -> Result<(String, Option<usize>), Error> {
        self.guide.as_mut().map_or(Ok(()), |guide| guide.advance(token))?;
        if self.params.uses_history() {
            self.history.push(token);
        }
        let searched = self.may_stop();
        let piece = self.detokenizer.push(token).unwrap_or_default();
        if let Some(reasoning) = &mut self.reasoning {
            reasoning.accept(token, &piece);
        }
        self.generated += 1;
        Ok(if searched { self.stops.push(&piece) } else { (piece, None) })
    }

    /// Takes note of the tokens that were made before the request; their text was reported then.
    fn replay(&mut self) -> Result<(), Error> {
        for token in std::mem::take(&mut self.made_before) {
            let before = self.generated;
            let is_over = self.ends_with(token).is_some()
                || self.note(token)?.1.is_some()
                || self.guide.as_ref().is_some_and(Guide::is_complete);
            if is_over {
                let value = self.request.generated.to_string();
                let fix = format!("give at most {before}: the answer ends with the next token");
                return Err(Error::Request(vec![InvalidField { field: "generated", value, fix }]));
            }
        }
        Ok(())
    }

    /// Reports the end, with all that was held back. Always true: the sequence is over.
    fn finish(&mut self, reason: FinishReason, events: &mut Vec<EventKind>) -> bool {
        let rest = self.detokenizer.clone().finish().unwrap_or_default();
        let (mut text, stop) = self.stops.push(&rest);
        let reason = stop.map_or(reason, FinishReason::StopString);
        if stop.is_none() {
            text.push_str(&self.stops.finish());
        }
        events.push(EventKind::Finished { reason, text });
        true
    }
}

/// The mask of some tokens.
fn mask_of(tokens: &[u32]) -> Vec<u32> {
    let mut words = vec![0; tokens.iter().max().map_or(0, |&token| token as usize / 32 + 1)];
    tokens.iter().for_each(|&token| words[token as usize / 32] |= 1 << (token % 32));
    words
}
