//! Token ids to text as they come, in pieces that never split a character.

use std::sync::Arc;

use crate::tokenizer::{DecoderState, SkipSpecial, Tokenizer};

/// Turns a growing sequence of ids into a growing text.
///
/// The pieces together are what [`Tokenizer::decode`] makes of all the ids: a character whose bytes come in several
/// tokens is held back until it is whole, and bytes that can no longer become a character are U+FFFD.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip: SkipSpecial,
    /// Special tokens that are text in any case, sorted.
    shown: Arc<[u32]>,
    state: DecoderState,
    /// Bytes of a character that is not whole yet; at most three.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Starts a text: where the tokenizer puts a space in front of every text, it is taken off again.
    pub fn new(tokenizer: Arc<Tokenizer>, skip: SkipSpecial) -> Self {
        let (shown, state) = (Arc::default(), DecoderState::default());
        Self { tokenizer, skip, shown, state, pending: Vec::new() }
    }

    /// Goes on after a prompt, so that the first word keeps its space: prompt and pieces together are the text of
    /// all the ids.
    pub fn after(tokenizer: Arc<Tokenizer>, skip: SkipSpecial, prompt: &[u32]) -> Self {
        let mut detokenizer = Self::new(tokenizer, skip);
        for &id in prompt {
            detokenizer.push(id);
        }
        detokenizer
    }

    /// Writes these special tokens as they are named, whatever becomes of others.
    pub fn showing(mut self, mut tokens: Vec<u32>) -> Self {
        tokens.sort_unstable();
        self.shown = tokens.into();
        self
    }

    /// Takes the text as begun, so that the next token keeps its space whatever came before.
    pub fn begin(&mut self) {
        self.state = DecoderState::inside();
    }

    /// The text that `id` completes, if it completes any.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let skip = if self.shown.binary_search(&id).is_ok() { SkipSpecial::No } else { self.skip };
        self.tokenizer.append_text(id, skip, &mut self.state, &mut self.pending);
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let is_last = done + chunk.invalid().len() == self.pending.len();
            if is_last && may_become_a_character(chunk.invalid()) {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                done += chunk.invalid().len();
            }
        }
        self.pending.drain(..done);
        (!text.is_empty()).then_some(text)
    }

    /// The bytes that `id` would add to the text now; for a special token, its name.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.tokenizer.append_text(id, SkipSpecial::No, &mut self.state.clone(), &mut bytes);
        bytes
    }

    /// The rest of the text, once no more ids come: U+FFFD if a character was never completed.
    pub fn finish(self) -> Option<String> {
        (!self.pending.is_empty()).then(|| char::REPLACEMENT_CHARACTER.to_string())
    }
}

/// Whether these bytes are the beginning of a character, and only lack its end.
fn may_become_a_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::GgufVocabulary;

    const TOKENS: [&str; 9] =
        ["<unk>", "<s>", "▁Hi", "▁you", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<|user|>"];

    fn tokenizer() -> Arc<Tokenizer> {
        let vocabulary = GgufVocabulary {
            model: "llama",
            tokens: TOKENS.iter().map(|&token| token.into()).collect(),
            token_types: Some(vec![2, 3, 1, 1, 6, 6, 6, 6, 3]),
            ..Default::default()
        };
        Arc::new(Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap())
    }

    fn check(mut detokenizer: Detokenizer, ids: &[u32], pieces: &[&str], rest: Option<&str>) {
        let got: Vec<String> = ids.iter().map(|&id| detokenizer.push(id).unwrap_or_default()).collect();
        assert_eq!(got, pieces, "{ids:?}");
        assert_eq!(detokenizer.finish().as_deref(), rest, "{ids:?}");
    }

    #[test]
    fn characters_come_whole() {
        let start = || Detokenizer::new(tokenizer(), SkipSpecial::Yes);
        check(start(), &[1, 2, 4, 5, 6, 7, 3], &["", "Hi", "", "", "", "😀", " you"], None);
        check(start(), &[4, 5, 3, 7], &["", "", "\u{FFFD} you", "\u{FFFD}"], None);
        check(start(), &[4, 5, 6], &["", "", ""], Some("\u{FFFD}"));
        check(start(), &[99, 2], &["\u{FFFD}", "Hi"], None);
    }

    #[test]
    fn the_first_space_belongs_to_the_start_of_the_text() {
        let after = |prompt: &[u32]| Detokenizer::after(tokenizer(), SkipSpecial::Yes, prompt);
        check(after(&[1, 2]), &[3], &[" you"], None);
        check(after(&[1]), &[3], &["you"], None);
        check(after(&[1, 4, 5]), &[6, 7], &["", "😀"], None);
        check(Detokenizer::new(tokenizer(), SkipSpecial::No), &[8, 2], &["<|user|>", " Hi"], None);
    }

    #[test]
    fn chosen_special_tokens_are_shown() {
        let shown = Detokenizer::new(tokenizer(), SkipSpecial::Yes).showing(vec![8, 0]);
        check(shown, &[1, 8, 2, 0], &["", "<|user|>", " Hi", "<unk>"], None);
    }

    #[test]
    fn tokenizers_cross_threads() {
        fn check<T: Send + Sync>() {}
        check::<Detokenizer>();
    }
}
