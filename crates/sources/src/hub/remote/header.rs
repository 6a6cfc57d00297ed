//! The header of a weights file, fetched in growing ranges until it is complete.

use std::io::Read;

use ureq::http::{Method, StatusCode};
use weights::FileHeader;

use super::Remote;
use super::request::{Answer, Failure, Span, Subject};
use crate::Error;

/// The first bytes that are asked for: all of most safetensors headers.
const FIRST: u64 = 256 << 10;
/// How many times as many bytes are at hand after each further request.
const GROWTH: u64 = 4;

impl Remote {
    /// The header of a file of weights, whose name in messages is `label`.
    pub(super) fn header(&self, url: &str, label: &str, subject: Subject<'_>) -> Result<FileHeader, Error> {
        let (first, size) = self.range(url, subject, 0, FIRST)?;
        let mut header = FileHeader::new(label.to_string(), size);
        header.push(&first);
        while let Some(needed) = header.needs()? {
            let start = header.len() as u64;
            let end = (needed as u64).max(start.saturating_mul(GROWTH)).min(size);
            let (more, now) = self.range(url, subject, start, end)?;
            if now != size {
                let problem = format!("the file changed from {size} to {now} bytes during the download");
                return Err(Error::Protocol { url: url.to_string(), problem });
            }
            header.push(&more);
        }
        Ok(header)
    }

    /// The bytes of a file from `start` up to `end`, or as many as there are; and how many it has in all.
    pub(super) fn range(
        &self,
        url: &str,
        subject: Subject<'_>,
        start: u64,
        end: u64,
    ) -> Result<(Vec<u8>, u64), Error> {
        self.agent.retry(url, &mut |_, _| (), || {
            let answer = self.agent.send(Method::GET, url, Span::Between(start, end), subject)?;
            let protocol = |problem: String| Error::Protocol { url: url.to_string(), problem };
            let (skipped, size) = place(&answer, start).map_err(protocol)?;
            if size <= start {
                return Err(protocol(format!("the file has {size} bytes, too few for a header")).into());
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
                false => Err(passing(format!("the server sent {} of {length} bytes", bytes.len()))),
            }
        })
    }
}

/// How many bytes come before the one that was asked for, from servers that do not know ranges; and how many the file
/// has in all.
pub(super) fn place(answer: &Answer, start: u64) -> Result<(u64, u64), String> {
    match answer.status {
        StatusCode::PARTIAL_CONTENT => {
            let range = answer.last_header("content-range").unwrap_or_default();
            let size = range.strip_prefix("bytes ").and_then(|range| {
                let (range, size) = range.split_once('/')?;
                let (from, _) = range.split_once('-')?;
                (from.trim().parse() == Ok(start)).then(|| size.trim().parse().ok())?
            });
            let problem = || {
                format!(
                    "the server answered with the range `{}`, expected one from byte {start}",
                    range.escape_debug()
                )
            };
            size.map(|size| (0, size)).ok_or_else(problem)
        }
        StatusCode::OK => {
            let length = answer.last_header("content-length").and_then(|length| length.trim().parse().ok());
            length
                .map(|size| (start, size))
                .ok_or_else(|| "the server does not state the file's size".to_string())
        }
        status => Err(format!("the server answered a range request with status {}", status.as_u16())),
    }
}
