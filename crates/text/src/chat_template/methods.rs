//! Methods of texts, objects and lists, as Python has them; those that change what they are called on are left out,
//! as jinja2's sandbox does.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::arguments::{bind, fault, required, text, text_or, whole, whole_or};
use super::letters::{self, ends_line, is_space};
use super::python::{self, View};

/// Calls a method, whose operands are paid for.
///
/// # Errors
/// [`ErrorKind::UnknownMethod`] when there is none of this name.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    operands: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), value.kind()) {
        (Some(own), _) => text_method(state, value, own, method, operands),
        (None, ValueKind::Map) => map_method(value, method, operands),
        (None, ValueKind::Seq) => list_method(value, method, operands),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn text_method(
    state: &mut State,
    value: &Value,
    own: &str,
    method: &str,
    operands: &[Value],
) -> Result<Value, Error> {
    if let Some(make) = maker(method) {
        let [] = bind(method, [], operands)?;
        return Ok(Value::from(make(own)));
    }
    if let Some(holds) = question(method) {
        let [] = bind(method, [], operands)?;
        return Ok(Value::from(holds(own)));
    }
    match method {
        "format" => format(state, value, operands),
        "strip" => trim(method, own, operands, true, true),
        "lstrip" => trim(method, own, operands, true, false),
        "rstrip" => trim(method, own, operands, false, true),
        "split" | "rsplit" => split(method, own, operands),
        "splitlines" => splitlines(own, operands),
        "partition" | "rpartition" => partition(method, own, operands),
        "startswith" | "endswith" => has_affix(method, own, operands),
        "find" | "rfind" | "index" | "rindex" | "count" => search(method, own, operands),
        "replace" => replace(own, operands),
        "removeprefix" | "removesuffix" => remove_affix(method, own, operands),
        "center" | "ljust" | "rjust" => pad(method, own, operands),
        "zfill" => zfill(own, operands),
        "expandtabs" => expandtabs(own, operands),
        "join" => join(own, operands),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// Methods that make a text of nothing but a text.
fn maker(method: &str) -> Option<fn(&str) -> String> {
    Some(match method {
        "upper" => str::to_uppercase,
        "lower" => str::to_lowercase,
        "casefold" => letters::casefold,
        "swapcase" => letters::swapcase,
        "title" => letters::title,
        "capitalize" => letters::capitalize,
        _ => return None,
    })
}

/// Methods that tell whether all letters of a text are of a kind.
fn question(method: &str) -> Option<fn(&str) -> bool> {
    Some(match method {
        "isspace" => |own| all(own, is_space),
        "isalpha" => |own| all(own, letters::is_alphabetic),
        "isalnum" => |own| all(own, |letter| letters::is_alphabetic(letter) || letter.is_numeric()),
        "isdecimal" => |own| all(own, letters::is_decimal),
        "isdigit" => |own| all(own, letters::is_digit),
        "isnumeric" => |own| all(own, char::is_numeric),
        "isascii" => str::is_ascii,
        "isprintable" => |own| own.chars().all(letters::is_printable),
        "islower" => |own| letters::has_case(own, char::is_lowercase),
        "isupper" => |own| letters::has_case(own, char::is_uppercase),
        "istitle" => |own| own.chars().any(letters::is_cased) && own == letters::title(own),
        _ => return None,
    })
}

fn all(own: &str, holds: fn(char) -> bool) -> bool {
    !own.is_empty() && own.chars().all(holds)
}

/// Values in place of the braces of a text. Numbers and texts are known to the engine.
fn format(state: &mut State, value: &Value, operands: &[Value]) -> Result<Value, Error> {
    let shown = |value: &Value| match value.kind() {
        ValueKind::None | ValueKind::Undefined => Value::from(python::string(value)),
        _ => value.clone(),
    };
    let operands: Vec<Value> = operands.iter().map(shown).collect();
    minijinja_contrib::pycompat::unknown_method_callback(state, value, "format", &operands)
}

fn trim(method: &str, own: &str, operands: &[Value], front: bool, back: bool) -> Result<Value, Error> {
    let [letters] = bind(method, [""], operands)?;
    let letters: Option<Vec<char>> = match letters.filter(|letters| !letters.is_none()) {
        Some(letters) => Some(text(method, &letters)?.chars().collect()),
        None => None,
    };
    Ok(Value::from(trimmed(own, letters.as_deref(), front, back)))
}

/// A text without some letters, or else white space, at its ends.
pub(super) fn trimmed<'a>(own: &'a str, letters: Option<&[char]>, front: bool, back: bool) -> &'a str {
    let goes = |letter: char| letters.map_or_else(|| is_space(letter), |letters| letters.contains(&letter));
    let own = if front { own.trim_start_matches(goes) } else { own };
    if back { own.trim_end_matches(goes) } else { own }
}

