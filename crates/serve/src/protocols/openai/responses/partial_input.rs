//! The free text in the arguments of a call, while the arguments are made.

/// How much of the text of the argument `input` has been read.
#[derive(Debug, Default)]
pub(super) struct PartialInput {
    /// The byte of the arguments that is read next; `None` before the text begins.
    next: Option<usize>,
    has_ended: bool,
    text: String,
}

impl PartialInput {
    /// The text that has come since the last time. `arguments` are all so far.
    pub(super) fn read(&mut self, arguments: &str) -> &str {
        let before = self.text.len();
        if self.next.is_none() {
            self.next = start_of_text(arguments);
        }
        if let Some(next) = self.next.filter(|_| !self.has_ended) {
            let (length, has_ended) = whole_characters(&arguments[next..]);
            let piece = arguments.get(next..next + length).map(|piece| format!("\"{piece}\""));
            match piece.and_then(|piece| serde_json::from_str::<String>(&piece).ok()) {
                Some(piece) => {
                    self.text.push_str(&piece);
                    (self.next, self.has_ended) = (Some(next + length), has_ended);
                }
                None => self.has_ended = true,
            }
        }
        &self.text[before..]
    }

    /// What of the whole text has not been read.
    pub(super) fn rest<'a>(&self, whole: &'a str) -> &'a str {
        whole.strip_prefix(&self.text[..]).unwrap_or_default()
    }
}

/// Where the text of the argument begins: after its name, a colon and a quotation mark.
fn start_of_text(arguments: &str) -> Option<usize> {
    let rest = arguments.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"input\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    Some(arguments.len() - rest.len())
}

/// The bytes of a JSON string that are whole characters, and whether the string ends after them.
fn whole_characters(text: &str) -> (usize, bool) {
    let (bytes, mut at) = (text.as_bytes(), 0);
    while at < bytes.len() {
        let length = match (bytes[at], bytes.get(at + 1), bytes.get(at + 2), bytes.get(at + 3)) {
            (b'"', ..) => return (at, true),
            // The first half of a character beyond the Basic Multilingual Plane.
            (b'\\', Some(b'u'), Some(b'd' | b'D'), Some(b'8' | b'9' | b'a' | b'b' | b'A' | b'B')) => 12,
            (b'\\', Some(b'u'), ..) => 6,
            (b'\\', ..) => 2,
            _ => 1,
        };
        if at + length > bytes.len() {
            break;
        }
        at += length;
    }
    (at, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads arguments cut at every place, and character by character.
    fn check(arguments: &str, expected: &str) {
        let ends: Vec<usize> = arguments.char_indices().map(|(at, _)| at).chain([arguments.len()]).collect();
        let read = |ends: &[usize]| {
            let mut input = PartialInput::default();
            ends.iter().map(|&end| input.read(&arguments[..end]).to_string()).collect::<String>()
        };
        assert_eq!(read(&ends), expected);
        for &end in &ends {
            assert_eq!(read(&[end, arguments.len()]), expected, "cut at {end}");
        }
    }

    #[test]
    fn the_text_is_the_same_wherever_the_arguments_are_cut() {
        check(r#"{"input": "a\nb \"c\" \\ \u00e9 é 😀 \ud83d\ude00"}"#, "a\nb \"c\" \\ é é 😀 😀");
        check(r#" { "input" :"" } "#, "");
        check(r#"{"input": "*** Begin Patch\n+x"#, "*** Begin Patch\n+x");
    }

    #[test]
    fn other_arguments_have_no_text_and_broken_escapes_end_it() {
        check(r#"{"patch": "a"}"#, "");
        check(r#"{"input": ["a"]}"#, "");
        let mut input = PartialInput::default();
        assert_eq!(input.read(r#"{"input": "a\ud83déééééé"#), "");
        assert_eq!(input.read(r#"{"input": "a\ud83déééééé more"#), "");
        assert_eq!(input.rest("whole"), "whole");
    }
}
