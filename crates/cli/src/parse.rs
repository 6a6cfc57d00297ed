//! Parsers of flag values.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};

use pipelines::{Error, MemoryBytes, SamplingParams};

/// More threads than machines have cores.
const MAX_THREADS: usize = 1024;
/// A year, about.
const MAX_SECONDS: f64 = 3e7;

/// A number of threads; 0 for one per core.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|&threads| threads <= MAX_THREADS);
    parsed.ok_or_else(|| format!("give a whole number from 1 to {MAX_THREADS}, or 0 for one per core"))
}

/// A number of bytes, with a unit.
pub(crate) fn bytes(text: &str) -> Result<MemoryBytes, String> {
    let expected = "give a number of bytes, such as 500MB or 8GiB";
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match &unit.trim().to_ascii_lowercase()[..] {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000_u64,
        _ => return Err(expected.to_string()),
    };
    let number: f64 = number.parse().map_err(|_| expected.to_string())?;
    Ok(MemoryBytes((number * scale as f64) as u64))
}

/// A count of at least one.
pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a whole number, at least 1".to_string())
}

/// A time in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("give seconds, from 0.001 to {MAX_SECONDS}"))
}

/// A seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

/// A token and its logit bias.
pub(crate) fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let parsed =
        text.split_once('=').and_then(|(token, bias)| Some((token.parse().ok()?, bias.parse().ok()?)));
    parsed.filter(|(_, bias): &(u32, f32)| bias.is_finite()).ok_or_else(|| {
        "give a token id and a finite number, such as 42=-1.5; `peri tokenize` prints ids".to_string()
    })
}

/// A number for a field of [`SamplingParams`], in the sampler's range.
pub(crate) fn sampling(text: &str, set: fn(&mut SamplingParams, f32)) -> Result<f32, String> {
    let value = text.parse().map_err(|_| "give a number".to_string())?;
    let mut params = SamplingParams::default();
    set(&mut params, value);
    match params.validate(usize::MAX) {
        Err(Error::Sampling(fields)) => {
            Err(fields.into_iter().map(|field| field.fix).collect::<Vec<_>>().join("; "))
        }
        Err(error) => Err(error.to_string()),
        Ok(()) => Ok(value),
    }
}

/// Parses a name with the error of its own type; help and completions offer all names.
#[derive(Clone)]
pub(crate) struct Named<T> {
    /// All names.
    pub(crate) names: fn() -> Vec<&'static str>,
    /// The value of a name.
    pub(crate) parse: fn(&str) -> Result<T, String>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Named<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let parse = self.parse;
        StringValueParser::new().try_map(move |text| parse(&text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_values_outside_the_samplers_range_are_errors() {
        let top_p = |text| sampling(text, |params, value| params.top_p = value);
        assert_eq!(top_p("0.5"), Ok(0.5));
        assert_eq!(top_p("0").unwrap_err(), "give a number above 0 and up to 1");
        assert_eq!(top_p("half").unwrap_err(), "give a number");
        assert!(top_p("NaN").is_err());
        let temperature = |text| sampling(text, |params, value| params.temperature = value);
        assert_eq!(temperature("0"), Ok(0.0));
        assert!(temperature("-1").is_err() && temperature("inf").is_err());
    }

    #[test]
    fn bytes_have_units_and_other_texts_are_errors() {
        let bytes = |text| bytes(text).map(|bytes| bytes.0);
        assert_eq!((bytes("512"), bytes("1.5 GiB")), (Ok(512), Ok(3 << 29)));
        assert_eq!((bytes("8g"), bytes("2kb")), (Ok(8 << 30), Ok(2000)));
        assert!(["", "GiB", "-1", "8 bits", "1.2.3"].into_iter().all(|text| bytes(text).is_err()));
    }

    #[test]
    fn counts_outside_their_range_are_errors() {
        assert_eq!(threads("8"), Ok(8));
        assert_eq!(threads("-1").unwrap_err(), "give a whole number from 1 to 1024, or 0 for one per core");
        assert!(threads("99999999999999999999").is_err() && threads("1025").is_err());
        assert!(count("0").is_err() && count("1").is_ok());
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds("0").unwrap_err(), "give seconds, from 0.001 to 30000000");
        assert!(["NaN", "inf", "-1", "1e300"].iter().all(|text| seconds(text).is_err()));
    }
}
