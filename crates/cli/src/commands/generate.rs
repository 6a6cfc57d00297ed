//! `peri generate`: continues prompts, as text or JSON.

mod clock;
mod job;
mod limit;
mod printer;
mod wishes;

use std::io::{IsTerminal, Read};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use pipelines::config::KVCacheStrategy;
use pipelines::{AddSpecial, Error, Generator, GeneratorOptions, ParseSpecial, Request, TextModel};

use clock::Clock;
use job::Job;
use limit::Limit;
use printer::Printer;
use wishes::Wishes;

use crate::exit::{self, Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::parse;
use crate::progress::Progress;
use crate::purpose;
use crate::sampling::SamplingArguments;
use crate::settings::ModelFlags;

const AFTER_HELP: &str = "\
* or what the generation_config.json beside the model recommends.

JSON, a line for each answer: index of the prompt, sample, prompt, text, tokens[], prompt_tokens, finish_reason,
stop_reason, seed, and if they are asked for logprobs[] and prompt_logprobs[]: token, text, logprob, top[] of the
likeliest. Log-probabilities are natural logarithms under the model's own logits; the first of a prompt is null.

Text goes to standard output, progress and timings to standard error. Ctrl-C ends the text where it is.

Examples:
  peri generate \"Once upon a time\"
  peri generate --model llama.gguf --temperature 0 \"The capital of France is\"
  cat prompt.txt | peri generate --model llama/ --max-new-tokens 50 --json";

/// Arguments of `peri generate`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The texts to continue; without any, one is read from standard input if that is piped
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,
    #[command(flatten)]
    model: ModelFlags<purpose::Generate>,
    #[command(flatten)]
    threads: ThreadArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    wishes: Wishes,
    /// Answers to each prompt
    #[arg(long, short = 'n', value_name = "N", default_value = "1", value_parser = parse::count)]
    samples: NonZeroUsize,
    /// Print the continuations only, without the prompts
    #[arg(long)]
    no_echo: bool,
    /// Print one JSON object a line for each answer
    #[arg(long)]
    json: bool,
    /// No progress and no timings on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// Tokens in a step, prompt and decode together.
const MAX_BATCH_TOKENS: usize = 512;
/// Answers that are made at once; more wait.
const MAX_SEQUENCES: usize = 64;

/// Generates.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let prompts = prompts(arguments)?;
    let samples = arguments.samples.get();
    let begin = Instant::now();
    let session = arguments.threads.session()?;
    let progress = Progress::new(arguments.quiet);
    let mut source = arguments.model.source()?;
    let answers = prompts.len().saturating_mul(samples);
    source.default_to("max_cache_batch_size", &answers.clamp(1, MAX_SEQUENCES).into())?;
    if arguments.wishes.scores_prompts() {
        source.default_to("enable_echo", &true.into())?;
    }
    let resolved = source.resolve_writer(&progress)?;
    if !arguments.quiet {
        source.warn(&resolved);
    }
    let request = Request {
        max_new_tokens: model::max_new_tokens(&resolved),
        ..arguments.wishes.of(arguments.sampling.request(&source, &resolved))
    };
    let limit = Limit::of(&resolved);
    let options =
        GeneratorOptions { max_batch_tokens: MAX_BATCH_TOKENS, ..GeneratorOptions::from(&resolved) };
    let model = model::pack(model::compile(&session, resolved)?, &session, &progress)?;
    let mut clock = Clock::new(begin.elapsed());
    let (mut generator, mut jobs) = start(&model, options, &request, &prompts, samples)?;
    let mut printer = Printer::new(arguments.json, !arguments.no_echo, arguments.wishes.stops().to_vec());
    interrupt.watch();
    while !generator.is_idle() && !interrupt.asked() {
        let begin = Instant::now();
        let events = generator.step()?;
        clock.count(begin.elapsed(), &events, &jobs);
        for event in events {
            let job = jobs.iter_mut().find(|job| job.id == event.id).expect("events are of our jobs");
            job.take(event.kind, arguments.quiet)?;
        }
        printer.show(&jobs)?;
    }
    printer.end(&jobs)?;
    if !arguments.quiet {
        limit.cuts(&jobs, request.max_new_tokens).iter().for_each(|cut| exit::warn(cut));
        clock.report(&jobs, &request);
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
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("cannot read the prompt from standard input")?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Usage(format!(
            "the prompt on standard input is not UTF-8 from byte {at} on: convert it, with iconv say"
        ))
    })?;
    // The newline that ends the last line of a file or an `echo` is not meant.
    let text = text.strip_suffix('\n').map_or(&text[..], |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(vec![text.to_string()])
}

/// A generator with a job for each answer; `request` is what they have in common.
fn start(
    model: &Arc<TextModel>,
    mut options: GeneratorOptions,
    request: &Request,
    prompts: &[String],
    samples: usize,
) -> anyhow::Result<(Generator, Vec<Job>)> {
    let encode = |prompt: &String| model.tokenizer().encode(prompt, AddSpecial::Yes, ParseSpecial::Yes);
    let encoded: Vec<Vec<u32>> = prompts.iter().map(encode).collect::<Result<_, _>>()?;
    if options.cache_strategy == KVCacheStrategy::Paged {
        let most = options.cache_tokens.unwrap_or(usize::MAX);
        let room = cache_tokens(model, &encoded, &options, request.max_new_tokens, samples);
        options.cache_tokens = Some(most.min(room));
    }
    let mut generator = Generator::new(Arc::clone(model), &options)?;
    let mut jobs = Vec::new();
    for (index, (prompt, encoded)) in prompts.iter().zip(encoded).enumerate() {
        let request = Request { prompt: encoded, ..request.clone() };
        for (sample, request) in request.samples(samples)?.into_iter().enumerate() {
            let id =
                generator.add(request.clone()).map_err(|error| of_prompt(error, index, prompts.len()))?;
            jobs.push(Job::new(id, (index, sample), prompt, &request));
        }
    }
    Ok((generator, jobs))
}

/// What is wrong with one of several prompts.
fn of_prompt(error: Error, index: usize, count: usize) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    if count > 1 { error.context(format!("prompt {} of {count}", index + 1)) } else { error }
}

/// Room for as many of the longest sequences as may run at once.
fn cache_tokens(
    model: &TextModel,
    encoded: &[Vec<u32>],
    options: &GeneratorOptions,
    max_new_tokens: Option<usize>,
    samples: usize,
) -> usize {
    let longest = options.max_length.unwrap_or(model.decoder().context_length);
    let room = |prompt: &Vec<u32>| {
        let tokens = max_new_tokens.map_or(longest, |new| prompt.len().saturating_add(new));
        tokens.min(longest).next_multiple_of(model.page_size())
    };
    let mut rooms: Vec<usize> =
        encoded.iter().flat_map(|prompt| std::iter::repeat_n(room(prompt), samples)).collect();
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    rooms.into_iter().take(options.max_cache_batch_size).fold(0, usize::saturating_add)
}
