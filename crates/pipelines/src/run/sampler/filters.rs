//! A draw among the tokens that top-k, top-p and min-p keep: a prefix of the tokens sorted by probability.
//!
//! Probabilities are counted in whole units, so that sums do not depend on their order, and only what decides is ever
//! sorted: a few hundred tokens where these suffice; else a histogram finds the small range of logits in which a filter
//! cuts or the draw falls, and that range alone is looked at closely. Both give what sorting all tokens gives.

use super::SamplingParams;
use super::candidates::{Candidate, reach, select_top};
use super::weights::{CHUNK, Scale, mass};

/// How many candidates are sorted at first, and then, when only probabilities limit them.
const LOOKS: [usize; 2] = [256, MOST_SORTED];
/// Of more candidates, a histogram is faster than sorting.
const MOST_SORTED: usize = 2048;
/// Ranges of the histogram.
const BINS: usize = 4096;
/// Weights below `exp(-44)` are less than a unit, whatever the vocabulary.
const BINS_PER_NAT: f32 = BINS as f32 / 44.0;

/// What is reused from row to row.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) candidates: Vec<Candidate>,
    bins: Vec<Bin>,
}

/// The tokens whose logits are in one range.
#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    tokens: u64,
    units: u64,
}

/// A draw to be made.
pub(super) struct Draw<'a> {
    logits: &'a [f32],
    scale: &'a Scale,
    params: &'a SamplingParams,
    /// From 0 to 1, without 1.
    uniform: f64,
    /// Units of the weight 1.
    unit: f64,
}

/// The tokens that the filters keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kept {
    /// The rank before which they end.
    end: u64,
    /// Of all of them.
    units: u64,
}

/// A token that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drawn {
    pub(super) token: u32,
    pub(super) kept: Kept,
}

impl<'a> Draw<'a> {
    /// A draw by a uniform number.
    pub(super) fn new(
        logits: &'a [f32],
        scale: &'a Scale,
        params: &'a SamplingParams,
        uniform: f64,
    ) -> Draw<'a> {
        // So that the sum of all weights, each at most 1, stays below 2^63.
        let bits = usize::BITS - logits.len().leading_zeros();
        Draw { logits, scale, params, uniform, unit: (1u64 << (62 - bits.min(32))) as f64 }
    }

    /// The token, and what was kept to draw it from.
    pub(super) fn drawn(&self, buffers: &mut Buffers) -> Option<Drawn> {
        let len = self.logits.len();
        let limit = self.params.top_k.unwrap_or(len).min(len);
        let total = (limit == len).then(|| (mass(self.logits, self.scale) * self.unit) as u64);
        for look in LOOKS.map(|look| look.min(limit)) {
            // What top-k keeps has to be known whole, unless it keeps all.
            let look = if total.is_some() { look } else { limit };
            if look > MOST_SORTED {
                break;
            }
            select_top(self.logits, look, &mut buffers.candidates);
            let sum = || buffers.candidates.iter().map(|candidate| self.units(candidate.logit)).sum();
            let (kept, cut) = self.keep(&buffers.candidates, total.unwrap_or_else(sum));
            if cut || look == limit {
                return self.of_sorted(&buffers.candidates[..kept]);
            }
        }
        self.of_many(limit, total, buffers)
    }

    /// How many of sorted candidates top-p and min-p keep (at least one), and whether either cuts here. Those that top-k
    /// keeps are `total` in all.
    fn keep(&self, sorted: &[Candidate], total: u64) -> (usize, bool) {
        let (enough, mut sum) = (self.enough(total), 0);
        for (index, candidate) in sorted.iter().enumerate() {
            // The best candidate's weight is 1.
            if !self.is_probable(candidate.logit) {
                return (index, true);
            }
            sum += self.units(candidate.logit);
            if sum >= enough {
                return (index + 1, true);
            }
        }
        (sorted.len(), false)
    }

    /// The draw among sorted candidates.
    fn of_sorted(&self, sorted: &[Candidate]) -> Option<Drawn> {
        let units = |candidate: &Candidate| self.units(candidate.logit);
        let kept = Kept { end: sorted.last()?.rank() + 1, units: sorted.iter().map(units).sum() };
        let target = self.target(kept.units);
        let mut sum = 0;
        let drawn = sorted.iter().find(|candidate| {
            sum += units(candidate);
            sum >= target
        });
        drawn.map(|candidate| Drawn { token: candidate.token, kept })
    }

    /// The draw among the first `limit` tokens, however many, that have `total` together, if that is known.
    fn of_many(&self, limit: usize, total: Option<u64>, buffers: &mut Buffers) -> Option<Drawn> {
        let mut ranks = Ranks::new(self, buffers);
        if limit < self.logits.len() {
            let last = ranks.reach(limit as u64, |bin| bin.tokens, |_| 1)?;
            ranks.end_after(last);
        }
        let (of_bin, of_token) = (|bin: &Bin| bin.units, |candidate: &Candidate| self.units(candidate.logit));
        let enough = self.enough(total.unwrap_or_else(|| ranks.units()));
        let last = ranks.reach(enough, of_bin, of_token)?;
        ranks.end_after(last);
        if let Some(first) = self.first_improbable() {
            ranks.end_before(first);
        }
        let kept = Kept { end: ranks.end, units: ranks.units() };
        let token = ranks.reach(self.target(kept.units), of_bin, of_token)?.token;
        Some(Drawn { token, kept })
    }

    /// The first token by rank that min-p leaves out, if it does any.
    fn first_improbable(&self) -> Option<Candidate> {
        let mut first: Option<Candidate> = None;
        if self.params.min_p > 0.0 {
            for (token, &logit) in (0..).zip(self.logits) {
                let is_better = first.is_none_or(|first| logit > first.logit);
                if is_better && !logit.is_nan() && !self.is_probable(logit) {
                    first = Some(Candidate { token, logit });
                }
            }
        }
        first
    }

    /// The probability of a token in the draw, of which `kept` are the tokens; 0 for the others.
    pub(super) fn probability(&self, kept: &Kept, candidate: &Candidate) -> f64 {
        if candidate.rank() < kept.end { self.units(candidate.logit) as f64 / kept.units as f64 } else { 0.0 }
    }

    /// The weight in whole units.
    fn units(&self, logit: f32) -> u64 {
        self.units_of(self.scale.weight(logit))
    }

    fn units_of(&self, weight: f32) -> u64 {
        // As a signed number, for which processors have an instruction.
        (f64::from(weight) * self.unit) as i64 as u64
    }

    /// Whether a token is probable enough for min-p.
    fn is_probable(&self, logit: f32) -> bool {
        self.scale.weight(logit) >= self.params.min_p
    }

    /// The running sum of units at which top-p has enough.
    fn enough(&self, total: u64) -> u64 {
        if self.params.top_p < 1.0 {
            (f64::from(self.params.top_p) * total as f64).ceil() as u64
        } else {
            u64::MAX
        }
    }

    /// The running sum of units that the drawn token is the first to reach.
    fn target(&self, kept: u64) -> u64 {
        ((self.uniform * kept as f64) as u64 + 1).min(kept)
    }
}

