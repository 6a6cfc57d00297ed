//! Requests as bytes on a socket, for those that a client library would not send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The body of a request for one token.
pub(crate) const ONE_TOKEN: &str = r#"{"prompt": "Once", "max_tokens": 1}"#;

/// Sends bytes, and reads until the server closes the connection.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = Vec::new();
    // A server that refuses a request may reset the connection once its answer is read.
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

/// A connection on which waiting for more than a minute is an error.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// A request for a path with headers, after which the connection closes.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    format!("{text}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// The status of a reply, or 0 if there is none.
pub(crate) fn status(reply: &str) -> u16 {
    reply.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}
