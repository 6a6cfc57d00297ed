//! Reasoning in a form that clients keep and send back without reading it, for those that do not show it.
//!
//! It is not encrypted: it is the client's own. The form says that the server made it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Begins each text of that form, in base64: `peri:`, and a version.
const MARK: &[u8] = b"peri:1";

/// The form of a text.
pub(crate) fn encode(text: &str) -> String {
    STANDARD.encode([MARK, text.as_bytes()].concat())
}

/// The text of a form, if it is one that this server makes.
pub(crate) fn decode(form: &str) -> Option<String> {
    let bytes = STANDARD.decode(form).ok()?;
    String::from_utf8(bytes.strip_prefix(MARK)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_its_text_and_those_of_others_have_none() {
        for text in ["", "Rain?", "Köln\n"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        for other in ["", "abc", "gAAAAABo", "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk="] {
            assert_eq!(decode(other), None);
        }
    }
}