/// The tokens that have at least a unit, in the order of their ranks, up to an end.
struct Ranks<'r, 'a> {
    draw: &'r Draw<'a>,
    /// By falling logits; the last one has the tokens before the end.
    bins: &'r mut Vec<Bin>,
    /// Of the bin that is looked at closely.
    candidates: &'r mut Vec<Candidate>,
    /// The rank before which they end.
    end: u64,
}

impl<'r, 'a> Ranks<'r, 'a> {
    /// Counts all tokens.
    fn new(draw: &'r Draw<'a>, buffers: &'r mut Buffers) -> Ranks<'r, 'a> {
        let Buffers { candidates, bins } = buffers;
        bins.clear();
        bins.resize(BINS, Bin::default());
        for chunk in draw.logits.chunks(CHUNK) {
            for (&logit, weight) in chunk.iter().zip(draw.scale.weights(chunk)) {
                bins[bin(draw, logit)].add(draw.units_of(weight));
            }
        }
        Ranks { draw, bins, candidates, end: u64::MAX }
    }

    /// Units of all.
    fn units(&self) -> u64 {
        self.bins.iter().map(|bin| bin.units).sum()
    }

    /// The token at which the running sum of sizes reaches `target`; the last one if it never does.
    fn reach(
        &mut self,
        target: u64,
        of_bin: impl Fn(&Bin) -> u64,
        of_token: impl Fn(&Candidate) -> u64,
    ) -> Option<Candidate> {
        let (mut before, mut found) = (0, None);
        for (index, bin) in self.bins.iter().enumerate().filter(|(_, bin)| bin.tokens > 0) {
            found = Some((index, before));
            before += of_bin(bin);
            if before >= target {
                break;
            }
        }
        let (index, before) = found?;
        self.gather(index);
        reach(self.candidates, target - before, of_token)
    }

    /// Leaves out what comes after a token that was just reached.
    fn end_after(&mut self, last: Candidate) {
        self.end = last.rank() + 1;
        self.candidates.retain(|candidate| candidate.rank() < self.end);
        self.recount(bin(self.draw, last.logit));
    }

    /// Leaves out a token and what comes after it.
    fn end_before(&mut self, end: Candidate) {
        if end.rank() < self.end {
            self.end = end.rank();
            let index = bin(self.draw, end.logit);
            self.gather(index);
            self.recount(index);
        }
    }

    /// Ends with a bin, which has the candidates.
    fn recount(&mut self, index: usize) {
        let mut rest = Bin::default();
        self.candidates.iter().for_each(|candidate| rest.add(self.draw.units(candidate.logit)));
        self.bins.truncate(index + 1);
        self.bins[index] = rest;
    }

