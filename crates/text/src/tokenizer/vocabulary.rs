//! The tokens of a vocabulary: their texts and types, ids by text, and the special tokens cut out of a text.

use std::collections::HashMap;
use std::sync::Arc;

use super::added_token::AddedToken;

/// The type of a token, as GGUF's `token_type` and SentencePiece number it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal = 1,
    /// Stands for text that has no token.
    Unknown,
    /// Steers the model and is not text: BOS, EOS, roles.
    Control,
    /// Text that is always one token, whatever the merges say.
    UserDefined,
    Unused,
    /// `<0x41>`: one byte of a character that has no token.
    Byte,
}

impl TokenType {
    pub(super) fn from_number(number: i32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// Whether a decoder that skips special tokens leaves it out.
    pub(super) fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// A part of a text: still text, or already a token.
#[derive(Debug, PartialEq)]
pub(super) enum Fragment<'a> {
    Text(&'a str),
    Token(u32),
}

#[derive(Debug)]
pub(super) struct Vocabulary {
    texts: Vec<Arc<str>>,
    types: Vec<TokenType>,
    ids: HashMap<Arc<str>, u32, ahash::RandomState>,
    /// The tokens that are cut out of a text before anything else, longest first.
    cut: Vec<u32>,
    /// The tokens that take the whitespace after them.
    strips_right: Vec<u32>,
}

impl Vocabulary {
    /// Of tokens with the same text, the first keeps it; the others are never made by encoding.
    /// An empty text becomes `[EMPTY_7]`, since nothing could match it. `types` may be shorter than `texts`.
    pub(super) fn new(texts: impl ExactSizeIterator<Item = Arc<str>>, types: Vec<TokenType>) -> Self {
        let mut ids = HashMap::with_capacity_and_hasher(texts.len(), ahash::RandomState::new());
        let mut kept = Vec::with_capacity(texts.len());
        for (id, text) in texts.enumerate() {
            let text = if text.is_empty() { Arc::from(format!("[EMPTY_{id}]")) } else { text };
            ids.entry(Arc::clone(&text)).or_insert(id as u32);
            kept.push(text);
        }
        let mut types = types;
        types.resize(kept.len(), TokenType::Normal);
        let mut vocabulary = Self { texts: kept, types, ids, cut: Vec::new(), strips_right: Vec::new() };
        vocabulary.list_cut_tokens(|_| false);
        vocabulary
    }

    /// The id of an added token: that of its text, or else the next one.
    pub(super) fn add(&mut self, token: &AddedToken, next: u32) -> u32 {
        let kind = if token.special { TokenType::Control } else { TokenType::UserDefined };
        if let Some(id) = self.id(&token.content) {
            if token.special {
                self.types[id as usize] = kind;
            }
            return id;
        }
        let text: Arc<str> = token.content.as_str().into();
        self.ids.insert(Arc::clone(&text), next);
        self.texts.push(text);
        self.types.push(kind);
        next
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(|text| &**text)
    }

    pub(super) fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    /// Makes every token of these texts a control token, whatever the file called it.
    pub(super) fn make_control(&mut self, texts: &[&str]) {
        for id in texts.iter().filter_map(|text| self.ids.get(*text).copied()) {
            self.types[id as usize] = TokenType::Control;
        }
        self.list_cut_tokens(|_| false);
    }

    /// Makes the tokens that are cut out of a text take the whitespace after them, except those of these texts.
    pub(super) fn strip_right_except(&mut self, texts: &[&str]) {
        let strips = |id: &u32| !texts.contains(&&*self.texts[*id as usize]);
        self.strips_right = self.cut.iter().copied().filter(strips).collect();
    }

    /// The id of `<0xHH>` for every byte, or of the byte itself as a text, where the vocabulary has one.
    pub(super) fn byte_ids(&self) -> [Option<u32>; 256] {
        std::array::from_fn(|byte| {
            let plain =
                || (byte < 128).then(|| self.id((byte as u8 as char).encode_utf8(&mut [0; 4]))).flatten();
            self.id(&format!("<0x{byte:02X}>")).or_else(plain)
        })
    }

    /// Cuts the special tokens out of `text`. Control and unknown tokens are cut only when `parse_special`;
    /// user-defined ones always. A longer token goes before a shorter one, wherever they stand, as in llama.cpp.
    pub(super) fn cut<'a>(&self, text: &'a str, parse_special: bool) -> Vec<Fragment<'a>> {
        let mut present = [false; 256];
        text.bytes().for_each(|byte| present[usize::from(byte)] = true);
        let mut fragments = if text.is_empty() { Vec::new() } else { vec![Fragment::Text(text)] };
        for &id in &self.cut {
            let token = self.texts[id as usize].as_ref();
            let hidden = self.types[id as usize].is_special() && !parse_special;
            if hidden || !present[usize::from(token.as_bytes()[0])] || !text.contains(token) {
                continue;
            }
            let strip = self.strips_right.contains(&id);
            fragments = fragments
                .into_iter()
                .flat_map(|fragment| match fragment {
                    Fragment::Text(text) => split(text, token, id, strip),
                    token => vec![token],
                })
                .collect();
        }
        fragments
    }

    /// Lists the tokens that are cut out of a text, except those that someone else cuts.
    pub(super) fn list_cut_tokens(&mut self, is_cut: impl Fn(u32) -> bool) {
        let cut = |kind: TokenType| kind.is_special() || kind == TokenType::UserDefined;
        let ids = (0..self.types.len()).filter(|&id| cut(self.types[id])).map(|id| id as u32);
        self.cut = ids.filter(|&id| !is_cut(id)).collect();
        self.cut.sort_by_key(|&id| std::cmp::Reverse(self.texts[id as usize].len()));
    }
}

fn split<'a>(text: &'a str, token: &str, id: u32, strip_right: bool) -> Vec<Fragment<'a>> {
    let mut fragments = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(token) {
        if !before.is_empty() {
            fragments.push(Fragment::Text(before));
        }
        fragments.push(Fragment::Token(id));
        let space = |c| matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r');
        rest = if strip_right { after.trim_start_matches(space) } else { after };
    }
    if !rest.is_empty() {
        fragments.push(Fragment::Text(rest));
    }
    fragments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(tokens: &[(&str, TokenType)]) -> Vocabulary {
        let texts: Vec<Arc<str>> = tokens.iter().map(|(text, _)| Arc::from(*text)).collect();
        Vocabulary::new(texts.into_iter(), tokens.iter().map(|(_, kind)| *kind).collect())
    }

    #[test]
    fn cuts_longer_tokens_first() {
        use Fragment::{Text, Token};
        let v = vocabulary(&[
            ("<s>", TokenType::Control),
            ("  ", TokenType::UserDefined),
            ("<s><s>", TokenType::Control),
        ]);
        assert_eq!(v.cut("a<s><s><s>b", true), [Text("a"), Token(2), Token(0), Text("b")]);
        assert_eq!(v.cut("a<s>  b", false), [Text("a<s>"), Token(1), Text("b")]);
        assert_eq!(v.cut("", true), []);
    }

    #[test]
    fn strange_tokens_do_no_harm() {
        let v = vocabulary(&[("", TokenType::Control), ("x", TokenType::Normal), ("x", TokenType::Control)]);
        assert_eq!((v.text(0), v.id("x")), (Some("[EMPTY_0]"), Some(1)));
        assert_eq!(v.cut("x", true), [Fragment::Token(2)]);
        assert_eq!((v.text(3), v.token_type(3)), (None, None));
    }
}
