//! What a conversation shows: answers as they come, their speed, and a line of figures below each.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use pipelines::Usage;

use super::answer::{Answer, rate};
use super::thinking::{Segment, ThoughtSplitter};
use crate::exit::Interrupted;
use crate::output::{self, TextOutput};
use crate::progress::Progress;

/// Faint text on, and off.
const DIM: &str = "\u{1b}[2m";
const NOT_DIM: &str = "\u{1b}[22m";

/// Answers on standard output, everything else on standard error.
pub(super) struct Display {
    json: bool,
    quiet: bool,
    sampled: bool,
    output: TextOutput,
    progress: Progress,
    title: Option<Title>,
    thoughts: Thoughts,
    /// Answers so far.
    answers: usize,
    first_token: Option<Instant>,
}

/// How a model's thoughts are shown.
struct Thoughts {
    /// Whether standard output is a terminal. Pipes get answers unchanged.
    split: bool,
    /// Whether they are dimmed.
    dim: bool,
    /// Whether only their length is shown (`/think`).
    folded: bool,
    splitter: ThoughtSplitter,
    /// Characters of the current thought that were folded.
    hidden: usize,
}

/// The rate in the title of the terminal's window; dropping it restores the old title.
struct Title {
    changed: Option<Instant>,
}

impl Display {
    /// A display for text or JSON. `typed` says whether a person types the messages, `sampled` whether seeds matter.
    pub(super) fn new(json: bool, quiet: bool, typed: bool, sampled: bool) -> Display {
        let live = typed && !quiet && !json;
        let terminal = std::io::stdout().is_terminal();
        let has_title = std::env::var_os("TERM").is_some() && !output::is_dumb_terminal();
        Display {
            json,
            quiet,
            sampled,
            output: TextOutput::new(),
            progress: Progress::new(!live),
            title: (live && terminal && has_title).then(Title::new),
            thoughts: Thoughts {
                split: terminal && !json,
                dim: output::is_styled(),
                folded: false,
                splitter: ThoughtSplitter::default(),
                hidden: 0,
            },
            answers: 0,
            first_token: None,
        }
    }

    /// The model starts to read a prompt, which may open a thought.
    pub(super) fn begin(&mut self, opens_thought: bool) {
        self.first_token = None;
        self.thoughts.splitter = ThoughtSplitter::new(opens_thought);
        self.thoughts.hidden = 0;
        self.progress.phase("reading");
    }

    /// Folds or unfolds thoughts from now on; returns whether they are folded.
    pub(super) fn toggle_thoughts(&mut self) -> bool {
        self.thoughts.folded = !self.thoughts.folded;
        self.thoughts.folded
    }

    /// A token came, perhaps with text.
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
        let parts = if self.thoughts.split {
            self.thoughts.splitter.push(text)
        } else {
            vec![Segment::Text(text.to_string())]
        };
        self.write(parts).context("cannot write to standard output")
    }

    /// The answer is complete.
    pub(super) fn end(&mut self, answer: &Answer) -> anyhow::Result<()> {
        self.progress.clear();
        let written = if self.json {
            writeln!(std::io::stdout(), "{}", answer.json(self.answers))
        } else {
            self.end_text()
        };
        written.and_then(|()| std::io::stdout().flush()).context("cannot write to standard output")?;
        self.answers += 1;
        if !self.quiet && !self.json {
            note(&answer.line(self.sampled));
        }
        Ok(())
    }

    /// The answer failed, or was interrupted before it began.
    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        self.progress.clear();
        if self.first_token.is_some() && !self.json {
            let _ = self.end_text();
        }
        if error.is::<Interrupted>() && !self.quiet {
            note("Stopped before an answer began; the conversation is unchanged.");
        }
    }

    fn end_text(&mut self) -> std::io::Result<()> {
        let last = self.thoughts.splitter.end();
        self.write(last.into_iter().collect())?;
        self.output.end(&mut std::io::stdout().lock())
    }

    fn write(&mut self, parts: Vec<Segment>) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        for part in parts {
            match part {
                Segment::Thought(text) if self.thoughts.folded => {
                    self.thoughts.hidden += text.chars().count();
                    self.progress.phase("thinking");
                }
                Segment::Thought(text) if self.thoughts.dim => {
                    write!(out, "{DIM}")?;
                    self.output.write(&mut out, &text)?;
                    write!(out, "{NOT_DIM}")?;
                }
                Segment::Thought(text) => self.output.write(&mut out, &text)?,
                Segment::Text(text) => {
                    let hidden = std::mem::take(&mut self.thoughts.hidden);
                    if hidden > 0 {
                        self.progress.clear();
                        let (dim, end) = if self.thoughts.dim { (DIM, NOT_DIM) } else { ("", "") };
                        write!(out, "{dim}[{hidden} characters of thought; /think shows them]{end}")?;
                    }
                    self.output.write(&mut out, &text)?;
                }
            }
        }
        out.flush()
    }
}

/// Prints a line that is not part of an answer.
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
        let interval = Duration::from_millis(250);
        if self.changed.is_none_or(|changed| changed.elapsed() >= interval) {
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
