//! `peri generate`: continues prompts, as text or JSON.

use std::io::{IsTerminal, Read, Write};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::Context;
use pipelines::{
    AddSpecial, EventKind, FinishReason, Generator, GeneratorOptions, ParseSpecial, Request, SamplingParams,
    SequenceId,
};

use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{Loaded, ModelArguments};

/// Arguments of `peri generate`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The texts to continue; without any, one is read from standard input if that is piped
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,
    #[command(flatten)]
    model: ModelArguments,
    /// The most tokens to add to each prompt
    #[arg(long, default_value = "200", value_name = "N")]
    max_new_tokens: NonZeroUsize,
    /// How adventurous: 0 always takes the likeliest token, 1 draws as the model predicts
    /// (default: what the model recommends, else 0.7; 0 if any other way of choosing is not given)
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Draw among the K likeliest tokens only; 0 is all (default: 40)
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Draw among the likeliest tokens that together have this probability
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Draw among tokens at least this likely, relative to the likeliest
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Divide the scores of tokens that occurred already by this
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f32>,
    /// The same seed, prompt and options give the same text (default: drawn, and reported)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Go on after the model ends its text
    #[arg(long)]
    ignore_eos: bool,
    /// Print the continuations only, without the prompts
    #[arg(long)]
    no_echo: bool,
    /// Print one JSON object a line for each prompt
    #[arg(long)]
    json: bool,
    /// No progress and no figures on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// One prompt and what became of it.
struct Job {
    id: SequenceId,
    prompt: String,
    prompt_tokens: usize,
    text: String,
    tokens: Vec<u32>,
    finished: Option<FinishReason>,
    first_token: Option<Duration>,
}

/// Generates.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let prompts = prompts(arguments)?;
    let seed = arguments.seed.unwrap_or_else(drawn_seed);
    let sampling = sampling(arguments, seed);
    let interrupt = Interrupt::listen()?;
    let session = arguments.model.threads.session()?;
    let loaded = arguments.model.load(&session, arguments.quiet)?;
    let (mut generator, mut jobs) = start(arguments, &loaded, &sampling, prompts)?;
    let begin = Instant::now();
    let mut printer = Printer { shown: 0, json: arguments.json, echo: !arguments.no_echo, seed };
    while !generator.is_idle() && !interrupt.asked() {
        for event in generator.step()? {
            let job = jobs.iter_mut().find(|job| job.id == event.id).expect("events are of our jobs");
            job.take(event.kind, begin.elapsed());
        }
        printer.show(&mut jobs)?;
    }
    printer.end(&mut jobs)?;
    if !arguments.quiet {
        report(&jobs, loaded.time, begin.elapsed(), seed, &sampling);
    }
    if interrupt.asked() { Err(Interrupted.into()) } else { Ok(()) }
}

/// The prompts of the command line, or the one on standard input.
fn prompts(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    if !arguments.prompts.is_empty() {
        return Ok(arguments.prompts.clone());
    }
    if std::io::stdin().is_terminal() {
        return Err(Usage("no prompt: give one as an argument or on standard input".into()).into());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("the prompt on standard input")?;
    // The newline that ends the last line of a file or an `echo` is not meant.
    let text = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text)).unwrap_or(&text);
    Ok(vec![text.to_string()])
}

fn sampling(arguments: &Arguments, seed: u64) -> SamplingParams {
    let defaults = SamplingParams::default();
    SamplingParams {
        temperature: arguments.temperature.unwrap_or(0.7),
        top_k: match arguments.top_k {
            Some(0) => None,
            given => given.or(Some(40)),
        },
        top_p: arguments.top_p.unwrap_or(defaults.top_p),
        min_p: arguments.min_p.unwrap_or(defaults.min_p),
        repetition_penalty: arguments.repetition_penalty.unwrap_or(defaults.repetition_penalty),
        seed,
        ..defaults
    }
}

/// A seed that differs from run to run.
fn drawn_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) >> 32
}

