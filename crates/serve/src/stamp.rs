//! Ids and times of objects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An id that no other object has.
pub(crate) fn unique_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}

/// An id of 24 letters and digits for a call of a tool; some clients allow no more.
pub(crate) fn call_id(prefix: &str) -> String {
    let id = uuid::Uuid::now_v7().simple().to_string();
    // It ends with its random part.
    format!("{prefix}{}", &id[id.len() - 24..])
}

/// The time, as RFC 3339 writes it.
pub(crate) fn rfc3339() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// A time from now, as RFC 3339 writes it.
pub(crate) fn rfc3339_in(time: Duration) -> String {
    let then = TimeDelta::from_std(time).ok().and_then(|time| Utc::now().checked_add_signed(time));
    then.unwrap_or(DateTime::<Utc>::MAX_UTC).to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A time in seconds since 1970, as RFC 3339 writes it.
pub(crate) fn rfc3339_of(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Secs, true)
}
