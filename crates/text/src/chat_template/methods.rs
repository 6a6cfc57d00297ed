//! Methods of texts, objects and lists that `pycompat` does not have, or not as Python does. Those that change what they
//! are called on are left out, as in jinja2's sandbox.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::arguments::{Call, Row};
use super::letters::{self, ends_line, is_space};
use super::python::{View, members};

const TEXT_METHODS: &[Row] = &[
    ("casefold", &[""], |call| Ok(letters::casefold(call.text(0)?).into())),
    ("center", &["", "", ""], |call| pad(call, center)),
    ("count", &["", "", "", ""], |call| {
        Ok(part(call)?.map_or(0, |(_, own, wanted)| own.matches(wanted).count()).into())
    }),
    ("endswith", &["", "", "", ""], |call| has_affix(call, |own, affix| own.ends_with(affix))),
    ("expandtabs", &["", "tabsize"], expandtabs),
    ("find", &["", "", "", ""], |call| {
        Ok(search(call, |own, wanted| own.find(wanted))?.unwrap_or(-1).into())
    }),
    ("index", &["", "", "", ""], |call| found(call, search(call, |own, wanted| own.find(wanted))?)),
    ("isdecimal", &[""], |call| all(call, letters::is_decimal)),
    ("isdigit", &[""], |call| all(call, letters::is_digit)),
    ("isprintable", &[""], |call| Ok(call.text(0)?.chars().all(letters::is_printable).into())),
    ("isspace", &[""], |call| all(call, is_space)),
    ("istitle", &[""], |call| {
        let own = call.text(0)?;
        Ok((own.chars().any(letters::is_cased) && own == letters::title(own)).into())
    }),
    ("join", &["", ""], join),
    ("ljust", &["", "", ""], |call| pad(call, |_, _| 0)),
    ("lstrip", &["", ""], |call| trim(call, true, false)),
    ("partition", &["", ""], |call| partition(call, false)),
    ("removeprefix", &["", ""], |call| {
        let own = call.text(0)?;
        Ok(own.strip_prefix(call.text(1)?).unwrap_or(own).into())
    }),
    ("removesuffix", &["", ""], |call| {
        let own = call.text(0)?;
        Ok(own.strip_suffix(call.text(1)?).unwrap_or(own).into())
    }),
    ("rfind", &["", "", "", ""], |call| {
        Ok(search(call, |own, wanted| own.rfind(wanted))?.unwrap_or(-1).into())
    }),
    ("rindex", &["", "", "", ""], |call| found(call, search(call, |own, wanted| own.rfind(wanted))?)),
    ("rjust", &["", "", ""], |call| pad(call, |room, _| room)),
    ("rpartition", &["", ""], |call| partition(call, true)),
    ("rsplit", &["", "sep", "maxsplit"], |call| split(call, true)),
    ("rstrip", &["", ""], |call| trim(call, false, true)),
    ("split", &["", "sep", "maxsplit"], |call| split(call, false)),
    ("splitlines", &["", "keepends"], |call| Ok(Value::from_iter(lines(call.text(0)?, call.is_set(1))))),
    ("startswith", &["", "", "", ""], |call| has_affix(call, |own, affix| own.starts_with(affix))),
    ("strip", &["", ""], |call| trim(call, true, true)),
    ("swapcase", &[""], |call| Ok(letters::swapcase(call.text(0)?).into())),
    ("title", &[""], |call| Ok(letters::title(call.text(0)?).into())),
    ("zfill", &["", ""], zfill),
];

const MAP_METHODS: &[Row] = &[
    ("copy", &[""], |call| Ok(Value::from_pairs(members(call.value(0)?)?))),
    ("items", &[""], |call| {
        let pairs = members(call.value(0)?)?.into_iter().map(Value::from).collect();
        Ok(Value::from_object(View { name: "dict_items", items: pairs }))
    }),
    ("keys", &[""], |call| {
        Ok(Value::from_object(View { name: "dict_keys", items: call.value(0)?.try_iter()?.collect() }))
    }),
    ("values", &[""], |call| {
        let values = members(call.value(0)?)?.into_iter().map(|(_, value)| value).collect();
        Ok(Value::from_object(View { name: "dict_values", items: values }))
    }),
];

