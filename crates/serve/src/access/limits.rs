//! Limits of keys: requests and tokens in a minute, and requests at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::api_error::ApiError;

/// The rate limits of a key. A limit per minute refills evenly, so a client may use all of it at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests to models.
    pub requests_per_minute: Option<u32>,
    /// Tokens of their prompts and answers. A request is refused while none are left, and may use more than are left.
    pub tokens_per_minute: Option<u32>,
    /// Requests to models that are not over.
    pub concurrent_requests: Option<u32>,
}

/// The names of the limits, as they stand in a line of a key.
const REQUESTS: &str = "requests_per_minute";
const TOKENS: &str = "tokens_per_minute";
const CONCURRENT: &str = "concurrent_requests";
/// When to try again after a refusal because of requests that run.
const SOON: Duration = Duration::from_secs(1);

impl KeyLimits {
    /// Whether no limit is set.
    pub(crate) fn are_open(&self) -> bool {
        *self == KeyLimits::default()
    }

    /// Parses limits such as `requests_per_minute=60,concurrent_requests=4`.
    ///
    /// # Errors
    /// If a limit has an unknown name, is not a number from 1, or is given twice.
    pub(super) fn parse(text: &str) -> Result<KeyLimits, String> {
        let mut limits = KeyLimits::default();
        for part in text.split(',').map(str::trim) {
            let (name, count) = part.split_once('=').unwrap_or((part, ""));
            let limit = match name {
                REQUESTS => &mut limits.requests_per_minute,
                TOKENS => &mut limits.tokens_per_minute,
                CONCURRENT => &mut limits.concurrent_requests,
                _ => return Err(format!("unknown limit: {name:?} ({REQUESTS}, {TOKENS} or {CONCURRENT})")),
            };
            let number = count.parse().ok().filter(|&number: &u32| number > 0);
            let number = number.ok_or_else(|| format!("{name} is {count:?}: give a number from 1"))?;
            if limit.replace(number).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        Ok(limits)
    }
}

/// Prints the limits as a line of a key file has them; nothing if no limit is set.
impl fmt::Display for KeyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (REQUESTS, self.requests_per_minute),
            (TOKENS, self.tokens_per_minute),
            (CONCURRENT, self.concurrent_requests),
        ];
        let given = all.into_iter().filter_map(|(name, limit)| Some(format!("{name}={}", limit?)));
        f.write_str(&given.collect::<Vec<_>>().join(","))
    }
}

/// The usage of each key.
#[derive(Debug, Default)]
pub(crate) struct KeyUsage(Mutex<HashMap<String, Meter>>);

/// The usage of one key.
#[derive(Debug)]
struct Meter {
    requests: Bucket,
    tokens: Bucket,
    running: u32,
}

/// A token bucket for a limit per minute. The rest may be negative.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// A request that is not over. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct KeyPermit {
    usage: Arc<KeyUsage>,
    key: String,
}