fn split(method: &str, own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [separator, most] = bind(method, ["sep", "maxsplit"], operands)?;
    let most = usize::try_from(whole_or(method, &most, -1)?).unwrap_or(usize::MAX);
    let from_end = method == "rsplit";
    let Some(separator) = separator.filter(|separator| !separator.is_none()) else {
        return Ok(Value::from_iter(words(own, most, from_end)));
    };
    let separator = text(method, &separator)?;
    if separator.is_empty() {
        return Err(fault(format!("{method} takes no empty separator")));
    }
    let parts = most.saturating_add(1);
    Ok(match from_end {
        false => Value::from_iter(own.splitn(parts, separator)),
        true => {
            let mut parts: Vec<&str> = own.rsplitn(parts, separator).collect();
            parts.reverse();
            Value::from_iter(parts)
        }
    })
}

/// What stands between white space, of which `most` are split off, and what remains.
fn words(own: &str, most: usize, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = trimmed(own, None, !from_end, from_end);
    while !rest.is_empty() && words.len() < most {
        let found = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(place) = found else { break };
        let space = rest[place..].chars().next().map_or(0, char::len_utf8);
        let (word, others) = match from_end {
            true => (&rest[place + space..], &rest[..place]),
            false => (&rest[..place], &rest[place + space..]),
        };
        words.push(word);
        rest = trimmed(others, None, !from_end, from_end);
    }
    if !rest.is_empty() {
        words.push(trimmed(rest, None, from_end && words.len() < most, !from_end && words.len() < most));
    }
    if from_end {
        words.reverse();
    }
    words
}

fn splitlines(own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [keep] = bind("splitlines", ["keepends"], operands)?;
    Ok(Value::from_iter(lines(own, keep.is_some_and(|keep| keep.is_true()))))
}

/// The lines of a text, with what ends them or without.
pub(super) fn lines(own: &str, keep: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = own;
    while !rest.is_empty() {
        let end = rest.find(ends_line).unwrap_or(rest.len());
        let ending = match &rest[end..] {
            after if after.starts_with("\r\n") => 2,
            after => after.chars().next().map_or(0, char::len_utf8),
        };
        lines.push(&rest[..if keep { end + ending } else { end }]);
        rest = &rest[end + ending..];
    }
    lines
}

