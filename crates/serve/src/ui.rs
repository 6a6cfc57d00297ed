//! The page: `GET /` and its files under `/ui/`, compiled into the binary.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;

/// What the page may load: files of its own origin. It has no inline scripts and styles, and no way to parse HTML.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Files of the page by name.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../ui/", $name)))),*]
    };
}

/// The files under `/ui/`.
const FILES: &[(&str, &[u8])] = files![
    "announcer.js",
    "answer.js",
    "api.js",
    "chat.css",
    "conversations.js",
    "database.js",
    "dom.js",
    "exchange.js",
    "feedback.js",
    "files.js",
    "icon.svg",
    "json-text.js",
    "main.js",
    "markdown/blocks.js",
    "markdown/formula.js",
    "markdown/highlight.js",
    "markdown/inline.js",
    "markdown/mathml.js",
    "markdown/plain.js",
    "markdown/render.js",
    "markdown/symbols.js",
    "markdown/tex.js",
    "menu.js",
    "preferences.js",
    "style.css",
    "text.js",
    "tree.js",
    "views/chat.js",
    "views/composer.js",
    "views/embeddings.js",
    "views/message.js",
    "views/meter.js",
    "views/model-table.js",
    "views/reasoning.js",
    "views/request.js",
    "views/server.js",
    "views/settings.js",
    "views/sidebar.js",
    "views/token-view.js",
    "views/tokenizer.js",
    "views/tool.js",
];

const INDEX: &[u8] = include_bytes!("../ui/index.html");

/// Shows the page to browsers. Clients of Ollama look here whether the server is there.
#[utoipa::path(get, path = "/", tag = "Page", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn index(headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    if !accept.contains("text/html") {
        return "Perihelion is running".into_response();
    }
    let mut response = file("index.html", INDEX, &headers);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Sends a file of the page.
pub(crate) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|(known, _)| *known == name) {
        Some((name, content)) => file(name, content, &headers),
        None => {
            let message = format!("the page has no file {name}");
            ApiError::new(StatusCode::NOT_FOUND, "route_not_found", message).into_response()
        }
    }
}

/// A file, or 304 if the browser has it. Browsers ask each time, so that a new binary is seen at once.
fn file(name: &str, content: &'static [u8], headers: &HeaderMap) -> Response {
    let tag = etag(content);
    let fixed = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type(name))),
        (header::ETAG, tag.clone()),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    if headers.get(header::IF_NONE_MATCH) == Some(&tag) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    (fixed, content).into_response()
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/html; charset=utf-8",
    }
}

/// The hash of a file, in quotes.
fn etag(content: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).expect("hexadecimal digits are a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_and_links_of_page_files_are_embedded() {
        for (name, content) in FILES.iter().chain(&[("index.html", INDEX)]) {
            let text = std::str::from_utf8(content).unwrap();
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            for import in text.split(" from \"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let path = match import.strip_prefix("../") {
                    Some(path) => path.to_owned(),
                    None if folder.is_empty() => import[2..].to_owned(),
                    None => format!("{folder}/{}", &import[2..]),
                };
                assert!(FILES.iter().any(|(known, _)| *known == path), "{name} imports {import}");
            }
            for link in text.split("\"/ui/").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(FILES.iter().any(|(known, _)| *known == link), "{name} links /ui/{link}");
            }
        }
    }

    #[test]
    fn file_with_known_etag_is_not_sent_again() {
        let first = file("main.js", b"1", &HeaderMap::new());
        let tag = first.headers()[header::ETAG].clone();
        let again = file("main.js", b"1", &HeaderMap::from_iter([(header::IF_NONE_MATCH, tag.clone())]));
        assert_eq!((first.status(), again.status()), (StatusCode::OK, StatusCode::NOT_MODIFIED));
        let changed = file("main.js", b"2", &HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]));
        assert_eq!(changed.status(), StatusCode::OK);
    }
}
