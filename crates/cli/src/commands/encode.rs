//! `peri encode`: texts to vectors, or to the cosines between them.

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::Context;
use pipelines::{Embedder, Embedding, EmbeddingParameters, EmbeddingPrompt, Error, Pooling, Truncate};

use crate::command_profile;
use crate::exit::Usage;
use crate::lines;
use crate::model::{self, ModelSource, ThreadArguments};
use crate::model_name;
use crate::parse;
use crate::progress::Progress;
use crate::settings::{ModelAndTexts, ModelFlags};

const EXAMPLES: &str = "\
Examples:
  peri encode all-MiniLM-L6-v2/ \"The cat sits on the mat.\"
  peri encode all-MiniLM-L6-v2/ --similarity \"a cat\" \"a kitten\" \"a car\"
  peri encode all-MiniLM-L6-v2/ --json < lines.txt > vectors.jsonl";

const DETAILS: &str = "\
The first argument is the model if it is a model file, a model folder, or looks like a hub repo (org/name). -m always \
gives a model, and then all arguments are texts.

Vectors go to standard output, one line per text, progress and timings to standard error.

--json prints one object per text: index, text, embedding[] (or similarity[] with --similarity), tokens, truncated.

Examples:
  peri encode all-MiniLM-L6-v2/ \"The cat sits on the mat.\"
  peri encode all-MiniLM-L6-v2/ --similarity \"a cat\" \"a kitten\" \"a car\"
  peri encode all-MiniLM-L6-v2/ --json < lines.txt > vectors.jsonl
  peri encode bge.gguf --pooling cls --prompt \"query: \" \"capital of France\"";

/// Lines of standard input read before their vectors are printed.
const LINES: usize = 1024;

/// Arguments of `peri encode`.
#[derive(clap::Args)]
#[command(
    override_usage = "peri encode [OPTIONS] MODEL [TEXT]...",
    after_help = EXAMPLES,
    after_long_help = DETAILS
)]
pub(crate) struct Arguments {
    /// Texts, after the MODEL [default: the lines of standard input]
    #[arg(value_name = "TEXT")]
    words: Vec<String>,
    #[command(flatten)]
    model: ModelFlags<command_profile::Encode>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Pool token vectors into one vector by this method
    ///
    /// One of mean, cls, last, max, mean_sqrt_len, weighted_mean [default: from the model's files]
    #[arg(
        long,
        hide_possible_values = true,
        value_name = "HOW",
        value_parser = parse::Named { names: pooling_names, parse: pooling }
    )]
    pooling: Option<Pooling>,
    /// Scale vectors to length 1
    ///
    /// The default comes from the model's files, else vectors are scaled.
    #[arg(long, overrides_with = "no_normalize")]
    normalize: bool,
    /// Do not scale vectors
    #[arg(long)]
    no_normalize: bool,
    /// Keep only the first N dimensions
    ///
    /// Only some models are trained for this.
    #[arg(long, value_name = "N", value_parser = parse::count)]
    dimensions: Option<NonZeroUsize>,
    /// Cut texts that are too long instead of failing
    #[arg(long)]
    truncate: bool,
    /// A text to put before each text
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Name of such a text in the model's files
    ///
    /// Such as query or document.
    #[arg(long, value_name = "NAME", conflicts_with = "prompt")]
    prompt_name: Option<String>,
    /// Print cosines between texts, not vectors
    #[arg(long)]
    similarity: bool,
    /// Print one JSON object per text
    #[arg(long)]
    json: bool,
    /// Show no progress and no timings
    #[arg(long, short)]
    quiet: bool,
}

fn pooling_names() -> Vec<&'static str> {
    Pooling::ALL.iter().map(|pooling| pooling.name()).collect()
}

fn pooling(name: &str) -> Result<Pooling, String> {
    name.parse::<Pooling>().map_err(|error| error.fix)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let ModelAndTexts { source, texts, guess } =
        arguments.model.model_and_texts(&arguments.words, model_name::names_model)?;
    if texts.is_empty() && std::io::stdin().is_terminal() {
        return Err(Usage("no text: give one as an argument or on standard input".into()).into());
    }
    let begin = Instant::now();
    let embedder = open(arguments, &source).map_err(|error| ModelAndTexts::explain(guess, error))?;
    let mut work = Work::new(embedder, arguments, begin.elapsed());
    if texts.is_empty() {
        lines::for_each_group(std::io::stdin().lock(), LINES, |texts| work.add(texts))?;
    } else {
        work.add(texts)?;
    }
    work.end()?;
    if work.texts == 0 {
        return Err(Usage("standard input has no text: give one text on each line".into()).into());
    }
    if !arguments.quiet {
        work.report();
    }
    Ok(())
}

fn open(arguments: &Arguments, source: &ModelSource) -> anyhow::Result<Embedder> {
    if source.is_built_in() {
        let message =
            "no model: name an embedding model first or with --model; the built-in one only generates text";
        return Err(Usage(message.into()).into());
    }
    let progress = Progress::new(arguments.quiet);
    let plan = source.plan_and_fetch(&progress)?;
    let session = arguments.threads.session([plan.config()])?;
    if !arguments.quiet {
        source.warn(&plan);
    }
    Ok(Embedder::new(model::embedding(&session, plan, &progress)?, &arguments.parameters())?)
}

