//! Arrays: items of which some must fit a schema, and items that are all different.

use serde_json::{Map, Value, json};

use super::choices::is_anything;
use super::draft::Draft;
use super::logic::Logic;
use super::negation::negate;
use super::{TYPES, count, list};
use crate::ConstraintError;

/// The first items, one of which fits `contains`.
const MAX_FIRST: u64 = 4;
/// The most arrays that come of items which are all different.
const MAX_ARRAYS: usize = 300;

type Outcome = Result<(), ConstraintError>;

/// `contains`: one of the first items fits, or so many of them.
pub(super) fn contains(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let (least, most) = (count(&draft.map, "minContains").unwrap_or(1), count(&draft.map, "maxContains"));
    draft.take("minContains");
    draft.take("maxContains");
    let Some(schema) = draft.take("contains") else { return Ok(()) };
    let other = match most.map(|_| negate(logic, &schema)) {
        None => true.into(),
        Some(Some(negated)) => negated,
        Some(None) => {
            return Err(
                draft.refuse("maxContains", "items that do not fit `contains` cannot be told from others")
            );
        }
    };
    if least > 64 || most.is_some_and(|most| most < least) {
        return Err(draft.refuse("minContains", format!("{least} items are not supported")));
    }
    let mut options = vec![json!({ "type": without("array") })];
    if least == 0 && most.is_none() {
        return Ok(());
    }
    if least == 0 {
        options.push(json!({ "type": "array", "items": other }));
    }
    // Items before the first that fits.
    for before in (0..MAX_FIRST).filter(|_| least > 0) {
        let items: Vec<&Value> = (0..before).map(|_| &other).chain((0..least).map(|_| &schema)).collect();
        options.push(
            json!({ "type": "array", "prefixItems": items, "minItems": before + least, "items": other }),
        );
    }
    draft.add("contains", json!({ "anyOf": options }));
    Ok(())
}

/// `uniqueItems`: bounds of items of few values if answers are followed, else the arrays that they can make.
pub(super) fn distinct(logic: &Logic<'_>, draft: &mut Draft<'_>, is_followed: bool) -> Outcome {
    if draft.take("uniqueItems").is_none() || !may_repeat(logic, &draft.map) {
        return Ok(());
    }
    let map = &draft.map;
    let (least, most) = (count(map, "minItems").unwrap_or(0), count(map, "maxItems"));
    let values = map
        .get("items")
        .filter(|_| !map.contains_key("prefixItems"))
        .and_then(|items| logic.values(items, 0));
    if is_followed {
        match values.map(|values| values.len() as u64) {
            Some(values) if values < least => draft.add("uniqueItems", json!({ "type": without("array") })),
            Some(values) if most.is_none_or(|most| values < most) => {
                draft.add("uniqueItems", json!({ "maxItems": values }));
            }
            _ => {}
        }
        return Ok(());
    }
    let most = most.map_or(usize::MAX, |most| most as usize);
    let arrays = values.as_ref().and_then(|values| arrays(values, least as usize, most));
    let Some(arrays) = arrays else {
        return Err(draft.refuse("uniqueItems", "supported for items of few values"));
    };
    let array = |items: Vec<&Value>| {
        let count = items.len();
        let items: Vec<Value> = items.into_iter().map(|value| json!({ "const": value })).collect();
        json!({ "type": "array", "prefixItems": items, "minItems": count, "maxItems": count })
    };
    let options = [json!({ "type": without("array") })].into_iter().chain(arrays.into_iter().map(array));
    let options: Vec<Value> = options.collect();
    draft.add("uniqueItems", json!({ "anyOf": options }));
    Ok(())
}

/// Whether an array that fits a schema may have equal items, if they need not be unique.
pub(super) fn may_repeat(logic: &Logic<'_>, map: &Map<String, Value>) -> bool {
    let has_arrays = map.get("type").is_none_or(|types| super::logic::allows(types, "array"));
    let is_short = count(map, "maxItems").is_some_and(|most| most <= 1);
    has_arrays && !is_short && !are_distinct(logic, map)
}

fn without(kind: &str) -> Vec<&'static str> {
    TYPES.into_iter().filter(|other| *other != kind).collect()
}

/// Whether the items of a tuple are different anyway.
fn are_distinct(logic: &Logic<'_>, map: &Map<String, Value>) -> bool {
    let items = list(map, "prefixItems");
    let is_whole = map.get("items") == Some(&Value::Bool(false))
        || count(map, "maxItems").is_some_and(|most| most <= items.len() as u64);
    let meets =
        |(at, one): (usize, &Value)| items[at + 1..].iter().any(|other| !logic.is_empty(&[one, other]));
    is_whole && !items.iter().any(is_anything) && !items.iter().enumerate().any(meets)
}

/// Arrays of different values: in all orders if there are few, else in the order of the values.
fn arrays(values: &[Value], least: usize, most: usize) -> Option<Vec<Vec<&Value>>> {
    let most = most.min(values.len());
    let has_all_orders = values.len() <= 4;
    let (mut all, mut last): (Vec<Vec<usize>>, Vec<Vec<usize>>) = (Vec::new(), vec![Vec::new()]);
    for length in 0..=most {
        if length >= least {
            all.extend(last.iter().cloned());
        }
        let longer = |array: &Vec<usize>| {
            let rest = (0..values.len()).filter(|value| {
                if has_all_orders {
                    !array.contains(value)
                } else {
                    array.last().is_none_or(|last| value > last)
                }
            });
            rest.map(|value| array.iter().copied().chain([value]).collect()).collect::<Vec<Vec<usize>>>()
        };
        last = last.iter().flat_map(longer).collect();
        if all.len() + last.len() > MAX_ARRAYS {
            return None;
        }
    }
    Some(all.into_iter().map(|array| array.into_iter().map(|value| &values[value]).collect()).collect())
}
