//! SentencePiece Unigram: of all ways to cut a text into tokens, the one whose scores sum highest (Viterbi).

use super::normalizer::Normalizer;
use super::vocabulary::{Fragment, TokenType, Vocabulary};

/// How much worse than the worst token a character without one is.
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Unigram {
    normalizer: Normalizer,
    /// Per token; `None` for those that text is never cut into.
    scores: Vec<Option<f64>>,
    unknown_score: f64,
    unknown: u32,
    /// In bytes.
    longest: usize,
    byte_ids: Option<[Option<u32>; 256]>,
}

/// The best way to reach a place in the text.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    start: usize,
    id: Option<u32>,
}

impl Unigram {
    /// `scores` may be shorter than the vocabulary; the rest score 0.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        scores: &[f32],
        unknown: u32,
        byte_fallback: bool,
        normalizer: Normalizer,
    ) -> Self {
        let usable = |kind| matches!(kind, Some(TokenType::Normal | TokenType::UserDefined));
        let score = |id: usize| match scores.get(id) {
            Some(score) if score.is_nan() => f64::MIN,
            score => f64::from(score.copied().unwrap_or(0.0)),
        };
        let ids = 0..vocabulary.len();
        let scores: Vec<Option<f64>> =
            ids.clone().map(|id| usable(vocabulary.token_type(id as u32)).then(|| score(id))).collect();
        let lowest = scores.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        Self {
            unknown_score: if lowest.is_finite() { lowest } else { 0.0 } - UNKNOWN_PENALTY,
            longest: ids.filter_map(|id| vocabulary.text(id as u32)).map(str::len).max().unwrap_or(0),
            byte_ids: byte_fallback.then(|| vocabulary.byte_ids()),
            normalizer,
            scores,
            unknown,
        }
    }

    pub(super) fn encode(&self, vocabulary: &Vocabulary, fragments: &[Fragment<'_>], ids: &mut Vec<u32>) {
        for fragment in fragments {
            match *fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => {
                    let text = self.normalizer.normalize(text, true);
                    let best = self.best_cuts(vocabulary, &text);
                    self.follow(&text, &best, ids);
                }
            }
        }
    }

    /// For every place, the best cut that ends there. Among equals the first found, which starts earliest.
    fn best_cuts(&self, vocabulary: &Vocabulary, text: &str) -> Vec<Best> {
        let mut best = vec![Best { score: f64::NEG_INFINITY, start: usize::MAX, id: None }; text.len() + 1];
        best[0].score = 0.0;
        for (start, c) in text.char_indices() {
            let reached = best[start].score;
            let mut consider = |end: usize, score: f64, id| {
                if best[end].start == usize::MAX || reached + score > best[end].score {
                    best[end] = Best { score: reached + score, start, id };
                }
            };
            let first_end = start + c.len_utf8();
            let mut single = false;
            for end in first_end..=(start + self.longest).min(text.len()) {
                if text.is_char_boundary(end)
                    && let Some(id) = vocabulary.id(&text[start..end])
                    && let Some(score) = self.scores[id as usize]
                {
                    single |= end == first_end;
                    consider(end, score, Some(id));
                }
            }
            if !single {
                consider(first_end, self.unknown_score, None);
            }
        }
        best
    }

    /// Appends the ids of the best cut of the whole text. Neighboring unknown characters are one unknown token.
    fn follow(&self, text: &str, best: &[Best], ids: &mut Vec<u32>) {
        let mut cuts = Vec::new();
        let mut end = text.len();
        while end > 0 {
            cuts.push((best[end].start, end, best[end].id));
            end = best[end].start;
        }
        let mut after_unknown = false;
        for (start, end, id) in cuts.into_iter().rev() {
            let bytes = self.byte_ids.as_ref().and_then(|byte_ids| {
                text.as_bytes()[start..end]
                    .iter()
                    .map(|&byte| byte_ids[usize::from(byte)])
                    .collect::<Option<Vec<_>>>()
            });
            match (id, bytes) {
                (Some(id), _) => ids.push(id),
                (None, Some(bytes)) => ids.extend(bytes),
                (None, None) if after_unknown => {}
                (None, None) => ids.push(self.unknown),
            }
            after_unknown = id.is_none();
        }
    }
}
