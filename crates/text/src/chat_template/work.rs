//! The work budget of a rendering, and the charges against it.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::python::fault;

/// Charges for its whole operand, which is about to be walked.
pub(super) const CHARGE: &str = "(charge)";
/// Charges for the items of its operand, which gets a name. Texts are shared, so they cost nothing then.
pub(super) const KEEP: &str = "(keep)";
/// As [`KEEP`], for a value that another value is about to hold.
pub(super) const HOLD: &str = "(hold)";
/// Refuses to iterate over none, as Python does.
pub(super) const EACH: &str = "(each)";
/// The bytes of an item of a list.
pub(super) const ITEM: u64 = size_of::<Value>() as u64;
/// Lists and objects inside one another.
const MAX_DEPTH: usize = 128;

/// Work left to a rendering: bytes of text and items of lists, made or walked.
struct Budget(u64);

/// Adds the charges that compiled templates call.
pub(super) fn add_charges(environment: &mut Environment<'static>, work: u64) {
    environment.add_function(CHARGE, move |state: &mut State, value: &Value| weigh(state, work, value));
    for (name, depth) in [(KEEP, 0), (HOLD, 1)] {
        environment.add_function(name, move |state: &mut State, value: &Value| {
            charge_walk(state, work, |left| walk(value, depth, |_| 1, left))
        });
    }
    environment.add_function(EACH, |value: &Value| match value.is_none() {
        true => Err(fault("none is not iterable")),
        false => Ok(()),
    });
}

/// Takes `amount` from the budget of `work`.
pub(super) fn spend(state: &mut State, work: u64, amount: u64) -> Result<(), Error> {
    let budget = state.get_or_insert_extension_with(|| Budget(work));
    budget.0 = budget.0.checked_sub(amount).ok_or_else(exhausted)?;
    Ok(())
}

/// Charges for everything in a value, which pays for the next walk through it.
pub(super) fn weigh(state: &mut State, work: u64, value: &Value) -> Result<(), Error> {
    charge_walk(state, work, |left| walk(value, 0, shallow, left))
}

fn charge_walk(
    state: &mut State,
    work: u64,
    walk: impl FnOnce(&mut u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let before = left_over(state, work);
    let mut left = before;
    walk(&mut left)?;
    spend(state, work, before - left)
}

/// The items of a list, or the bytes of a text.
pub(super) fn shallow(value: &Value) -> u64 {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len) as u64 + 1,
        ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len) as u64 + 1,
        _ => value.len().unwrap_or(0) as u64 + 1,
    }
}

/// Charges for a filter or method before it runs: all its operands, and how far it may outgrow them.
pub(super) fn charge_call(state: &mut State, work: u64, name: &str, operands: &[Value]) -> Result<(), Error> {
    for operand in operands {
        match name {
            "length" | "count" | "first" | "last" | "default" | "d" | "list" | "items" | "get" | "keys"
            | "values" | "map" | "select" | "reject" | "selectattr" | "rejectattr" => {
                spend(state, work, shallow(operand))?;
            }
            _ => weigh(state, work, operand)?,
        }
    }
    spend(state, work, growth(name, operands))
}

