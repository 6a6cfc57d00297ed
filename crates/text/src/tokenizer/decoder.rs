//! Tokens to text: the bytes each token adds, given what came before it.

use super::byte_level::byte_of_char;
use super::pattern::Pattern;

/// How a tokenizer's tokens become text.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Applied to each token in turn.
    pub(super) steps: Vec<Step>,
    /// How many of this character are taken off the start of the text.
    pub(super) strip_start: Option<(char, usize)>,
}

/// One thing done to a token.
#[derive(Debug)]
pub(super) enum Step {
    /// Each character stands for a byte; a token with any other character is left as it is.
    ByteLevel,
    /// `<0x41>` is one byte.
    ByteFallback,
    Replace {
        pattern: Pattern,
        to: String,
    },
    /// Takes up to so many of this character off the start and the end of each token.
    Strip {
        mark: char,
        start: usize,
        stop: usize,
    },
    /// The mark is a space; on the first token it is nothing, if `drop_first`.
    Metaspace {
        mark: char,
        drop_first: bool,
    },
    /// A token is a word of its own unless it has this prefix; `tidy` takes out spaces before punctuation.
    WordPiece {
        prefix: String,
        tidy: bool,
    },
    /// Takes out spaces before punctuation.
    Tidy,
    /// Tokens are parted by spaces.
    Spaced,
    /// This ends a word, and a space follows if another token does.
    Suffix(String),
    /// Of equal neighbors the first counts; `pad` is nothing, and `delimiter` parts words.
    Ctc {
        pad: String,
        delimiter: String,
        tidy: bool,
    },
}

/// The state that a decoder carries from token to token.
#[derive(Debug, Clone, Default)]
pub(crate) struct DecoderState {
    started: bool,
    stripped: usize,
    strip_done: bool,
    /// Whether a word has ended.
    owes_space: bool,
    /// The last token, where it matters.
    previous: Option<String>,
}

impl DecoderState {
    /// That of a text that has begun.
    pub(crate) fn inside() -> DecoderState {
        DecoderState { started: true, strip_done: true, ..DecoderState::default() }
    }
}

impl Decoder {
    /// Whether the bytes of a token inside a text depend on the token before it.
    pub(super) fn looks_back(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Suffix(_) | Step::Ctc { .. }))
    }

    /// The decoder of SentencePiece models: marks become spaces, and the first space may be dropped.
    pub(super) fn sentence_piece(strip_first_space: bool) -> Self {
        let pattern = Pattern::Literal(super::normalizer::SPACE_MARK.into());
        let replace = Step::Replace { pattern, to: " ".into() };
        let strip_start = strip_first_space.then_some((' ', 1));
        Self { steps: vec![replace, Step::ByteFallback], strip_start }
    }

    /// Marks are spaces, but for the text's first, and those before punctuation.
    pub(super) fn word_piece() -> Self {
        let pattern = Pattern::Literal(super::normalizer::SPACE_MARK.into());
        let replace = Step::Replace { pattern, to: " ".into() };
        Self { steps: vec![replace, Step::Tidy], strip_start: Some((' ', 1)) }
    }

    pub(super) fn byte_level() -> Self {
        Self { steps: vec![Step::ByteLevel], strip_start: None }
    }

    /// Appends what `token` adds to the text. `literal` tokens are taken as they are written.
    pub(super) fn append(&self, token: &str, literal: bool, state: &mut DecoderState, text: &mut Vec<u8>) {
        let steps = if literal { &[] } else { self.steps.as_slice() };
        let mut bytes = token.as_bytes().to_vec();
        for step in steps {
            step.apply(&mut bytes, state);
        }
        state.started = true;
        let kept = match self.strip_start {
            Some((c, most)) if !state.strip_done => strip(&bytes, c, most, state),
            _ => &bytes,
        };
        text.extend_from_slice(kept);
    }
}

/// Takes leading `c`s off the text's start, which may reach over several tokens.
fn strip<'a>(mut bytes: &'a [u8], c: char, most: usize, state: &mut DecoderState) -> &'a [u8] {
    let mut buffer = [0; 4];
    let c = c.encode_utf8(&mut buffer).as_bytes();
    while state.stripped < most
        && let Some(rest) = bytes.strip_prefix(c)
    {
        bytes = rest;
        state.stripped += 1;
    }
    state.strip_done = state.stripped == most || !bytes.is_empty();
    bytes
}