fn start(
    arguments: &Arguments,
    loaded: &Loaded,
    sampling: &SamplingParams,
    prompts: Vec<String>,
) -> anyhow::Result<(Generator, Vec<Job>)> {
    let model = &loaded.model;
    let encode = |prompt: &String| model.tokenizer().encode(prompt, AddSpecial::Yes, ParseSpecial::Yes);
    let tokens: Vec<Vec<u32>> = prompts.iter().map(encode).collect::<Result<_, _>>()?;
    let room = |prompt: &Vec<u32>| {
        let tokens = prompt.len().saturating_add(arguments.max_new_tokens.get());
        tokens.min(model.decoder().context_length).next_multiple_of(model.page_size())
    };
    let options = GeneratorOptions {
        max_batch_tokens: 512,
        max_sequences: 64,
        cache_tokens: tokens.iter().map(room).fold(0, usize::saturating_add),
    };
    let mut generator = Generator::new(std::sync::Arc::clone(model), &options)?;
    let mut jobs = Vec::new();
    for (prompt, tokens) in prompts.into_iter().zip(tokens) {
        let prompt_tokens = tokens.len();
        let request = Request {
            prompt: tokens,
            sampling: sampling.clone(),
            max_new_tokens: Some(arguments.max_new_tokens),
            ignore_eos: arguments.ignore_eos,
        };
        let id = generator.add(request)?;
        let (text, tokens) = (String::new(), Vec::new());
        jobs.push(Job { id, prompt, prompt_tokens, text, tokens, finished: None, first_token: None });
    }
    Ok((generator, jobs))
}

impl Job {
    fn take(&mut self, event: EventKind, now: Duration) {
        match event {
            EventKind::Token { token, text } => {
                self.first_token.get_or_insert(now);
                self.tokens.push(token);
                self.text.push_str(&text);
            }
            EventKind::Finished { reason, text } => {
                self.text.push_str(&text);
                self.finished = Some(reason);
            }
        }
    }
}

/// Writes results in the order of the prompts, each as soon as those before it are complete.
struct Printer {
    /// Jobs that were written whole.
    shown: usize,
    json: bool,
    echo: bool,
    seed: u64,
}

impl Printer {
    /// Writes what is new.
    fn show(&mut self, jobs: &mut [Job]) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        while let Some(job) = jobs.get_mut(self.shown) {
            if self.json {
                if job.finished.is_none() {
                    break;
                }
                self.write_json(&mut out, self.shown, job)?;
            } else {
                self.write_text(&mut out, job)?;
                if job.finished.is_none() {
                    break;
                }
                writeln!(out)?;
            }
            self.shown += 1;
        }
        Ok(out.flush()?)
    }

    /// Writes what an interruption left.
    fn end(&mut self, jobs: &mut [Job]) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for index in self.shown..jobs.len() {
            if self.json {
                self.write_json(&mut out, index, &jobs[index])?;
            } else {
                self.write_text(&mut out, &mut jobs[index])?;
                writeln!(out)?;
            }
        }
        Ok(out.flush()?)
    }

    /// Writes the part of a job's text that was not written yet. What was written is taken out of `prompt` and
    /// `text`.
    fn write_text(&self, out: &mut impl Write, job: &mut Job) -> anyhow::Result<()> {
        let prompt = std::mem::take(&mut job.prompt);
        if self.echo {
            write!(out, "{prompt}")?;
        }
        write!(out, "{}", std::mem::take(&mut job.text))?;
        Ok(())
    }

    fn write_json(&self, out: &mut impl Write, index: usize, job: &Job) -> anyhow::Result<()> {
        let reason = job.finished.map_or("interrupted", FinishReason::name);
        let object = serde_json::json!({
            "index": index,
            "prompt": job.prompt,
            "text": job.text,
            "tokens": job.tokens,
            "prompt_tokens": job.prompt_tokens,
            "finish_reason": reason,
            "seed": self.seed,
        });
        writeln!(out, "{object}")?;
        Ok(())
    }
}

/// The closing figures.
fn report(jobs: &[Job], load: Duration, total: Duration, seed: u64, sampling: &SamplingParams) {
    let prompt: usize = jobs.iter().map(|job| job.prompt_tokens).sum();
    let made: usize = jobs.iter().map(|job| job.tokens.len()).sum();
    let first = jobs.iter().filter_map(|job| job.first_token).min();
    let last_first = jobs.iter().filter_map(|job| job.first_token).max();
    let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let mut lines = vec![format!("load {:.0} ms", load.as_secs_f64() * 1e3)];
    if let (Some(first), Some(last_first)) = (first, last_first) {
        lines.push(format!("prompt {prompt} tokens, {:.1} tok/s", rate(prompt, last_first)));
        lines.push(format!("first token {:.1} ms", first.as_secs_f64() * 1e3));
        let after = made.saturating_sub(jobs.len());
        if after > 0 {
            lines.push(format!(
                "decode {made} tokens, {:.1} tok/s",
                rate(after, total.saturating_sub(last_first))
            ));
        }
    }
    if sampling.temperature > 0.0 {
        lines.push(format!("seed {seed}"));
    }
    eprintln!("\n[{}]", lines.join(" | "));
}
