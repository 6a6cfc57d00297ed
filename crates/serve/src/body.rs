//! Bodies of requests: JSON objects, checked field by field before any work is done.
//!
//! `null` stands for a field that is not given. A field that is not known has no effect; it is named in the header
//! `x-peri-ignored`, unless it looks like a typing error for a known one, which is an error.

use std::collections::BTreeSet;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AllOf, Object, OneOf, Schema};

use crate::context::Context;
use crate::error::ApiError;
use crate::foreign_fields::is_foreign;
use crate::json::{Typed, UniqueKeys};

/// The deepest nesting of arrays and objects.
const MAX_DEPTH: usize = 64;
/// How many changed letters make a field a typing error.
const MAX_DISTANCE: usize = 2;

/// The body of a request.
pub(crate) struct Body<T>(pub(crate) T);

/// A body that is made of one or more groups of fields.
pub(crate) trait RequestBody: ToSchema + Sized {
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
            Some(Value::Object(object)) => object,
            Some(_) => return Err(ApiError::invalid(name, format!("{name}: give an object"))),
        };
        let mut fields = Fields::new(object);
        let groups = read(&mut fields).map_err(|error| error.within(name))?;
        self.unknown_within.extend(fields.into_unknown().iter().map(|path| format!("{name}.{path}")));
        Ok(groups)
    }

    fn new(mut object: Map<String, Value>) -> Fields {
        object.retain(|_, value| !value.is_null());
        Fields { object: Value::Object(object), unknown: None, unknown_within: BTreeSet::new() }
    }

    /// The paths that no group has taken.
    fn into_unknown(self) -> BTreeSet<String> {
        let mut unknown = self.unknown.unwrap_or_default();
        unknown.extend(self.unknown_within);
        unknown
    }

    /// Takes a group of fields.
    ///
    /// # Errors
    /// If a field has a type or a value that it cannot have.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let mut unknown = BTreeSet::new();
        let mut note = |path: serde_ignored::Path<'_>| {
            // A `?` stands for an optional value, which is no part of the path in JSON.
            unknown.insert(path.to_string().replace(".?", ""));
        };
        let reader = serde_ignored::Deserializer::new(Typed(&self.object), &mut note);
        let group = serde_path_to_error::deserialize(reader).map_err(|error| {
            let path = error.path().to_string();
            let problem = error.inner().to_string();
            let named = |start: &str| problem.strip_prefix(start)?.strip_suffix('`');
            match (&path[..], named("missing field `"), named("duplicate field `")) {
                (".", Some(name), _) => ApiError::invalid(name, &problem),
                (_, _, Some(name)) => {
                    ApiError::invalid(name, format!("{name} is given under two of its names: give one"))
                }
                (".", ..) => ApiError::bad_request(problem),
                _ => ApiError::invalid(&path, format!("{path}: {problem}")),
            }
        })?;
        self.unknown = Some(match self.unknown.take() {
            Some(before) => common(&before, &unknown),
            None => unknown,
        });
        Ok(group)
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

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, ApiError> {
        if let Err(error) = check_content_type(request.uri().path(), request.headers()) {
            // The body is read all the same, as hyper closes connections with an unread one, which clients may use again.
            if !request.headers().contains_key(header::EXPECT) {
                let _ = Bytes::from_request(request, state).await;
            }
            return Err(error);
        }
        let (mut parts, body) = request.into_parts();
        let Ok(context) = Context::from_request_parts(&mut parts, state).await;
        let bytes =
            Bytes::from_request(Request::from_parts(parts, body), state).await.map_err(|rejection| {
                let status = rejection.status();
                let code = if status == StatusCode::PAYLOAD_TOO_LARGE {
                    "body_too_large"
                } else {
                    "invalid_request_error"
                };
                ApiError::new(status, code, rejection.body_text())
            })?;
        let mut fields = Fields::new(parse(&bytes)?);
        drop(bytes);
        let body = T::read(&mut fields)?;
        let unknown = fields.into_unknown();
        check_spelling::<T>(&unknown)?;
        context.note(|facts| facts.ignored.extend(unknown));
        Ok(Body(body))
    }
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
        Value::Object(object) => Ok(object),
        _ => Err(ApiError::bad_request("the body is not a JSON object")),
    }
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

/// Refuses unknown fields that are one or two letters away from a known one, unless they are those of other servers.
fn check_spelling<T: ToSchema>(unknown: &BTreeSet<String>) -> Result<(), ApiError> {
    let top = || unknown.iter().filter(|path| !path.contains('.') && !is_foreign(path));
    if top().next().is_none() {
        return Ok(());
    }
    let (mut known, mut schemas) = (Vec::new(), Vec::new());
    T::schemas(&mut schemas);
    properties(&T::schema(), &schemas, &mut known);
    for name in top() {
        let near = |field: &&String| {
            // Short names are near to too many others.
            let distance = strsim::damerau_levenshtein(name, field);
            distance <= MAX_DISTANCE && distance * 3 <= field.len()
        };
        if let Some(nearest) =
            known.iter().filter(near).min_by_key(|field| strsim::damerau_levenshtein(name, field))
        {
            let message = format!("there is no field `{name}`: did you mean `{nearest}`?");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
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
