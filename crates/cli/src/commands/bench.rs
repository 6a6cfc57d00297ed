//! `peri bench`: prompt processing, generation, batched generation, load time, memory; what prefix caching saves.

mod limits;
mod shared_prefix;

use std::collections::HashSet;
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use engine::Profile;
use pipelines::{Batch, EventKind, Generator, GeneratorOptions, Request, Slice, TextModel};

use limits::Limits;
use shared_prefix::SharedPrefix;

use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::parse;
use crate::progress::Progress;
use crate::purpose;
use crate::settings::ModelPath;

const AFTER_HELP: &str = "\
ppN: a prompt of N tokens. tgN: N tokens generated one by one. bN: N sequences generated together.

JSON, a line for each figure: bench, model, device, metric, unit, median, best, values[].

Examples:
  peri bench model.gguf --prompt 512 --batch 8,32
  peri bench model.gguf --shared-prefix 512 --concurrency 16
  peri bench model.gguf --profile";

/// Arguments of `peri bench`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<purpose::Bench>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Prompt lengths to measure
    #[arg(long, value_delimiter = ',', default_value = "64,512", value_name = "TOKENS", value_parser = parse::count)]
    prompt: Vec<NonZeroUsize>,
    /// Tokens to generate from an empty context
    #[arg(long, default_value = "128", value_name = "TOKENS", value_parser = parse::count)]
    generate: NonZeroUsize,
    /// Sequences to generate together
    #[arg(long, value_delimiter = ',', default_value = "8,16", value_name = "SEQUENCES", value_parser = parse::count)]
    batch: Vec<NonZeroUsize>,
    /// How often each figure is taken
    #[arg(long, default_value = "3", value_name = "N", value_parser = parse::count)]
    repetitions: NonZeroUsize,
    /// Print one JSON object a line for each figure
    #[arg(long)]
    json: bool,
    /// Instead, print which kernels take the time of the first prompt length and of a decode step after it
    #[arg(long, conflicts_with = "json")]
    profile: bool,
    /// Instead, measure the time to first token of prompts that share so many tokens, with and without prefix caching
    #[arg(long, value_name = "TOKENS", value_parser = parse::count, conflicts_with = "profile")]
    shared_prefix: Option<NonZeroUsize>,
    /// Prompts with a shared prefix that come at once
    #[arg(long, default_value = "16", value_name = "PROMPTS", value_parser = parse::count, requires = "shared_prefix")]
    concurrency: NonZeroUsize,
}

/// One kind of work: so many sequences, each with so many prompt tokens, each making so many tokens.
#[derive(Debug, Clone, Copy)]
struct Work {
    sequences: usize,
    prompt: usize,
    tokens: usize,
    /// The flag that makes it smaller.
    flag: &'static str,
}

/// Prompt tokens of each sequence before batched generation is timed.
const BATCH_PROMPT: usize = 16;
/// Tokens that each sequence makes in batched generation, or more where not all can start in one step.
const BATCH_TOKENS: usize = 25;

/// What one repetition of some work took.
struct Times {
    /// From the first request to every sequence's first token.
    prefill: Duration,
    /// From there to the end.
    decode: Duration,
    /// Tokens that were made meanwhile, by all sequences together.
    decoded: usize,
}

/// A line of results.
struct Figure {
    name: String,
    unit: &'static str,
    /// One for each repetition.
    values: Vec<f64>,
}