impl Step {
    /// A step that needs text leaves bytes alone, which an earlier step made of a token.
    fn apply(&self, bytes: &mut Vec<u8>, state: &mut DecoderState) {
        let first = !state.started;
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let replaced = match self {
            Step::ByteLevel => match text.chars().map(byte_of_char).collect::<Option<Vec<u8>>>() {
                Some(decoded) => decoded,
                None => return,
            },
            Step::ByteFallback => match byte_token(text) {
                Some(byte) => vec![byte],
                None => return,
            },
            Step::Replace { pattern, to } => {
                let mut replaced = String::with_capacity(text.len());
                let add = |range: std::ops::Range<usize>, is_match| {
                    replaced.push_str(if is_match { to } else { &text[range] });
                };
                // A pattern that takes too many steps replaces nothing.
                if pattern.cut(text, add).is_err() {
                    return;
                }
                replaced.into_bytes()
            }
            Step::Strip { mark, start, stop } => {
                let leading = text.chars().take(*start).take_while(|c| c == mark).count();
                let rest = &text[leading * mark.len_utf8()..];
                let trailing = rest.chars().rev().take(*stop).take_while(|c| c == mark).count();
                rest.as_bytes()[..rest.len() - trailing * mark.len_utf8()].to_vec()
            }
            Step::Metaspace { mark, drop_first } => {
                let space = if first && *drop_first { "" } else { " " };
                text.replace(*mark, space).into_bytes()
            }
            Step::WordPiece { prefix, tidy } => {
                let spaced = match text.strip_prefix(prefix.as_str()) {
                    _ if first => text.to_owned(),
                    Some(rest) => rest.to_owned(),
                    None => format!(" {text}"),
                };
                if *tidy { tidied(&spaced).into_bytes() } else { spaced.into_bytes() }
            }
            Step::Tidy => tidied(text).into_bytes(),
            Step::Spaced if first => return,
            Step::Spaced => format!(" {text}").into_bytes(),
            Step::Suffix(suffix) => {
                let owed = if std::mem::take(&mut state.owes_space) { " " } else { "" };
                let word = text.strip_suffix(suffix.as_str()).filter(|_| !suffix.is_empty());
                state.owes_space = word.is_some();
                format!("{owed}{}", word.unwrap_or(text).replace(suffix.as_str(), " ")).into_bytes()
            }
            Step::Ctc { pad, delimiter, tidy } => {
                let is_repeated = state.previous.as_deref() == Some(text);
                state.previous = Some(text.to_owned());
                let text = if is_repeated { String::new() } else { text.replace(pad.as_str(), "") };
                if *tidy {
                    tidied(&text).replace(delimiter.as_str(), " ").into_bytes()
                } else {
                    text.into_bytes()
                }
            }
        };
        *bytes = replaced;
    }
}

/// The byte that a token such as `<0x41>` stands for.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if two { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// Takes out the spaces that English does not write before punctuation and contractions.
fn tidied(text: &str) -> String {
    const UNWANTED: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    UNWANTED.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(decoder: &Decoder, tokens: &[&str], expected: &str) {
        let (mut state, mut text) = (DecoderState::default(), Vec::new());
        tokens.iter().for_each(|token| decoder.append(token, false, &mut state, &mut text));
        assert_eq!(String::from_utf8_lossy(&text), expected, "{tokens:?}");
    }

    #[test]
    fn sentence_piece() {
        let decoder = Decoder::sentence_piece(true);
        check(&decoder, &["▁Hi", "▁", "<0xE2>", "<0x96>", "<0x81>", "▁x"], "Hi ▁ x");
        check(&decoder, &["", "▁", "▁x"], " x");
        check(&decoder, &["<0x20>", "x"], "x");
        check(&decoder, &["<0x-1>", "<0x+1>", "<0x1>"], "<0x-1><0x+1><0x1>");
        check(&Decoder::sentence_piece(false), &["▁Hi"], " Hi");
    }

    #[test]
    fn byte_level() {
        check(&Decoder::byte_level(), &["Ġa", "Ã", "©", "<｜end｜>", "a b"], " aé<｜end｜>a b");
    }

    #[test]
    fn words_and_spaces() {
        let decoder = |step| Decoder { steps: vec![step], strip_start: None };
        let pieces = Step::WordPiece { prefix: "##".into(), tidy: true };
        check(&decoder(pieces), &["##a", "is", "##n", ".", "x"], "##a isn. x");
        let meta = |drop_first| decoder(Step::Metaspace { mark: '▁', drop_first });
        check(&meta(true), &["▁a", "▁b"], "a b");
        check(&meta(false), &["▁a", "▁b"], " a b");
        check(&decoder(Step::Spaced), &["a", "b"], "a b");
    }
}
