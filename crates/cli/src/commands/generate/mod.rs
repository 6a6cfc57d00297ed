//! `peri generate`: continues prompts, as text or JSON.

mod clock;
mod length_limit;
mod printer;
mod request_flags;
mod sample;

use std::io::{IsTerminal, Read};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use engine::Model;
use futures_lite::{StreamExt, future};
use pipelines::config::KVCacheStrategy;
use pipelines::{AddSpecial, BatchEvent, BatchStream, ParseSpecial, Plan, Request, TextGenerator, TextModel};

use clock::Clock;
use length_limit::LengthLimit;
use printer::Printer;
use request_flags::RequestFlags;
use sample::Sample;

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
* The default without a generation_config.json next to the model.

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
    let count = arguments.samples.get();
    let begin = Instant::now();
    let progress = Progress::new(arguments.quiet);
    let answers = prompts.len().saturating_mul(count);
    source.default_to("max_cache_batch_size", &answers.clamp(1, MAX_SEQUENCES).into())?;
    if arguments.request.scores_prompts() {
        source.default_to("enable_echo", &true.into())?;
    }
    let plan =
        source.plan_and_fetch_decoder(&progress).map_err(|error| ModelAndTexts::explain(guess, error))?;
    let session = arguments.threads.session([plan.config()])?;
    if !arguments.quiet {
        source.warn(&plan);
    }
    let request = Request {
        max_new_tokens: model::max_new_tokens(&plan),
        ..arguments.request.apply(arguments.sampling.request(&source, &plan))?
    };
    let limit = LengthLimit::new(&source, &plan)?;
    let model = model::load(model::compile(&session, plan)?, &session, &progress)?;
    if let Some(constraint) = &request.constraint {
        model.grammars().compile(constraint)?;
    }
    let mut clock = Clock::new(begin.elapsed());
    let (generator, mut events, mut samples) = start(model, &request, &prompts, count)?;
    let mut printer = Printer::new(arguments.json, !arguments.no_echo, arguments.request.stops().to_vec());
    interrupt.watch();
    let mut step = None;
    while let Some(event) = next(&mut events, &interrupt, step) {
        let BatchEvent { index, at, kind, .. } = event?;
        step = Some(at);
        let sample = &mut samples[index];
        clock.count(at, &kind, sample.tokens.is_empty());
        sample.take(kind, arguments.quiet).map_err(|error| with_number(error, sample, prompts.len()))?;
        printer.show(&samples)?;
    }
    printer.end(&samples)?;
    let packing = generator.model().model().and_then(Model::packing_time);
    // The trace of a profiled model is written when the last user of the session is gone.
    generator.shutdown();
    if !arguments.quiet {
        limit.warning(&samples, request.max_new_tokens).iter().for_each(|warning| exit::warn(warning));
        clock.report(&samples, &request, packing);
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

/// The next event, unless all answers are over. After a signal, only the rest of the step whose events were taken last:
/// they have one time.
fn next(
    events: &mut BatchStream,
    interrupt: &Interrupt,
    step: Option<Instant>,
) -> Option<Result<BatchEvent, pipelines::Error>> {
    if !interrupt.asked() {
        let pressed = async {
            interrupt.pressed().await;
            None
        };
        if let Some(event) = future::block_on(future::or(pressed, async { Some(events.next().await) })) {
            return event;
        }
    }
    let step = step?;
    let rest = future::block_on(events.next())?;
    let is_of_step = rest.as_ref().map_or(true, |event| event.at == step);
    is_of_step.then_some(rest)
}

/// A sample for each answer, and the events of all of them; `request` holds what all of them share.
fn start(
    model: Arc<TextModel>,
    request: &Request,
    prompts: &[String],
    count: usize,
) -> anyhow::Result<(TextGenerator, BatchStream, Vec<Sample>)> {
    let encode = |prompt: &String| model.tokenizer().encode(prompt, AddSpecial::Yes, ParseSpecial::Yes);
    let encoded: Vec<Vec<u32>> = prompts.iter().map(encode).collect::<Result<_, _>>()?;
    let mut plan = model.plan().clone();
    if plan.config().cache_strategy == KVCacheStrategy::Paged {
        let memory = plan.memory()?;
        let needed = cache_tokens(&plan, &encoded, request.max_new_tokens, count)?;
        let tokens = memory.cache_tokens.min(needed);
        plan = plan.with_cache_tokens(tokens);
    }
    let (mut requests, mut samples) = (Vec::new(), Vec::new());
    for (index, (prompt, encoded)) in prompts.iter().zip(encoded).enumerate() {
        let request = Request { prompt: encoded, ..request.clone() };
        for (sample, request) in request.samples(count)?.into_iter().enumerate() {
            samples.push(Sample::new((index, sample), prompt, &request));
            requests.push(request);
        }
    }
    let generator = TextGenerator::with_plan(model, &plan)?;
    let events = generator.batch(requests);
    Ok((generator, events, samples))
}

/// An error with the number of its prompt, if the prompt was refused and there are several.
fn with_number(error: anyhow::Error, sample: &Sample, count: usize) -> anyhow::Error {
    let refused = count > 1 && !sample.started;
    if refused { error.context(format!("prompt {} of {count}", sample.index + 1)) } else { error }
}

/// Cache tokens for as many of the longest sequences as can run at once.
fn cache_tokens(
    plan: &Plan,
    encoded: &[Vec<u32>],
    max_new_tokens: Option<usize>,
    count: usize,
) -> anyhow::Result<usize> {
    let (longest, page_size) = (plan.max_length()?, plan.config().kv_cache_page_size);
    let length = |prompt: &Vec<u32>| {
        let tokens = max_new_tokens.map_or(longest, |new| prompt.len().saturating_add(new));
        tokens.min(longest).next_multiple_of(page_size)
    };
    let mut lengths: Vec<usize> =
        encoded.iter().flat_map(|prompt| std::iter::repeat_n(length(prompt), count)).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    Ok(lengths.into_iter().take(plan.memory()?.max_batch).fold(0, usize::saturating_add))
}
