//! Of all ways to cut a text into tokens, the one whose scores sum highest (Viterbi).

use std::ops::Range;

use super::prefixes::Prefixes;

/// How much worse than the worst token a character without one is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// Tokens with scores.
#[derive(Debug)]
pub(super) struct Scored {
    tokens: Prefixes,
    /// Per id.
    scores: Vec<f64>,
    unknown_score: f64,
}

/// A part of the text: one token, or one character without a token.
#[derive(Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) range: Range<usize>,
    pub(super) id: Option<u32>,
}

/// The best way to reach a place in the text.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    start: usize,
    id: Option<u32>,
}

impl Scored {
    /// `scores` by id; `lowest` is the score of the worst token.
    pub(super) fn new(tokens: Prefixes, scores: Vec<f64>, lowest: f64) -> Scored {
        let lowest = if lowest.is_finite() { lowest } else { 0.0 };
        Scored { tokens, scores, unknown_score: lowest - UNKNOWN_PENALTY }
    }

    /// The best cut of the whole text. Among equals the first found counts, which starts earliest.
    pub(super) fn cut(&self, text: &str) -> Vec<Cut> {
        let mut best = vec![Best { score: f64::NEG_INFINITY, start: usize::MAX, id: None }; text.len() + 1];
        best[0].score = 0.0;
        for (start, c) in text.char_indices() {
            let reached = best[start].score;
            let mut consider = |end: usize, score: f64, id| {
                if best[end].start == usize::MAX || reached + score > best[end].score {
                    best[end] = Best { score: reached + score, start, id };
                }
            };
            let mut single = false;
            self.tokens.for_each(&text.as_bytes()[start..], |length, id| {
                single |= length == c.len_utf8();
                consider(start + length, self.scores[id as usize], Some(id));
            });
            if !single {
                consider(start + c.len_utf8(), self.unknown_score, None);
            }
        }
        let (mut cuts, mut end) = (Vec::new(), text.len());
        while end > 0 {
            cuts.push(Cut { range: best[end].start..end, id: best[end].id });
            end = best[end].start;
        }
        cuts.reverse();
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_sum_wins() {
        let pieces = [("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0), ("cd", 1.0), ("ab", 2.0), ("abc", 5.0)];
        let tokens =
            Prefixes::new(pieces.iter().enumerate().map(|(id, &(text, _))| (text.into(), id as u32)));
        let scored = Scored::new(tokens, pieces.iter().map(|&(_, score)| score).collect(), 0.0);
        let ids = |text: &str| scored.cut(text).into_iter().map(|cut| cut.id).collect::<Vec<_>>();
        assert_eq!(ids("abcd"), [Some(6), Some(3)]);
        assert_eq!(ids("acdx"), [Some(0), Some(4), None]);
        assert!(ids("").is_empty());
    }
}
