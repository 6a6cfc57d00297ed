//! JSON as Python writes it: with numbers that JSON does not have.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// The words that Python writes for them; the longest first where one begins with another.
const WORDS: &[&str] = &["-Infinity", "Infinity", "NaN"];

/// Reads the JSON of a model's file. Infinite numbers and NaN, which Python's `json` writes, become null.
///
/// ```
/// let limits: Vec<Option<f64>> = perihelion_weights::from_json(b"[0.0, Infinity]").unwrap();
/// assert_eq!(limits, [Some(0.0), None]);
/// ```
///
/// # Errors
/// If it is not JSON, or not of this type.
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let error = match serde_json::from_slice(json) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match std::str::from_utf8(json).map(without_infinities) {
        Ok(Cow::Owned(json)) => serde_json::from_str(&json),
        _ => Err(error),
    }
}

/// A JSON text with `null` in place of infinite numbers and NaN.
fn without_infinities(json: &str) -> Cow<'_, str> {
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
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn infinite_numbers_are_read_as_null() {
        let read = |json: &str| from_json::<Value>(json.as_bytes());
        assert_eq!(
            read(r#"{"a": [Infinity, -Infinity, NaN, 1.5]}"#).unwrap(),
            json!({"a": [null, null, null, 1.5]})
        );
        assert_eq!(read(r#"{"Infinity": "NaN"}"#).unwrap(), json!({"Infinity": "NaN"}));
        assert_eq!(from_json::<Vec<Option<f64>>>(b"[NaN, 2]").unwrap(), [None, Some(2.0)]);
        for wrong in ["Infinit", "{\"a\": +Infinity}", "{\"a\": nan}", "[NaN", "[Infinity"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(from_json::<Value>(b"[NaN, \xff]").is_err());
    }

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
