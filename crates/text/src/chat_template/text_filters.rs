//! Filters of texts, as jinja2 has them.

use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

use super::arguments::{bind, fault, required, split, text, text_or, whole, whole_or};
use super::filters::is_mapping;
use super::letters::{capitalize, is_space};
use super::methods::{lines, padded, trimmed};
use super::printf::printf;
use super::python;
use super::wrap;

/// A filter: its first operand is what it is applied to. All are paid for.
pub(super) type Filter = fn(&mut State, &[Value]) -> Result<Value, Error>;

/// The filters of texts by their names.
pub(super) const FILTERS: &[(&str, Filter)] = &[
    ("attr", attr),
    ("capitalize", |_, operands| simple("capitalize", operands, capitalize)),
    ("center", center),
    ("d", default),
    ("default", default),
    ("e", escape),
    ("escape", escape),
    ("forceescape", forceescape),
    ("format", format),
    ("indent", indent),
    ("join", join),
    ("lower", |_, operands| simple("lower", operands, str::to_lowercase)),
    ("random", |_, _| Err(fault("random makes another prompt each time, so it is refused"))),
    ("replace", replace),
    ("string", string),
    ("title", |_, operands| simple("title", operands, title)),
    ("trim", trim),
    ("truncate", truncate),
    ("upper", |_, operands| simple("upper", operands, str::to_uppercase)),
    ("urlencode", urlencode),
    ("wordcount", wordcount),
    ("wordwrap", wordwrap),
    ("xmlattr", xmlattr),
];

fn simple(name: &str, operands: &[Value], make: fn(&str) -> String) -> Result<Value, Error> {
    let [value] = bind(name, [""], operands)?;
    Ok(Value::from(make(&python::string(&required(name, value)?))))
}

fn string(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value] = bind("string", [""], operands)?;
    let value = required("string", value)?;
    Ok(if value.as_str().is_some() { value } else { Value::from(python::string(&value)) })
}

/// Words begin after white space, a hyphen or an opening bracket.
fn title(own: &str) -> String {
    let mut begins = true;
    let mut titled = String::with_capacity(own.len());
    for letter in own.chars() {
        match begins {
            true => titled.extend(letter.to_uppercase()),
            false => titled.extend(letter.to_lowercase()),
        }
        begins = matches!(letter, '-' | '(' | '{' | '[' | '<') || is_space(letter);
    }
    titled
}

fn trim(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, letters] = bind("trim", ["", "chars"], operands)?;
    let letters: Option<Vec<char>> = match letters.filter(|letters| !letters.is_none()) {
        Some(letters) => Some(text("trim", &letters)?.chars().collect()),
        None => None,
    };
    Ok(Value::from(trimmed(&python::string(&required("trim", value)?), letters.as_deref(), true, true)))
}

fn replace(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, old, new, count] = bind("replace", ["", "old", "new", "count"], operands)?;
    let count = whole_or("replace", &count.filter(|count| !count.is_none()), -1)?;
    let [value, old, new] =
        [value, old, new].map(|value| required("replace", value).map(|v| python::string(&v)));
    let (value, old, new) = (value?, old?, new?);
    Ok(Value::from(match usize::try_from(count) {
        Ok(count) => value.replacen(&old, &new, count),
        Err(_) => value.replace(&old, &new),
    }))
}

fn center(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, width] = bind("center", ["", "width"], operands)?;
    let value = python::string(&required("center", value)?);
    Ok(Value::from(padded("center", &value, whole_or("center", &width, 80)?, ' ')))
}

fn truncate(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let names = ["", "length", "killwords", "end", "leeway"];
    let [value, length, kill, end, leeway] = bind("truncate", names, operands)?;
    let value = python::string(&required("truncate", value)?);
    let (length, leeway) = (whole_or("truncate", &length, 255)?, whole_or("truncate", &leeway, 5)?);
    let end = text_or("truncate", &end, "...")?;
    let room = length - end.chars().count() as i64;
    if room < 0 || leeway < 0 {
        return Err(fault(format!("truncate: a length of {length} does not hold the end \"{end}\"")));
    }
    if value.chars().count() as i64 <= length.saturating_add(leeway) {
        return Ok(Value::from(value));
    }
    let cut: String = value.chars().take(room as usize).collect();
    let kept = match kill.is_some_and(|kill| kill.is_true()) {
        true => &cut,
        false => cut.rsplit_once(' ').map_or(cut.as_str(), |(before, _)| before),
    };
    Ok(Value::from(kept.to_owned() + end))
}

fn indent(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, width, first, blank] = bind("indent", ["", "width", "first", "blank"], operands)?;
    let value = required("indent", value)?;
    let value = text("indent", &value)?.to_owned() + "\n";
    let space = match width.as_ref().and_then(Value::as_str) {
        Some(space) => space.to_owned(),
        None => " ".repeat(whole_or("indent", &width, 4)?.max(0) as usize),
    };
    let is_set = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (first, blank) = (is_set(first), is_set(blank));
    let mut indented = String::new();
    for (index, line) in lines(&value, false).into_iter().enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            indented.push_str(&space);
        }
        indented.push_str(line);
    }
    Ok(Value::from(indented))
}

fn wordcount(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value] = bind("wordcount", [""], operands)?;
    let value = python::string(&required("wordcount", value)?);
    let words = value.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
}

