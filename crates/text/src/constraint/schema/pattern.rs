//! Patterns of ECMAScript as those of the crate `regex`, and what can be said of the texts that they match.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use regex_syntax::hir::HirKind;

/// The spaces of ECMAScript, which differ from those of Rust.
const SPACES: &str = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}";
/// Characters that only some readers of patterns take for spaces: `\s` and `\S` leave both out.
const DOUBTFUL_SPACES: &str = r"\x{85}\x{feff}";
const DIGITS: &str = "0-9";
const WORDS: &str = "0-9A-Za-z_";
/// Any character but the ends of lines.
const DOT: &str = r"[^\n\r\x{2028}\x{2029}]";
/// Why a half of a character is refused outside of classes.
const HALF: &str = "half of a character is not supported";
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
    let unwrapped = unwrapped(pattern);
    let pattern = unwrapped.as_deref().unwrap_or(pattern);
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
    let whole = match look_behind(rest) {
        Some((before, behind, is_wanted)) => {
            let list = if is_wanted { &mut found.all } else { &mut found.none };
            list.push(translate(&format!("(?:{behind})$"))?);
            translate(&format!("{anchor}{before}$"))?
        }
        None => translate(&format!("{anchor}{rest}"))?,
    };
    if whole != "^" || found == Pattern::default() {
        found.all.push(whole);
    }
    Ok(found)
}

/// A pattern without the group that is all of it, if look-ahead stands at the beginning of that.
fn unwrapped(pattern: &str) -> Option<String> {
    let group = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let inner = group.strip_prefix("(?:").or(group.strip_prefix('('))?.strip_suffix(')')?;
    let is_whole =
        group_end(group) == Some(group.len()) && inner.starts_with("(?") && !has_alternatives(inner);
    is_whole.then(|| format!("^{inner}$"))
}

/// The look-behind at the end of a pattern: what is before it, what must or must not be behind, and whether it must.
fn look_behind(pattern: &str) -> Option<(&str, &str, bool)> {
    let rest = pattern.strip_suffix(")$")?;
    let at = rest.rfind("(?<")?;
    let (before, group) = (&pattern[..at], &pattern[at..pattern.len() - 1]);
    let is_wanted = group.starts_with("(?<=");
    let is_plain = (is_wanted || group.starts_with("(?<!")) && group_end(group) == Some(group.len());
    let is_last =
        is_plain && !has_alternatives(before) && outside_of_classes(pattern).any(|(place, _)| place == at);
    is_last.then(|| (before, &group[4..group.len() - 1], is_wanted))
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
    /// Half of a character, which no answer has.
    Half,
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
                Atom::Half => return Err(HALF.into()),
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
        let Some(atom) = class_atom(rest)? else { return closed(class) };
        let mut ahead = rest.clone();
        let is_range = ahead.next() == Some('-') && !matches!(ahead.peek(), Some(']') | None);
        // Between halves of characters and others, those that answers can have.
        let first = match atom {
            Atom::Character(c) if is_range => c,
            Atom::Half if is_range => '\u{e000}',
            Atom::Character(c) => {
                let _ = write!(class, "\\x{{{:x}}}", u32::from(c));
                continue;
            }
            Atom::Set(set) => {
                class.push_str(&set);
                continue;
            }
            Atom::Half => continue,
        };
        rest.next();
        match class_atom(rest)? {
            Some(Atom::Character(last)) if last >= first => {
                let _ = write!(class, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(first), u32::from(last));
            }
            Some(Atom::Half) if first < '\u{e000}' => {
                let _ = write!(class, "\\x{{{:x}}}-\\x{{d7ff}}", u32::from(first));
            }
            Some(Atom::Half) if matches!(atom, Atom::Half) => {}
            Some(Atom::Set(set)) => {
                let _ = write!(class, "\\x{{{:x}}}\\-{set}", u32::from(first));
            }
            _ => return Err("a range of characters whose end is before its start".into()),
        }
    }
}