impl KeyUsage {
    /// Lets a request pass, unless a limit of its key is reached. `running_tokens` are those of the key's requests that are
    /// not over.
    ///
    /// # Errors
    /// If a limit is reached, with the time after which to try again.
    pub(crate) fn admit(
        self: &Arc<Self>,
        key: &str,
        limits: &KeyLimits,
        running_tokens: usize,
        now: Instant,
    ) -> Result<KeyPermit, ApiError> {
        let refuse = |limit: u32, what: &str, wait: Duration| {
            let message = format!("the API key `{key}` has a limit of {limit} {what}: try again later");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
            ApiError { retry_after: Some(wait), ..error }
        };
        let mut meters = self.lock();
        let meter = meters.entry(key.to_string()).or_insert_with(|| Meter {
            requests: Bucket { left: f64::INFINITY, at: now },
            tokens: Bucket { left: f64::INFINITY, at: now },
            running: 0,
        });
        if let Some(limit) = limits.concurrent_requests.filter(|&limit| meter.running >= limit) {
            return Err(refuse(limit, "requests at once", SOON));
        }
        if let Some(limit) = limits.tokens_per_minute {
            meter.tokens.fill(limit, now);
            if let Some(wait) = meter.tokens.wait(running_tokens as f64 + 1.0, limit) {
                return Err(refuse(limit, "tokens per minute", wait));
            }
        }
        if let Some(limit) = limits.requests_per_minute {
            meter.requests.fill(limit, now);
            if let Some(wait) = meter.requests.wait(1.0, limit) {
                return Err(refuse(limit, "requests per minute", wait));
            }
            meter.requests.left -= 1.0;
        }
        meter.running += 1;
        Ok(KeyPermit { usage: Arc::clone(self), key: key.to_string() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Meter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    /// Adds what the time since the last look gives, up to the limit.
    fn fill(&mut self, limit: u32, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + seconds * f64::from(limit) / 60.0).min(f64::from(limit));
        self.at = now;
    }

    /// How long it takes until so much is left, unless it is.
    fn wait(&self, needed: f64, limit: u32) -> Option<Duration> {
        let missing = needed - self.left;
        (missing > 0.0).then(|| Duration::from_secs_f64(missing * 60.0 / f64::from(limit)))
    }
}

impl KeyPermit {
    /// Counts the tokens of the request.
    pub(crate) fn charge(&self, tokens: usize) {
        if let Some(meter) = self.usage.lock().get_mut(&self.key) {
            meter.tokens.left -= tokens as f64;
        }
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        if let Some(meter) = self.usage.lock().get_mut(&self.key) {
            meter.running -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_parse_as_they_are_written_or_say_what_is_wrong() {
        for text in ["requests_per_minute=60", "tokens_per_minute=9,concurrent_requests=4294967295"] {
            assert_eq!(KeyLimits::parse(text).unwrap().to_string(), text);
        }
        let check = |text: &str, problem: &str| assert_eq!(KeyLimits::parse(text).unwrap_err(), problem);
        check(
            "rpm=1",
            "unknown limit: \"rpm\" (requests_per_minute, tokens_per_minute or concurrent_requests)",
        );
        check("", "unknown limit: \"\" (requests_per_minute, tokens_per_minute or concurrent_requests)");
        check("requests_per_minute", "requests_per_minute is \"\": give a number from 1");
        check("tokens_per_minute=0", "tokens_per_minute is \"0\": give a number from 1");
        check("tokens_per_minute=4294967296", "tokens_per_minute is \"4294967296\": give a number from 1");
        check("concurrent_requests=1,concurrent_requests=2", "concurrent_requests is given twice");
    }

    /// The message and the wait of a refusal.
    fn refusal(result: Result<KeyPermit, ApiError>) -> (String, f64) {
        let error = result.unwrap_err();
        (error.message, error.retry_after.unwrap().as_secs_f64())
    }

    #[test]
    fn requests_and_tokens_come_back_evenly() {
        let (usage, start) = (Arc::new(KeyUsage::default()), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let limits = KeyLimits::parse("requests_per_minute=2").unwrap();
        let admit = |key: &str, seconds| usage.admit(key, &limits, 0, at(seconds));
        admit("a", 0.0).unwrap();
        admit("a", 0.0).unwrap();
        let (message, wait) = refusal(admit("a", 10.0));
        assert_eq!(message, "the API key `a` has a limit of 2 requests per minute: try again later");
        assert!((wait - 20.0).abs() < 1e-6, "{wait}");
        admit("b", 10.0).unwrap();
        admit("a", 30.0).unwrap();
        assert!(admit("a", 31.0).is_err());
        // A refused request counts for nothing, and not more than a minute's requests are saved.
        admit("a", 1000.0).unwrap();
        admit("a", 1000.0).unwrap();
        assert!(admit("a", 1000.0).is_err());

        let limits = KeyLimits::parse("tokens_per_minute=60").unwrap();
        let admit = |running, seconds| usage.admit("c", &limits, running, at(seconds));
        admit(0, 0.0).unwrap().charge(100);
        let (message, wait) = refusal(admit(0, 1.0));
        assert!(message.contains("60 tokens per minute") && (wait - 40.0).abs() < 1e-6, "{message} {wait}");
        admit(0, 41.0).unwrap();
        assert!(admit(5, 41.0).is_err(), "those of running requests count");
    }

    #[test]
    fn requests_at_once_count_until_they_are_over() {
        let (usage, now) = (Arc::new(KeyUsage::default()), Instant::now());
        let limits = KeyLimits::parse("concurrent_requests=2,requests_per_minute=4").unwrap();
        let admit = || usage.admit("a", &limits, 0, now);
        let (one, two) = (admit().unwrap(), admit().unwrap());
        let (message, wait) = refusal(admit());
        assert_eq!((message.contains("2 requests at once"), wait), (true, 1.0));
        drop(one);
        let three = admit().unwrap();
        drop((two, three));
        admit().unwrap();
        assert!(refusal(admit()).0.contains("4 requests per minute"));
    }
}
