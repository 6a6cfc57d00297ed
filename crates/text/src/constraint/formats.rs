//! The formats of strings in schemas: those that can be enforced.

/// Formats that llguidance enforces exactly.
const EXACT: [&str; 5] = ["duration", "ipv4", "ipv6", "uuid", "uri"];

/// How a format is enforced.
pub(super) enum Format {
    /// llguidance knows it.
    Known,
    /// As a pattern and a most length.
    Pattern(String, Option<u64>),
}

/// A day of any year, the 29th of February of leap years only.
const DATE: &str = "(?:\
    [0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|\
    (?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
/// A time of day. Leap seconds are left out: most of the times that end with 60 never were.
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
/// A part of a host's name, without those of other alphabets (`xn--`), which have rules of their own.
const LABEL: &str = "[a-zA-Z0-9](?:\
    [a-zA-Z0-9]|[a-zA-Z0-9-]{1,2}[a-zA-Z0-9]|\
    [a-zA-Z0-9-](?:[a-zA-Z0-9][a-zA-Z0-9-]|-[a-zA-Z0-9])[a-zA-Z0-9-]{0,58}[a-zA-Z0-9])?";
/// A part of the name before `@`.
const ATOM: &str = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";

/// The format of this name; `None` if it cannot be enforced.
pub(super) fn lookup(name: &str) -> Option<Format> {
    Some(match name {
        "date" => Format::Pattern(format!("^{DATE}$"), None),
        "time" => Format::Pattern(format!("^{TIME}$"), None),
        "date-time" => Format::Pattern(format!("^{DATE}[Tt]{TIME}$"), None),
        "hostname" => Format::Pattern(format!("^{LABEL}(?:[.]{LABEL})*$"), Some(253)),
        "email" => Format::Pattern(format!("^{ATOM}(?:[.]{ATOM}){{0,2}}@{LABEL}(?:[.]{LABEL})*$"), Some(254)),
        known if EXACT.contains(&known) => Format::Known,
        _ => return None,
    })
}

/// The names of all formats that are enforced, for messages.
pub(super) fn names() -> String {
    let mut names = EXACT.to_vec();
    names.extend(["date", "date-time", "email", "hostname", "time"]);
    names.sort_unstable();
    names.join(", ")
}
