//! Bodies of requests: JSON objects, checked field by field before any work is done.
//!
//! `null` stands for a field that is not given. A field that is not known has no effect; it is named in the header
//! `x-peri-ignored`, unless it looks like a typing error for a known one, which is an error.

mod foreign_fields;
mod json;

use std::collections::BTreeSet;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AllOf, Object, OneOf, Schema};

use foreign_fields::is_foreign;
use json::{Typed, UniqueKeys};

use crate::api_error::ApiError;
use crate::blocking;
use crate::excerpt::excerpt;
use crate::state::Context;

/// The deepest nesting of arrays and objects.
const MAX_DEPTH: usize = 64;
/// How many changed letters make a field a typing error.
const MAX_DISTANCE: usize = 2;
/// The most unknown fields that are compared with the known ones.
const MAX_COMPARED: usize = 32;
/// The most fields of a body, and of an object in it that is read field by field.
const MAX_FIELDS: usize = 1024;
/// The most unknown fields of inner objects that a group names; the others are counted.
const MAX_NAMED: usize = 1024;
/// The most bytes of the path of an unknown field.
const MAX_PATH: usize = 128;

/// The body of a request.
pub(crate) struct Body<T>(pub(crate) T);

/// A body that is made of one or more groups of fields.
pub(crate) trait RequestBody: ToSchema + Sized + Send + 'static {
    /// Takes the groups.
    ///
    /// # Errors
    /// If a field has a type or a value that it cannot have.
    fn read(fields: &mut Fields) -> Result<Self, ApiError>;
}

/// The fields of an object, of which groups are taken one after the other.
pub(crate) struct Fields {
    object: Value,
    /// Paths that no group has taken so far; `None` before the first group.
    unknown: Option<BTreeSet<String>>,
    /// Paths within objects whose groups were taken.
    unknown_within: BTreeSet<String>,
    /// Unknown fields of inner objects that have no path above.
    unnamed: usize,
}

/// Fields of a body that have no effect.
struct Ignored {
    paths: BTreeSet<String>,
    /// How many more there are.
    unnamed: usize,
}

impl Fields {
    /// Whether the object has a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.object.get(name).is_some()
    }

    /// The value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.object.get(name)
    }

    /// Gives a field another value, or takes it away. Groups that are taken later find it so.
    pub(crate) fn set(&mut self, name: &str, value: Option<Value>) {
        if let Some(fields) = self.object.as_object_mut() {
            match value {
                Some(value) => fields.insert(name.to_string(), value),
                None => fields.remove(name),
            };
        }
    }

    /// Takes the groups of an object in a field. Without the field, the object is empty.
    ///
    /// # Errors
    /// If the field is no object, or one of its fields has a type or a value that it cannot have.
    pub(crate) fn object<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Fields) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let object = match self.object.as_object_mut().and_then(|fields| fields.remove(name)) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(object)) => {
                check_count(&object, name)
                    .map_err(|error| ApiError { param: Some(name.to_string()), ..error })?;
                object
            }
            Some(_) => return Err(ApiError::invalid(name, format!("{name}: give an object"))),
        };
        let mut fields = Fields::new(object);
        let groups = read(&mut fields).map_err(|error| error.within(name))?;
        let Ignored { paths, unnamed } = fields.into_ignored();
        self.unknown_within.extend(paths.iter().map(|path| format!("{name}.{path}")));
        self.unnamed += unnamed;
        Ok(groups)
    }

    fn new(mut object: Map<String, Value>) -> Fields {
        object.retain(|_, value| !value.is_null());
        Fields { object: Value::Object(object), unknown: None, unknown_within: BTreeSet::new(), unnamed: 0 }
    }

    /// The fields that no group has taken.
    fn into_ignored(self) -> Ignored {
        let mut paths = self.unknown.unwrap_or_default();
        paths.extend(self.unknown_within);
        Ignored { paths, unnamed: self.unnamed }
    }

    /// Takes a group of fields.
    ///
    /// # Errors
    /// If a field has a type or a value that it cannot have.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let (mut unknown, mut unnamed) = (BTreeSet::new(), 0);
        let mut note = |path: serde_ignored::Path<'_>| {
            let is_inner =
                !matches!(path, serde_ignored::Path::Map { parent: serde_ignored::Path::Root, .. });
            if is_inner && unknown.len() >= MAX_FIELDS + MAX_NAMED {
                unnamed += 1;
                return;
            }
            // A `?` stands for an optional value, which is no part of the path in JSON.
            unknown.insert(excerpt(&path.to_string().replace(".?", ""), MAX_PATH).into_owned());
        };
        // Not the closure itself: its type would be another for each group, and so would all code that reads their parts.
        let mut note: &mut dyn FnMut(serde_ignored::Path<'_>) = &mut note;
        let reader = serde_ignored::Deserializer::new(Typed(&self.object), &mut note);
        let group = serde_path_to_error::deserialize(reader)
            .map_err(|error| unreadable(&error.path().to_string(), error.inner().to_string()))?;
        self.unnamed += unnamed;
        self.unknown = Some(match self.unknown.take() {
            Some(before) => common(&before, &unknown),
            None => unknown,
        });
        Ok(group)
    }
}

