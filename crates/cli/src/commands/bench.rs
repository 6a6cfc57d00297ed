//! `peri bench`: prompt processing, generation, batched generation, load time, memory.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use pipelines::{EventKind, Generator, GeneratorOptions, Request, SamplingParams, TextModel};

use crate::exit::Interrupted;
use crate::interrupt::Interrupt;
use crate::model::{Loaded, ModelArguments, ThreadArguments};

/// Arguments of `peri bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A GGUF file, or a folder with config.json and weights
    path: PathBuf,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Prompt lengths to measure
    #[arg(long, value_delimiter = ',', default_value = "64,512", value_name = "TOKENS")]
    prompt: Vec<NonZeroUsize>,
    /// Tokens to generate from an empty context
    #[arg(long, default_value = "128", value_name = "TOKENS")]
    generate: NonZeroUsize,
    /// Sequences to generate together
    #[arg(long, value_delimiter = ',', default_value = "8,16", value_name = "SEQUENCES")]
    batch: Vec<NonZeroUsize>,
    /// How often each figure is taken
    #[arg(long, default_value = "3", value_name = "N")]
    repetitions: NonZeroUsize,
    /// Print one JSON object a line for each figure
    #[arg(long)]
    json: bool,
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
    let session = arguments.threads.session()?;
    let model =
        ModelArguments { model: Some(arguments.path.clone()), weights: None, threads: arguments.threads };
    let Loaded { model, time } = model.load(&session, arguments.json)?;
    let mut figures = vec![Figure { name: "load".into(), unit: "s", values: vec![time.as_secs_f64()] }];
    for (name, work) in plan(arguments, &model) {
        measure(&model, work, &interrupt)?; // The first run faults pages in and is not counted.
        let mut times = Vec::new();
        for _ in 0..arguments.repetitions.get() {
            times.push(measure(&model, work, &interrupt)?);
        }
        figures.extend(work.figures(&name, &times));
    }
    if let Some(peak) = peak_memory() {
        figures.push(Figure { name: "peak memory".into(), unit: "MiB", values: vec![peak] });
    }
    if arguments.json {
        print_json(arguments, &session, &figures)
    } else {
        print_table(arguments, &session, &figures)
    }
}

/// The works to measure, those left out that the model's context cannot hold.
fn plan(arguments: &Arguments, model: &TextModel) -> Vec<(String, Work)> {
    let prompts = arguments.prompt.iter().map(|prompt| {
        let prompt = prompt.get();
        (format!("pp{prompt}"), Work { sequences: 1, prompt, tokens: 1 })
    });
    let generate = arguments.generate.get();
    let alone = (format!("tg{generate}"), Work { sequences: 1, prompt: 1, tokens: generate + 1 });
    let batches = arguments.batch.iter().map(|sequences| {
        let sequences = sequences.get();
        (format!("b{sequences}"), Work { sequences, prompt: BATCH_PROMPT, tokens: BATCH_TOKENS })
    });
    let limit = model.decoder().context_length;
    prompts.chain([alone]).chain(batches).filter(|(_, work)| work.prompt + work.tokens <= limit).collect()
}

impl Work {
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
    let room = (work.prompt + work.tokens).next_multiple_of(model.page_size());
    let options = GeneratorOptions {
        max_batch_tokens: work.prompt.max(512),
        max_sequences: work.sequences,
        cache_tokens: work.sequences * room,
    };
    let mut generator = Generator::new(Arc::clone(model), &options)?;
    for sequence in 0..work.sequences {
        generator.add(Request {
            prompt: prompt(sequence, work.prompt, model.decoder().vocab),
            sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
            max_new_tokens: NonZeroUsize::new(work.tokens),
            ignore_eos: true,
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
    sorted[sorted.len() / 2]
}

fn best(figure: &Figure) -> f64 {
    let better = if figure.unit == "tok/s" { f64::max } else { f64::min };
    figure.values.iter().copied().reduce(better).unwrap_or(f64::NAN)
}

fn print_json(
    arguments: &Arguments,
    session: &engine::InferenceSession,
    figures: &[Figure],
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for figure in figures {
        let object = serde_json::json!({
            "bench": "perihelion",
            "model": arguments.path.file_stem().map(|name| name.to_string_lossy()),
            "device": device(session),
            "metric": figure.name,
            "unit": figure.unit,
            "median": median(&figure.values),
            "best": best(figure),
            "values": figure.values,
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

fn print_table(
    arguments: &Arguments,
    session: &engine::InferenceSession,
    figures: &[Figure],
) -> anyhow::Result<()> {
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
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} on {}", arguments.path.display(), device(session))?;
    writeln!(out, "{table}")?;
    Ok(())
}
