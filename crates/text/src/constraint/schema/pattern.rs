//! Patterns of ECMAScript as those of the crate `regex`, and what can be said of the texts that they match.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use regex_syntax::hir::HirKind;

/// What ECMAScript calls spaces; Rust's are others.
const SPACES: &str = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
const DIGITS: &str = "0-9";
const WORDS: &str = "0-9A-Za-z_";
/// Any character but the ends of lines.
const DOT: &str = r"[^\n\r\x{2028}\x{2029}]";
/// The work that a question about patterns may take.
const FUEL: u64 = 10_000;

/// What a pattern asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pattern {
    /// What must match: the pattern, and what it looks ahead for at its beginning.
    pub(super) all: Vec<String>,
    /// What must not match: the same for what it must not look at.
    pub(super) none: Vec<String>,
}

/// Reads a pattern of ECMAScript. Look-ahead at the beginning is taken apart.
///
/// # Errors
/// If it has no such form in the crate `regex`.
pub(super) fn read(pattern: &str) -> Result<Pattern, String> {
    let mut found = Pattern::default();
    let mut rest = pattern.strip_prefix('^').unwrap_or(pattern);
    let is_anchored = rest.len() < pattern.len();
    while is_anchored && (rest.starts_with("(?=") || rest.starts_with("(?!")) {
        let Some(end) = group_end(rest) else { break };
        if has_alternatives(&rest[end..]) {
            rest = &pattern[1..];
            found = Pattern::default();
            break;
        }
        let list = if rest.starts_with("(?=") { &mut found.all } else { &mut found.none };
        list.push(translate(&format!("^(?:{})", &rest[3..end - 1]))?);
        rest = &rest[end..];
    }
    let anchor = if is_anchored { "^" } else { "" };
    let whole = translate(&format!("{anchor}{rest}"))?;
    if whole != "^" || found == Pattern::default() {
        found.all.push(whole);
    }
    Ok(found)
}

/// The length of the group at the beginning of a pattern.
fn group_end(pattern: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in outside_of_classes(pattern) {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at + 1),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether a pattern has `|` outside of groups.
fn has_alternatives(pattern: &str) -> bool {
    let mut depth = 0;
    outside_of_classes(pattern).any(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == '|' && depth == 0
    })
}

/// The characters of a pattern that are neither escaped nor in a class.
fn outside_of_classes(pattern: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut escaped, mut inside) = (false, false);
    pattern.char_indices().filter(move |(_, c)| {
        let is_plain = !escaped && !inside;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        is_plain && *c != '\\' && *c != '['
    })
}

/// A part of a class.
enum Atom {
    Character(char),
    Set(String),
}

fn translate(pattern: &str) -> Result<String, String> {
    let (mut written, mut rest) = (String::new(), pattern.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '\\' if matches!(rest.peek(), Some('b' | 'B' | '1'..='9' | 'k')) => {
                written.extend(['\\'].into_iter().chain(rest.next()));
            }
            '\\' => match escape(&mut rest)? {
                Atom::Character(c) => written.push_str(&regex_syntax::escape(c.encode_utf8(&mut [0; 4]))),
                Atom::Set(set) => _ = write!(written, "[{set}]"),
            },
            '[' => written.push_str(&class(&mut rest)?),
            '.' => written.push_str(DOT),
            '{' if !is_count(rest.clone()) => written.push_str("\\{"),
            '{' => {
                written.push('{');
                written.extend(rest.by_ref().take_while(|c| *c != '}'));
                written.push('}');
            }
            '}' | ']' => written.extend(['\\', c]),
            c => written.push(c),
        }
    }
    check_characters(&written)?;
    Ok(written)
}

/// Whether what follows `{` is a count such as `2,3}`.
fn is_count(rest: impl Iterator<Item = char>) -> bool {
    let count: String = rest.take_while(|c| *c != '}').collect();
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let (least, most) = count.split_once(',').unwrap_or((&count, ""));
    is_number(least) && (most.is_empty() || is_number(most))
}

/// `[a-z]` after its bracket.
fn class(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut class = String::from("[");
    if rest.next_if_eq(&'^').is_some() {
        class.push('^');
    }
    if rest.peek() == Some(&']') {
        return Err("a class of no characters is not supported".into());
    }
    loop {
        let Some(atom) = class_atom(rest)? else { return Ok(class + "]") };
        let mut ahead = rest.clone();
        let is_range = ahead.next() == Some('-') && !matches!(ahead.peek(), Some(']') | None);
        let first = match atom {
            Atom::Character(c) if is_range => c,
            Atom::Character(c) => {
                let _ = write!(class, "\\x{{{:x}}}", u32::from(c));
                continue;
            }
            Atom::Set(set) => {
                class.push_str(&set);
                continue;
            }
        };
        rest.next();
        match class_atom(rest)? {
            Some(Atom::Character(last)) if last >= first => {
                let _ = write!(class, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(first), u32::from(last));
            }
            Some(Atom::Set(set)) => {
                let _ = write!(class, "\\x{{{:x}}}\\-{set}", u32::from(first));
            }
            _ => return Err("a range of characters whose end is before its start".into()),
        }
    }
}

