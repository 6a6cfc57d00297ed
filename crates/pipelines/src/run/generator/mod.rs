//! Makes tokens: requests in, events out, one step at a time.

mod active;
mod event;
mod guide;
mod prepared;
mod reasoning;
mod request;
mod request_limits;
mod status;
mod step_budget;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use active::{Active, Outcome, Run};
pub use event::{Event, EventKind, FinishReason, TokenLogprob, TokenLogprobs, Warning};
pub(crate) use prepared::Prepared;
pub use reasoning::ReasoningBudget;
pub use request::{
    LogitsProcessor, MAX_BAD_TOKENS, MAX_SAMPLES, MAX_STOP_BYTES, MAX_STOP_TOKENS, MAX_STOPS, Request,
    random_seed,
};
pub(crate) use request_limits::RequestLimits;
pub use status::{FinishedRequests, Histogram, Status};

use crate::Error;
use crate::run::batch::{Batch, Slice};
#[cfg(test)]
use crate::run::isolation::Faults;
use crate::run::isolation::{self, Isolated, Ran, guarded};
use crate::run::kv_cache::{PrefixCache, Sequence, SequenceId};
use crate::run::runner::{Logits, Runner};
use crate::run::sampler::Sampler;
use crate::run::scheduler::Scheduler;
use crate::sampling::SamplingOptions;
use guide::Guide;
use step_budget::StepBudget;
use text::{GrammarCompiler, Tokenizer};

/// Continues many prompts together. The answer to a request depends on that request alone: not on the others, nor on
/// how its prompt was cut into steps.
pub struct Generator {
    options: GeneratorOptions,
    tokenizer: Arc<Tokenizer>,
    grammars: Arc<GrammarCompiler>,
    runner: Runner,
    scheduler: Scheduler,
    sampler: Sampler,
    active: HashMap<SequenceId, Active>,
    paused: HashMap<SequenceId, Sequence>,
    next_id: u64,
    /// Those of the step that ran last, or failed.
    stepped: Vec<SequenceId>,
    /// Of what was done; what there is to do is counted when it is asked for.
    counters: Status,
    step_budget: StepBudget,
    #[cfg(test)]
    pub(crate) faults: Faults,
}

/// The settings of a generator, apart from its model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GeneratorOptions {
    /// Which requests it takes.
    pub(crate) requests: RequestLimits,
    /// How tokens are chosen if a request leaves it open.
    pub(crate) sampling: SamplingOptions,
    /// Whether requests may ask for log-probabilities of prompt tokens.
    pub(crate) enable_echo: bool,
    /// The time that a step may take while texts are written, for which prompts are cut; zero is no limit.
    pub(crate) step_time: Duration,
}

impl Generator {
    /// A generator with nothing to do. `runner` has the pages and slots of the scheduler's cache.
    pub(crate) fn from_parts(
        runner: Runner,
        scheduler: Scheduler,
        (tokenizer, grammars): (Arc<Tokenizer>, Arc<GrammarCompiler>),
        options: GeneratorOptions,
    ) -> Generator {
        Generator {
            step_budget: StepBudget::new(options.step_time),
            options,
            tokenizer,
            grammars,
            runner,
            scheduler,
            sampler: Sampler::default(),
            active: HashMap::new(),
            paused: HashMap::new(),
            next_id: 0,
            stepped: Vec::new(),
            counters: Status::default(),
            #[cfg(test)]
            faults: Faults::default(),
        }
    }

    /// Which requests it takes.
    pub(crate) fn limits(&self) -> RequestLimits {
        self.options.requests
    }

    /// Who runs and who waits, and the cache.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// How much there is to do, and what was done.
    pub fn status(&self) -> Status {
        self.counters.now(&self.scheduler, self.paused.len())
    }

    /// The pages that requests which begin alike share, if they do.
    pub(crate) fn prefixes_mut(&mut self) -> Option<&mut PrefixCache> {
        self.scheduler.prefixes_mut()
    }

    /// Forgets what the cache holds of earlier requests: those that start from now on compute all their tokens.
    pub fn reset_prefix_cache(&mut self) {
        self.scheduler.reset_prefixes();
    }

    /// Queues a request.
    ///
    /// # Errors
    /// If the prompt is empty, has tokens that the model does not know, is too long for `max_length`, the model or
    /// the cache, other fields are out of range, or the constraint cannot be enforced.
    pub fn add(&mut self, request: Request) -> Result<SequenceId, Error> {
        self.add_all(vec![request]).remove(0)
    }

    /// Queues requests, each as [`Generator::add`] does. With the paged cache, neighbors with the same prompt, bounds and
    /// tenant share the computation of the prompt and its pages.
    pub fn add_all(&mut self, requests: Vec<Request>) -> Vec<Result<SequenceId, Error>> {
        let prepare = |request| {
            self.options.requests.check(&request)?;
            Prepared::new(request, &self.grammars)
        };
        let prepared = requests.into_iter().map(prepare).collect();
        self.add_prepared(prepared)
    }

