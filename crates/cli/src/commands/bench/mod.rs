//! `peri bench`: prompt processing, generation, batched generation, load time, memory, and prefix caching.

mod limits;
mod report;
mod shared_prefix;

use std::collections::HashSet;
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use engine::{Model, Profile};
use pipelines::{Batch, EventKind, Generator, Plan, Request, SamplingOptions, Slice, StateSlot, TextModel};

use limits::Limits;
use report::{Figure, Format, Report};
use shared_prefix::SharedPrefix;

use crate::command_profile;
use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model;
use crate::parse;
use crate::progress::Progress;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  peri bench model.gguf -p 512 -n 128
  peri bench model.gguf --depth 0,512,2048 --threads 1,2,4 -o md
  peri bench model.gguf --profile";

const DETAILS: &str = "\
ppN: process a prompt of N tokens. tgN: generate N tokens one by one. bN: generate N sequences together. With @ dD, the \
context already holds D tokens; batched generation is measured at depth 0 only.

JSON, one object per figure, and CSV, one row per figure: bench, version, commit, date, model, encoding, size_bytes, \
parameters, device, threads, depth, metric, unit, median, best, values[].

Examples:
  peri bench model.gguf -p 512 -n 128
  peri bench model.gguf --depth 0,512,2048 --threads 1,2,4 -o md
  peri bench model.gguf --prompt 512 --batch 8,32
  peri bench model.gguf --shared-prefix 512 --concurrency 16
  peri bench model.gguf --profile";

/// Arguments of `peri bench`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = DETAILS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Bench>,
    /// Threads, one run for each; 0 for all cores
    #[arg(
        long,
        short,
        hide_default_value = true,
        value_delimiter = ',',
        default_value = "0",
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse::threads
    )]
    threads: Vec<usize>,
    /// Prompt lengths
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "64,512",
        value_name = "TOKENS",
        value_parser = parse::count
    )]
    prompt: Vec<NonZeroUsize>,
    /// Tokens to generate
    #[arg(long, short = 'n', default_value = "128", value_name = "TOKENS", value_parser = parse::count)]
    generate: NonZeroUsize,
    /// Tokens already in the context
    #[arg(long, short, value_delimiter = ',', default_value = "0", value_name = "TOKENS")]
    depth: Vec<usize>,
    /// Sequences to generate together
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "8,16",
        value_name = "SEQUENCES",
        value_parser = parse::count
    )]
    batch: Vec<NonZeroUsize>,
    /// Repetitions of each measurement
    #[arg(long, short, default_value = "3", value_name = "N", value_parser = parse::count)]
    repetitions: NonZeroUsize,
    /// table, md, csv or json
    #[arg(
        long,
        short,
        value_enum,
        default_value = "table",
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    output: Format,
    /// The same as -o json
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Print the time of each kernel instead
    ///
    /// Profiles one prompt (the first length given) and the decode step after it.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    profile: bool,
    /// Measure prefix caching instead
    ///
    /// Measures the time to first token of prompts that share this many tokens, with and without prefix caching.
    #[arg(long, value_name = "TOKENS", value_parser = parse::count, conflicts_with = "profile")]
    shared_prefix: Option<NonZeroUsize>,
    /// Prompts at once, for --shared-prefix
    #[arg(
        long,
        default_value = "16",
        value_name = "PROMPTS",
        value_parser = parse::count,
        requires = "shared_prefix"
    )]
    concurrency: NonZeroUsize,
}

/// A kind of work: sequences of so many prompt tokens, each of which generates so many tokens.
#[derive(Debug, Clone, Copy)]
struct Work {
    sequences: usize,
    prompt: usize,
    tokens: usize,
    /// Tokens in the cache before the prompt.
    depth: usize,
    /// The flag that makes it smaller.
    flag: &'static str,
}

/// Prompt tokens of each sequence before batched generation is timed.
const BATCH_PROMPT: usize = 16;
/// Tokens each sequence generates in batched generation, or more if not all can start in one step.
const BATCH_TOKENS: usize = 25;

/// The times of one repetition.
struct Times {
    /// From the first request to every sequence's first token.
    prefill: Duration,
    /// From there to the end.
    decode: Duration,
    /// Tokens that all sequences together generated meanwhile.
    decoded: usize,
}

