//! How well a model predicts given tokens: the logits of every position, window by window; perplexity and divergence.

use std::sync::Arc;

use crate::run::runner::Runner;
use crate::{Batch, Error, Slice, TextModel};

/// Bytes of logits that are computed at once.
const LOGITS_BYTES: usize = 64 << 20;
/// Tokens that run at once, at most.
const MAX_CHUNK: usize = 512;

/// Runs a model over a text and gives `visit` the logits of each position, `f32[vocab]`, in order. They predict the next
/// token.
///
/// The model sees windows of at most `window` tokens. The first counts all its positions, each later one its last
/// `stride`, so every position has at least `window - stride` tokens of context if the text has them.
///
/// # Errors
/// If the cache for a window does not fit into memory or the model refuses a token, and the first error of `visit`.
///
/// # Panics
/// If `stride` is 0 or larger than `window`.
pub fn visit_logits<E: From<Error>>(
    model: &Arc<TextModel>,
    tokens: &[u32],
    window: usize,
    stride: usize,
    mut visit: impl FnMut(usize, &[f32]) -> Result<(), E>,
) -> Result<(), E> {
    let mut scorer = Scorer::new(model, window.min(tokens.len()))?;
    windows(tokens.len(), window, stride).try_for_each(|part| scorer.score(tokens, part, &mut visit))
}

/// The natural logarithm of the probability of each token but the first, in windows as long as the plan's `max_length`
/// that overlap by half.
///
/// # Errors
/// If the cache for a window does not fit into memory, or the model refuses a token.
pub fn log_probabilities(model: &Arc<TextModel>, tokens: &[u32]) -> Result<Vec<f64>, Error> {
    let Some((_, predicted)) = tokens.split_first() else { return Ok(Vec::new()) };
    let window = model.plan().max_length()?;
    let mut logs = Vec::with_capacity(predicted.len());
    visit_logits(model, &tokens[..predicted.len()], window, window.div_ceil(2), |at, logits| {
        logs.push(log_probability(logits, predicted[at]));
        Ok::<(), Error>(())
    })?;
    Ok(logs)
}

/// A part of a text that a model sees at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start: usize,
    /// The first position whose logits count. Positions before it are context, and counted in an earlier window.
    scored: usize,
    end: usize,
}

/// The windows of a text of `len` tokens, as [`visit_logits`] describes them.
fn windows(len: usize, window: usize, stride: usize) -> impl Iterator<Item = Window> {
    assert!(0 < stride && stride <= window, "a stride of {stride} does not fit a window of {window}");
    let mut counted = 0usize;
    std::iter::from_fn(move || {
        let end = len.min(if counted == 0 { window } else { counted.saturating_add(stride) });
        let next = Window { start: end.saturating_sub(window), scored: counted, end };
        counted = end;
        (next.scored < next.end).then_some(next)
    })
}

/// A model with a cache for one window.
struct Scorer {
    runner: Runner,
    pages: u32,
    chunk: usize,
}

impl Scorer {
    /// A scorer of windows of up to `window` tokens.
    fn new(model: &Arc<TextModel>, window: usize) -> Result<Scorer, Error> {
        let pages = window.div_ceil(model.page_size()).max(1);
        let row = model.vocab().saturating_mul(size_of::<f32>()).max(1);
        let chunk = (LOGITS_BYTES / row).clamp(1, MAX_CHUNK);
        Ok(Scorer { runner: model.runner(pages)?, pages: pages as u32, chunk })
    }

    /// Gives `visit` the logits of each position that counts in a window of `tokens`.
    fn score<E: From<Error>>(
        &mut self,
        tokens: &[u32],
        window: Window,
        mut visit: impl FnMut(usize, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = window.start;
        while at < window.end {
            // A chunk counts whole or not at all.
            let limit = if at < window.scored { window.scored } else { window.end };
            let end = limit.min(at + self.chunk);
            let outputs = if at < window.scored { 0 } else { end - at };
            let slice = Slice {
                cached: at - window.start,
                tokens: tokens[at..end].to_vec(),
                pages: (0..self.pages).collect(),
                predicts: end == window.end,
                outputs,
                ..Slice::default()
            };
            let logits = self.runner.run(&Batch { slices: vec![slice], ..Batch::default() })?;
            (0..outputs).try_for_each(|row| visit(at + row, logits.row(row)))?;
            at = end;
        }
        Ok(())
    }
}

/// The natural logarithm of the probability of a token; `-inf` for one beyond the logits, NaN if the logits have no
/// finite maximum.
pub fn log_probability(logits: &[f32], token: u32) -> f64 {
    let normalizer = log_sum_exp(logits);
    logits.get(token as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit) - normalizer)
}