    /// As [`Generator::add_all`], of requests whose constraints are compiled, or cannot be.
    pub(crate) fn add_prepared(
        &mut self,
        requests: Vec<Result<Prepared, Error>>,
    ) -> Vec<Result<SequenceId, Error>> {
        let mut sequences: Vec<Sequence> = Vec::new();
        let mut ids = Vec::with_capacity(requests.len());
        for prepared in requests {
            ids.push(prepared.and_then(|prepared| self.sequence(prepared)).map(|sequence| {
                let id = sequence.id;
                match sequences.last_mut().filter(|last| last.reads_as(&sequence)) {
                    Some(last) => last.siblings.push(id),
                    None => sequences.push(sequence),
                }
                id
            }));
        }
        for sequence in sequences {
            self.scheduler.add(sequence).expect("the limits of requests are those of the cache");
        }
        ids
    }

    /// Queues a request `count` times, with the seeds of [`Request::samples`]. Queues all or none.
    ///
    /// # Errors
    /// As [`Generator::add`], and [`Request::samples`].
    pub fn add_samples(&mut self, request: &Request, count: usize) -> Result<Vec<SequenceId>, Error> {
        let (ids, errors): (Vec<_>, Vec<_>) =
            self.add_all(request.samples(count)?).into_iter().partition(Result::is_ok);
        let ids: Vec<SequenceId> = ids.into_iter().flatten().collect();
        match errors.into_iter().find_map(Result::err) {
            None => Ok(ids),
            Some(error) => {
                ids.into_iter().for_each(|id| self.abort(id));
                Err(error)
            }
        }
    }

    /// Forgets a sequence and frees its pages. A sequence that is over already is ignored.
    pub fn abort(&mut self, id: SequenceId) {
        if self.forget(id) {
            self.counters.finished.cancelled += 1;
        }
    }

    /// As [`Generator::abort`], of a sequence that something went wrong with.
    pub(crate) fn fail(&mut self, id: SequenceId, error: &Error) {
        if self.forget(id) {
            self.counters.finished.note_error(error);
        }
    }

    /// Takes a sequence's place and its pages away until it is resumed. It then runs its tokens again and goes on
    /// with the same result.
    pub fn pause(&mut self, id: SequenceId) {
        if let Some(sequence) = self.scheduler.remove(id) {
            self.paused.insert(id, sequence);
            self.release();
        }
    }

    /// Forgets all sequences and what the cache holds, after a defect that may have left them in disorder.
    pub(crate) fn restart(&mut self) {
        self.counters.restarts += 1;
        self.counters.finished.failed += self.active.len() as u64;
        self.scheduler.clear();
        self.runner.steps().clear();
        self.active.clear();
        self.paused.clear();
        self.stepped.clear();
        self.sampler = Sampler::default();
    }

    /// Queues a sequence that was paused, behind those that wait already. Any other is ignored.
    pub fn resume(&mut self, id: SequenceId) {
        if let Some(sequence) = self.paused.remove(&id) {
            self.scheduler.add(sequence).expect("the cache has room for what it had room for before");
        }
    }

    /// Sequences that are paused.
    pub fn num_paused(&self) -> usize {
        self.paused.len()
    }

    /// Whether every sequence is over or paused.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Runs one step, and returns its events. An error in one sequence ends that sequence with
    /// [`EventKind::Failed`]; the others continue as if it had never been there.
    ///
    /// # Errors
    /// If the model can run none of the step's sequences ([`Generator::stepped`]). They stay as they were, to be aborted
    /// or tried again. If its files have changed, it can run nothing more.
    pub fn step(&mut self) -> Result<Vec<Event>, Error> {
        let Some(batch) = self.schedule()? else { return Ok(Vec::new()) };
        let isolated = isolation::run(batch, &mut |batch| self.attempt(batch))?;
        self.finish_step(isolated)
    }

    /// The sequences of the step that ran last, or failed.
    pub fn stepped(&self) -> &[SequenceId] {
        &self.stepped
    }

    /// The batch of the next step, whose pages are copied; `None` if there is nothing to do.
    fn schedule(&mut self) -> Result<Option<Batch>, Error> {
        let mut batch = self.scheduler.schedule_beside_decodes(self.step_budget.prefill_tokens());
        if batch.is_empty() {
            return Ok(None);
        }
        self.stepped = batch.slices.iter().flat_map(Slice::ids).collect();
        // Some may have given their pages to others just now.
        self.release();
        let copies = std::mem::take(&mut batch.copies);
        guarded(|| {
            self.runner.steps().begin(&copies);
            Ok(())
        })?;
        Ok(Some(batch))
    }

