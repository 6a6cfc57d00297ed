//! The standard output of `peri generate`.

use std::io::Write;

use anyhow::Context;

use super::job::Job;
use crate::output::TextOutput;

/// Prints answers in the order of the prompts: text as it comes, JSON when complete.
pub(super) struct Printer {
    json: bool,
    echo: bool,
    stops: Vec<String>,
    /// Jobs printed completely.
    shown: usize,
    /// Whether the prompt of the next job is printed, and how many bytes of its text.
    begun: bool,
    written: usize,
    output: TextOutput,
}

impl Printer {
    /// A printer of JSON, or of text with or without the prompts; `stops` are the stop strings.
    pub(super) fn new(json: bool, echo: bool, stops: Vec<String>) -> Printer {
        Printer { json, echo, stops, shown: 0, begun: false, written: 0, output: TextOutput::new() }
    }

    /// Prints new text and complete answers.
    pub(super) fn show(&mut self, jobs: &[Job]) -> anyhow::Result<()> {
        self.write(jobs, false).context("cannot write to standard output")
    }

    /// Prints the rest, complete or not.
    pub(super) fn end(&mut self, jobs: &[Job]) -> anyhow::Result<()> {
        self.write(jobs, true).context("cannot write to standard output")
    }

    fn write(&mut self, jobs: &[Job], last: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        while let Some(job) = jobs.get(self.shown) {
            let complete = last || job.finished.is_some();
            match self.json {
                true if complete => writeln!(out, "{}", serde_json::to_string(&job.object(&self.stops))?)?,
                true => break,
                false => self.write_new(&mut out, job)?,
            }
            if !complete {
                break;
            }
            if !self.json {
                self.output.end(&mut out)?;
            }
            self.shown += 1;
            (self.begun, self.written) = (false, 0);
        }
        out.flush()
    }

    /// Prints the part of a job's text that is not printed yet.
    fn write_new(&mut self, out: &mut impl Write, job: &Job) -> std::io::Result<()> {
        if self.echo && !self.begun {
            self.output.write(out, &job.prompt)?;
        }
        self.output.write(out, &job.text[self.written..])?;
        (self.begun, self.written) = (true, job.text.len());
        Ok(())
    }
}