/// A class with its last bracket. Those that exclude only halves of characters have all characters.
fn closed(class: String) -> Result<String, String> {
    match &*class {
        "[" => Err("a class of no characters is not supported".into()),
        "[^" => Ok(r"[\x{0}-\x{10ffff}]".into()),
        _ if class.starts_with("[^") && class.contains(SPACES) => Ok(class + DOUBTFUL_SPACES + "]"),
        _ => Ok(class + "]"),
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
        'S' => return Ok(Atom::Set(format!("[^{SPACES}{DOUBTFUL_SPACES}]"))),
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
        'u' => {
            return unicode(rest)
                .ok_or_else(|| "`\\u` wants the hexadecimal digits of a character".to_owned());
        }
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

/// The character of `\u1234`, `\u{12345}` or two halves, after `\u`; or a half alone.
fn unicode(rest: &mut Peekable<Chars<'_>>) -> Option<Atom> {
    if rest.next_if_eq(&'{').is_some() {
        let digits: String = rest.by_ref().take_while(|c| *c != '}').collect();
        return char::from_u32(u32::from_str_radix(&digits, 16).ok()?).map(Atom::Character);
    }
    let first = code(rest, 4)?;
    let mut ahead = rest.clone();
    let is_pair =
        (0xd800..0xdc00).contains(&first) && ahead.next() == Some('\\') && ahead.next() == Some('u');
    let second = code(&mut ahead, 4).filter(|code| is_pair && (0xdc00..0xe000).contains(code));
    let Some(second) = second else {
        return Some(char::from_u32(first).map_or(Atom::Half, Atom::Character));
    };
    *rest = ahead;
    char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).map(Atom::Character)
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
#[cfg(test)]
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    Some(compiled(&[pattern], &[])?.is_match(text))
}

/// Whether there is a text that matches all of some patterns and none of others; `None` if that cannot be found out.
pub(super) fn exists(all: &[&str], none: &[&str]) -> Option<bool> {
    Some(!compiled(all, none)?.always_empty())
}

/// A pattern for the texts that match all of some patterns and none of others; `None` if it takes too much work.
pub(super) fn compiled(all: &[&str], none: &[&str]) -> Option<Regex> {
    let mut builder = RegexBuilder::new();
    let mut parts = vec![RegexAst::Regex("(?s:.*)".into())];
    parts.extend(all.iter().map(|pattern| search(pattern)));
    parts.extend(none.iter().map(|pattern| RegexAst::Not(Box::new(search(pattern)))));
    let expression = builder.mk(&RegexAst::And(parts)).ok()?;
    builder.to_regex_limited(expression, FUEL).ok()
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
        check(r"^[^\d\s]$", &["a", "é"], &["1", "\u{a0}", "\u{feff}"]);
        check(r"^\s\S$", &[" a", "\u{3000}é"], &["\u{feff}a", " \u{feff}", " \u{85}"]);
        check(r"^[+--]$", &["+", ",", "-"], &["."]);
        check(r"^[a~~b<\]]$", &["~", "<", "]"], &["c"]);
        check(r"^[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDBFF-\uDC00\uDFFF\t]*$", &["aé\t"], &["a\n", "😀"]);
        check(r"^[^\uD800-\uDFFF]$", &["a", "😀"], &[""]);
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
        check(r"^((?!aws:)[a-z:]*)$", &["aw:", ""], &["aws:", "aws:a", "A"]);
        check(r"^[a-z.]+(?<!\.git)$", &["git", "a.gi"], &["a.git", ".git", ""]);
        check(r"^(?!-)[a-z-]+(?<=[a-c])$", &["a", "z-b"], &["-a", "z", "a-"]);
        assert!(read("^(?!a)b|c").is_err() && read("a(?=b)").is_err() && read("^a|b(?<!c)$").is_err());
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
