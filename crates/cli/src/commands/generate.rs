//! `peri generate`: continues prompts, as text or JSON.

mod clock;
mod job;
mod length_limit;
mod printer;
mod request_flags;

use std::io::{IsTerminal, Read};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use pipelines::config::KVCacheStrategy;
use pipelines::{AddSpecial, Error, Generator, GeneratorOptions, ParseSpecial, Request, TextModel};

use clock::Clock;
use job::Job;
use length_limit::LengthLimit;
use printer::Printer;
use request_flags::RequestFlags;

use crate::command_profile;
use crate::exit::{self, Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::model_name;
use crate::parse;
use crate::progress::Progress;
use crate::sampling::SamplingArguments;
use crate::settings::{ModelAndTexts, ModelFlags};

const EXAMPLES: &str = "\
Examples:
  peri generate \"Once upon a time\"
  peri generate llama.gguf \"The capital of France is\" --temperature 0 -n 20
  cat prompt.txt | peri generate -m llama/ --json";

const DETAILS: &str = "\
* The default without a generation_config.json beside the model.

The first argument is the model if it is a model file, a model folder, or looks like a hub repo (org/name). -p always \
gives a prompt and -m always a model. Several prompts run together; their answers come in order.

The text goes to standard output, progress and timings to standard error. Ctrl-C stops and keeps the text so far.

--json prints one object per answer: index (of the prompt), sample, prompt, text, tokens[], prompt_tokens, \
finish_reason, stop_reason, seed, and if requested logprobs[] and prompt_logprobs[] with token, text, logprob and top[]. \
Log-probabilities are natural logarithms, before temperature; the first token of a prompt has null.

Examples:
  peri generate \"Once upon a time\"
  peri generate llama.gguf \"The capital of France is\" --temperature 0 -n 20
  peri generate Qwen/Qwen3-0.6B -p \"Roses are\" -p \"Violets are\"
  cat prompt.txt | peri generate -m llama/ --json";

/// Arguments of `peri generate`.
#[derive(clap::Args)]
#[command(
    override_usage = "peri generate [OPTIONS] [MODEL] [PROMPT]...",
    after_help = EXAMPLES,
    after_long_help = DETAILS
)]
pub(crate) struct Arguments {
    /// Texts to continue, after the MODEL [default: standard input]
    ///
    /// The first argument is the MODEL if it names one: a model file, a model folder, or a hub repo (org/name).
    #[arg(value_name = "PROMPT")]
    words: Vec<String>,
    /// A text to continue; repeatable
    ///
    /// It is a text even if it looks like the name of a model.
    #[arg(long = "prompt", short, value_name = "TEXT", allow_hyphen_values = true)]
    prompts: Vec<String>,
    #[command(flatten)]
    model: ModelFlags<command_profile::Generate>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Answers per prompt
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse::count)]
    samples: NonZeroUsize,
    #[command(flatten)]
    request: RequestFlags,
    /// Do not print the prompts
    #[arg(long)]
    no_echo: bool,
    /// Print one JSON object per answer
    #[arg(long)]
    json: bool,
    /// Show no progress and no timings
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    sampling: SamplingArguments,
}