const LIST_METHODS: &[Row] = &[
    ("copy", &[""], |call| match call.value(0)? {
        tuple if tuple.is_tuple() => Err(Error::from(ErrorKind::UnknownMethod)),
        list => Ok(Value::from_iter(list.try_iter()?)),
    }),
    ("index", &["", ""], |call| {
        let wanted = call.value(1)?;
        let place = call.value(0)?.try_iter()?.position(|item| item == *wanted);
        place.map(Value::from).ok_or_else(|| call.fault("finds nothing"))
    }),
];

/// Calls a method, whose operands are paid for; the first is what it is called on.
///
/// # Errors
/// [`ErrorKind::UnknownMethod`] if there is none of this name.
pub(super) fn call(state: &mut State, method: &str, operands: &[Value]) -> Result<Value, Error> {
    let own = &operands[0];
    let rows = match own.kind() {
        ValueKind::String => TEXT_METHODS,
        ValueKind::Map => MAP_METHODS,
        ValueKind::Seq => LIST_METHODS,
        _ => &[],
    };
    match rows.iter().find(|(name, ..)| *name == method) {
        Some((name, parameters, function)) => function(&Call::bind(name, parameters, operands)?),
        None => pycompat::unknown_method_callback(state, own, method, &operands[1..]),
    }
}

fn all(call: &Call, holds: fn(char) -> bool) -> Result<Value, Error> {
    let own = call.text(0)?;
    Ok((!own.is_empty() && own.chars().all(holds)).into())
}

/// A text without some letters, or else white space, at its ends.
pub(super) fn trim(call: &Call, front: bool, back: bool) -> Result<Value, Error> {
    let letters = call.some(1).map(|letters| call.text_of(letters)).transpose()?;
    Ok(trimmed(&call.shown(0)?, letters, front, back).into())
}

pub(super) fn trimmed<'a>(own: &'a str, letters: Option<&str>, front: bool, back: bool) -> &'a str {
    let goes = |letter: char| letters.map_or_else(|| is_space(letter), |letters| letters.contains(letter));
    let own = if front { own.trim_start_matches(goes) } else { own };
    if back { own.trim_end_matches(goes) } else { own }
}

fn split(call: &Call, from_end: bool) -> Result<Value, Error> {
    let own = call.text(0)?;
    let most = usize::try_from(call.whole_or(2, -1)?).unwrap_or(usize::MAX);
    let Some(separator) = call.some(1) else { return Ok(Value::from_iter(words(own, most, from_end))) };
    let separator = call.text_of(separator)?;
    if separator.is_empty() {
        return Err(call.fault("takes no empty separator"));
    }
    let count = most.saturating_add(1);
    if !from_end {
        return Ok(Value::from_iter(own.splitn(count, separator)));
    }
    let mut parts: Vec<&str> = own.rsplitn(count, separator).collect();
    parts.reverse();
    Ok(Value::from_iter(parts))
}

