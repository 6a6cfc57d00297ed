//! `pprint`: a value as Python's `pprint.pformat` writes it, 80 letters wide and with the keys of objects in order.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::arguments::Call;
use super::letters::is_space;
use super::methods::lines;
use super::python::{self, Range, is_mapping};

const WIDTH: usize = 80;
/// Lists and objects inside one another.
const MAX_DEPTH: usize = 128;
/// Bytes written and tried: indented lines of deep values are much longer than these.
const MAX_TEXT: usize = 16 << 20;

/// The filter.
pub(super) fn pprint(call: &Call) -> Result<Value, Error> {
    let mut writer = Writer { text: String::new(), tried: 0 };
    writer.value(call.value(0)?, Place { indent: 0, allowance: 0, depth: 0 })?;
    Ok(writer.text.into())
}

/// Where a value begins, and how many letters follow it on its last line.
#[derive(Clone, Copy)]
struct Place {
    indent: usize,
    allowance: usize,
    depth: usize,
}

struct Writer {
    text: String,
    /// Bytes of lines that were tried.
    tried: usize,
}

impl Writer {
    fn value(&mut self, value: &Value, place: Place) -> Result<(), Error> {
        let line = repr(value, place.depth)?;
        self.tried += line.len();
        if self.tried + self.text.len() > MAX_TEXT {
            return Err(python::fault(format!("pprint: makes more than {MAX_TEXT} bytes of text")));
        }
        if letters(&line) + place.indent + place.allowance <= WIDTH {
            self.text.push_str(&line);
            return Ok(());
        }
        match Kind::from_value(value) {
            Kind::Object => self.object(value, place),
            Kind::List => self.items(value, ["[", "]"], place),
            Kind::Tuple => self.items(value, ["(", if value.len() == Some(1) { ",)" } else { ")" }], place),
            Kind::Text => self.string(value.as_str().unwrap_or_default(), place),
            Kind::Other => {
                self.text.push_str(&line);
                Ok(())
            }
        }
    }

    fn object(&mut self, object: &Value, place: Place) -> Result<(), Error> {
        self.text.push('{');
        let keys = sorted_keys(object)?;
        for (index, key) in keys.iter().enumerate() {
            let is_last = index + 1 == keys.len();
            self.next_line(index, place);
            let name = repr(key, place.depth + 1)?;
            self.text.push_str(&name);
            self.text.push_str(": ");
            let indent = place.indent + 1 + letters(&name) + 2;
            let allowance = if is_last { place.allowance + 1 } else { 1 };
            self.value(&object.get_item(key)?, Place { indent, allowance, depth: place.depth + 1 })?;
        }
        self.text.push('}');
        Ok(())
    }

    fn items(&mut self, list: &Value, [open, close]: [&str; 2], place: Place) -> Result<(), Error> {
        self.text.push_str(open);
        let items: Vec<Value> = list.try_iter()?.collect();
        for (index, item) in items.iter().enumerate() {
            let is_last = index + 1 == items.len();
            self.next_line(index, place);
            let allowance = if is_last { place.allowance + close.len() } else { 1 };
            self.value(item, Place { indent: place.indent + 1, allowance, depth: place.depth + 1 })?;
        }
        self.text.push_str(close);
        Ok(())
    }

    fn next_line(&mut self, index: usize, place: Place) {
        if index > 0 {
            self.text.push_str(",\n");
            self.text.push_str(&" ".repeat(place.indent + 1));
        }
    }

    /// Lines of a text, and words of a line that is too long; in brackets if nothing else is around them.
    fn string(&mut self, text: &str, place: Place) -> Result<(), Error> {
        let is_bare = place.depth == 0;
        let (indent, allowance) =
            (place.indent + usize::from(is_bare), place.allowance + usize::from(is_bare));
        let width = WIDTH.saturating_sub(indent);
        let all = lines(text, true);
        let mut chunks = Vec::new();
        for (index, line) in all.iter().enumerate() {
            let last_width = width.saturating_sub(if index + 1 == all.len() { allowance } else { 0 });
            let whole = quoted(line)?;
            if letters(&whole) <= last_width {
                chunks.push(whole);
            } else {
                chunks.extend(words(line, width, last_width)?);
            }
        }
        let between = format!("\n{}", " ".repeat(indent));
        let is_bracketed = is_bare && chunks.len() > 1;
        let [open, close] = if is_bracketed { ["(", ")"] } else { ["", ""] };
        self.text.extend([open, &chunks.join(&between), close]);
        Ok(())
    }
}

