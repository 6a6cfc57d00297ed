//! `strftime_now`: a date in words, as Python's `strftime` in the C locale writes it.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const DAY: i64 = 86_400;

/// A moment by the calendar, in UTC.
struct Civil {
    year: i64,
    /// From 0.
    month: usize,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// From Sunday, 0.
    weekday: usize,
    /// Since midnight.
    second: i64,
    microsecond: u32,
}

/// `moment` in UTC as `format` says; a directive that Python does not know is an error.
pub(super) fn strftime(moment: SystemTime, format: &str) -> Result<String, Error> {
    let civil = Civil::new(moment);
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let mut directive = letters.next();
        let padded = directive != Some('-');
        if !padded {
            directive = letters.next();
        }
        directive.and_then(|directive| civil.write(&mut text, directive, padded)).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now: unknown directive in {format:?}"))
        })?;
    }
    Ok(text)
}

impl Civil {
    fn new(moment: SystemTime) -> Civil {
        let (seconds, microsecond) = match moment.duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_micros()),
            Err(before) => (-(before.duration().as_secs() as i64), 0),
        };
        let days = seconds.div_euclid(DAY);
        // Years run from March, so that the leap day comes last (H. Hinnant, "chrono-Compatible Low-Level Date
        // Algorithms": an era is 400 years, 146 097 days).
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let from_march = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let day = from_march - (153 * month_from_march + 2) / 5 + 1;
        let month = ((month_from_march + 2) % 12) as usize;
        let year = year_of_era + era * 400 + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month];
        let day_of_year = before + i64::from(leap && month > 1) + day;
        let weekday = (days + 4).rem_euclid(7) as usize;
        Civil { year, month, day, day_of_year, weekday, second: seconds.rem_euclid(DAY), microsecond }
    }

    /// Appends what one directive stands for; `None` when there is none of that letter.
    fn write(&self, text: &mut String, directive: char, padded: bool) -> Option<()> {
        let hour = self.second / 3600;
        let half_day_hour = (hour + 11) % 12 + 1;
        let pad =
            |width: usize, number: i64| format!("{number:0width$}", width = if padded { width } else { 0 });
        let expansion = match directive {
            'Y' => pad(4, self.year),
            'y' => pad(2, self.year.rem_euclid(100)),
            'm' => pad(2, self.month as i64 + 1),
            'B' => MONTHS[self.month].to_owned(),
            'b' | 'h' => MONTHS[self.month][..3].to_owned(),
            'd' => pad(2, self.day),
            'e' if padded => format!("{:2}", self.day),
            'e' => self.day.to_string(),
            'j' => pad(3, self.day_of_year),
            'A' => WEEKDAYS[self.weekday].to_owned(),
            'a' => WEEKDAYS[self.weekday][..3].to_owned(),
            'w' => self.weekday.to_string(),
            'u' => if self.weekday == 0 { 7 } else { self.weekday }.to_string(),
            'H' => pad(2, hour),
            'I' => pad(2, half_day_hour),
            'M' => pad(2, self.second / 60 % 60),
            'S' => pad(2, self.second % 60),
            'f' => format!("{:06}", self.microsecond),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            // Python leaves the zone of a naive datetime empty.
            'Z' | 'z' => String::new(),
            'F' => return self.write_all(text, "Y-m-d"),
            'T' | 'X' => return self.write_all(text, "H:M:S"),
            'R' => return self.write_all(text, "H:M"),
            'D' | 'x' => return self.write_all(text, "m/d/y"),
            'c' => return self.write_all(text, "a b e H:M:S Y"),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        };
        text.write_str(&expansion).ok()
    }

    /// Appends directives given by their letters alone.
    fn write_all(&self, text: &mut String, directives: &str) -> Option<()> {
        for letter in directives.chars() {
            match letter.is_alphabetic() {
                true => self.write(text, letter, true)?,
                false => text.push(letter),
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64, format: &str) -> String {
        strftime(UNIX_EPOCH + Duration::from_secs(seconds), format).expect("known directives")
    }

    #[test]
    fn dates_read_as_in_python() {
        assert_eq!(at(1_753_531_200, "%d %b %Y"), "26 Jul 2025");
        assert_eq!(
            at(1_753_531_200, "%A, %B %-d, %Y %H:%M:%S %I%p"),
            "Saturday, July 26, 2025 12:00:00 12PM"
        );
        assert_eq!(
            at(0, "%c|%F %T|%j|%y|%a|%%"),
            "Thu Jan  1 00:00:00 1970|1970-01-01 00:00:00|001|70|Thu|%"
        );
    }

    #[test]
    fn leap_days_are_counted() {
        assert_eq!(at(951_782_400, "%F %j %a"), "2000-02-29 060 Tue");
        assert_eq!(at(1_735_603_200, "%F %j %a"), "2024-12-31 366 Tue");
        assert_eq!(at(4_107_542_400, "%F %j %a"), "2100-03-01 060 Mon");
    }

    #[test]
    fn unknown_directives_are_refused() {
        for format in ["%", "%-", "%Q"] {
            assert!(strftime(UNIX_EPOCH, format).is_err(), "{format}");
        }
    }
}
