//! `peri bench`: prompt processing, generation, batched generation, load time, memory; what prefix caching saves.

mod shared_prefix;

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use engine::Profile;
use pipelines::{Batch, EventKind, Generator, GeneratorOptions, Request, SamplingOptions, Slice, TextModel};

use shared_prefix::SharedPrefix;

use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::parse;
use crate::progress::Progress;
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
    model: ModelPath,
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
}

/// Prompt tokens of each sequence before batched generation is timed.
const BATCH_PROMPT: usize = 16;
/// Tokens that each sequence makes in batched generation.
const BATCH_TOKENS: usize = 25;

/// What one repetition of some work took.
struct Times {
    /// From the first request to every sequence's first token.
    prefill: Duration,
    /// From there to the end.
    decode: Duration,
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
    let defaults = [
        ("max_length", "auto".into()),
        ("cache_strategy", "paged".into()),
        ("kv_cache_page_size", model::PAGE_SIZE.into()),
    ];
    let source = arguments.model.source(&defaults)?;
    let compiled = model::compile(&session, source.resolve(&Progress::new(arguments.json))?)?;
    let model = model::pack(compiled, &session, &Progress::new(arguments.json))?;
    let load = start.elapsed().as_secs_f64();
    let title = format!("{} on {}", source.name(), device(&session));
    if arguments.profile {
        return print_profiles(&title, &model, arguments.prompt[0].get());
    }
    let mut figures = vec![Figure { name: "load".into(), unit: "s", values: vec![load] }];
    let progress = Progress::new(arguments.json);
    interrupt.watch();
    let repetitions = arguments.repetitions.get();
    if let Some(shared) = arguments.shared_prefix {
        progress.phase("measuring prompts that begin alike");
        let work = SharedPrefix { prompts: arguments.concurrency.get(), shared: shared.get() };
        figures.extend(work.measure(&model, repetitions, &interrupt)?);
    } else {
        for (name, work) in plan(arguments, &model) {
            progress.phase(format!("measuring {name}"));
            measure(&model, work, &interrupt)?; // The first run faults pages in and is not counted.
            let times: Vec<Times> =
                (0..repetitions).map(|_| measure(&model, work, &interrupt)).collect::<anyhow::Result<_>>()?;
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

/// The works to measure. Those that the model's context cannot hold are left out, which standard error tells.
fn plan(arguments: &Arguments, model: &TextModel) -> Vec<(String, Work)> {
    let prompts = arguments.prompt.iter().map(|prompt| {
        let prompt = prompt.get();
        (format!("pp{prompt}"), Work { sequences: 1, prompt, tokens: 1 })
    });
    let generate = arguments.generate.get();
    let alone =
        (format!("tg{generate}"), Work { sequences: 1, prompt: 1, tokens: generate.saturating_add(1) });
    let batches = arguments.batch.iter().map(|sequences| {
        let sequences = sequences.get();
        (format!("b{sequences}"), Work { sequences, prompt: BATCH_PROMPT, tokens: BATCH_TOKENS })
    });
    let limit = model.decoder().context_length;
    let (fit, large): (Vec<_>, Vec<_>) =
        prompts.chain([alone]).chain(batches).partition(|(_, work)| work.room() <= limit);
    for (name, work) in large {
        // A closed standard error changes nothing.
        let _ = writeln!(
            std::io::stderr(),
            "peri: {name} is left out: it needs {} tokens, and the model's context holds {limit}",
            work.room()
        );
    }
    fit
}

impl Work {
    /// Tokens of one sequence.
    fn room(&self) -> usize {
        self.prompt.saturating_add(self.tokens)
    }

    fn figures(&self, name: &str, times: &[Times]) -> Vec<Figure> {
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64();
        if self.tokens > 1 {
            let values = times.iter().map(|t| rate(self.sequences * (self.tokens - 1), t.decode)).collect();
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

fn measure(model: &Arc<TextModel>, work: Work, interrupt: &Interrupt) -> anyhow::Result<Times> {
    let room = work.room().next_multiple_of(model.page_size());
    let options = GeneratorOptions {
        max_batch_tokens: work.prompt.max(512),
        max_cache_batch_size: work.sequences,
        cache_tokens: Some(work.sequences.saturating_mul(room)),
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(Arc::clone(model), &options)?;
    for sequence in 0..work.sequences {
        generator.add(Request {
            prompt: prompt(sequence, work.prompt, model.decoder().vocab),
            sampling: SamplingOptions::GREEDY,
            max_new_tokens: Some(work.tokens),
            ignore_eos: true,
            ..Request::default()
        })?;
    }
    let start = Instant::now();
    let (mut first_tokens, mut prefill) = (0, None);
    while !generator.is_idle() {
        if interrupt.asked() {
            return Err(Interrupted.into());
        }
        let events = generator.step()?;
        first_tokens += events.iter().filter(|event| matches!(event.kind, EventKind::Token { .. })).count();
        if first_tokens >= work.sequences && prefill.is_none() {
            prefill = Some(start.elapsed());
        }
    }
    let total = start.elapsed();
    let prefill = prefill.unwrap_or(total);
    Ok(Times { prefill, decode: total - prefill })
}

/// Tokens that differ from each other and between sequences: a fixed congruence, so that runs compare.
fn prompt(sequence: usize, len: usize, vocab: usize) -> Vec<u32> {
    (0..len).map(|i| ((sequence * 7919 + i * 104_729 + 300) % vocab) as u32).collect()
}

/// Where the time of a prompt goes, and that of the decode step that follows it.
fn print_profiles(title: &str, model: &TextModel, tokens: usize) -> anyhow::Result<()> {
    let limit = model.decoder().context_length;
    if tokens >= limit {
        let problem =
            format!("cannot profile {tokens} tokens and one more: the model's context holds {limit}");
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
    fn the_median_of_two_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}