/// Most answers generated at once; others wait.
const MAX_SEQUENCES: usize = 64;

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let ModelAndTexts { mut source, texts, guess } =
        arguments.model.model_and_texts(&arguments.words, model_name::names_model)?;
    let prompts = prompts(arguments, texts)?;
    let samples = arguments.samples.get();
    let begin = Instant::now();
    let session = arguments.threads.session()?;
    let progress = Progress::new(arguments.quiet);
    let answers = prompts.len().saturating_mul(samples);
    source.default_to("max_cache_batch_size", &answers.clamp(1, MAX_SEQUENCES).into())?;
    if arguments.request.scores_prompts() {
        source.default_to("enable_echo", &true.into())?;
    }
    let resolved = source.resolve_writer(&progress).map_err(|error| ModelAndTexts::explain(guess, error))?;
    if !arguments.quiet {
        source.warn(&resolved);
    }
    let request = Request {
        max_new_tokens: model::max_new_tokens(&resolved),
        ..arguments.request.apply(arguments.sampling.request(&source, &resolved))
    };
    let limit = LengthLimit::new(&source, &resolved);
    let options = GeneratorOptions::from(&resolved);
    let model = model::pack(model::compile(&session, resolved)?, &session, &progress)?;
    let mut clock = Clock::new(begin.elapsed());
    let (mut generator, mut jobs) = start(&model, options, &request, &prompts, samples)?;
    let mut printer = Printer::new(arguments.json, !arguments.no_echo, arguments.request.stops().to_vec());
    interrupt.watch();
    while !generator.is_idle() && !interrupt.asked() {
        let begin = Instant::now();
        let events = generator.step()?;
        clock.count(begin.elapsed(), &events, &jobs);
        for event in events {
            let job = jobs.iter_mut().find(|job| job.id == event.id).expect("every event belongs to a job");
            job.take(event.kind, arguments.quiet)?;
        }
        printer.show(&jobs)?;
    }
    printer.end(&jobs)?;
    if !arguments.quiet {
        limit.warning(&jobs, request.max_new_tokens).iter().for_each(|warning| exit::warn(warning));
        clock.report(&jobs, &request);
    }
    if interrupt.asked() { Err(Interrupted.into()) } else { Ok(()) }
}

/// The prompts of the command line, or the one on standard input.
fn prompts(arguments: &Arguments, texts: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut prompts = texts;
    prompts.extend(arguments.prompts.iter().cloned());
    if prompts.is_empty() {
        prompts.push(standard_input()?);
    }
    match prompts.iter().position(String::is_empty) {
        Some(index) if prompts.len() > 1 => {
            Err(Usage(format!("prompt {} of {} is empty", index + 1, prompts.len())).into())
        }
        Some(_) => Err(Usage("the prompt is empty: give a text to continue".into()).into()),
        None => Ok(prompts),
    }
}

fn standard_input() -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        return Err(Usage("no prompt: give one as an argument or on standard input".into()).into());
    }
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("cannot read the prompt from standard input")?;
    if bytes.is_empty() {
        return Err(Usage("no prompt: standard input is empty".into()).into());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Usage(format!(
            "the prompt on standard input is not UTF-8 at byte {at}: convert it, for example with iconv"
        ))
    })?;
    // The newline that ends a file or the output of `echo` is not part of the prompt.
    let text = text.strip_suffix('\n').map_or(&text[..], |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(text.to_string())
}

/// A generator with a job for each answer; `request` holds what all of them share.
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
        let needed = cache_tokens(model, &encoded, &options, request.max_new_tokens, samples);
        options.cache_tokens = Some(most.min(needed));
    }
    let mut generator = Generator::new(Arc::clone(model), &options)?;
    let mut jobs = Vec::new();
    for (index, (prompt, encoded)) in prompts.iter().zip(encoded).enumerate() {
        let request = Request { prompt: encoded, ..request.clone() };
        for (sample, request) in request.samples(samples)?.into_iter().enumerate() {
            let id =
                generator.add(request.clone()).map_err(|error| with_number(error, index, prompts.len()))?;
            jobs.push(Job::new(id, (index, sample), prompt, &request));
        }
    }
    Ok((generator, jobs))
}

/// An error with the number of its prompt, if there are several.
fn with_number(error: Error, index: usize, count: usize) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    if count > 1 { error.context(format!("prompt {} of {count}", index + 1)) } else { error }
}

/// Cache tokens for as many of the longest sequences as can run at once.
fn cache_tokens(
    model: &TextModel,
    encoded: &[Vec<u32>],
    options: &GeneratorOptions,
    max_new_tokens: Option<usize>,
    samples: usize,
) -> usize {
    let longest = options.max_length.unwrap_or(model.decoder().context_length);
    let length = |prompt: &Vec<u32>| {
        let tokens = max_new_tokens.map_or(longest, |new| prompt.len().saturating_add(new));
        tokens.min(longest).next_multiple_of(model.page_size())
    };
    let mut lengths: Vec<usize> =
        encoded.iter().flat_map(|prompt| std::iter::repeat_n(length(prompt), samples)).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.into_iter().take(options.max_cache_batch_size).fold(0, usize::saturating_add)
}