    /// Runs the model, and meanwhile computes which tokens may come next where a grammar says.
    fn attempt(&mut self, batch: &Batch) -> Result<Logits, Error> {
        let predicts = |id| batch.predicting().any(|predicting| predicting == id);
        let active = self.active.iter_mut().filter(|(_, active)| active.is_guided());
        let guided = active.filter(|(id, _)| predicts(**id));
        let guides: Vec<&mut Guide> = guided.filter_map(|(_, active)| active.guide()).collect();
        let runner = &mut self.runner;
        #[cfg(test)]
        let faults = &mut self.faults;
        let mut run = || {
            #[cfg(test)]
            faults.strike(batch)?;
            runner.steps().run_slices(batch)
        };
        if guides.is_empty() {
            return run();
        }
        rayon::in_place_scope(|scope| {
            guides.into_iter().for_each(|guide| scope.spawn(|_| guide.compute()));
            run()
        })
    }

    /// Takes the tokens of a step that ran, ends the sequences that cannot run, and says what came of it.
    ///
    /// # Errors
    /// That of a sequence, if none could run.
    fn finish_step(&mut self, isolated: Isolated<Logits>) -> Result<Vec<Event>, Error> {
        let Isolated { ran, mut failed } = isolated;
        self.counters.failed_steps += u64::from(!failed.is_empty());
        if ran.is_empty() {
            return Err(failed.swap_remove(0).1);
        }
        let mut events = Vec::new();
        for Ran { batch, output: logits, time } in &ran {
            let prefill = self.prefill_tokens(batch);
            self.counters.note_step(batch, prefill, *time);
            self.step_budget.note(prefill, prefill < batch.num_tokens(), *time);
            events.extend(self.take(batch, logits));
        }
        for (slice, error) in failed {
            let error = Arc::new(error);
            for id in slice.ids() {
                self.fail(id, &error);
                events.push(Event { id, kind: EventKind::Failed(Arc::clone(&error)) });
            }
        }
        Ok(events)
    }

    /// Takes the tokens of a batch that ran.
    fn take(&mut self, batch: &Batch, logits: &Logits) -> Vec<Event> {
        let (mut events, mut tokens, mut over) = (Vec::new(), Vec::new(), Vec::new());
        let mut forced = Vec::new();
        for (slice, rows) in batch.rows() {
            let sequence = self.scheduler.get(slice.id).expect("a batch is made of sequences");
            // Siblings choose from the same logits, each as it does.
            for id in slice.ids() {
                let active = self.active.get_mut(&id).expect("each sequence is active");
                let run = Run { sequence, slice, logits, rows: rows.clone() };
                let mut kinds = Vec::new();
                let outcome =
                    guarded(|| active.take(&run, &mut self.sampler, &mut kinds)).unwrap_or_else(|error| {
                        kinds.push(EventKind::Failed(Arc::new(error)));
                        Outcome::Over
                    });
                kinds.iter().for_each(|kind| self.counters.note_event(kind, sequence.prompt));
                events.extend(kinds.into_iter().map(|kind| Event { id, kind }));
                over.extend((outcome == Outcome::Over).then_some(id));
                forced.push((id, active.take_forced()));
                if slice.predicts {
                    // The scheduler wants a token of each; that of a sequence that is over is not read.
                    tokens.push(if let Outcome::Grew(token) = outcome { token } else { 0 });
                }
            }
        }
        self.scheduler.advance(batch, &tokens);
        forced.iter().for_each(|(id, tokens)| self.scheduler.append(*id, tokens));
        for id in over {
            self.forget(id);
        }
        events
    }

    /// A sequence that has not run, of a request that was checked.
    fn sequence(&mut self, prepared: Prepared) -> Result<Sequence, Error> {
        let Prepared { request, grammar } = prepared;
        let options = self.options;
        let max_tokens = options.requests.check(&request)?;
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        let prompt = request.prompt.clone();
        let [cache_salt, tenant] =
            [&request.cache_salt, &request.tenant].map(|name| name.as_deref().map(Arc::from));
        let priority = request.priority;
        let matcher = grammar.map(|grammar| grammar.matcher());
        let prompt_tokens = request.prompt_tokens();
        let active = Active::new(request, matcher, options.sampling, &self.tokenizer, options.enable_echo)?;
        let compute_all = active.scores_prompt();
        self.active.insert(id, active);
        let sequence = Sequence::new(id, prompt, max_tokens);
        Ok(Sequence { prompt: prompt_tokens, compute_all, cache_salt, tenant, priority, ..sequence })
    }

    /// Frees all that a sequence holds. Returns whether there was one.
    fn forget(&mut self, id: SequenceId) -> bool {
        self.scheduler.remove(id);
        self.release();
        self.paused.remove(&id);
        self.active.remove(&id).is_some()
    }

    /// Has the model forget what it keeps of sequences that gave their pages back.
    fn release(&mut self) {
        let released = self.scheduler.take_released();
        if !released.is_empty() {
            self.runner.steps().release(&released);
        }
    }

    /// Tokens of a batch that fill the cache, and are not decoded.
    fn prefill_tokens(&self, batch: &Batch) -> usize {
        let decodes = |id| self.scheduler.get(id).is_some_and(Sequence::decodes);
        let prefill = batch.slices.iter().filter(|slice| !decodes(slice.id));
        prefill.map(|slice| slice.tokens.len()).sum()
    }
}
