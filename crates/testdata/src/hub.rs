//! A hub for tests, on this machine: one repository, faults on demand, and a log of what was asked.
//!
//! Large files are redirected to a second address, as hubs do.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The commit of the repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Something that goes wrong once, with the next request that it fits.
#[derive(Clone)]
pub struct Fault {
    /// A method and a part of the path: `GET /cdn/`.
    pub on: &'static str,
    /// What goes wrong.
    pub what: What,
}

/// What can go wrong.
#[derive(Clone)]
pub enum What {
    /// A status and headers instead of the answer.
    Status(u16, &'static str),
    /// The connection ends after so many bytes of the content.
    Truncated(usize),
    /// Other bytes than those that were promised.
    Garbled,
    /// The whole file, as if the request had no range.
    WholeContent,
    /// A header of the answer, instead of the right one.
    Header(&'static str, &'static str),
    /// Another range than the one that is sent.
    Range(&'static str),
    /// A description of the repository that says no sizes.
    NoSizes,
    /// Nothing is sent for a while.
    Slow,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Method and path.
    pub line: String,
    /// The header `Authorization`.
    pub token: Option<String>,
    /// The header `Range`.
    pub range: Option<String>,
}

/// A hub that runs until the process ends.
pub struct Server {
    /// Its address, as `HF_ENDPOINT` takes it.
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    files: BTreeMap<String, Vec<u8>>,
    /// Where large files are.
    content: String,
    faults: Mutex<Vec<Fault>>,
    log: Mutex<Vec<Asked>>,
}

impl Server {
    /// A hub with the repository `ada/tiny`. Files of more than 100 bytes count as large.
    pub fn start(files: &[(&str, Vec<u8>)]) -> Server {
        let listeners =
            [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(name, content)| (name.to_string(), content.clone())).collect();
        let (faults, log) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { files, content: address(&listeners[1]), faults, log });
        let server = Server { address: address(&listeners[0]), shared: Arc::clone(&shared) };
        for listener in listeners {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let shared = Arc::clone(&shared);
                    // Clients that hang up are their own business.
                    std::thread::spawn(move || shared.answer(stream).ok());
                }
            });
        }
        server
    }

    /// The address of a file on another server than the hub: where large files are.
    pub fn elsewhere(&self, name: &str) -> String {
        format!("{}/cdn/{name}", self.shared.content)
    }

    /// Makes the next request of a kind go wrong, `times` times.
    pub fn fail(&self, times: usize, on: &'static str, what: What) {
        self.shared.faults.lock().unwrap().extend(vec![Fault { on, what }; times]);
    }

    /// What was asked since this was last called.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.shared.log.lock().unwrap())
    }

    /// Methods and paths of [`Server::asked`].
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