/// The words between white space: at most `most` of them, then the rest of the text.
fn words(own: &str, most: usize, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = trimmed(own, None, !from_end, from_end);
    while !rest.is_empty() && words.len() < most {
        let found = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(place) = found else { break };
        let (before, after) = rest.split_at(place);
        let after = &after[after.chars().next().map_or(0, char::len_utf8)..];
        let (word, others) = if from_end { (after, before) } else { (before, after) };
        words.push(word);
        rest = trimmed(others, None, !from_end, from_end);
    }
    if !rest.is_empty() {
        let is_last = words.len() < most;
        words.push(trimmed(rest, None, from_end && is_last, !from_end && is_last));
    }
    if from_end {
        words.reverse();
    }
    words
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

fn partition(call: &Call, from_end: bool) -> Result<Value, Error> {
    let (own, separator) = (call.text(0)?, call.text(1)?);
    if separator.is_empty() {
        return Err(call.fault("takes no empty separator"));
    }
    let parts = if from_end { own.rsplit_once(separator) } else { own.split_once(separator) };
    let parts = match parts {
        Some((before, after)) => [before, separator, after],
        None if from_end => ["", "", own],
        None => [own, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// The part of a text between two places, counted in letters, and its own place; `None` if it ends before it begins, in
/// which not even the empty text is found.
fn bounded<'c>(call: &'c Call) -> Result<Option<(usize, &'c str)>, Error> {
    let own = call.text(0)?;
    let len = own.chars().count() as i64;
    let bound = |place: usize, otherwise: i64| match call.some(place) {
        None => Ok(otherwise),
        Some(_) => call.whole(place).map(|at| if at < 0 { at.saturating_add(len).max(0) } else { at }),
    };
    let (start, end) = (bound(2, 0)?, bound(3, len)?.min(len));
    let place = |letters: i64| own.char_indices().nth(letters as usize).map_or(own.len(), |(place, _)| place);
    Ok((start <= end).then(|| (start as usize, &own[place(start)..place(end)])))
}

/// The part of a text to look in, and what to look for.
fn part<'c>(call: &'c Call) -> Result<Option<(usize, &'c str, &'c str)>, Error> {
    let wanted = call.text(1)?;
    Ok(bounded(call)?.map(|(start, own)| (start, own, wanted)))
}

fn search(call: &Call, find: fn(&str, &str) -> Option<usize>) -> Result<Option<i64>, Error> {
    let place = |(start, own, wanted): (usize, &str, &str)| {
        find(own, wanted).map(|place| (start + own[..place].chars().count()) as i64)
    };
    Ok(part(call)?.and_then(place))
}

fn found(call: &Call, place: Option<i64>) -> Result<Value, Error> {
    place.map(Value::from).ok_or_else(|| call.fault("finds nothing"))
}

fn has_affix(call: &Call, holds: fn(&str, &str) -> bool) -> Result<Value, Error> {
    let affix = call.value(1)?;
    let affixes: Vec<Value> =
        if affix.is_tuple() { affix.try_iter()?.collect() } else { vec![affix.clone()] };
    let own = bounded(call)?;
    for affix in &affixes {
        let affix = call.text_of(affix)?;
        if own.is_some_and(|(_, own)| holds(own, affix)) {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn pad(call: &Call, left: fn(usize, usize) -> usize) -> Result<Value, Error> {
    let mut letters = call.text_or(2, " ")?.chars();
    let (Some(fill), None) = (letters.next(), letters.next()) else {
        return Err(call.fault("fills with one letter"));
    };
    Ok(padded(call.text(0)?, call.whole(1)?, fill, left).into())
}

/// The room to the left of a centered text, of `room` in all: the odd one goes there if the width is odd too.
pub(super) fn center(room: usize, width: usize) -> usize {
    room / 2 + (room & width & 1)
}

/// A text filled up to a width; `left` says how much of the room is to the left of it, given the width.
pub(super) fn padded(own: &str, width: i64, fill: char, left: fn(usize, usize) -> usize) -> String {
    let width = width.max(0) as usize;
    let room = width.saturating_sub(own.chars().count());
    let left = left(room, width);
    let fill = |count: usize| std::iter::repeat_n(fill, count);
    fill(left).chain(own.chars()).chain(fill(room - left)).collect()
}

fn zfill(call: &Call) -> Result<Value, Error> {
    let own = call.text(0)?;
    let (sign, digits) = own.split_at(own.starts_with(['+', '-']).into());
    let width = call.whole(1)?.saturating_sub(sign.len() as i64);
    Ok((sign.to_owned() + &padded(digits, width, '0', |room, _| room)).into())
}

fn expandtabs(call: &Call) -> Result<Value, Error> {
    let own = call.text(0)?;
    let size = usize::try_from(call.whole_or(1, 8)?).unwrap_or(0);
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
    Ok(text.into())
}

fn join(call: &Call) -> Result<Value, Error> {
    let items: Vec<Value> = call.value(1)?.try_iter()?.collect();
    let texts: Vec<&str> = items.iter().map(|item| call.text_of(item)).collect::<Result<_, _>>()?;
    Ok(texts.join(call.text(0)?).into())
}