fn wordwrap(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let names = ["", "width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [value, width, long_words, between, hyphens] = bind("wordwrap", names, operands)?;
    let value = required("wordwrap", value)?;
    let is_set = |flag: Option<Value>| flag.is_none_or(|flag| flag.is_true());
    let width = usize::try_from(whole_or("wordwrap", &width, 79)?).ok().filter(|&width| width > 0);
    let width = width.ok_or_else(|| fault("wordwrap takes a width above zero"))?;
    let between = between.filter(|between| !between.is_none());
    let between = text_or("wordwrap", &between, "\n")?;
    let (long_words, hyphens) = (is_set(long_words), is_set(hyphens));
    let wrapped = lines(text("wordwrap", &value)?, false).into_iter();
    let wrapped = wrapped.map(|line| wrap::wrapped(line, width, long_words, hyphens).join(between));
    Ok(Value::from(wrapped.collect::<Vec<_>>().join(between)))
}

/// Percent signs for all but letters, digits and a few marks; a slash stays in a path, and a space is `+` in a query.
fn urlencode(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value] = bind("urlencode", [""], operands)?;
    let value = required("urlencode", value)?;
    let pairs: Vec<(Value, Value)> = match value.kind() {
        ValueKind::Map => value
            .try_iter()?
            .map(|key| Ok((key.clone(), value.get_item(&key)?)))
            .collect::<Result<_, Error>>()?,
        ValueKind::Seq | ValueKind::Iterable => {
            let pair = |pair: Value| match pair.len() {
                Some(2) => Ok((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?)),
                _ => Err(fault("urlencode takes pairs")),
            };
            value.try_iter()?.map(pair).collect::<Result<_, Error>>()?
        }
        _ => return Ok(Value::from(quoted(&python::string(&value), '/'))),
    };
    let query = |value: &Value| quoted(&python::string(value), ' ').replace(' ', "+");
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| [query(key), query(value)].join("=")).collect();
    Ok(Value::from(pairs.join("&")))
}

fn quoted(own: &str, keep: char) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || char::from(byte) == keep;
    let quoted = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    own.bytes().map(quoted).collect()
}

fn xmlattr(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [map, space] = bind("xmlattr", ["", "autospace"], operands)?;
    let map = required("xmlattr", map)?;
    if map.kind() != ValueKind::Map {
        return Err(fault(format!("xmlattr takes an object, not {}", map.kind())));
    }
    let mut attributes = String::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let key = python::string(&key);
        if key.contains(|letter: char| is_space(letter) || matches!(letter, '/' | '>' | '=')) {
            return Err(fault(format!("xmlattr: \"{key}\" is no name of an attribute")));
        }
        attributes += &format!(" {}=\"{}\"", html(&key), escaped(&value));
    }
    let space = space.is_none_or(|space| space.is_true());
    Ok(Value::from(if space { &attributes } else { attributes.trim_start_matches(' ') }))
}

/// What a value shows in HTML, with entities unless it is marked as safe.
pub(super) fn escaped(value: &Value) -> String {
    let text = python::string(value);
    if value.is_safe() { text } else { html(&text) }
}

fn html(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&#34;"),
            '\'' => html.push_str("&#39;"),
            letter => html.push(letter),
        }
    }
    html
}

fn escape(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value] = bind("escape", [""], operands)?;
    Ok(Value::from_safe_string(escaped(&required("escape", value)?)))
}

fn forceescape(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value] = bind("forceescape", [""], operands)?;
    Ok(Value::from_safe_string(html(&python::string(&required("forceescape", value)?))))
}

/// What `.` gives, but for members of objects.
fn attr(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, name] = bind("attr", ["", "name"], operands)?;
    let (value, name) = (required("attr", value)?, required("attr", name)?);
    match is_mapping(&value) {
        true => Ok(Value::UNDEFINED),
        false => value.get_attr(text("attr", &name)?),
    }
}

fn join(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, between, attribute] = bind("join", ["", "d", "attribute"], operands)?;
    let between = between.map_or_else(String::new, |between| python::string(&between));
    let mut joined = String::new();
    for (index, item) in required("join", value)?.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(&between);
        }
        let item = match &attribute {
            Some(path) => attribute_of(item, path)?,
            None => item,
        };
        python::write_str(&item, &mut joined)?;
    }
    Ok(Value::from(joined))
}

/// What lies at a path of names and numbers between dots.
fn attribute_of(mut item: Value, path: &Value) -> Result<Value, Error> {
    if whole(path).is_some() {
        return item.get_item(path);
    }
    for name in text("attribute", path)?.split('.') {
        item = match name.parse::<i64>() {
            Ok(index) => item.get_item(&Value::from(index))?,
            Err(_) => item.get_item(&Value::from(name))?,
        };
    }
    Ok(item)
}

fn format(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let (positional, keywords) = split(operands);
    let Some((format, values)) = positional.split_first() else {
        return Err(fault("format lacks an operand"));
    };
    let format = python::string(format);
    match (values, keywords.is_empty()) {
        (values, true) => printf(&format, values).map(Value::from),
        ([], false) => printf(&format, &[Value::from_pairs(keywords)]).map(Value::from),
        _ => Err(fault("format takes values by place or by name, not both")),
    }
}

fn default(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, otherwise, boolean] = bind("default", ["", "default_value", "boolean"], operands)?;
    let value = value.unwrap_or_default();
    let is_false = boolean.is_some_and(|boolean| boolean.is_true()) && !value.is_true();
    match value.is_undefined() || is_false {
        true => Ok(otherwise.unwrap_or_else(|| Value::from(""))),
        false => Ok(value),
    }
}
