//! Heads of HTTP/1 requests, checked byte by byte before hyper reads them: what two servers could read in two ways is
//! refused, so that nothing in front of this one sees other requests than it does.

use axum::http::StatusCode;

use crate::api_error::ApiError;

/// The most bytes of a request's head.
pub(super) const MAX_BYTES: usize = 32 << 10;
/// The most headers of a request.
pub(super) const MAX_HEADERS: usize = 100;
/// The head with which HTTP/2 begins.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// The bytes that follow a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// A body of so many bytes, then the next head.
    Bytes(u64),
    /// A body that ends with the connection, as far as heads go: chunks, of which only hyper knows the end.
    Chunks,
    /// Frames of HTTP/2.
    Http2,
}

/// Finds the end of a head in bytes that come piece by piece.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    scanned: usize,
    line: usize,
}

impl Scanner {
    /// The length of the head at the start of `bytes`, which grew since the last call; `None` if more must come.
    ///
    /// # Errors
    /// If the head is too large, or a line does not end as HTTP has it.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, ApiError> {
        while let Some(offset) = bytes[self.scanned..].iter().position(|byte| *byte == b'\n') {
            let end = self.scanned + offset;
            if end == 0 || bytes[end - 1] != b'\r' {
                return Err(ApiError::bad_request(
                    "a line of the request's head ends without a carriage return",
                ));
            }
            let is_empty = end - 1 == self.line;
            (self.scanned, self.line) = (end + 1, end + 1);
            if is_empty {
                return check_size(end + 1).map(|()| Some(end + 1));
            }
        }
        self.scanned = bytes.len();
        check_size(bytes.len()).map(|()| None)
    }
}

fn check_size(bytes: usize) -> Result<(), ApiError> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(too_large(format!("the request's head is larger than {} KiB", MAX_BYTES >> 10)))
}

/// How the bytes after a head are framed. The head ends with an empty line.
///
/// # Errors
/// If it has too many headers, or says in two ways where its body ends.
pub(super) fn framing(head: &[u8]) -> Result<Framing, ApiError> {
    if head == HTTP2 {
        return Ok(Framing::Http2);
    }
    let lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let (mut length, mut is_chunked, mut count) = (None, false, 0);
    for line in lines.skip(1).take_while(|line| !line.is_empty()) {
        count += 1;
        let (name, value) = header(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits =
                value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok()).flatten();
            let bytes = digits.and_then(|digits| digits.parse().ok());
            let bytes = bytes.ok_or_else(|| ApiError::bad_request("the Content-Length is not a number"))?;
            if length.replace(bytes).is_some() {
                return Err(ApiError::bad_request("the Content-Length is given twice"));
            }
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ApiError::bad_request("the Transfer-Encoding is not `chunked`"));
            }
            is_chunked = true;
        }
    }
    if count > MAX_HEADERS {
        return Err(too_large(format!("the request has {count} headers, at most {MAX_HEADERS} are read")));
    }
    match (length, is_chunked) {
        (Some(_), true) => {
            Err(ApiError::bad_request("the request has a Content-Length and a Transfer-Encoding: send one"))
        }
        (None, true) => Ok(Framing::Chunks),
        (length, false) => Ok(Framing::Bytes(length.unwrap_or(0))),
    }
}

/// The name and the value of a header.
fn header(line: &[u8]) -> Result<(&[u8], &[u8]), ApiError> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(ApiError::bad_request("a header is folded over several lines"));
    }
    let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
    let (name, value) = line.split_at(colon);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(ApiError::bad_request("a header has no name, or one with other signs than names have"));
    }
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(ApiError::bad_request("the value of a header has a control character"));
    }
    Ok((name, trim(&value[1..])))
}

/// A value without the blanks around it, which are spaces and tabs and no others.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn too_large(message: String) -> ApiError {
    ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans a head as one piece and byte by byte, and gives what follows it.
    fn check(head: &str, expected: Result<Framing, u16>) {
        let whole = Scanner::default().end(head.as_bytes());
        let mut scanner = Scanner::default();
        let pieces = (1..=head.len()).find_map(|end| scanner.end(&head.as_bytes()[..end]).transpose());
        assert_eq!(whole.clone(), pieces.transpose(), "{head:?}");
        let framing = whole.and_then(|end| framing(&head.as_bytes()[..end.unwrap()]));
        assert_eq!(framing.map_err(|error| error.status.as_u16()), expected, "{head:?}");
    }

    #[test]
    fn heads_that_could_be_read_in_two_ways_are_refused() {
        let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        check("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", Ok(Framing::Bytes(0)));
        check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Ok(Framing::Http2));
        check(&post("Content-Length: 12\r\n"), Ok(Framing::Bytes(12)));
        check(&post("content-length:12 \r\n"), Ok(Framing::Bytes(12)));
        check(&post("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunks));
        for headers in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length:\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Transfer-Encoding: \u{c}chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            " X: folded\r\n",
            "X: a\r\n\tfolded\r\n",
            "no colon\r\n",
            ": no name\r\n",
            "X: a\rb\r\n",
            "X: a\0b\r\n",
            "X: a\u{1b}[31m\r\n",
            "X: a\nContent-Length: 5\r\n",
        ] {
            check(&post(headers), Err(400));
        }
        check("GET / HTTP/1.1\nHost: a\n\n", Err(400));
        check("\nGET / HTTP/1.1\r\n\r\n", Err(400));
    }

    #[test]
    fn heads_are_bounded() {
        let headers = |count: usize| "X: y\r\n".repeat(count);
        check(&format!("GET / HTTP/1.1\r\n{}\r\n", headers(100)), Ok(Framing::Bytes(0)));
        check(&format!("GET / HTTP/1.1\r\n{}\r\n", headers(101)), Err(431));
        let long = |bytes: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(bytes - 23));
        assert_eq!(long(100).len(), 100);
        check(&long(MAX_BYTES), Ok(Framing::Bytes(0)));
        let endless = Scanner::default().end(&vec![b'a'; MAX_BYTES + 1]).unwrap_err();
        assert_eq!(endless.status.as_u16(), 431);
    }
}