/// The next part of a class; `None` at its end.
fn class_atom(rest: &mut Peekable<Chars<'_>>) -> Result<Option<Atom>, String> {
    match rest.next() {
        None => Err("unclosed character class".into()),
        Some(']') => Ok(None),
        Some('\\') if rest.next_if_eq(&'b').is_some() => Ok(Some(Atom::Character('\u{8}'))),
        Some('\\') => escape(rest).map(Some),
        Some(c) => Ok(Some(Atom::Character(c))),
    }
}

/// An escape after its backslash.
fn escape(rest: &mut Peekable<Chars<'_>>) -> Result<Atom, String> {
    let Some(c) = rest.next() else { return Err("the pattern ends with `\\`".into()) };
    Ok(Atom::Character(match c {
        'd' => return Ok(Atom::Set(DIGITS.into())),
        'w' => return Ok(Atom::Set(WORDS.into())),
        's' => return Ok(Atom::Set(SPACES.into())),
        'D' => return Ok(Atom::Set(format!("[^{DIGITS}]"))),
        'W' => return Ok(Atom::Set(format!("[^{WORDS}]"))),
        'S' => return Ok(Atom::Set(format!("[^{SPACES}]"))),
        'p' | 'P' if rest.peek() == Some(&'{') => {
            let name: String = rest.by_ref().take_while(|c| *c != '}').collect();
            return Ok(Atom::Set(format!("\\{c}{name}}}")));
        }
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'f' => '\u{c}',
        'v' => '\u{b}',
        '0' if !rest.peek().is_some_and(char::is_ascii_digit) => '\0',
        'x' => code(rest, 2).and_then(char::from_u32).ok_or("`\\x` wants two hexadecimal digits")?,
        'u' => unicode(rest).ok_or("`\\u` wants the hexadecimal digits of a character")?,
        'c' => match rest.next() {
            Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
            _ => return Err("`\\c` wants a letter".into()),
        },
        c if c.is_ascii_alphanumeric() => return Err(format!("unknown escape `\\{c}`")),
        c => c,
    }))
}

/// A number of some hexadecimal digits, which are taken only if they are all there.
fn code(rest: &mut Peekable<Chars<'_>>, digits: usize) -> Option<u32> {
    let text: String = rest.clone().take(digits).collect();
    let code = u32::from_str_radix(&text, 16).ok().filter(|_| text.len() == digits)?;
    rest.by_ref().take(digits).for_each(drop);
    Some(code)
}

/// The character of `\u1234`, `\u{12345}` or two halves, after `\u`.
fn unicode(rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    if rest.next_if_eq(&'{').is_some() {
        let digits: String = rest.by_ref().take_while(|c| *c != '}').collect();
        return char::from_u32(u32::from_str_radix(&digits, 16).ok()?);
    }
    let first = code(rest, 4)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    let is_pair = rest.next() == Some('\\') && rest.next() == Some('u');
    let second = code(rest, 4).filter(|code| is_pair && (0xdc00..0xe000).contains(code))?;
    char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
}

/// Checks that a pattern has no literal characters that answers cannot write: llguidance would leave them out.
fn check_characters(pattern: &str) -> Result<(), String> {
    // Errors of syntax that are not known here are llguidance's to report.
    let parsed = match regex_syntax::parse(pattern) {
        Ok(parsed) => parsed,
        Err(regex_syntax::Error::Parse(error)) => return Err(error.kind().to_string()),
        Err(_) => return Ok(()),
    };
    let mut parts = vec![&parsed];
    while let Some(part) = parts.pop() {
        if let HirKind::Literal(literal) = part.kind()
            && literal.0.iter().any(|&byte| is_unwritable(byte))
        {
            return Err("control characters are not supported".into());
        }
        parts.extend(part.kind().subs());
    }
    Ok(())
}

/// Whether a byte is a control character that has no escape in answers.
pub(super) fn is_unwritable(byte: u8) -> bool {
    byte == 0x7f || byte < 0x20 && !matches!(byte, 8 | b'\t' | b'\n' | 12 | b'\r')
}

/// The pattern that some texts match, and no others.
pub(super) fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(regex_syntax::escape).collect();
    format!("^(?:{})$", texts.join("|"))
}

/// The pattern of texts of some lengths.
pub(super) fn of_lengths(least: u64, most: Option<u64>) -> String {
    format!("^(?s:.{{{least},{}}})$", most.map_or_else(String::new, |most| most.to_string()))
}

/// The pattern that matches what one of some patterns does.
pub(super) fn union<'a>(patterns: impl IntoIterator<Item = &'a str>) -> String {
    let patterns: Vec<String> = patterns.into_iter().map(|pattern| format!("(?:{pattern})")).collect();
    patterns.join("|")
}

/// The pattern of all texts but these.
pub(super) fn except(texts: &[&str]) -> String {
    let mut texts: Vec<&str> = texts.to_vec();
    texts.sort_unstable();
    texts.dedup();
    format!("^(?:{})$", except_after(&texts, 0))
}

