//! `strftime_now`: a date in words, as Python's `strftime` in the C locale writes it.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use minijinja::{Error, ErrorKind};

/// A date and a time of day, where it does not matter in which time zone: what `strftime_now` formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(DateTime);

/// The directives of Python that are the same here.
const SAME: &str = "aAbBCdDeFGgHhIjklmMnpRrSstTuUVwWyY%";

impl Moment {
    /// Now, in the time zone of this machine: that of `TZ`, or of the system; UTC where there is none.
    pub fn now() -> Moment {
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        Moment(Timestamp::now().to_zoned(zone).datetime())
    }

    /// A time in UTC; years beyond -9999 and 9999 become these.
    pub fn utc(time: SystemTime) -> Moment {
        let bound = if time < SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
        Moment(TimeZone::UTC.to_datetime(Timestamp::try_from(time).unwrap_or(bound)))
    }

    /// A date and a time of day such as `2025-07-26T12:00:00`; a date alone is its midnight.
    ///
    /// # Errors
    /// If `text` is neither.
    pub fn parse(text: &str) -> Result<Moment, String> {
        let parsed = text.parse().map(Moment);
        parsed.map_err(|_| format!("`{text}` is not a date and time such as 2025-07-26T12:00:00"))
    }

    /// Itself as `format` says; a directive that Python does not know is an error.
    pub(super) fn strftime(self, format: &str) -> Result<String, Error> {
        let problem = |problem: String| Error::new(ErrorKind::InvalidOperation, problem);
        let translated = translated(format)
            .ok_or_else(|| problem(format!("strftime_now: unknown directive in {format:?}")))?;
        strtime::format(translated, self.0).map_err(|error| problem(format!("strftime_now: {error}")))
    }
}

/// Python's directives in words of the library.
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
    use std::time::{Duration, UNIX_EPOCH};

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
        assert!(parsed("soon").unwrap_err().contains("`soon` is not a date"));
    }

    #[test]
    fn leap_days_are_counted() {
        assert_eq!(at(951_782_400_000, "%F %j %a"), "2000-02-29 060 Tue");
        assert_eq!(at(1_735_603_200_000, "%F %j %a"), "2024-12-31 366 Tue");
        assert_eq!(at(4_107_542_400_000, "%F %j %a"), "2100-03-01 060 Mon");
    }

    #[test]
    fn unknown_directives_are_refused() {
        for format in ["%", "%-", "%Q", "%N", "%:z"] {
            assert!(Moment::utc(UNIX_EPOCH).strftime(format).is_err(), "{format}");
        }
    }
}