/// How far predictions are from reference ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Divergence {
    /// `KL(reference ‖ logits)` in nats.
    pub kl: f64,
    /// Whether the likeliest token is the same; of equals the first.
    pub same_top: bool,
}

/// Compares the logits of a position with reference logits of the same vocabulary.
///
/// # Panics
/// If they are not equally many.
pub fn divergence(reference: &[f32], logits: &[f32]) -> Divergence {
    assert_eq!(reference.len(), logits.len(), "logits of different vocabularies");
    let normalizers = (log_sum_exp(reference), log_sum_exp(logits));
    let mut kl = 0.0;
    for (&p, &q) in reference.iter().zip(logits) {
        let (log_p, log_q) = (f64::from(p) - normalizers.0, f64::from(q) - normalizers.1);
        // What is impossible adds nothing: p · ln p goes to 0.
        if log_p > f64::NEG_INFINITY || log_p.is_nan() {
            kl += log_p.exp() * (log_p - log_q);
        }
    }
    // Rounding may leave a little less than nothing.
    let kl = if kl.is_nan() { kl } else { kl.max(0.0) };
    Divergence { kl, same_top: top(reference) == top(logits) }
}

/// The first of the largest values.
fn top(logits: &[f32]) -> usize {
    let better =
        |best: usize, (index, &logit): (usize, &f32)| if logit > logits[best] { index } else { best };
    logits.iter().enumerate().fold(0, better)
}

/// `ln Σ exp(x)`, summed in f64.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let highest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - highest).exp()).sum();
    highest + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_counts_once_with_context() {
        for (len, window, stride) in
            [(0, 4, 2), (1, 4, 2), (4, 4, 2), (5, 4, 2), (17, 8, 3), (17, 8, 8), (9, 1, 1)]
        {
            let mut next = 0;
            for part in windows(len, window, stride) {
                assert_eq!(part.scored, next, "{len} {window} {stride}");
                assert!(
                    part.end - part.start <= window && part.start <= part.scored && part.scored < part.end
                );
                assert!(part.start == 0 || part.scored - part.start >= window - stride);
                next = part.end;
            }
            assert_eq!(next, len);
        }
        let first = Window { start: 0, scored: 0, end: 8 };
        let parts: Vec<Window> = windows(12, 8, 3).collect();
        assert_eq!(parts[..2], [first, Window { start: 3, scored: 8, end: 11 }]);
        assert_eq!(parts[2..], [Window { start: 4, scored: 11, end: 12 }]);
    }

    #[test]
    fn divergence_is_that_of_the_formula() {
        // Probabilities 1/2, 1/4, 1/4 against 1/4, 1/4, 1/2.
        let (p, q) = ([2f32.ln(), 0.0, 0.0], [0.0, 0.0, 2f32.ln()]);
        let compared = divergence(&p, &q);
        let expected = 0.5 * 2f64.ln() - 0.25 * 2f64.ln();
        assert!((compared.kl - expected).abs() < 1e-7 && !compared.same_top, "{compared:?}");
        let shifted = p.map(|logit| logit + 100.0);
        let same = divergence(&p, &shifted);
        assert!(same.kl < 1e-6 && same.same_top, "a constant changes nothing: {same:?}");
        assert_eq!(divergence(&p, &p), Divergence { kl: 0.0, same_top: true });
        let masked = [f32::NEG_INFINITY, 0.0, 0.0];
        assert!((divergence(&masked, &p).kl - 2f64.ln()).abs() < 1e-7);
        assert_eq!(divergence(&p, &masked).kl, f64::INFINITY);
        assert!(divergence(&[f32::NAN, 0.0, 0.0], &p).kl.is_nan());
        assert!((log_probability(&p, 0) - 0.5f64.ln()).abs() < 1e-7);
        assert_eq!(log_probability(&p, 3), f64::NEG_INFINITY);
    }

    #[test]
    fn logits_do_not_depend_on_chunks() {
        let model = crate::testing::text_model(&testdata::asset("storyteller/model.gguf"));
        let tokens = [0, 2352, 607, 260, 527, 439];
        let window = Window { start: 0, scored: 2, end: tokens.len() };
        let run = |chunk: usize| {
            let mut scorer = Scorer { chunk, ..Scorer::new(&model, tokens.len()).unwrap() };
            let mut rows = Vec::new();
            let visit = &mut |at: usize, logits: &[f32]| {
                rows.push((at, logits.to_vec()));
                Ok::<(), Error>(())
            };
            scorer.score(&tokens, window, visit).unwrap();
            rows
        };
        let whole = run(512);
        assert_eq!(whole.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(run(1), whole);
    }
}