/// Most prompt tokens in a step that only fills the cache.
const FILL_TOKENS: usize = 512;

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let format = if arguments.json { Format::Json } else { arguments.output };
    let progress = Progress::new(format != Format::Table);
    let mut report = None;
    for &threads in &arguments.threads {
        let start = Instant::now();
        let source = arguments.model.source()?;
        let plan = source.plan_and_fetch(&progress)?;
        let session = model::session(threads, [plan.config()])?;
        let limits = Limits::new(&source, &plan)?;
        let is_first = report.is_none();
        if is_first {
            source.warn(&plan);
        }
        let works = limits.works(arguments, is_first)?;
        let report = report.get_or_insert_with(|| Report::new(&source, &plan, &session));
        let model = model::load(model::compile(&session, plan)?, &session, &progress)?;
        model.model().map_or(Ok(()), Model::pack_weights).map_err(pipelines::Error::from)?;
        let load = start.elapsed().as_secs_f64();
        if arguments.profile {
            return print_profiles(&report.title(), &model, arguments.prompt[0].get(), &limits);
        }
        report.threads = session.host().threads();
        report.add([Figure { name: "load".into(), depth: 0, unit: "s", values: vec![load] }]);
        interrupt.watch();
        let figures = measure_all(arguments, &works, &model, &limits, &progress, &interrupt)?;
        interrupt.rest();
        report.add(figures);
        progress.clear();
    }
    let mut report = report.expect("--threads has a value");
    report.add(peak_memory().map(|peak| Figure {
        name: "peak memory".into(),
        depth: 0,
        unit: "MiB",
        values: vec![peak],
    }));
    put(&report.print(format))
}

