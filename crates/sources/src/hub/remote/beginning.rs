//! The header of a file of weights, by ranges that grow until it is whole; the rest stays on the hub.

use std::io::Read;

use ureq::http::{Method, StatusCode};
use weights::Beginning;

use super::Remote;
use super::request::{Answer, Failure, Span, Subject};
use crate::Error;
use crate::hub::Repo;

/// The first bytes that are asked for: all of most safetensors headers.
const FIRST: u64 = 256 << 10;
/// How many times as many bytes are at hand after each further request.
const GROWTH: u64 = 4;

impl Remote {
    /// The beginning of a file of weights, as far as its header goes.
    pub(super) fn beginning(&self, repo: &Repo, name: &str) -> Result<Beginning, Error> {
        let (first, size) = self.range(repo, name, 0, FIRST)?;
        let mut beginning = Beginning::new(format!("{repo}/{name}"), size);
        beginning.push(&first);
        while let Some(needed) = beginning.needs()? {
            let start = beginning.len() as u64;
            let end = (needed as u64).max(start.saturating_mul(GROWTH)).min(size);
            let (more, now) = self.range(repo, name, start, end)?;
            if now != size {
                let problem = format!("had {size} bytes before, and has {now} now");
                return Err(Error::Protocol { url: self.url(repo, name), problem });
            }
            beginning.push(&more);
        }
        Ok(beginning)
    }

    /// The bytes of a file from `start` up to `end`, or as many as there are; and how many it has in all.
    fn range(&self, repo: &Repo, name: &str, start: u64, end: u64) -> Result<(Vec<u8>, u64), Error> {
        let url = self.url(repo, name);
        let subject = Subject { repo, file: Some(name) };
        self.agent.retry(&url, &mut |_, _| (), || {
            let answer = self.agent.send(Method::GET, &url, Span::Between(start, end), subject)?;
            let protocol = |problem: String| Error::Protocol { url: url.clone(), problem };
            let (skipped, size) = place(&answer, start).map_err(protocol)?;
            if size <= start {
                return Err(protocol(format!("has {size} bytes, and no header")).into());
            }
            let length = end.min(size) - start;
            let mut reader = answer.reader();
            let passing = |problem| Failure::Passing { problem, progress: false };
            let failed = |error: std::io::Error| passing(error.to_string());
            std::io::copy(&mut reader.by_ref().take(skipped), &mut std::io::sink()).map_err(failed)?;
            let mut bytes = Vec::new();
            reader.take(length).read_to_end(&mut bytes).map_err(failed)?;
            match bytes.len() as u64 == length {
                true => Ok((bytes, size)),
                false => Err(passing(format!("sends {} of {length} bytes", bytes.len()))),
            }
        })
    }
}

/// How many bytes come before the one that was asked for, from servers that do not know ranges; and how many the file
/// has in all.
fn place(answer: &Answer, start: u64) -> Result<(u64, u64), String> {
    match answer.status {
        StatusCode::PARTIAL_CONTENT => {
            let range = answer.last_header("content-range").unwrap_or_default();
            let size = range.strip_prefix("bytes ").and_then(|range| {
                let (range, size) = range.split_once('/')?;
                let (from, _) = range.split_once('-')?;
                (from.trim().parse() == Ok(start)).then(|| size.trim().parse().ok())?
            });
            let problem =
                || format!("answers the range `{}`, not from byte {start} on", range.escape_debug());
            size.map(|size| (0, size)).ok_or_else(problem)
        }
        StatusCode::OK => {
            let length = answer.last_header("content-length").and_then(|length| length.trim().parse().ok());
            length.map(|size| (start, size)).ok_or_else(|| "does not say its size".to_string())
        }
        status => Err(format!("answers a range with status {}", status.as_u16())),
    }
}
