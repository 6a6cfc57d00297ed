//! The standard output of `peri generate`.

use std::io::Write;

use anyhow::Context;

use super::sample::Sample;
use crate::output::TextOutput;

/// Prints answers in the order of the prompts: text as it comes, JSON when complete.
pub(super) struct Printer {
    json: bool,
    echo: bool,
    stops: Vec<String>,
    /// Jobs printed completely.
    shown: usize,
    /// Whether the prompt of the next sample is printed, and how many bytes of its text.
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
    pub(super) fn show(&mut self, samples: &[Sample]) -> anyhow::Result<()> {
        self.write(samples, false).context("cannot write to standard output")
    }

    /// Prints the rest, complete or not.
    pub(super) fn end(&mut self, samples: &[Sample]) -> anyhow::Result<()> {
        self.write(samples, true).context("cannot write to standard output")
    }

    fn write(&mut self, samples: &[Sample], last: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        while let Some(sample) = samples.get(self.shown) {
            let complete = last || sample.finished.is_some();
            match self.json {
                true if complete => writeln!(out, "{}", serde_json::to_string(&sample.object(&self.stops))?)?,
                true => break,
                false => self.write_new(&mut out, sample)?,
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

    /// Prints the part of a sample's text that is not printed yet.
    fn write_new(&mut self, out: &mut impl Write, sample: &Sample) -> std::io::Result<()> {
        if self.echo && !self.begun {
            self.output.write(out, &sample.prompt)?;
        }
        self.output.write(out, &sample.text[self.written..])?;
        (self.begun, self.written) = (true, sample.text.len());
        Ok(())
    }
}
