//! How long a model stays in memory without being used.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use utoipa::ToSchema;

/// How long a model stays in memory without being used.
///
/// ```
/// # use std::time::Duration;
/// # use serve::KeepAlive;
/// assert_eq!("300".parse(), Ok(KeepAlive::For(Duration::from_secs(300))));
/// assert_eq!("1h30m".parse(), Ok(KeepAlive::For(Duration::from_secs(5400))));
/// assert_eq!("-1".parse(), Ok(KeepAlive::Forever));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "KeepAliveField")]
pub enum KeepAlive {
    /// This long after the last request; zero unloads it at once.
    For(Duration),
    /// Until the server ends.
    Forever,
}

/// Seconds, or a duration with units, as Ollama takes it; 0 unloads the model after the answer, and a negative number
/// keeps it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum KeepAliveField {
    Seconds(f64),
    Text(String),
}

/// Units of durations, and their seconds. Longer names come before those that begin alike.
const UNITS: [(&str, f64); 6] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// The longest time, in seconds: 31 years.
const LONGEST: f64 = 1e9;

impl KeepAlive {
    /// Whether the model is to be unloaded at once.
    pub(crate) fn is_zero(self) -> bool {
        self == KeepAlive::For(Duration::ZERO)
    }

    fn from_seconds(seconds: f64) -> Result<KeepAlive, String> {
        match seconds {
            ..0.0 => Ok(KeepAlive::Forever),
            0.0..=LONGEST => Ok(KeepAlive::For(Duration::from_secs_f64(seconds))),
            _ => Err(expected(&seconds.to_string())),
        }
    }
}

impl FromStr for KeepAlive {
    type Err = String;

    fn from_str(text: &str) -> Result<KeepAlive, String> {
        let text = text.trim();
        if let Ok(seconds) = text.parse() {
            return KeepAlive::from_seconds(seconds);
        }
        let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let unit = UNITS.iter().find_map(|(name, scale)| Some((after.strip_prefix(name)?, scale)));
            let (Ok(number), Some((after, scale))) = (number.parse::<f64>(), unit) else {
                return Err(expected(text));
            };
            (seconds, rest) = (seconds + number * scale, after);
        }
        if text.is_empty() { Err(expected(text)) } else { KeepAlive::from_seconds(sign * seconds) }
    }
}

impl TryFrom<KeepAliveField> for KeepAlive {
    type Error = String;

    fn try_from(field: KeepAliveField) -> Result<KeepAlive, String> {
        match field {
            KeepAliveField::Seconds(seconds) => KeepAlive::from_seconds(seconds),
            KeepAliveField::Text(text) => text.parse(),
        }
    }
}

fn expected(given: &str) -> String {
    format!(
        "`{given}`: give seconds, up to {LONGEST}, a duration such as 5m or 1h30m, 0 for at once, or -1 for never"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_durations_parse_and_other_texts_do_not() {
        let check = |text: &str, seconds: f64| {
            assert_eq!(text.parse(), Ok(KeepAlive::For(Duration::from_secs_f64(seconds))), "{text}");
        };
        check("0", 0.0);
        check("2.5", 2.5);
        check("5m", 300.0);
        check("1h2m3.5s", 3723.5);
        check("250ms", 0.25);
        for text in ["-1", "-1m", "-0.5"] {
            assert_eq!(text.parse(), Ok(KeepAlive::Forever), "{text}");
        }
        for text in ["", "m", "5 m", "5d", "never", "1e999", "1e9m", "NaN", "5m!"] {
            assert!(text.parse::<KeepAlive>().is_err(), "{text}");
        }
        let field = |json: &str| serde_json::from_str::<KeepAlive>(json).map_err(|error| error.to_string());
        assert_eq!(field("-1"), Ok(KeepAlive::Forever));
        assert_eq!(field("\"1m\""), field("60"));
        assert!(field("\"soon\"").unwrap_err().starts_with("`soon`: give seconds"));
    }
}