/// The rest of all texts but some sorted ones, which begin with the same bytes.
fn except_after(texts: &[&str], shared: usize) -> String {
    let mut options = Vec::new();
    let (mut firsts, mut rest) = (String::new(), texts);
    if texts.first().is_none_or(|text| text.len() > shared) {
        options.push(String::new());
    } else {
        rest = &texts[1..];
    }
    while let Some(first) = rest.first().and_then(|text| text[shared..].chars().next()) {
        let same = rest.iter().take_while(|text| text[shared..].starts_with(first)).count();
        let character = format!("\\x{{{:x}}}", u32::from(first));
        options.push(format!("{character}(?:{})", except_after(&rest[..same], shared + first.len_utf8())));
        firsts.push_str(&character);
        rest = &rest[same..];
    }
    options.push(if firsts.is_empty() { "(?s:.+)".into() } else { format!("[^{firsts}](?s:.*)") });
    options.join("|")
}

/// Whether a text matches a pattern; `None` if that cannot be found out.
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk(&search(pattern)).ok()?;
    Some(builder.to_regex_limited(expression, FUEL).ok()?.is_match(text))
}

/// Whether there is a text that matches all of some patterns and none of others; `None` if that cannot be found out.
pub(super) fn exists(all: &[&str], none: &[&str]) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let mut parts = vec![RegexAst::Regex("(?s:.*)".into())];
    parts.extend(all.iter().map(|pattern| search(pattern)));
    parts.extend(none.iter().map(|pattern| RegexAst::Not(Box::new(search(pattern)))));
    let expression = builder.mk(&RegexAst::And(parts)).ok()?;
    Some(!builder.to_regex_limited(expression, FUEL).ok()?.always_empty())
}

/// A pattern as llguidance reads it.
fn search(pattern: &str) -> RegexAst {
    RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, good: &[&str], bad: &[&str]) {
        let found = read(pattern).unwrap();
        let fits = |text: &str| {
            found.all.iter().all(|pattern| matches(pattern, text).unwrap())
                && !found.none.iter().any(|pattern| matches(pattern, text).unwrap())
        };
        for (text, expected) in
            good.iter().map(|text| (text, true)).chain(bad.iter().map(|text| (text, false)))
        {
            assert_eq!(fits(text), expected, "{pattern} {text:?}: {found:?}");
        }
    }

    #[test]
    fn classes_are_those_of_ecmascript() {
        check(r"^[a-z&&[^b]+$", &["b&[a^", "["], &["B", "]"]);
        check(r"^[\w.-]+$", &["a-b.c_1"], &["é", "a b"]);
        check(r"^[^\d\s]$", &["a", "é"], &["1", "\u{a0}"]);
        check(r"^[+--]$", &["+", ",", "-"], &["."]);
        check(r"^[a~~b<\]]$", &["~", "<", "]"], &["c"]);
        check(r"^[\u0041-\u{43}\x44\-]$", &["A", "B", "C", "D", "-"], &["E"]);
    }

    #[test]
    fn escapes_are_those_of_ecmascript() {
        check(r"^\/\-\<\_\u00e9\ud83d\ude00$", &["/-<_é😀"], &["/"]);
        check(r"^a{,2}{b}]$", &["a{,2}{b}]"], &["aa"]);
        check(r"^a.b{2}$", &["a-bb", "aébb"], &["a\nbb", "a\u{2028}bb"]);
        for (pattern, problem) in [
            ("[z-a]", "a range of characters whose end is before its start"),
            ("[]a]", "a class of no characters is not supported"),
            (r"\Aa", "unknown escape `\\A`"),
            ("(a", "unclosed group"),
        ] {
            assert_eq!(read(pattern).unwrap_err(), problem);
        }
    }

    #[test]
    fn look_ahead_at_the_beginning_is_taken_apart() {
        check(r"^(?=.*\d)(?=.*[a-z]).{3,}$", &["a12", "12a"], &["abc", "123", "a1"]);
        check(r"^(?!foo$|x)[a-z]+$", &["foob", "fo"], &["foo", "xa", "1"]);
        assert!(read("^(?!a)b|c").is_err() && read("a(?=b)").is_err());
    }

    #[test]
    fn texts_are_excepted() {
        let except = except(&["ab", "a", "", "é"]);
        for (text, fits) in
            [("", false), ("a", false), ("ab", false), ("abc", true), ("b", true), ("éa", true), ("é", false)]
        {
            assert_eq!(matches(&except, text), Some(fits), "{text:?}");
        }
    }

    #[test]
    fn existence_of_texts_is_found_out() {
        assert_eq!(exists(&["^a", "b$"], &[]), Some(true));
        assert_eq!(exists(&["^a", "^b"], &[]), Some(false));
        assert_eq!(exists(&["^(a|b)$"], &[&of_texts(["a", "b"])]), Some(false));
        assert_eq!(exists(&[], &["^.*"]), Some(false));
    }
}
