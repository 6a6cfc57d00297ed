//! The arguments that `peri rerank` and `peri classify` share, and the classifier that they name.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use pipelines::{ClassificationParameters, Classifier, EmbeddingPrompt, ScoreActivation, Truncate};

use crate::command_profile;
use crate::exit::Usage;
use crate::lines;
use crate::model::{self, ModelSource, ThreadArguments};
use crate::model_name;
use crate::parse;
use crate::progress::Progress;
use crate::settings::{ModelAndTexts, ModelFlags};

/// Which model scores which texts, and how.
#[derive(clap::Args)]
pub(crate) struct ScoringArguments {
    /// Texts, after the MODEL [default: the lines of standard input]
    #[arg(value_name = "TEXT")]
    words: Vec<String>,
    #[command(flatten)]
    model: ModelFlags<command_profile::Encode>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Turn logits into scores with this function
    ///
    /// One of identity, sigmoid, softmax [default: from the model's files, else sigmoid for one label and softmax for
    /// several]
    #[arg(
        long,
        hide_possible_values = true,
        value_name = "HOW",
        value_parser = parse::Named { names: activation_names, parse: activation }
    )]
    activation: Option<ScoreActivation>,
    /// Cut texts that are too long instead of failing
    #[arg(long)]
    truncate: bool,
    /// An instruction for the model [default: from the model's files]
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Name of an instruction in the model's files
    #[arg(long, value_name = "NAME", conflicts_with = "prompt")]
    prompt_name: Option<String>,
    /// Print one JSON object per text
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress and no timings
    #[arg(long, short)]
    quiet: bool,
}

/// A classifier and the texts that it scores.
pub(crate) struct Scoring {
    pub(crate) classifier: Classifier,
    pub(crate) texts: Vec<String>,
    quiet: bool,
    load: Duration,
    begin: Instant,
}

fn activation_names() -> Vec<&'static str> {
    ScoreActivation::ALL.iter().map(|activation| activation.name()).collect()
}

fn activation(name: &str) -> Result<ScoreActivation, String> {
    name.parse::<ScoreActivation>().map_err(|error| error.fix)
}

impl ScoringArguments {
    /// Loads the model and reads the texts.
    pub(crate) fn open(&self) -> anyhow::Result<Scoring> {
        let ModelAndTexts { source, mut texts, guess } =
            self.model.model_and_texts(&self.words, model_name::names_model)?;
        if texts.is_empty() && std::io::stdin().is_terminal() {
            return Err(Usage("no text: give one as an argument or on standard input".into()).into());
        }
        let begin = Instant::now();
        let classifier = self.classifier(&source).map_err(|error| ModelAndTexts::explain(guess, error))?;
        let load = begin.elapsed();
        if texts.is_empty() {
            lines::for_each_group(std::io::stdin().lock(), usize::MAX, |lines| {
                texts = lines;
                Ok(())
            })?;
        }
        if texts.is_empty() {
            return Err(Usage("standard input has no text: give one text on each line".into()).into());
        }
        Ok(Scoring { classifier, texts, quiet: self.quiet, load, begin: Instant::now() })
    }

    fn classifier(&self, source: &ModelSource) -> anyhow::Result<Classifier> {
        if source.is_built_in() {
            let message =
                "no model: name a classifier first or with --model; the built-in one only generates text";
            return Err(Usage(message.into()).into());
        }
        let progress = Progress::new(self.quiet);
        let plan = source.plan_and_fetch(&progress)?;
        let session = self.threads.session([plan.config()])?;
        if !self.quiet {
            source.warn(&plan);
        }
        let named = |name: Option<String>| name.map(EmbeddingPrompt::Named);
        let parameters = ClassificationParameters {
            activation: self.activation,
            truncate: self.truncate.then_some(Truncate::Right),
            prompt: self
                .prompt
                .clone()
                .map(EmbeddingPrompt::Text)
                .or_else(|| named(self.prompt_name.clone())),
            max_tokens: None,
        };
        Ok(Classifier::new(model::classification(&session, plan, &progress)?, &parameters)?)
    }
}

impl Scoring {
    /// Prints lines on standard output, then a closing line on standard error.
    pub(crate) fn print(
        &self,
        lines: impl Iterator<Item = serde_json::Result<String>>,
        tokens: usize,
    ) -> anyhow::Result<()> {
        let seconds = self.begin.elapsed().as_secs_f64().max(1e-9);
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for line in lines {
            writeln!(out, "{}", line?).context("cannot write to standard output")?;
        }
        out.flush().context("cannot write to standard output")?;
        if !self.quiet {
            let (texts, labels) = (self.texts.len(), self.classifier.labels().len());
            let facts = [
                format!("load {:.0} ms", self.load.as_secs_f64() * 1e3),
                format!("{texts} texts, {:.1} texts/s", texts as f64 / seconds),
                format!("{tokens} tokens, {:.1} tok/s", tokens as f64 / seconds),
                format!("{labels} labels, {}", self.classifier.activation().name()),
            ];
            // A closed standard error changes nothing.
            let _ = writeln!(std::io::stderr(), "\n[{}]", facts.join(" | "));
        }
        Ok(())
    }
}

impl Drop for Scoring {
    /// Ends the worker: the trace of a profiled model is written when the last user of the session is gone.
    fn drop(&mut self) {
        self.classifier.clone().shutdown();
    }
}