impl Arguments {
    fn parameters(&self) -> EmbeddingParameters {
        let text = self.prompt.clone().map(EmbeddingPrompt::Text);
        EmbeddingParameters {
            pooling: self.pooling,
            normalize: (self.normalize || self.no_normalize).then_some(!self.no_normalize),
            dimensions: self.dimensions.map(NonZeroUsize::get),
            truncate: self.truncate.then_some(Truncate::Right),
            max_tokens: None,
            prompt: text.or_else(|| self.prompt_name.clone().map(EmbeddingPrompt::Named)),
        }
    }
}

/// A line of `--json`.
#[derive(serde::Serialize)]
struct Object<'a> {
    index: usize,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<&'a [f32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    similarity: Option<Vec<f64>>,
    tokens: usize,
    /// Tokens cut from the text.
    truncated: usize,
}

/// The texts so far.
struct Work {
    embedder: Embedder,
    truncate: bool,
    similarity: bool,
    json: bool,
    /// Texts whose cosines are printed at the end.
    kept: Vec<(String, Embedding)>,
    texts: usize,
    tokens: usize,
    /// Texts that were cut.
    truncated: usize,
    load: Duration,
    encode: Duration,
}

impl Drop for Work {
    /// Ends the worker: the trace of a profiled model is written when the last user of the session is gone.
    fn drop(&mut self) {
        self.embedder.clone().shutdown();
    }
}

impl Work {
    fn new(embedder: Embedder, arguments: &Arguments, load: Duration) -> Work {
        let Arguments { truncate, similarity, json, .. } = *arguments;
        Work {
            embedder,
            truncate,
            similarity,
            json,
            kept: Vec::new(),
            texts: 0,
            tokens: 0,
            truncated: 0,
            load,
            encode: Duration::ZERO,
        }
    }

    /// Embeds texts and prints their vectors.
    fn add(&mut self, texts: Vec<String>) -> anyhow::Result<()> {
        let begin = Instant::now();
        let embeddings = self.embedder.embed(&texts).map_err(|error| self.with_index(error))?;
        self.encode += begin.elapsed();
        let first = self.texts;
        self.texts += texts.len();
        self.tokens += embeddings.iter().map(|embedding| embedding.tokens).sum::<usize>();
        self.truncated += embeddings.iter().filter(|embedding| embedding.truncated > 0).count();
        if self.similarity {
            self.kept.extend(texts.into_iter().zip(embeddings));
            return Ok(());
        }
        let lines = (first..).zip(texts.iter().zip(&embeddings)).map(|(index, (text, embedding))| {
            let Embedding { vector, tokens, truncated, .. } = embedding;
            match self.json {
                true => {
                    let (embedding, tokens, truncated) = (Some(&vector[..]), *tokens, *truncated);
                    let similarity = None;
                    serde_json::to_string(&Object { index, text, embedding, similarity, tokens, truncated })
                }
                false => Ok(joined(vector.iter().map(f32::to_string))),
            }
        });
        print(lines)
    }

    /// An error with the text's index counted from the first of all texts.
    fn with_index(&self, error: Error) -> anyhow::Error {
        let first = self.texts;
        let error = match error {
            Error::TextTooLong { index, tokens, limit } if self.truncate => {
                let index = first + index;
                let problem = format!(
                    "text {index} (counted from 0): the {tokens} tokens that the model adds around a text are too many"
                );
                return Usage(format!("{problem}: max_length is {limit}; raise it")).into();
            }
            Error::TextTooLong { index, tokens, limit } => {
                Error::TextTooLong { index: first + index, tokens, limit }
            }
            Error::EmptyText { index } => Error::EmptyText { index: first + index },
            other => other,
        };
        anyhow::Error::from(error).context("cannot embed")
    }

    /// Prints the cosines, which need all texts.
    fn end(&self) -> anyhow::Result<()> {
        let lines = self.kept.iter().enumerate().map(|(index, (text, own))| {
            let row = self.kept.iter().map(|(_, other)| cosine(&own.vector, &other.vector));
            match self.json {
                true => {
                    let (similarity, tokens, truncated) = (Some(row.collect()), own.tokens, own.truncated);
                    let embedding = None;
                    serde_json::to_string(&Object { index, text, embedding, similarity, tokens, truncated })
                }
                false => Ok(joined(row.map(|cosine| format!("{cosine:.4}")))),
            }
        });
        print(lines)
    }

    /// The closing line on standard error.
    fn report(&self) {
        let seconds = self.encode.as_secs_f64();
        let rate = |count: usize| count as f64 / seconds.max(1e-9);
        let mut facts = vec![
            format!("load {:.0} ms", self.load.as_secs_f64() * 1e3),
            format!("{} texts, {:.1} texts/s", self.texts, rate(self.texts)),
            format!("{} tokens, {:.1} tok/s", self.tokens, rate(self.tokens)),
            format!("{} dims, pooling {}", self.embedder.dimensions(), self.embedder.pooling().name()),
        ];
        if self.truncated > 0 {
            facts.push(format!("{} truncated", self.truncated));
        }
        // A closed standard error changes nothing.
        let _ = writeln!(std::io::stderr(), "\n[{}]", facts.join(" | "));
    }
}

/// The cosine of the angle between two vectors; 0 if either is zero.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { dot(a, b) / lengths }
}

fn joined(numbers: impl Iterator<Item = String>) -> String {
    numbers.collect::<Vec<_>>().join(" ")
}

fn print(lines: impl Iterator<Item = serde_json::Result<String>>) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in lines {
        writeln!(out, "{}", line?).context("cannot write to standard output")?;
    }
    out.flush().context("cannot write to standard output")
}
