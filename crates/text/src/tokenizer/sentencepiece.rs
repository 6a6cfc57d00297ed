//! SentencePiece BPE: characters join by the score of the token they make; what has no token becomes bytes.
//!
//! Follows llama.cpp's "SPM" tokenizer id for id, which in turn follows SentencePiece's own BPE.

use super::merge::{Join, Merger};
use super::normalizer::Normalizer;
use super::vocabulary::Vocabulary;
use crate::Error;

#[derive(Debug)]
pub(super) struct SentencePiece {
    /// Per token, lower joins first.
    orders: Vec<u32>,
    byte_ids: [Option<u32>; 256],
    unknown: Option<u32>,
    normalizer: Normalizer,
}

/// The id of a character that is not a token itself; it can still be part of one.
const NO_TOKEN: u32 = u32::MAX;

impl SentencePiece {
    /// `scores` may be shorter than the vocabulary; the rest score 0.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        scores: &[f32],
        unknown: Option<u32>,
        normalizer: Normalizer,
    ) -> Self {
        let score = |id| scores.get(id).copied().unwrap_or(0.0);
        let orders = (0..vocabulary.len()).map(|id| descending(score(id))).collect();
        Self { orders, byte_ids: vocabulary.byte_ids(), unknown, normalizer }
    }

    /// Whether all bytes of a text are in its tokens.
    pub(super) fn keeps_all(&self) -> bool {
        self.normalizer.charsmap.is_none() && !self.normalizer.remove_extra_spaces
    }

    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        at_start: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let text = self.normalizer.normalize(text, at_start);
        let mut merger = Merger::default();
        for (start, c) in text.char_indices() {
            let id = self.id(vocabulary, &text[start..start + c.len_utf8()]).unwrap_or(NO_TOKEN);
            merger.push(c.len_utf8() as u32, id);
        }
        let symbols = merger.run(|left, right| {
            let id = self.id(vocabulary, &text[left.start as usize..(right.start + right.len) as usize])?;
            Some(Join { order: self.orders[id as usize], id })
        });
        for symbol in symbols {
            if symbol.id != NO_TOKEN {
                ids.push(symbol.id);
                continue;
            }
            let bytes = &text.as_bytes()[symbol.start as usize..(symbol.start + symbol.len) as usize];
            self.push_bytes(bytes, ids)?;
        }
        Ok(())
    }

    /// The id of a token that the model has; others were added to it, and are made of no parts.
    fn id(&self, vocabulary: &Vocabulary, text: &str) -> Option<u32> {
        vocabulary.id(text).filter(|&id| (id as usize) < self.orders.len())
    }

    /// A character without a token is its bytes, or one unknown token where a byte has none.
    fn push_bytes(&self, bytes: &[u8], ids: &mut Vec<u32>) -> Result<(), Error> {
        let byte_ids = bytes.iter().map(|&byte| self.byte_ids[usize::from(byte)]);
        match (byte_ids.collect::<Option<Vec<_>>>(), self.unknown) {
            (Some(byte_ids), _) => ids.extend(byte_ids),
            (None, Some(unknown)) => ids.push(unknown),
            (None, None) => {
                let text = String::from_utf8_lossy(bytes);
                return Err(Error::Encode(format!(
                    "{text:?} has no token, its bytes have none, and the vocabulary has no unknown token"
                )));
            }
        }
        Ok(())
    }
}

/// A number that is lower the higher the score; equal scores, 0 and -0 among them, get equal numbers.
fn descending(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descending_scores() {
        let scores = [f32::INFINITY, 3.0, 1e-9, 0.0, -1.0, -1e9, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|pair| descending(pair[0]) < descending(pair[1])));
        assert_eq!(descending(0.0), descending(-0.0));
    }
}