fn partition(method: &str, own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [separator] = bind(method, [""], operands)?;
    let separator = required(method, separator)?;
    let separator = text(method, &separator)?;
    if separator.is_empty() {
        return Err(fault(format!("{method} takes no empty separator")));
    }
    let parts = match method {
        "partition" => {
            own.split_once(separator).map_or([own, "", ""], |(before, after)| [before, separator, after])
        }
        _ => own.rsplit_once(separator).map_or(["", "", own], |(before, after)| [before, separator, after]),
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// The part of a text between two places, counted in letters, and its own place; `None` where it ends before it
/// begins, in which not even the empty text is found.
fn part<'a>(
    method: &str,
    own: &'a str,
    start: &Option<Value>,
    end: &Option<Value>,
) -> Result<Option<(usize, &'a str)>, Error> {
    let is_given = |bound: &Option<Value>| bound.clone().filter(|bound| !bound.is_none());
    let (start, end) = (is_given(start), is_given(end));
    if start.is_none() && end.is_none() {
        return Ok(Some((0, own)));
    }
    let len = own.chars().count() as i64;
    let from_front = |place: i64| if place < 0 { (place.saturating_add(len)).max(0) } else { place };
    let start = from_front(whole_or(method, &start, 0)?);
    let end = from_front(whole_or(method, &end, len)?).min(len);
    if start > end {
        return Ok(None);
    }
    let place = |letters: i64| own.char_indices().nth(letters as usize).map_or(own.len(), |(place, _)| place);
    Ok(Some((start as usize, &own[place(start)..place(end)])))
}

fn has_affix(method: &str, own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [affix, start, end] = bind(method, ["", "", ""], operands)?;
    let affix = required(method, affix)?;
    let affixes: Vec<Value> = match affix.is_tuple() {
        true => affix.try_iter()?.collect(),
        false => vec![affix],
    };
    let own = part(method, own, &start, &end)?;
    for affix in &affixes {
        let affix = text(method, affix)?;
        let holds = own.is_some_and(|(_, own)| match method {
            "startswith" => own.starts_with(affix),
            _ => own.ends_with(affix),
        });
        if holds {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn search(method: &str, own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [wanted, start, end] = bind(method, ["", "", ""], operands)?;
    let wanted = required(method, wanted)?;
    let wanted = text(method, &wanted)?;
    let own = part(method, own, &start, &end)?;
    let Some((begin, own)) = own else {
        return match method {
            "count" => Ok(Value::from(0)),
            "find" | "rfind" => Ok(Value::from(-1)),
            _ => Err(fault(format!("{method} finds nothing"))),
        };
    };
    if method == "count" {
        return Ok(Value::from(own.matches(wanted).count()));
    }
    let found = if method.starts_with('r') { own.rfind(wanted) } else { own.find(wanted) };
    match found {
        Some(place) => Ok(Value::from(begin + own[..place].chars().count())),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(fault(format!("{method} finds nothing"))),
    }
}

fn replace(own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [old, new, count] = bind("replace", ["", "", "count"], operands)?;
    let (old, new) = (required("replace", old)?, required("replace", new)?);
    let (old, new) = (text("replace", &old)?, text("replace", &new)?);
    let count = whole_or("replace", &count, -1)?;
    Ok(Value::from(match usize::try_from(count) {
        Ok(count) => own.replacen(old, new, count),
        Err(_) => own.replace(old, new),
    }))
}

fn remove_affix(method: &str, own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [affix] = bind(method, [""], operands)?;
    let affix = required(method, affix)?;
    let affix = text(method, &affix)?;
    let rest = if method == "removeprefix" { own.strip_prefix(affix) } else { own.strip_suffix(affix) };
    Ok(Value::from(rest.unwrap_or(own)))
}

fn pad(method: &str, own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [width, fill] = bind(method, ["", ""], operands)?;
    let width =
        whole(&required(method, width)?).ok_or_else(|| fault(format!("{method} takes a whole number")))?;
    let mut letters = text_or(method, &fill, " ")?.chars();
    let (Some(fill), None) = (letters.next(), letters.next()) else {
        return Err(fault(format!("{method} fills with one letter")));
    };
    Ok(Value::from(padded(method, own, width, fill)))
}

/// A text in the middle, at the left or at the right of a width.
pub(super) fn padded(method: &str, own: &str, width: i64, fill: char) -> String {
    let room = (width.max(0) as usize).saturating_sub(own.chars().count());
    let left = match method {
        "ljust" => 0,
        "rjust" => room,
        // The odd one goes to the left where the width is odd too.
        _ => room / 2 + (room & width as usize & 1),
    };
    let fill = |count: usize| std::iter::repeat_n(fill, count);
    fill(left).chain(own.chars()).chain(fill(room - left)).collect()
}

fn zfill(own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [width] = bind("zfill", [""], operands)?;
    let width = whole(&required("zfill", width)?).ok_or_else(|| fault("zfill takes a whole number"))?;
    let (sign, digits) = own.split_at(own.starts_with(['+', '-']).into());
    Ok(Value::from(sign.to_owned() + &padded("rjust", digits, width - sign.len() as i64, '0')))
}

fn expandtabs(own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [size] = bind("expandtabs", ["tabsize"], operands)?;
    let size = usize::try_from(whole_or("expandtabs", &size, 8)?).unwrap_or(0);
    let (mut text, mut column) = (String::with_capacity(own.len()), 0);
    for letter in own.chars() {
        if letter == '\t' {
            let spaces = if size > 0 { size - column % size } else { 0 };
            text.extend(std::iter::repeat_n(' ', spaces));
            column += spaces;
        } else {
            text.push(letter);
            column = if matches!(letter, '\n' | '\r') { 0 } else { column + 1 };
        }
    }
    Ok(Value::from(text))
}

fn join(own: &str, operands: &[Value]) -> Result<Value, Error> {
    let [items] = bind("join", [""], operands)?;
    let mut joined = String::new();
    for (index, item) in required("join", items)?.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(own);
        }
        joined.push_str(text("join", &item)?);
    }
    Ok(Value::from(joined))
}

fn map_method(value: &Value, method: &str, operands: &[Value]) -> Result<Value, Error> {
    let view = |name, items| Ok(Value::from_object(View { name, items }));
    let pair = |key: Value| Ok((key.clone(), value.get_item(&key)?));
    let pairs = || value.try_iter()?.map(pair).collect::<Result<Vec<(Value, Value)>, Error>>();
    match method {
        "get" => {
            let [key, otherwise] = bind(method, ["", ""], operands)?;
            let key = required(method, key)?;
            let found = value.as_object().and_then(|object| object.get_value(&key));
            Ok(found.or(otherwise).unwrap_or_else(|| Value::from(())))
        }
        "keys" | "values" | "items" | "copy" => {
            let [] = bind(method, [], operands)?;
            match method {
                "keys" => view("dict_keys", value.try_iter()?.collect()),
                "values" => view("dict_values", pairs()?.into_iter().map(|(_, value)| value).collect()),
                "items" => {
                    let pairs = pairs()?.into_iter().map(|(key, value)| Value::from((key, value)));
                    view("dict_items", pairs.collect())
                }
                _ => Ok(Value::from_pairs(pairs()?)),
            }
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn list_method(value: &Value, method: &str, operands: &[Value]) -> Result<Value, Error> {
    match method {
        "count" => {
            let [wanted] = bind(method, [""], operands)?;
            let wanted = required(method, wanted)?;
            Ok(Value::from(value.try_iter()?.filter(|item| *item == wanted).count()))
        }
        "index" => {
            let [wanted] = bind(method, [""], operands)?;
            let wanted = required(method, wanted)?;
            let place = value.try_iter()?.position(|item| item == wanted);
            place.map(Value::from).ok_or_else(|| fault("index finds nothing"))
        }
        "copy" if !value.is_tuple() => {
            let [] = bind(method, [], operands)?;
            Ok(Value::from_iter(value.try_iter()?))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}
