//! The best of a row's tokens, sorted no further than it takes.

use super::weights::{CHUNK, Scale, maximum};

/// A token that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) token: u32,
    pub(super) logit: f32,
}

/// So many candidates are sorted rather than halved.
const SORTED: usize = 32;

impl Candidate {
    /// The place among others: the higher logit comes first; of equals, the first token. (Both as one number, which is
    /// compared without branches.)
    #[inline(always)]
    pub(super) fn rank(&self) -> u64 {
        // Zeros are equal, whatever their signs.
        let bits = (self.logit + 0.0).to_bits();
        let falling = if bits >> 31 == 1 { bits } else { !(bits | 1 << 31) };
        u64::from(falling) << 32 | u64::from(self.token)
    }
}

/// The `count` highest logits, best first, of equals the first; NaN and -inf are never among them.
pub(super) fn select_top(logits: &[f32], count: usize, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    if count == 0 {
        return;
    }
    let mut threshold = f32::NEG_INFINITY;
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        if maximum(chunk) > threshold {
            let first = (index * CHUNK) as u32;
            let found = chunk.iter().zip(first..).filter(|&(&logit, _)| logit > threshold);
            candidates.extend(found.map(|(&logit, token)| Candidate { token, logit }));
            // Later equals of the worst candidate lose to it, so the comparison above may be strict.
            if candidates.len() >= 2 * count + CHUNK {
                candidates.select_nth_unstable_by_key(count - 1, Candidate::rank);
                candidates.truncate(count);
                threshold = candidates[count - 1].logit;
            }
        }
    }
    if candidates.len() > count {
        candidates.select_nth_unstable_by_key(count - 1, Candidate::rank);
        candidates.truncate(count);
    }
    candidates.sort_unstable_by_key(Candidate::rank);
}

/// The candidates that min-p alone keeps, in the vocabulary's order.
pub(super) fn select_above(logits: &[f32], scale: &Scale, min_p: f32, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    for (first, chunk) in (0..).step_by(CHUNK).zip(logits.chunks(CHUNK)) {
        if scale.weight(maximum(chunk)) >= min_p {
            let weights = scale.weights(chunk);
            let found = (first..).zip(chunk).zip(weights).filter(|&(_, weight)| weight >= min_p);
            candidates.extend(found.map(|((token, &logit), _)| Candidate { token, logit }));
        }
    }
}

/// The candidate, in the order of ranks, at which the running sum of sizes reaches `target`; the last one if it never
/// does. Halves the candidates until few are left, so that it takes time in proportion to them.
pub(super) fn reach(
    mut candidates: &mut [Candidate],
    target: u64,
    size: impl Fn(&Candidate) -> u64,
) -> Option<Candidate> {
    let mut sum = 0;
    while candidates.len() > SORTED {
        let middle = candidates.len() / 2;
        candidates.select_nth_unstable_by_key(middle, Candidate::rank);
        let (better, worse) = candidates.split_at_mut(middle);
        let more = better.iter().map(&size).sum::<u64>();
        candidates = if sum + more >= target {
            better
        } else {
            sum += more;
            worse
        };
    }
    candidates.sort_unstable_by_key(Candidate::rank);
    for candidate in &*candidates {
        sum += size(candidate);
        if sum >= target {
            return Some(*candidate);
        }
    }
    candidates.last().copied()
}
