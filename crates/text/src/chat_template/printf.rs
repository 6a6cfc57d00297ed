//! Texts with values in place of their `%`.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::number_filters::integer;
use super::python::{self, fault};

/// Values in place of the `%` of a text.
///
/// # Errors
/// As Python's, also when there are more values than places for them.
pub(super) fn printf(text: &str, operands: &[Value]) -> Result<String, Error> {
    let (text, operands) = &prepared(text, operands);
    let (places, named) = places(text);
    let is_map = matches!(&operands[..], [only] if only.kind() == ValueKind::Map);
    if !named && !is_map && places < operands.len() {
        return Err(fault(format!("a format has {places} places for {} values", operands.len())));
    }
    // Numbers and texts are known to the engine; what else there is, is shown as a template shows it.
    let shown = |value: &Value| match value.kind() {
        ValueKind::Bool | ValueKind::Number | ValueKind::String => value.clone(),
        ValueKind::Map if named => value.clone(),
        _ => Value::from(python::string(value)),
    };
    let operands: Vec<Value> = operands.iter().map(shown).collect();
    format(FormatStyle::Printf, text, &operands)
}

/// `%r` as `%s`, of operands that are what Python's `repr` makes of them; floats are whole for `%d`.
fn prepared(text: &str, operands: &[Value]) -> (String, Vec<Value>) {
    let mut operands = operands.to_vec();
    let mut plain = String::with_capacity(text.len());
    let (mut rest, mut place) = (text, 0);
    while let Some((before, after)) = rest.split_once('%') {
        let end =
            after.find(|letter: char| letter.is_ascii_alphabetic() || letter == '%').unwrap_or(after.len());
        let (directive, after) = after.split_at(end);
        plain.extend([before, "%", directive]);
        place += directive.matches('*').count();
        let kind = after.chars().next();
        plain.extend(if kind == Some('r') { Some('s') } else { kind });
        match (kind, operands.get_mut(place)) {
            (Some('r'), Some(operand)) => {
                let mut shown = String::new();
                python::write_repr(operand, &mut shown).expect("a String takes all");
                *operand = Value::from(shown);
            }
            (Some('d' | 'i' | 'u'), Some(operand)) if operand.is_number() && !operand.is_integer() => {
                let number = f64::try_from(operand.clone()).ok().filter(|number| number.is_finite());
                *operand = number.map_or_else(|| operand.clone(), |number| integer(number as i128));
            }
            _ => {}
        }
        place += usize::from(kind != Some('%'));
        rest = after.get(1..).unwrap_or_default();
    }
    (plain + rest, operands)
}

/// How many values a format takes, and whether it names them.
fn places(text: &str) -> (usize, bool) {
    let (mut count, mut named) = (0, false);
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let end =
            after.find(|letter: char| letter.is_ascii_alphabetic() || letter == '%').unwrap_or(after.len());
        named |= after.starts_with('(');
        let directive = &after[..end];
        if !after[end..].starts_with('%') {
            count += 1 + directive.matches('*').count();
        }
        rest = after.get(end + 1..).unwrap_or_default();
    }
    (count, named)
}