/// The error for a problem with the field at a path; `.` is the object itself.
fn unreadable(path: &str, problem: String) -> ApiError {
    let named = |start: &str| problem.strip_prefix(start)?.strip_suffix('`');
    match (path, named("missing field `"), named("duplicate field `")) {
        (".", Some(name), _) => ApiError::invalid(name, &problem),
        (_, _, Some(name)) => {
            ApiError::invalid(name, format!("{name} is given under two of its names: give one"))
        }
        (".", ..) => ApiError::bad_request(problem),
        _ => ApiError::invalid(path, format!("{path}: {problem}")),
    }
}

/// The paths that two groups do not know, themselves or as part of an object that one of them does not know.
fn common(a: &BTreeSet<String>, b: &BTreeSet<String>) -> BTreeSet<String> {
    let has = |set: &BTreeSet<String>, path: &str| {
        let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
        ends.into_iter().any(|end| set.contains(&path[..end]))
    };
    let of_a = a.iter().filter(|path| has(b, path));
    let of_b = b.iter().filter(|path| has(a, path));
    of_a.chain(of_b).cloned().collect()
}

impl<S, T> FromRequest<S> for Body<T>
where
    S: Send + Sync,
    T: RequestBody,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Body<T>, ApiError> {
        let (context, bytes) = receive(request).await?;
        let (body, ignored) = blocking::run_on(bytes.len(), move || read(bytes)).await?;
        context.note(|facts| {
            facts.ignored.extend(ignored.paths);
            facts.unnamed_ignored += ignored.unnamed;
        });
        Ok(Body(body))
    }
}

/// The context of a request and the bytes of its body.
///
/// # Errors
/// If the body is not said to be JSON, is too large, or cannot be received.
async fn receive(request: Request) -> Result<(Context, Bytes), ApiError> {
    if let Err(error) = check_content_type(request.uri().path(), request.headers()) {
        // The body is read all the same, as hyper closes connections with an unread one, which clients may use again.
        if !request.headers().contains_key(header::EXPECT) {
            let _ = Bytes::from_request(request, &()).await;
        }
        return Err(error);
    }
    let (mut parts, body) = request.into_parts();
    let Ok(context) = Context::from_request_parts(&mut parts, &()).await;
    let bytes = Bytes::from_request(Request::from_parts(parts, body), &()).await.map_err(|rejection| {
        let status = rejection.status();
        let code =
            if status == StatusCode::PAYLOAD_TOO_LARGE { "body_too_large" } else { "invalid_request_error" };
        ApiError::new(status, code, rejection.body_text())
    })?;
    Ok((context, bytes))
}

/// The groups of a body, and its fields that have no effect.
///
/// # Errors
/// If it is not a JSON object, a field cannot have its value, or one seems to be misspelled.
fn read<T: RequestBody>(bytes: Bytes) -> Result<(T, Ignored), ApiError> {
    let mut fields = Fields::new(parse(&bytes)?);
    drop(bytes);
    let body = T::read(&mut fields)?;
    let ignored = fields.into_ignored();
    check_spelling(&ignored.paths, T::schema, T::schemas)?;
    Ok((body, ignored))
}

