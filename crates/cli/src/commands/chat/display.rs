//! What one sees of answers: their text as it comes, how fast it comes, and what it took.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use pipelines::Usage;

use super::answer::{Answer, rate};
use crate::exit::Interrupted;
use crate::output::TextOutput;
use crate::progress::Progress;

/// Text on standard output, all else on standard error.
pub(super) struct Display {
    json: bool,
    quiet: bool,
    sampled: bool,
    output: TextOutput,
    progress: Progress,
    title: Option<Title>,
    /// Answers so far.
    answers: usize,
    first_token: Option<Instant>,
}

/// The title of a terminal's window, in which the rate is shown while text comes; the old one is put back.
struct Title {
    changed: Option<Instant>,
}

impl Display {
    /// For answers as text or JSON; `typed` says whether someone types messages, and sees how fast answers come.
    /// `sampled` says whether their seed matters.
    pub(super) fn new(json: bool, quiet: bool, typed: bool, sampled: bool) -> Display {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let live = typed && !quiet && !json;
        let title = live && !dumb && std::io::stdout().is_terminal();
        Display {
            json,
            quiet,
            sampled,
            output: TextOutput::new(),
            progress: Progress::new(!live),
            title: title.then(Title::new),
            answers: 0,
            first_token: None,
        }
    }

    /// The model reads the prompt.
    pub(super) fn begin(&mut self) {
        self.first_token = None;
        self.progress.phase("reading");
    }

    /// A token came, and perhaps text with it.
    pub(super) fn text(&mut self, text: &str, usage: &Usage) -> anyhow::Result<()> {
        let first = *self.first_token.get_or_insert_with(|| {
            self.progress.clear();
            Instant::now()
        });
        if let Some((title, rate)) = self.title.as_mut().zip(rate(usage, first.elapsed())) {
            title.show(rate);
        }
        if self.json || text.is_empty() {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        self.output
            .write(&mut out, text)
            .and_then(|()| out.flush())
            .context("cannot write to standard output")
    }

    /// The answer is over.
    pub(super) fn end(&mut self, answer: &Answer) -> anyhow::Result<()> {
        self.progress.clear();
        let mut out = std::io::stdout().lock();
        let written = match self.json {
            true => writeln!(out, "{}", answer.json(self.answers)),
            false => self.output.end(&mut out),
        };
        written.and_then(|()| out.flush()).context("cannot write to standard output")?;
        self.answers += 1;
        if !self.quiet && !self.json {
            note(&answer.line(self.sampled));
        }
        Ok(())
    }

    /// There is no answer, or no more of one.
    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        self.progress.clear();
        if self.first_token.is_some() && !self.json {
            let _ = self.output.end(&mut std::io::stdout().lock());
        }
        if error.is::<Interrupted>() && !self.quiet {
            note("Stopped before an answer began; the conversation is as it was.");
        }
    }
}

/// Says something that is no part of an answer.
pub(super) fn note(text: &str) {
    // A closed standard error changes nothing.
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Title {
    fn new() -> Title {
        let _ = write!(std::io::stderr(), "\u{1b}[22;2t");
        Title { changed: None }
    }

    fn show(&mut self, rate: f64) {
        let often = Duration::from_millis(250);
        if self.changed.is_none_or(|changed| changed.elapsed() >= often) {
            let _ = write!(std::io::stderr(), "\u{1b}]2;peri chat: {rate:.1} tok/s\u{7}");
            self.changed = Some(Instant::now());
        }
    }
}

impl Drop for Title {
    fn drop(&mut self) {
        let _ = write!(std::io::stderr(), "\u{1b}[23;2t");
    }
}