/// How far the result of a filter or method may outgrow its operands.
fn growth(name: &str, operands: &[Value]) -> u64 {
    let Some((own, others)) = operands.split_first() else { return 0 };
    let size = shallow(own);
    let widest = || others.iter().map(largest).max().unwrap_or(0);
    let longest = || others.iter().map(extent).max().unwrap_or(0);
    match name {
        // The method is called on what stands between the items, the filter on the items.
        "join" => match others {
            [items] if own.as_str().is_some() && items.as_str().is_none() => {
                size.saturating_mul(shallow(items))
            }
            _ => size.saturating_mul(longest()),
        },
        "replace" => {
            let matches = match (own.as_str(), others.first().and_then(Value::as_str)) {
                (Some(own), Some(old)) => own.matches(old).count() as u64,
                _ => extent(own),
            };
            matches.saturating_mul(longest())
        }
        // Each item of a list takes more than a letter of a text does.
        "list" | "split" | "rsplit" | "splitlines" | "lines" | "reverse" => size.saturating_mul(ITEM),
        "wordwrap" => size.saturating_mul(longest().saturating_add(2 * ITEM)),
        "escape" | "e" | "forceescape" | "urlencode" | "xmlattr" => extent(own).saturating_mul(6),
        "indent" => size.saturating_mul(widest().max(longest()).max(4)),
        "batch" | "slice" => size.saturating_mul(widest().saturating_add(4)),
        "center" | "ljust" | "rjust" | "zfill" => widest().max(80).saturating_mul(4),
        "expandtabs" => size.saturating_mul(widest().max(8)),
        "format" => format_growth(own.as_str().unwrap_or_default(), widest(), longest()),
        _ => 0,
    }
}

/// The growth of a format: each placeholder adds an operand and its width, which is written there or is an operand.
fn format_growth(format: &str, widest: u64, longest: u64) -> u64 {
    let printf = format.split('%').skip(1);
    let printf = printf
        .map(|place| place.split(|letter: char| letter.is_ascii_alphabetic()).next().unwrap_or_default());
    let braces = format.split('{').skip(1);
    let takes_widths =
        printf.clone().any(|place| place.contains('*')) || braces.clone().any(|place| !place.contains('}'));
    let braces = braces.map(|place| place.split('}').next().unwrap_or_default());
    let (mut places, mut written) = (0u64, 0);
    for place in printf.chain(braces) {
        places += 1;
        let digits = place.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
        written = digits.map(|digits| digits.parse().unwrap_or(u64::MAX)).fold(written, u64::max);
    }
    let width = if takes_widths { written.max(widest) } else { written };
    places.saturating_mul(width.saturating_add(longest))
}

/// The largest number that a value of the weight that it was charged for holds.
fn largest(value: &Value) -> u64 {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => 0,
        ValueKind::Number => value.as_i64().map_or(u64::MAX, i64::unsigned_abs),
        _ => parts(value).iter().map(largest).max().unwrap_or(0),
    }
}

/// The bytes that it takes at most to show a value.
pub(super) fn extent(value: &Value) -> u64 {
    match value.kind() {
        ValueKind::String => shallow(value),
        _ => parts(value).iter().map(|part| extent(part).saturating_mul(10)).fold(64, u64::saturating_add),
    }
}

fn parts(value: &Value) -> Vec<Value> {
    let items = || value.try_iter().map(Iterator::collect).unwrap_or_default();
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => items(),
        ValueKind::Map => {
            let keys: Vec<Value> = items();
            keys.iter().filter_map(|key| value.get_item(key).ok()).chain(keys.iter().cloned()).collect()
        }
        _ => Vec::new(),
    }
}

fn left_over(state: &mut State, work: u64) -> u64 {
    state.get_or_insert_extension_with(|| Budget(work)).0
}

/// Takes from `left` for a value and all it holds; a text costs what `text` says.
fn walk(value: &Value, depth: usize, text: fn(&Value) -> u64, left: &mut u64) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(fault("a value is nested too deeply"));
    }
    let own = match value.kind() {
        ValueKind::String | ValueKind::Bytes => text(value),
        _ => 1,
    };
    *left = left.checked_sub(own).ok_or_else(exhausted)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                walk(&item, depth + 1, text, left)?;
            }
        }
        ValueKind::Map => {
            // A namespace can come to hold itself.
            let is_namespace =
                value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
            if is_namespace && depth > 0 {
                return Err(fault("a namespace cannot be kept in another value"));
            }
            for key in value.try_iter()? {
                walk(&key, depth + 1, text, left)?;
                walk(&value.get_item(&key)?, depth + 1, text, left)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn exhausted() -> Error {
    Error::from(ErrorKind::OutOfFuel)
}
