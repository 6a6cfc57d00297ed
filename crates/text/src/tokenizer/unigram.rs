//! SentencePiece Unigram, as GGUF files and `.model` files have it: the cut of a text whose scores sum highest.

use std::sync::Arc;

use super::normalizer::Normalizer;
use super::prefixes::Prefixes;
use super::viterbi::Scored;
use super::vocabulary::{TokenType, Vocabulary};

#[derive(Debug)]
pub(super) struct Unigram {
    normalizer: Normalizer,
    scored: Scored,
    unknown: u32,
    byte_ids: Option<[Option<u32>; 256]>,
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
        let scores: Vec<f64> = (0..vocabulary.len()).map(score).collect();
        // Of several tokens with the same text, the vocabulary's `id` counts.
        let first = |id: u32| vocabulary.text(id).filter(|text| vocabulary.id(text) == Some(id));
        let ids = || (0..vocabulary.len() as u32).filter(|&id| usable(vocabulary.token_type(id)));
        let lowest = ids().map(|id| scores[id as usize]).fold(f64::INFINITY, f64::min);
        let tokens = Prefixes::new(ids().filter_map(|id| Some((Arc::from(first(id)?), id))));
        let byte_ids = byte_fallback.then(|| vocabulary.byte_ids());
        Self { scored: Scored::new(tokens, scores, lowest), unknown, byte_ids, normalizer }
    }

    /// Neighboring unknown characters are one unknown token.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let text = self.normalizer.normalize(text, true);
        let mut after_unknown = false;
        for cut in self.scored.cut(&text) {
            let byte_id = |byte: u8| self.byte_ids.as_ref().and_then(|ids| ids[usize::from(byte)]);
            match cut.id {
                Some(id) => ids.push(id),
                None => match text[cut.range].bytes().map(byte_id).collect::<Option<Vec<_>>>() {
                    Some(bytes) => ids.extend(bytes),
                    None if after_unknown => {}
                    None => ids.push(self.unknown),
                },
            }
            after_unknown = cut.id.is_none();
        }
    }
}