impl Shared {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_string();
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_string());
        }
        let range = headers.get("range").cloned();
        let asked = Asked { line: line.clone(), token: headers.get("authorization").cloned(), range };
        self.log.lock().unwrap().push(asked.clone());
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let fits = |fault: &Fault| {
                let (method, part) = fault.on.split_once(' ').unwrap();
                line.starts_with(method) && line.contains(part)
            };
            faults.iter().position(fits).map(|index| faults.remove(index).what)
        };
        self.reply(stream, &asked, fault)
    }

    fn reply(&self, stream: TcpStream, asked: &Asked, fault: Option<What>) -> std::io::Result<()> {
        let path = asked.line.split_once(' ').unwrap().1;
        if let Some(What::Status(status, headers)) = fault {
            return write(stream, asked, status, headers, b"", None);
        }
        if matches!(fault, Some(What::Slow)) {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        if path.starts_with("/api/models/ada/tiny/revision/") {
            let sizes = !matches!(fault, Some(What::NoSizes));
            return write(stream, asked, 200, "", self.info(sizes).as_bytes(), None);
        }
        let name = path.strip_prefix("/cdn/").or_else(|| {
            path.strip_prefix("/ada/tiny/resolve/").and_then(|rest| Some(rest.split_once('/')?.1))
        });
        let Some(name) = name else {
            return write(stream, asked, 401, "X-Error-Code: RepoNotFound\r\n", b"", None);
        };
        let name = name.replace("%20", " ");
        let Some(content) = self.files.get(&name) else {
            return write(stream, asked, 404, "X-Error-Code: EntryNotFound\r\n", b"", None);
        };
        let etag = etag(content);
        let mut headers = vec![("X-Repo-Commit", COMMIT.to_string()), ("ETag", format!("W/\"{etag}\""))];
        let redirected = content.len() > 100 && !path.starts_with("/cdn/");
        if redirected {
            headers[1].1 = "\"of-the-redirect\"".to_string();
            headers.push(("X-Linked-ETag", format!("\"{etag}\"")));
            headers.push(("X-Linked-Size", content.len().to_string()));
            headers.push(("Location", format!("{}/cdn/{}", self.content, name.replace(' ', "%20"))));
        }
        if let Some(What::Header(name, value)) = fault {
            headers.retain(|header| header.0 != name);
            headers.push((name, value.to_string()));
        }
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        if redirected {
            return write(stream, asked, 302, &headers, b"Found. Redirecting", None);
        }
        let mut content = content.clone();
        if matches!(fault, Some(What::Garbled)) {
            content[0] ^= 1;
        }
        let limit = match fault {
            Some(What::Truncated(bytes)) => Some(bytes),
            _ => None,
        };
        let range = asked.range.as_ref().filter(|_| !matches!(fault, Some(What::WholeContent)));
        let Some((start, end)) = range.map(|range| bounds(range, content.len())) else {
            return write(stream, asked, 200, &headers, &content, limit);
        };
        if start >= content.len() {
            return write(stream, asked, 416, &headers, b"", None);
        }
        let range = match fault {
            Some(What::Range(range)) => range.to_string(),
            _ => format!("bytes {start}-{}/{}", end - 1, content.len()),
        };
        write(
            stream,
            asked,
            206,
            &format!("{headers}Content-Range: {range}\r\n"),
            &content[start..end],
            limit,
        )
    }

    fn info(&self, sizes: bool) -> String {
        let file = |(name, content): (&String, &Vec<u8>)| {
            let size = sizes.then_some(content.len());
            let digest = etag(content);
            match digest.len() {
                64 => serde_json::json!({"rfilename": name, "size": size, "lfs": {"sha256": digest}}),
                _ => serde_json::json!({"rfilename": name, "size": size, "blobId": digest}),
            }
        };
        let siblings: Vec<_> = self.files.iter().map(file).collect();
        serde_json::json!({"id": "ada/tiny", "sha": COMMIT, "siblings": siblings}).to_string()
    }
}

/// The bytes that a range means: `bytes=7-` or `bytes=7-9`.
fn bounds(range: &str, size: usize) -> (usize, usize) {
    let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    (start.parse().unwrap(), end.parse().map_or(size, |last: usize| size.min(last + 1)))
}

/// As hubs name contents: SHA-256 of large ones, git's id of small ones.
pub fn etag(content: &[u8]) -> String {
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match content.len() {
        0..=100 => {
            let header = format!("blob {}\0", content.len());
            hexadecimal(&Sha1::new().chain_update(header).chain_update(content).finalize())
        }
        _ => hexadecimal(&Sha256::digest(content)),
    }
}

fn write(
    mut stream: TcpStream,
    asked: &Asked,
    status: u16,
    headers: &str,
    content: &[u8],
    limit: Option<usize>,
) -> std::io::Result<()> {
    let length = content.len();
    write!(stream, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
    if !asked.line.starts_with("HEAD") {
        stream.write_all(&content[..limit.unwrap_or(length).min(length)])?;
    }
    stream.flush()
}
