//! Calls as a name between marks, and then a JSON object: `f[ARGS]{"a": 1}`.

use super::json::JsonScan;
use super::{Call, MAX_HEAD, Progress, Reader, search};
use crate::answer::formats::Heads;
use crate::answer::tool::is_name_char;
use crate::stop_strings::StopSearch;

#[derive(Debug)]
pub(super) struct NamedReader {
    heads: &'static Heads,
    /// All before the arguments.
    head: String,
    search: StopSearch,
    scan: JsonScan,
    in_arguments: bool,
}

impl NamedReader {
    pub(super) fn new(heads: &'static Heads) -> NamedReader {
        NamedReader {
            heads,
            head: String::new(),
            search: search(&[heads.arguments]),
            scan: JsonScan::default(),
            in_arguments: false,
        }
    }

    /// Takes name and id from the head.
    fn name(&self, call: &mut Call) -> Progress {
        let (before, rest) = match self.head.rsplit_once(self.heads.name) {
            Some((before, rest)) if !self.heads.name.is_empty() => (before.trim(), rest),
            _ => ("", &self.head[..]),
        };
        let rest = rest.trim_start();
        let end = rest.find(|char| !is_name_char(char)).unwrap_or(rest.len());
        if end == 0 {
            return Progress::Failed;
        }
        let after = rest[end..].split_once(self.heads.id).map_or("", |(_, id)| id.trim());
        let id = if self.heads.id.is_empty() { before } else { after };
        call.id = Some(id.to_owned()).filter(|id| !id.is_empty() && id != "function");
        call.name = Some(rest[..end].to_owned());
        Progress::More
    }
}

impl Reader for NamedReader {
    fn read(&mut self, text: &str, call: &mut Call) -> (usize, Progress) {
        let mut at = 0;
        if !self.in_arguments {
            let found = self.search.find(text);
            self.head.push_str(&found.text);
            at = found.end;
            self.in_arguments = found.string.is_some();
            if self.head.len() > MAX_HEAD || (self.in_arguments && self.name(call) == Progress::Failed) {
                return (at, Progress::Failed);
            }
        }
        let is_text = !self.heads.text.is_empty() && call.name.as_deref() == Some(self.heads.text);
        if self.in_arguments && is_text {
            return (at, Progress::Done);
        }
        if call.arguments.is_empty() && self.in_arguments {
            at += text[at..].len() - text[at..].trim_start().len();
        }
        if at == text.len() {
            return (at, Progress::More);
        }
        let (taken, progress) = self.scan.scan(&text[at..]);
        call.arguments.push_str(&text[at..at + taken]);
        (at + taken, progress)
    }
}