/// Measures.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let start = Instant::now();
    let session = arguments.threads.session()?;
    let source = arguments.model.source()?;
    let resolved = source.resolve(&Progress::new(arguments.json))?;
    source.warn(&resolved);
    let limits = Limits::of(&source, &resolved);
    let works = limits.works(arguments)?;
    let compiled = model::compile(&session, resolved)?;
    let model = model::pack(compiled, &session, &Progress::new(arguments.json))?;
    let load = start.elapsed().as_secs_f64();
    let title = format!("{} on {}", source.name(), device(&session));
    if arguments.profile {
        return print_profiles(&title, &model, arguments.prompt[0].get(), &limits);
    }
    let mut figures = vec![Figure { name: "load".into(), unit: "s", values: vec![load] }];
    let progress = Progress::new(arguments.json);
    interrupt.watch();
    let repetitions = arguments.repetitions.get();
    if let Some(shared) = arguments.shared_prefix {
        progress.phase("measuring prompts that begin alike");
        let work = SharedPrefix { prompts: arguments.concurrency.get(), shared: shared.get() };
        figures.extend(work.measure(&model, &limits, repetitions, &interrupt)?);
    } else {
        for (name, work) in works {
            progress.phase(format!("measuring {name}"));
            measure(&model, &limits.options, work, &interrupt)?; // The first run faults pages in and is not counted.
            let take = |_| measure(&model, &limits.options, work, &interrupt);
            let times: Vec<Times> = (0..repetitions).map(take).collect::<anyhow::Result<_>>()?;
            figures.extend(work.figures(&name, &times));
        }
    }
    progress.clear();
    if let Some(peak) = peak_memory() {
        figures.push(Figure { name: "peak memory".into(), unit: "MiB", values: vec![peak] });
    }
    let text = match arguments.json {
        true => json(&source.name(), &device(&session), &figures),
        false => format!("{title}\n{}\n", table(&figures)),
    };
    put(&text)
}

impl Work {
    /// Tokens of one sequence.
    fn room(&self) -> usize {
        self.prompt.saturating_add(self.tokens)
    }

    fn figures(&self, name: &str, times: &[Times]) -> Vec<Figure> {
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64();
        if self.tokens > 1 {
            let values = times.iter().map(|t| rate(t.decoded, t.decode)).collect();
            return vec![Figure { name: name.to_string(), unit: "tok/s", values }];
        }
        let rates = times.iter().map(|t| rate(self.prompt, t.prefill)).collect();
        let first = times.iter().map(|t| t.prefill.as_secs_f64() * 1e3).collect();
        vec![
            Figure { name: name.to_string(), unit: "tok/s", values: rates },
            Figure { name: format!("time to first token, {}", self.prompt), unit: "ms", values: first },
        ]
    }
}

/// Runs a work once.
fn measure(
    model: &Arc<TextModel>,
    options: &GeneratorOptions,
    work: Work,
    interrupt: &Interrupt,
) -> anyhow::Result<Times> {
    let at_once = options.max_ce_batch_size.min(work.sequences);
    let options = GeneratorOptions {
        max_length: Some(work.room()),
        // Room for the next prompts beside a token of each sequence.
        max_batch_tokens: at_once.saturating_mul(work.prompt).saturating_add(work.sequences).max(512),
        max_cache_batch_size: work.sequences,
        cache_tokens: None,
        ..options.clone()
    };
    let mut generator = Generator::new(Arc::clone(model), &options)?;
    for sequence in 0..work.sequences {
        generator.add(Request {
            prompt: prompt(sequence, work.prompt, model.decoder().vocab),
            // Those that start later make fewer tokens, so that all end together.
            max_new_tokens: Some(
                (work.tokens.saturating_sub(sequence / at_once)).max(work.tokens.min(BATCH_TOKENS)),
            ),
            ignore_eos: true,
            ..Request::default()
        })?;
    }
    run_to_end(&mut generator, work.sequences, interrupt)
}

/// Runs all that was added, and tells apart the time until each sequence has made a token.
fn run_to_end(generator: &mut Generator, sequences: usize, interrupt: &Interrupt) -> anyhow::Result<Times> {
    let (mut started, mut prefill, mut decoded) = (HashSet::new(), None, 0);
    let start = Instant::now();
    while !generator.is_idle() {
        if interrupt.asked() {
            return Err(Interrupted.into());
        }
        let events = generator.step()?;
        let made = || events.iter().filter(|event| matches!(event.kind, EventKind::Token { .. }));
        if prefill.is_some() {
            decoded += made().count();
            continue;
        }
        started.extend(made().map(|event| event.id));
        if started.len() == sequences {
            prefill = Some(start.elapsed());
        }
    }
    let total = start.elapsed();
    let prefill = prefill.unwrap_or(total);
    Ok(Times { prefill, decode: total - prefill, decoded })
}

