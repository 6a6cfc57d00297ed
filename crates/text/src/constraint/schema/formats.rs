//! The formats of strings in schemas: those that are enforced. The others are annotations.

/// Formats that llguidance enforces exactly.
const EXACT: [&str; 5] = ["duration", "ipv4", "ipv6", "uuid", "uri"];

/// How a format is enforced.
pub(super) enum Format {
    /// llguidance knows it, by this name.
    Known(&'static str),
    /// As a pattern and a most length, of texts that surely have the format.
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

/// A part of a path of a URI.
const SEGMENT: &str = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
/// A pattern without groups inside groups.
const REGEX: &str = r"(?:[a-zA-Z0-9 _,;:/@-]|\\[dDwWsS.]|\[(?:a-z|A-Z|0-9|[a-z0-9_]){1,9}\]|[.])[*+?]?";

/// The format of this name; `None` if no draft knows it.
pub(super) fn lookup(name: &str) -> Option<Format> {
    let host = || format!("{LABEL}(?:[.]{LABEL})*");
    let reference = format!("/?{SEGMENT}{{1,200}}(?:/{SEGMENT}{{0,200}})*");
    Some(match name {
        "date" => Format::Pattern(format!("^{DATE}$"), None),
        "time" => Format::Pattern(format!("^{TIME}$"), None),
        "date-time" => Format::Pattern(format!("^{DATE}[Tt]{TIME}$"), None),
        "hostname" | "idn-hostname" | "host-name" => Format::Pattern(format!("^{}$", host()), Some(253)),
        "email" | "idn-email" => {
            Format::Pattern(format!("^{ATOM}(?:[.]{ATOM}){{0,2}}@{}$", host()), Some(254))
        }
        "ip-address" => Format::Known("ipv4"),
        "iri" => Format::Known("uri"),
        // Relative ones whose first segment looks like a scheme, or absolute ones.
        "uri-reference" | "iri-reference" => {
            let absolute = format!("https?://{}(?::[0-9]{{1,4}})?(?:/{SEGMENT}{{0,200}})*", host());
            let relative = reference.replacen(":@", "@", 1);
            let rest = format!("(?:[?]{SEGMENT}{{0,200}})?(?:#{SEGMENT}{{0,200}})?");
            Format::Pattern(format!("^(?:{absolute}|{relative}|){rest}$"), None)
        }
        "uri-template" => {
            let variable = r"\{[a-zA-Z0-9_]{1,40}\}";
            Format::Pattern(
                format!("^(?:https?://{})?(?:/(?:[a-zA-Z0-9._~-]|{variable}){{1,200}})*/?$", host()),
                None,
            )
        }
        "json-pointer" => Format::Pattern("^(?:/(?:[^~/]|~[01])*)*$".into(), None),
        "relative-json-pointer" => {
            Format::Pattern("^(?:0|[1-9][0-9]{0,5})(?:#|(?:/(?:[^~/]|~[01])*)*)$".into(), None)
        }
        "regex" => {
            Format::Pattern(format!(r"^\^?(?:{REGEX}|\((?:{REGEX})+(?:\|(?:{REGEX})+)*\)[*+?]?)*\$?$"), None)
        }
        known => Format::Known(EXACT.into_iter().find(|exact| *exact == known)?),
    })
}