/// The figures of one number of threads.
fn measure_all(
    arguments: &Arguments,
    works: &[(String, Work)],
    model: &Arc<TextModel>,
    limits: &Limits,
    progress: &Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Figure>> {
    let repetitions = arguments.repetitions.get();
    if let Some(shared) = arguments.shared_prefix {
        progress.phase("measuring shared prefixes");
        let work = SharedPrefix { prompts: arguments.concurrency.get(), shared: shared.get() };
        return work.measure(model, limits, repetitions, interrupt);
    }
    let mut figures = Vec::new();
    for (name, work) in works {
        progress.phase(format!("measuring {name}"));
        let times = if work.depth > 0 && work.tokens == 1 {
            measure_prompt_at_depth(model, *work, repetitions, interrupt)?
        } else {
            measure(model, &limits.plan, *work, interrupt)?; // The first run faults pages in and is not counted.
            let take = |_| measure(model, &limits.plan, *work, interrupt);
            (0..repetitions).map(take).collect::<anyhow::Result<_>>()?
        };
        figures.extend(work.figures(name, &times));
    }
    Ok(figures)
}

impl Work {
    /// Tokens of one sequence.
    fn length(&self) -> usize {
        self.depth.saturating_add(self.prompt).saturating_add(self.tokens)
    }

    /// Prompt tokens of a sequence when its generator starts.
    fn prompt_and_depth(&self) -> usize {
        // Generation from depth D starts after D prompt tokens, and from depth 0 after one.
        self.depth.max(self.prompt)
    }

    fn figures(&self, name: &str, times: &[Times]) -> Vec<Figure> {
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64();
        if self.tokens > 1 {
            let values = times.iter().map(|t| rate(t.decoded, t.decode)).collect();
            return vec![Figure { name: name.to_string(), depth: self.depth, unit: "tok/s", values }];
        }
        let rates = times.iter().map(|t| rate(self.prompt, t.prefill)).collect();
        let first = times.iter().map(|t| t.prefill.as_secs_f64() * 1e3).collect();
        let at_depth = if self.depth > 0 { format!(" @ d{}", self.depth) } else { String::new() };
        let first_token = format!("time to first token, {}{at_depth}", self.prompt);
        vec![
            Figure { name: name.to_string(), depth: self.depth, unit: "tok/s", values: rates },
            Figure { name: first_token, depth: self.depth, unit: "ms", values: first },
        ]
    }
}

/// Runs a work once.
fn measure(model: &Arc<TextModel>, plan: &Plan, work: Work, interrupt: &Interrupt) -> anyhow::Result<Times> {
    let plan = plan.with(|config| config.max_length(work.length()).max_cache_batch_size(work.sequences))?;
    let at_once = plan.config().max_ce_batch_size;
    // The prompts that start in one step, and a token of each sequence.
    let tokens = at_once.saturating_mul(work.prompt_and_depth()).saturating_add(work.sequences);
    let plan = plan.with(|config| config.max_batch_tokens(tokens.max(512)))?;
    let mut generator = Generator::with_plan(Arc::clone(model), &plan)?;
    for sequence in 0..work.sequences {
        generator.add(Request {
            prompt: prompt(sequence, work.prompt_and_depth(), model.vocab()),
            sampling: SamplingOptions::GREEDY,
            // Sequences that start later generate fewer tokens, so that all end together.
            max_new_tokens: Some(
                (work.tokens.saturating_sub(sequence / at_once)).max(work.tokens.min(BATCH_TOKENS)),
            ),
            ignore_eos: true,
            ..Request::default()
        })?;
    }
    run_to_end(&mut generator, work.sequences, interrupt)
}

/// Measures a prompt that follows `depth` tokens in the cache. Only the prompt is timed.
fn measure_prompt_at_depth(
    model: &Arc<TextModel>,
    work: Work,
    repetitions: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Times>> {
    let Work { prompt: count, depth, .. } = work;
    let pages = (depth + count).div_ceil(model.page_size());
    let mut runner = model.runner(pages)?;
    let tokens = prompt(0, depth + count, model.vocab());
    for start in (0..depth).step_by(FILL_TOKENS) {
        runner.run(&batch(tokens[start..depth.min(start + FILL_TOKENS)].to_vec(), start, pages, 0))?;
    }
    let batch = batch(tokens[depth..].to_vec(), depth, pages, 1);
    runner.run(&batch)?; // The first run plans memory and is not counted.
    let mut times = Vec::new();
    for _ in 0..repetitions {
        if interrupt.asked() {
            return Err(Interrupted.into());
        }
        // It overwrites its own part of the cache, so each repetition computes the same.
        let start = Instant::now();
        runner.run(&batch)?;
        times.push(Times { prefill: start.elapsed(), decode: Duration::ZERO, decoded: 0 });
    }
    Ok(times)
}

/// Runs the generator until it is idle, and splits the time at the moment when every sequence has a token.
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

/// Tokens that differ within and between sequences, from a fixed congruence, so that runs are comparable.
fn prompt(sequence: usize, len: usize, vocab: usize) -> Vec<u32> {
    (0..len).map(|i| ((sequence * 7919 + i * 104_729 + 300) % vocab) as u32).collect()
}

/// Prints the profiles of a prompt and of the decode step after it.
fn print_profiles(title: &str, model: &TextModel, tokens: usize, limits: &Limits) -> anyhow::Result<()> {
    if tokens >= limits.max_length {
        let problem = format!("cannot profile {tokens} tokens and one more: {limits}");
        return Err(Usage(format!("{problem}; give a smaller --prompt")).into());
    }
    let pages = (tokens + 1).div_ceil(model.page_size());
    let mut runner = model.runner(pages)?;
    let mut profile = |cached: usize, count: usize, state_to| -> anyhow::Result<Profile> {
        let batch = batch(prompt(0, count, model.vocab()), cached, pages, state_to);
        runner.run(&batch)?; // The first run plans memory and faults pages in.
        Ok(runner.profile(&batch)?)
    };
    let (prefill, decode) = (profile(0, tokens, 0)?, profile(tokens, 1, 1)?);
    put(&format!("{title}\n\nprompt of {tokens} tokens\n{prefill}\ndecode after {tokens} tokens\n{decode}"))
}

/// A batch of one sequence with `cached` tokens in the cache. If the model keeps a state of it, that goes from slot 0 to
/// `state_to`: a batch that runs again starts from the same state if that is another slot.
fn batch(tokens: Vec<u32>, cached: usize, pages: usize, state_to: StateSlot) -> Batch {
    let pages = (0..pages as u32).collect();
    let slice = Slice { cached, tokens, pages, predicts: true, outputs: 1, state_to, ..Slice::default() };
    Batch { slices: vec![slice], ..Batch::default() }
}

/// Peak memory of this process in MiB, if the system reports it.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1024.0)
}

fn put(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_is_timed_from_when_all_sequences_have_started() {
        let session = model::session(1, []).unwrap();
        let progress = Progress::new(true);
        let plan = model::ModelSource::built_in().plan_and_fetch(&progress).unwrap();
        let model = model::load(model::compile(&session, plan).unwrap(), &session, &progress).unwrap();
        let interrupt = Interrupt::listen().unwrap();
        let plan = model.plan().with(|config| config.max_ce_batch_size(2_usize)).unwrap();
        let work = Work { sequences: 5, prompt: 3, tokens: BATCH_TOKENS + 2, depth: 0, flag: "--batch" };
        let times = measure(&model, &plan, work, &interrupt).unwrap();
        // Two start in each of three steps, and 24 tokens of each remain once all have one.
        assert_eq!(times.decoded, 5 * 24);
    }
}
