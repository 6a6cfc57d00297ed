//! A hub on this machine, with one repository.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Folder, Outcome, command};

/// The commit of the repository.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Files by name.
pub(crate) type Files = Vec<(&'static str, Vec<u8>)>;

/// A hub with the repository `ada/tiny`, whose safetensors files are bf16.
pub(crate) struct Hub {
    address: String,
    /// Bytes of the contents that were sent.
    sent: Arc<AtomicUsize>,
}

impl Hub {
    pub(crate) fn start(files: Files) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Clients that hang up are their own business.
                let _ = answer(&files, stream, &count);
            }
        });
        Hub { address, sent }
    }

    /// Bytes of contents that were sent so far.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Runs `peri` with this hub and a cache of its own, which is the current folder too.
    pub(crate) fn peri(&self, cache: &Folder, arguments: &[&str], offline: bool) -> Outcome {
        let mut command = command(arguments);
        command.env("HF_ENDPOINT", &self.address).current_dir(cache.path());
        command.env("HF_HUB_CACHE", cache.path()).env("HF_HOME", cache.path());
        command.env_remove("HF_TOKEN").env("HF_HUB_OFFLINE", if offline { "1" } else { "0" });
        let output = command.output().unwrap();
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn answer(files: &Files, mut stream: TcpStream, sent: &AtomicUsize) -> std::io::Result<()> {
    let reader = BufReader::new(stream.try_clone()?);
    let lines = reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let lines: Vec<String> = lines.collect();
    let line = lines.first().cloned().unwrap_or_default();
    let range = lines
        .iter()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_string));
    let (status, etag, content) = content(files, line.split(' ').nth(1).unwrap_or_default());
    let (mut status, mut head, mut part) = (status, format!("ETag: \"{etag}\"\r\n"), &content[..]);
    if let Some((start, end)) = range.as_deref().and_then(|range| range.split_once('-'))
        && status == 200
    {
        let start: usize = start.parse().unwrap();
        let end = end.parse().map_or(content.len(), |end: usize| content.len().min(end + 1));
        head += &format!("Content-Range: bytes {start}-{}/{}\r\n", end - 1, content.len());
        (status, part) = (206, &content[start..end]);
    }
    write!(
        stream,
        "HTTP/1.1 {status} X\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n",
        part.len()
    )?;
    if !line.starts_with("HEAD") {
        if !etag.is_empty() {
            sent.fetch_add(part.len(), Ordering::Relaxed);
        }
        stream.write_all(part)?;
    }
    stream.flush()
}

/// The status, the ETag and the content at a path.
fn content(files: &Files, path: &str) -> (u16, String, Vec<u8>) {
    if path.starts_with("/api/models/ada/tiny/") {
        let file =
            |(name, content): &(&str, Vec<u8>)| serde_json::json!({"rfilename": name, "size": content.len()});
        let siblings: Vec<_> = files.iter().map(file).collect();
        let info = serde_json::json!({
            "id": "ada/tiny", "sha": COMMIT, "siblings": siblings, "safetensors": {"parameters": {"BF16": 1}},
        });
        return (200, String::new(), info.to_string().into_bytes());
    }
    let index = files.iter().position(|(name, _)| path == format!("/ada/tiny/resolve/{COMMIT}/{name}"));
    index.map_or((404, String::new(), Vec::new()), |index| {
        (200, format!("etag{index}"), files[index].1.clone())
    })
}