/// A line in pieces of a width; the last word has to fit into `last_width`.
fn words(line: &str, width: usize, last_width: usize) -> Result<Vec<String>, Error> {
    let mut words: Vec<String> = Vec::new();
    let mut after_space = false;
    for letter in line.chars() {
        match words.last_mut().filter(|_| !after_space || is_space(letter)) {
            Some(word) => word.push(letter),
            None => words.push(letter.to_string()),
        }
        after_space = is_space(letter);
    }
    let (mut chunks, mut current) = (Vec::new(), String::new());
    for (index, word) in words.iter().enumerate() {
        let candidate = format!("{current}{word}");
        let room = if index + 1 == words.len() { last_width } else { width };
        if letters(&quoted(&candidate)?) <= room {
            current = candidate;
        } else {
            chunks.extend(if current.is_empty() { None } else { Some(quoted(&current)?) });
            current.clone_from(word);
        }
    }
    chunks.extend(if current.is_empty() { None } else { Some(quoted(&current)?) });
    Ok(chunks)
}

enum Kind {
    Object,
    List,
    Tuple,
    Text,
    Other,
}

impl Kind {
    fn from_value(value: &Value) -> Kind {
        match value.kind() {
            ValueKind::Map if is_mapping(value) => Kind::Object,
            ValueKind::Seq if value.is_tuple() => Kind::Tuple,
            ValueKind::Seq if value.downcast_object_ref::<Range>().is_none() => Kind::List,
            ValueKind::String if !value.is_safe() => Kind::Text,
            _ => Kind::Other,
        }
    }
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

fn quoted(text: &str) -> Result<String, Error> {
    repr(&Value::from(text), 0)
}

fn sorted_keys(object: &Value) -> Result<Vec<Value>, Error> {
    let mut keys: Vec<Value> = object.try_iter()?.collect();
    keys.sort();
    Ok(keys)
}

/// `repr`, with the keys of objects in order.
fn repr(value: &Value, depth: usize) -> Result<String, Error> {
    if depth > MAX_DEPTH {
        return Err(python::fault(format!("pprint: more than {MAX_DEPTH} levels")));
    }
    let items = || value.try_iter()?.map(|item| repr(&item, depth + 1)).collect::<Result<Vec<_>, Error>>();
    Ok(match Kind::from_value(value) {
        Kind::Object => {
            let member = |key: &Value| {
                Ok(format!("{}: {}", repr(key, depth + 1)?, repr(&value.get_item(key)?, depth + 1)?))
            };
            let members = sorted_keys(value)?.iter().map(member).collect::<Result<Vec<_>, Error>>()?;
            format!("{{{}}}", members.join(", "))
        }
        Kind::List => format!("[{}]", items()?.join(", ")),
        Kind::Tuple => format!("({}{})", items()?.join(", "), if value.len() == Some(1) { "," } else { "" }),
        Kind::Text | Kind::Other => {
            let mut text = String::new();
            python::write_repr(value, &mut text)?;
            text
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::{ChatContext, ChatTemplate};

    /// The output of Python's `pprint.pformat`.
    #[test]
    fn values_are_written_as_in_python() {
        let check = |value: &str, expected: &str| {
            let template = ChatTemplate::new(&format!("{{{{ {value} | pprint }}}}")).unwrap();
            assert_eq!(template.render(&ChatContext::new(&[])).unwrap(), expected, "{value}");
        };
        check("{'a': 1, 'b': [1, 2]}", "{'a': 1, 'b': [1, 2]}");
        check("{'b': 1, 'a': {'d': none, 'c': true}}", "{'a': {'c': True, 'd': None}, 'b': 1}");
        check("'x'", "'x'");
        check("[]", "[]");
        check("(1,)", "(1,)");
        check("''", "''");
        check(
            "['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 3]",
            "['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',\n 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',\n 3]",
        );
        check(
            "{'name': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'other': ['bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', {'deep': 'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc'}], 'n': 1.5}",
            "{'n': 1.5,\n 'name': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',\n 'other': ['bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',\n           {'deep': 'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc'}]}",
        );
        check(
            "'word0 word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 word12 word13 word14 word15 word16 word17 word18 word19 word20 word21 word22 word23 word24 word25 word26 word27 word28 word29'",
            "('word0 word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 '\n 'word12 word13 word14 word15 word16 word17 word18 word19 word20 word21 word22 '\n 'word23 word24 word25 word26 word27 word28 word29')",
        );
        check(
            "['word0 word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 word12 word13 word14 word15 word16 word17 word18 word19 word20 word21 word22 word23 word24 word25 word26 word27 word28 word29', 2]",
            "['word0 word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 '\n 'word12 word13 word14 word15 word16 word17 word18 word19 word20 word21 word22 '\n 'word23 word24 word25 word26 word27 word28 word29',\n 2]",
        );
        check(
            "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
            "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        );
        check(
            "('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb')",
            "('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',\n 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb')",
        );
        check(
            "('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',)",
            "('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',)",
        );
        check(
            "{'k': ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 1)}",
            "{'k': ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n'\n       'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',\n       1)}",
        );
        check(
            "{'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk': {'jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj': [1, 2, 3]}}",
            "{'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk': {'jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj': [1,\n                                                                                           2,\n                                                                                           3]}}",
        );
    }
}