    /// Makes the tokens of a bin the candidates.
    fn gather(&mut self, index: usize) {
        self.candidates.clear();
        for (first, chunk) in (0..).step_by(CHUNK).zip(self.draw.logits.chunks(CHUNK)) {
            // Most chunks have none, which is found out at once.
            if !chunk.iter().fold(false, |any, &logit| any | is_in(self.draw, logit, index)) {
                continue;
            }
            for (token, &logit) in (first..).zip(chunk) {
                let candidate = Candidate { token, logit };
                if is_in(self.draw, logit, index) && candidate.rank() < self.end && self.draw.units(logit) > 0
                {
                    self.candidates.push(candidate);
                }
            }
        }
    }
}

impl Bin {
    /// Adds a token, if it has a unit at least.
    fn add(&mut self, units: u64) {
        self.tokens += u64::from(units > 0);
        self.units += units;
    }
}

/// The bin that a logit is in; of higher logits, the same or one before it.
fn bin(draw: &Draw<'_>, logit: f32) -> usize {
    ((draw.scale.distance(logit) * BINS_PER_NAT) as usize).min(BINS - 1)
}

/// Whether [`bin`] is `index`; NaN may be in any.
#[inline(always)]
fn is_in(draw: &Draw<'_>, logit: f32, index: usize) -> bool {
    let place = draw.scale.distance(logit) * BINS_PER_NAT;
    let past = if index + 1 < BINS { (index + 1) as f32 } else { f32::INFINITY };
    place >= index as f32 && (place < past)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tensor::philox;

    use super::super::weights::{finite, maximum};
    use super::*;

    /// Sorts all tokens, and walks along them.
    fn reference(draw: &Draw<'_>) -> Option<Drawn> {
        let mut sorted = Vec::new();
        select_top(draw.logits, draw.logits.len(), &mut sorted);
        let limit = draw.params.top_k.unwrap_or(usize::MAX);
        let total = if limit < draw.logits.len() {
            sorted.iter().take(limit).map(|candidate| draw.units(candidate.logit)).sum()
        } else {
            (mass(draw.logits, draw.scale) * draw.unit) as u64
        };
        sorted.truncate(limit);
        let kept = draw.keep(&sorted, total).0;
        draw.of_sorted(&sorted[..kept])
    }

    fn params(top_k: Option<usize>, top_p: f32, min_p: f32) -> SamplingParams {
        SamplingParams { top_k, top_p, min_p, ..SamplingParams::default() }
    }

    /// Compares some draws, and those at the ends, with the reference.
    fn check(logits: &[f32], heat: f32, params: &SamplingParams) {
        let scale = Scale { highest: finite(maximum(logits)), inverse_temperature: 1.0 / heat };
        let mut buffers = Buffers::default();
        let inside = (0..8).map(|position| philox::uniform(1, position));
        for uniform in inside.chain([0.0, 1.0 - f64::EPSILON]) {
            let draw = Draw::new(logits, &scale, params, uniform);
            // Tokens of less than a unit may be kept or not.
            let seen = |drawn: Drawn| (drawn.token, drawn.kept.units);
            let expected = reference(&draw).map(seen);
            assert_eq!(draw.drawn(&mut buffers).map(seen), expected, "{uniform} of {params:?}");
        }
    }

    /// Numbers in so many steps, some of them NaN and -inf.
    fn stepped(len: usize, seed: u64, steps: f64, height: f64) -> Vec<f32> {
        let value = |i: u64| match (philox::uniform(seed, i) * steps) as u32 {
            0 => f32::NAN,
            1 => f32::NEG_INFINITY,
            step => (f64::from(step) / steps * height) as f32,
        };
        (0..len as u64).map(value).collect()
    }

    #[test]
    fn all_tokens_may_be_equal() {
        let logits = vec![1.5; 10_000];
        for params in [params(None, 0.7, 0.0), params(Some(5000), 1.0, 0.0), params(Some(9999), 0.1, 1.0)] {
            check(&logits, 1.0, &params);
        }
    }

    #[test]
    fn a_steep_row_and_a_huge_one_are_drawn_from() {
        let steep: Vec<f32> = (0..20_000).map(|i| -(i as f32) * 0.01).collect();
        let huge: Vec<f32> = (0..20_000).map(|i| (i % 100) as f32 * 1e36).collect();
        let infinite: Vec<f32> = (0..20_000).map(|i| if i % 3 == 0 { f32::INFINITY } else { 0.0 }).collect();
        for logits in [steep, huge, infinite] {
            for params in
                [params(None, 0.99, 0.0), params(Some(3000), 0.9999, 1e-6), params(Some(4000), 1.0, 0.0)]
            {
                check(&logits, 1.0, &params);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_drawn_is_what_sorting_would_draw(
            seed: u64,
            len in 1usize..20_000,
            steps in prop_oneof![Just(3.0), 10.0..100.0, Just(1e6)],
            height in 0.0f64..60.0,
            heat in 0.1f32..10.0,
            top_k in prop_oneof![Just(None), (1usize..20_000).prop_map(Some)],
            top_p in prop_oneof![Just(1.0f32), 0.05f32..1.0],
            min_p in prop_oneof![Just(0.0f32), 1e-6f32..0.9],
        ) {
            let logits = stepped(len, seed, steps, height);
            check(&logits, heat, &params(top_k, top_p, min_p));
        }
    }
}
