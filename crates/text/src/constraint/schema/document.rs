//! A schema as a document: the identifiers in it, and what references name.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Keywords whose values are schemas by name.
pub(super) const OF_MAP: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords whose values are not schemas, whatever they look like.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "example"];

/// A place in a document: the keys and indices on the way to it.
pub(super) type Place = Vec<String>;

pub(super) struct Document<'a> {
    root: &'a Value,
    /// Whether `id` is an identifier, as in drafts before 6; later it is `$id`.
    has_old_ids: bool,
    /// The places of identifiers and of anchors (`uri#name`).
    identifiers: HashMap<String, Place>,
    /// Anchors that several schemas have.
    repeated: Vec<String>,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value, has_old_ids: bool) -> Document<'a> {
        let identifiers = HashMap::from([(String::new(), Vec::new())]);
        let mut document = Document { root, has_old_ids, identifiers, repeated: Vec::new() };
        document.collect(root, "", &mut Vec::new());
        document
    }

    fn collect(&mut self, value: &Value, base: &str, place: &mut Place) {
        let map = match value {
            Value::Object(map) => map,
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    place.push(index.to_string());
                    self.collect(value, base, place);
                    place.pop();
                }
                return;
            }
            _ => return,
        };
        let base = self.identify(map, base, place);
        for (key, value) in map.iter().filter(|(key, _)| !DATA.contains(&&***key)) {
            place.push(key.clone());
            match value {
                Value::Object(schemas) if OF_MAP.contains(&&**key) => {
                    for (name, schema) in schemas {
                        place.push(name.clone());
                        self.collect(schema, &base, place);
                        place.pop();
                    }
                }
                _ => self.collect(value, &base, place),
            }
            place.pop();
        }
    }

    /// Notes the identifiers of a schema. Returns what references in it are relative to.
    fn identify(&mut self, map: &Map<String, Value>, base: &str, place: &Place) -> String {
        let base = self.base_in(map, base);
        self.identifiers.entry(base.clone()).or_insert_with(|| place.clone());
        let fragment = self.id(map).and_then(|id| id.strip_prefix('#'));
        let anchors = ["$anchor", "$dynamicAnchor"].map(|keyword| map.get(keyword).and_then(Value::as_str));
        for anchor in anchors.into_iter().flatten().chain(fragment).filter(|anchor| !anchor.is_empty()) {
            let anchor = format!("{base}#{anchor}");
            match self.identifiers.get(&anchor) {
                Some(known) if known != place => self.repeated.push(anchor),
                _ => _ = self.identifiers.insert(anchor, place.clone()),
            }
        }
        base
    }

    fn id<'v>(&self, map: &'v Map<String, Value>) -> Option<&'v str> {
        let old = if self.has_old_ids { map.get("id").and_then(Value::as_str) } else { None };
        map.get("$id").and_then(Value::as_str).or(old)
    }

    fn base_in(&self, map: &Map<String, Value>, base: &str) -> String {
        match self.id(map) {
            Some(id) if !id.starts_with('#') => {
                let absolute = join(base, id);
                absolute.split('#').next().unwrap_or_default().to_owned()
            }
            _ => base.to_owned(),
        }
    }

    /// What references at a place are relative to.
    pub(super) fn base(&self, place: &[String]) -> String {
        let (mut base, mut value) = (String::new(), Some(self.root));
        for index in 0..=place.len() {
            if let Some(Value::Object(map)) = value {
                base = self.base_in(map, &base);
            }
            value = value.zip(place.get(index)).and_then(|(value, segment)| step(value, segment));
        }
        base
    }

    pub(super) fn at(&self, place: &[String]) -> Option<&'a Value> {
        place.iter().try_fold(self.root, |value, segment| step(value, segment))
    }

    /// The place of the schema that a reference names.
    ///
    /// # Errors
    /// If it is in another document, or there is no schema.
    pub(super) fn resolve(&self, base: &str, reference: &str) -> Result<Place, String> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let uri = if uri.is_empty() { base.to_owned() } else { join(base, uri) };
        let fragment = decoded(fragment);
        let missing = || format!("there is no schema at `#{fragment}`");
        let Some(resource) = self.identifiers.get(&uri) else {
            return Err(format!(
                "{}: only references within the schema (`#/...`) are supported",
                Value::from(reference)
            ));
        };
        let found = if fragment.is_empty() {
            Some(resource.clone())
        } else if let Some(pointer) = fragment.strip_prefix('/') {
            let segments = || pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
            // Identifiers inside were often meant as names, so that pointers go from the root all the same.
            let places: [Place; 2] =
                [resource.iter().cloned().chain(segments()).collect(), segments().collect()];
            places.into_iter().find(|place| self.at(place).is_some() && may_be_schema(place))
        } else {
            let anchor = format!("{uri}#{fragment}");
            if self.repeated.contains(&anchor) {
                return Err(format!("several schemas have the anchor `{fragment}`, which is not supported"));
            }
            self.identifiers.get(&anchor).cloned()
        };
        found.ok_or_else(missing)
    }
}

/// Whether a place is outside of values that are data.
fn may_be_schema(place: &[String]) -> bool {
    match place {
        [] => true,
        [key, rest @ ..] if OF_MAP.contains(&&**key) => rest.is_empty() || may_be_schema(&rest[1..]),
        [key, rest @ ..] => !DATA.contains(&&**key) && may_be_schema(rest),
    }
}

fn step<'v>(value: &'v Value, segment: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => map.get(segment),
        Value::Array(list) => list.get(segment.parse::<usize>().ok()?),
        _ => None,
    }
}

/// A reference to a resource as an absolute one.
fn join(base: &str, reference: &str) -> String {
    let is_absolute = reference.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '?', '#']));
    if is_absolute {
        return reference.to_owned();
    }
    let authority =
        base.find("://").map_or(0, |at| base[at + 3..].find('/').map_or(base.len(), |end| at + 3 + end));
    let (authority, path) = base.split_at(authority);
    let whole = if reference.starts_with('/') {
        reference.to_owned()
    } else {
        format!("{}{reference}", &path[..path.rfind('/').map_or(0, |at| at + 1)])
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "." => {}
            ".." if parts.len() > 1 => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let separator = if authority.is_empty() || path.starts_with('/') { "" } else { "/" };
    format!("{authority}{separator}{path}")
}

/// A fragment without `%` escapes.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = std::str::from_utf8(tail.get(..2).unwrap_or_default()).ok();
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(code) if *first == b'%' => {
                bytes.push(code);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| fragment.to_owned())
}
