//! `strftime_now`: a date in words, as Python's `strftime` in the C locale writes it.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, NaiveTime};
use minijinja::{Error, ErrorKind};

/// A date and a time of day without a time zone: what `strftime_now` formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(NaiveDateTime);

/// The directives that mean the same in Python and in chrono.
const SAME: &str = "aAbBCdDeFgGhHIjklmMnpRrSstTuUVwWyY%";

/// Dates with a time of day, as `Moment::parse` reads them.
const FORMATS: [&str; 4] =
    ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];

/// The start of the year -9999 and the end of the year 9999, in microseconds since 1970.
const EARLIEST: i64 = -377_705_116_800_000_000;
const LATEST: i64 = 253_402_300_799_999_999;

impl Moment {
    /// Now, in the time zone of `TZ`, else of the system, else UTC.
    pub fn now() -> Moment {
        Moment(Local::now().naive_local())
    }

    /// A time in UTC, between the years -9999 and 9999.
    pub fn utc(time: SystemTime) -> Moment {
        let microseconds = |distance: Duration| i64::try_from(distance.as_micros()).unwrap_or(i64::MAX);
        let time = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => microseconds(after),
            Err(error) => -microseconds(error.duration()),
        };
        let time = DateTime::from_timestamp_micros(time.clamp(EARLIEST, LATEST)).unwrap_or_default();
        Moment(time.naive_utc())
    }

    /// A date and a time of day such as `2025-07-26T12:00:00`; a date alone is its midnight.
    ///
    /// # Errors
    /// If `text` is neither.
    pub fn parse(text: &str) -> Result<Moment, String> {
        let time = FORMATS.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
        let midnight =
            || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().map(|date| date.and_time(NaiveTime::MIN));
        let problem = || format!("`{text}` is not a date and time such as 2025-07-26T12:00:00");
        time.or_else(midnight).map(Moment).ok_or_else(problem)
    }

    /// The moment in `format`; a directive that Python does not know is an error.
    pub(super) fn strftime(self, format: &str) -> Result<String, Error> {
        let problem = || format!("strftime_now: unknown directive in {format:?}");
        let translated =
            translated(format).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, problem()))?;
        Ok(self.0.format(&translated).to_string())
    }
}

/// Python's directives as chrono writes them.
fn translated(format: &str) -> Option<String> {
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let mut directive = letters.next()?;
        let bare = directive == '-';
        if bare {
            directive = letters.next()?;
        }
        match directive {
            'c' => text.push_str("%a %b %e %H:%M:%S %Y"),
            'x' => text.push_str("%m/%d/%y"),
            'X' => text.push_str("%H:%M:%S"),
            'f' => text.push_str("%6f"),
            // Python leaves the zone of a naive datetime empty.
            'z' | 'Z' => {}
            _ if !SAME.contains(directive) => return None,
            _ if bare => text.extend(['%', '-', directive]),
            _ => text.extend(['%', directive]),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(milliseconds: u64, format: &str) -> String {
        Moment::utc(UNIX_EPOCH + Duration::from_millis(milliseconds))
            .strftime(format)
            .expect("known directives")
    }

    #[test]
    fn dates_read_as_in_python() {
        assert_eq!(at(1_753_531_200_000, "%d %b %Y"), "26 Jul 2025");
        assert_eq!(
            at(1_753_531_200_000, "%A, %B %-d, %Y %H:%M:%S %I%p"),
            "Saturday, July 26, 2025 12:00:00 12PM"
        );
        assert_eq!(
            at(0, "%c|%F %T|%j|%-j|%y|%a|%%|%x %X|%D|%e|%-e|%w%u|%Z%z|"),
            "Thu Jan  1 00:00:00 1970|1970-01-01 00:00:00|001|1|70|Thu|%|01/01/70 00:00:00|01/01/70| 1|1|44||"
        );
        assert_eq!(at(1_753_531_200_250, "%f %% é%H"), "250000 % é12");
        assert_eq!(at(1_753_531_200_000, "%f"), "000000");
        let parsed = |text: &str| Moment::parse(text).map(|now| now.strftime("%F %T").unwrap());
        assert_eq!(parsed("2025-07-26T12:00:00").unwrap(), "2025-07-26 12:00:00");
        assert_eq!(parsed("2025-07-26 09:05").unwrap(), "2025-07-26 09:05:00");
        assert_eq!(parsed("2025-07-26").unwrap(), "2025-07-26 00:00:00");
        assert_eq!(parsed("2025-07-26T12:00:00.5").unwrap(), "2025-07-26 12:00:00");
        assert!(parsed("soon").unwrap_err().contains("`soon` is not a date"));
    }

    #[test]
    fn leap_days_are_counted() {
        assert_eq!(at(951_782_400_000, "%F %j %a"), "2000-02-29 060 Tue");
        assert_eq!(at(1_735_603_200_000, "%F %j %a"), "2024-12-31 366 Tue");
        assert_eq!(at(4_107_542_400_000, "%F %j %a"), "2100-03-01 060 Mon");
    }

    #[test]
    fn far_years_are_clamped() {
        let far = Duration::from_secs(1 << 48);
        let year = |time: SystemTime| Moment::utc(time).strftime("%F %T").unwrap();
        assert_eq!(year(UNIX_EPOCH + far), "9999-12-31 23:59:59");
        assert_eq!(year(UNIX_EPOCH - far), "-9999-01-01 00:00:00");
        assert_eq!(year(UNIX_EPOCH - Duration::from_millis(500)), "1969-12-31 23:59:59");
    }

    #[test]
    fn unknown_directives_are_refused() {
        for format in ["%", "%-", "%Q", "%N", "%:z"] {
            assert!(Moment::utc(UNIX_EPOCH).strftime(format).is_err(), "{format}");
        }
    }
}