/// A body has to say that it is JSON: browsers send other types to any server without asking. Ollama reads bodies of any
/// type, and its clients name none, so its routes do too unless a browser asks. A body is not unpacked, since a small one
/// could become large.
fn check_content_type(path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| coding != "identity") {
        let message = "the body has a Content-Encoding: send it without";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if path.starts_with("/api/") && !is_of_browser(headers) {
        return Ok(());
    }
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let problem = if given.is_empty() { "missing".to_string() } else { format!("`{given}`") };
    let message = format!("the Content-Type is {problem}: send application/json");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

/// Whether a request has a header that browsers send and other clients do not.
fn is_of_browser(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| *name == header::ORIGIN || name.as_str().starts_with("sec-fetch-"))
}

/// The object that a body is.
///
/// # Errors
/// If it is not JSON, nested too deeply, has a key twice, or is not an object.
fn parse(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if let Some(offset) = too_deep(bytes) {
        let message = format!("the body is nested deeper than {MAX_DEPTH} levels at byte {offset}");
        return Err(ApiError::bad_request(message));
    }
    let UniqueKeys(value) = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let problem = text.rsplit_once(" at line ").map_or(&text[..], |(problem, _)| problem);
        let body = if error.is_data() { "the body is ambiguous" } else { "the body is not JSON" };
        ApiError::bad_request(format!("{body}: {problem} at line {line}, column {column}"))
    })?;
    match value {
        Value::Object(object) => check_count(&object, "the body").map(|()| object),
        _ => Err(ApiError::bad_request("the body is not a JSON object")),
    }
}

/// Refuses an object whose fields are too many to name.
fn check_count(object: &Map<String, Value>, name: &str) -> Result<(), ApiError> {
    if object.len() <= MAX_FIELDS {
        return Ok(());
    }
    let message = format!("{name} has {} fields, at most {MAX_FIELDS} are read", object.len());
    Err(ApiError::bad_request(message))
}

/// Where a body is nested too deeply, if it is.
fn too_deep(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(offset);
        }
    }
    None
}

/// Refuses unknown fields that are one or two letters away from a known one, unless they are those of other servers. The time
/// is bounded: clients choose how many fields there are, and how long.
fn check_spelling(
    unknown: &BTreeSet<String>,
    schema: fn() -> RefOr<Schema>,
    schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
) -> Result<(), ApiError> {
    let mut top = unknown.iter().filter(|path| !path.contains('.') && !is_foreign(path)).peekable();
    if top.peek().is_none() {
        return Ok(());
    }
    let (mut known, mut groups) = (Vec::new(), Vec::new());
    schemas(&mut groups);
    properties(&schema(), &groups, &mut known);
    let longest = known.iter().map(String::len).max().unwrap_or(0) + MAX_DISTANCE;
    for name in top.filter(|name| name.chars().count() <= longest).take(MAX_COMPARED) {
        let near = known.iter().filter_map(|field| Some((distance(name, field)?, field)));
        if let Some((_, nearest)) = near.min_by_key(|(distance, _)| *distance) {
            let message = format!("there is no field `{name}`: did you mean `{nearest}`?");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// How many letters were changed in a field's name, if it still looks like that field.
fn distance(name: &str, field: &str) -> Option<usize> {
    // Short names are near to too many others.
    let most = MAX_DISTANCE.min(field.len() / 3);
    if name.chars().count().abs_diff(field.chars().count()) > most {
        return None;
    }
    Some(strsim::damerau_levenshtein(name, field)).filter(|distance| *distance <= most)
}

/// The names of an object's properties, those of its groups included.
fn properties(schema: &RefOr<Schema>, schemas: &[(String, RefOr<Schema>)], names: &mut Vec<String>) {
    match schema {
        RefOr::T(Schema::Object(Object { properties, .. })) => names.extend(properties.keys().cloned()),
        RefOr::T(Schema::AllOf(AllOf { items, .. }) | Schema::OneOf(OneOf { items, .. })) => {
            items.iter().for_each(|item| self::properties(item, schemas, names));
        }
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next();
            if let Some((_, group)) = schemas.iter().find(|(other, _)| Some(&other[..]) == name) {
                self::properties(group, schemas, names);
            }
        }
        RefOr::T(_) => {}
    }
}