/// Tokens that differ from each other and between sequences: a fixed congruence, so that runs compare.
fn prompt(sequence: usize, len: usize, vocab: usize) -> Vec<u32> {
    (0..len).map(|i| ((sequence * 7919 + i * 104_729 + 300) % vocab) as u32).collect()
}

/// Where the time of a prompt goes, and that of the decode step that follows it.
fn print_profiles(title: &str, model: &TextModel, tokens: usize, limits: &Limits) -> anyhow::Result<()> {
    if tokens >= limits.max_length {
        let problem = format!("cannot profile {tokens} tokens and one more: {limits}");
        return Err(Usage(format!("{problem}; give a smaller --prompt")).into());
    }
    let pages = (tokens + 1).div_ceil(model.page_size());
    let mut runner = model.runner(pages).map_err(pipelines::Error::from)?;
    let mut profile = |cached: usize, count: usize| -> anyhow::Result<Profile> {
        let batch = batch(prompt(0, count, model.decoder().vocab), cached, pages);
        runner.run(&batch)?; // The first run plans memory and faults pages in.
        Ok(runner.profile(&batch)?)
    };
    let (prefill, decode) = (profile(0, tokens)?, profile(tokens, 1)?);
    put(&format!("{title}\n\nprompt of {tokens} tokens\n{prefill}\ndecode after {tokens} tokens\n{decode}"))
}

/// A batch of one sequence, of which `cached` tokens have run already.
fn batch(tokens: Vec<u32>, cached: usize, pages: usize) -> Batch {
    let pages = (0..pages as u32).collect();
    let slice = Slice { cached, tokens, pages, predicts: true, outputs: 1, ..Slice::default() };
    Batch { slices: vec![slice], ..Batch::default() }
}

/// The most memory this process ever had, in MiB; `None` where the system does not say.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1024.0)
}

/// The device and the instruction set it uses.
fn device(session: &engine::InferenceSession) -> String {
    let device = &session.devices()[0];
    format!("{} ({})", device.name(), device.target())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

fn best(figure: &Figure) -> f64 {
    let better = if matches!(figure.unit, "tok/s" | "times") { f64::max } else { f64::min };
    figure.values.iter().copied().reduce(better).expect("each figure is taken at least once")
}

fn json(model: &str, device: &str, figures: &[Figure]) -> String {
    let object = |figure: &Figure| {
        let object = serde_json::json!({
            "bench": "perihelion",
            "model": model,
            "device": device,
            "metric": figure.name,
            "unit": figure.unit,
            "median": median(&figure.values),
            "best": best(figure),
            "values": figure.values,
        });
        format!("{object}\n")
    };
    figures.iter().map(object).collect()
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(["", "median", "best", "unit"]);
    for figure in figures {
        let number = |value: f64| format!("{value:.2}");
        table.add_row([
            figure.name.clone(),
            number(median(&figure.values)),
            number(best(figure)),
            figure.unit.to_string(),
        ]);
    }
    for column in [1, 2] {
        table.column_mut(column).expect("four columns").set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn put(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_that_start_one_by_one_are_timed_together() {
        let session = model::session(1).unwrap();
        let progress = Progress::new(true);
        let resolved = model::Source::built_in().resolve(&progress).unwrap();
        let model = model::pack(model::compile(&session, resolved).unwrap(), &session, &progress).unwrap();
        let interrupt = Interrupt::listen().unwrap();
        let options = GeneratorOptions { max_ce_batch_size: 2, ..GeneratorOptions::default() };
        let work = Work { sequences: 5, prompt: 3, tokens: BATCH_TOKENS + 2, flag: "--batch" };
        let times = measure(&model, &options, work, &interrupt).unwrap();
        // Two start in each of three steps, and 24 tokens of each are left when all have made one.
        assert_eq!(times.decoded, 5 * 24);
    }

    #[test]
    fn the_median_of_two_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}
