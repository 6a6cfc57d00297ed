//! A tokenizer as llguidance sees it: a trie over the bytes of its tokens, and ids of texts.

use std::sync::Arc;

use toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::tokenizer::{AddSpecial, ParseSpecial, Tokenizer};

/// Tokens of more bytes are never chosen: the trie's nodes count levels in ten bits.
const MAX_TOKEN_BYTES: usize = 512;
/// The trie's nodes hold ids of 24 bits, and sizes of 22.
const MAX_TOKENS: usize = 1 << 21;
/// A character that joins with no other into a token; texts are encoded behind it, so that they do not begin with the
/// space that some tokenizers put before a text.
const BARRIER: &str = "\u{2}";

pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    /// The ids of [`BARRIER`].
    barrier: Vec<u32>,
}

impl Vocabulary {
    /// The trie of a tokenizer's tokens.
    ///
    /// # Errors
    /// If the bytes of a token depend on the token before it, or there are too many tokens.
    pub(super) fn new(tokenizer: &Arc<Tokenizer>) -> Result<Vocabulary, String> {
        let count = tokenizer.vocab_size();
        if count == 0 || count > MAX_TOKENS {
            return Err(format!("the vocabulary has {count} tokens; constraints take 1 to {MAX_TOKENS}"));
        }
        let words = (0..count as u32).map(|id| word(tokenizer, id)).collect::<Option<Vec<_>>>();
        let words = words.ok_or("the text of this tokenizer's tokens depends on the tokens before them")?;
        let mut ends: Vec<u32> = tokenizer.eos_ids().iter().copied().collect();
        ends.retain(|&id| (id as usize) < count);
        let info = TokRxInfo::new(count as u32, ends.first().copied().unwrap_or(toktrie::INVALID_TOKEN));
        let mut trie = TokTrie::from(&info, &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        let barrier = encode(tokenizer, BARRIER).unwrap_or_default();
        Ok(Vocabulary { tokenizer: Arc::clone(tokenizer), trie, barrier })
    }

    /// The ids of a text that follows another, if they stand for exactly its bytes.
    fn encode_inside(&self, text: &str) -> Option<Vec<TokenId>> {
        let ids = encode(&self.tokenizer, &format!("{BARRIER}{text}"))?;
        let ids = ids.strip_prefix(&self.barrier[..])?.to_vec();
        (self.trie.decode_raw(&ids) == text.as_bytes()).then_some(ids)
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let encode = |text: &str| {
            let ids = self.encode_inside(text);
            ids.unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        };
        self.trie.tokenize_with_greedy_fallback(bytes, encode)
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Option<Vec<u32>> {
    tokenizer.encode(text, AddSpecial::No, ParseSpecial::No).ok()
}

/// The bytes of a token; those that are no text have the mark of special tokens before their names. Empty if it is never
/// chosen, `None` if they depend on the token before it.
fn word(tokenizer: &Tokenizer, id: u32) -> Option<Vec<u8>> {
    let Some(name) = tokenizer.token(id) else { return Some(Vec::new()) };
    let word = if tokenizer.is_special(id) || tokenizer.eos_ids().contains(&id) {
        [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
    } else {
        tokenizer.bytes_inside(id)?
    };
    let is_text = word.len() <= MAX_TOKEN_BYTES && !is_marked_text(tokenizer, id, &word);
    Some(if is_text { word } else { Vec::new() })
}

/// Whether a token of text begins with the mark of special tokens, which is never a byte of UTF-8.
fn is_marked_text(tokenizer: &Tokenizer, id: u32, word: &[u8]) -> bool {
    word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER)
        && !tokenizer.is_special(id)
        && !tokenizer.eos_ids().contains(&id)
}
