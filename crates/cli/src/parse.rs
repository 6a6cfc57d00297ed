//! Flag values: read, and checked before anything is loaded.

use std::num::NonZeroUsize;

use pipelines::{Error, SamplingParams};

/// More threads than any machine has cores.
const MAX_THREADS: usize = 1024;

/// A number of threads; 0 leaves the choice to the device.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|&threads| threads <= MAX_THREADS);
    parsed.ok_or_else(|| format!("give a whole number from 1 to {MAX_THREADS}, or 0 for one per core"))
}

/// How many of something; at least one.
pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a whole number, at least 1".to_string())
}

/// A seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

/// A token, and what is added to its logit.
pub(crate) fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let parsed =
        text.split_once('=').and_then(|(token, bias)| Some((token.parse().ok()?, bias.parse().ok()?)));
    parsed.filter(|(_, bias): &(u32, f32)| bias.is_finite()).ok_or_else(|| {
        "give the id of a token and a finite number, 42=-1.5 for one; `peri tokenize` tells ids".to_string()
    })
}

/// A number that becomes a field of [`SamplingParams`], in the range that the sampler states.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_sampler() {
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
    fn numbers_say_what_they_may_be() {
        assert_eq!(threads("8"), Ok(8));
        assert_eq!(threads("-1").unwrap_err(), "give a whole number from 1 to 1024, or 0 for one per core");
        assert!(threads("99999999999999999999").is_err() && threads("1025").is_err());
        assert!(count("0").is_err() && count("1").is_ok());
    }
}
