//! What `peri generate` writes on standard output.

use std::io::Write;

use anyhow::Context;

use super::job::Job;
use crate::output::TextOutput;

/// Writes results in the order of the prompts: text as it comes, JSON once it is complete.
pub(super) struct Printer {
    json: bool,
    echo: bool,
    stops: Vec<String>,
    /// Jobs that were written whole.
    shown: usize,
    /// Whether the prompt of the next one was written, and how many bytes of its text.
    begun: bool,
    written: usize,
    output: TextOutput,
}

impl Printer {
    /// Writes JSON, or text with or without the prompts; `stops` are the texts that end answers.
    pub(super) fn new(json: bool, echo: bool, stops: Vec<String>) -> Printer {
        Printer { json, echo, stops, shown: 0, begun: false, written: 0, output: TextOutput::new() }
    }

    /// Writes what is new.
    pub(super) fn show(&mut self, jobs: &[Job]) -> anyhow::Result<()> {
        self.write(jobs, false).context("cannot write to standard output")
    }

    /// Writes what is left, complete or not.
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

    /// The part of a job's text that was not written yet.
    fn write_new(&mut self, out: &mut impl Write, job: &Job) -> std::io::Result<()> {
        if self.echo && !self.begun {
            self.output.write(out, &job.prompt)?;
        }
        self.output.write(out, &job.text[self.written..])?;
        (self.begun, self.written) = (true, job.text.len());
        Ok(())
    }
}
