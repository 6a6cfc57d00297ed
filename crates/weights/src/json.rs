//! Numbers that Python writes into JSON and JSON does not have.

use std::borrow::Cow;

/// The words that Python writes for them; the longest first where one begins with another.
const WORDS: &[&str] = &["-Infinity", "Infinity", "NaN"];

/// A JSON text with `null` in place of infinite numbers and NaN, which Python's `json` writes as words.
///
/// ```
/// assert_eq!(perihelion_weights::without_infinities(r#"{"limit": [0.0, Infinity]}"#), r#"{"limit": [0.0, null]}"#);
/// ```
pub fn without_infinities(json: &str) -> Cow<'_, str> {
    if !WORDS.iter().any(|word| json.contains(word)) {
        return Cow::Borrowed(json);
    }
    let mut result = String::with_capacity(json.len());
    let (mut rest, mut is_text) = (json, false);
    while let Some(c) = rest.chars().next() {
        let word = WORDS.iter().find(|word| !is_text && rest.starts_with(**word));
        let (taken, written) = match (c, word) {
            (_, Some(word)) => (word.len(), "null"),
            // Whatever is escaped, a quote too.
            ('\\', None) if is_text => {
                let len = rest.chars().take(2).map(char::len_utf8).sum();
                (len, &rest[..len])
            }
            (c, None) => {
                is_text ^= c == '"';
                (c.len_utf8(), &rest[..c.len_utf8()])
            }
        };
        result.push_str(written);
        rest = &rest[taken..];
    }
    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_texts_stay() {
        for (json, expected) in [
            (r#"{"a": -Infinity, "b": [NaN, Infinity]}"#, r#"{"a": null, "b": [null, null]}"#),
            (
                r#"{"Infinity \" NaN": "Infinity", "é\\": NaN}"#,
                r#"{"Infinity \" NaN": "Infinity", "é\\": null}"#,
            ),
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            (r#""NaN \"#, r#""NaN \"#),
        ] {
            assert_eq!(without_infinities(json), expected);
        }
    }
}
