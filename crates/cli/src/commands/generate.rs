//! `peri generate`: continues prompts, as text or JSON.

use std::io::{IsTerminal, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use pipelines::config::KVCacheStrategy;
use pipelines::{
    AddSpecial, Event, EventKind, FinishReason, Generator, GeneratorOptions, ParseSpecial, Request,
    SequenceId, TextModel,
};

use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::output::TextOutput;
use crate::progress::Progress;
use crate::sampling::SamplingArguments;
use crate::settings::ModelFlags;

const AFTER_HELP: &str = "\
Here max_length is auto, max_new_tokens 200, cache_strategy paged and kv_cache_page_size 64 by default, and as many
prompts run at once as there are, up to 64. Tokens are drawn among the 40 likeliest unless --top-k says otherwise *.

* or what the generation_config.json beside the model recommends.

JSON, a line for each prompt: index, prompt, text, tokens[], prompt_tokens, finish_reason, seed.

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
    model: ModelFlags,
    #[command(flatten)]
    threads: ThreadArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// Go on after the model ends its text
    #[arg(long)]
    ignore_eos: bool,
    /// Print the continuations only, without the prompts
    #[arg(long)]
    no_echo: bool,
    /// Print one JSON object a line for each prompt
    #[arg(long)]
    json: bool,
    /// No progress and no timings on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// Tokens in a step, prompt and decode together.
const MAX_BATCH_TOKENS: usize = 512;
/// Prompts that are continued at once; more wait.
const MAX_SEQUENCES: usize = 64;

/// One prompt and what became of it.
struct Job {
    id: SequenceId,
    prompt: String,
    prompt_tokens: usize,
    text: String,
    tokens: Vec<u32>,
    finished: Option<FinishReason>,
}

/// What `--json` prints of a prompt.
#[derive(serde::Serialize)]
struct Object<'a> {
    index: usize,
    prompt: &'a str,
    text: &'a str,
    tokens: &'a [u32],
    prompt_tokens: usize,
    finish_reason: &'static str,
    seed: u64,
}

/// Generates.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let prompts = prompts(arguments)?;
    let begin = Instant::now();
    let session = arguments.threads.session()?;
    let progress = Progress::new(arguments.quiet);
    let source = arguments.model.source(&defaults(prompts.len()))?;
    let resolved = source.resolve(&progress)?;
    if !arguments.quiet {
        source.warn(&resolved);
    }
    let sampling = arguments.sampling.options(&source, &resolved);
    let options =
        GeneratorOptions { max_batch_tokens: MAX_BATCH_TOKENS, ..GeneratorOptions::from(&resolved) };
    let max_new_tokens = model::max_new_tokens(&resolved);
    let model = model::pack(model::compile(&session, resolved)?, &session, &progress)?;
    let mut clock = Clock::new(begin.elapsed());
    let request = Request {
        sampling,
        seed: arguments.sampling.seed(),
        max_new_tokens,
        ignore_eos: arguments.ignore_eos,
        ..Request::default()
    };
    let (mut generator, mut jobs) = start(&model, options, &request, prompts)?;
    let mut printer = Printer::new(arguments, request.seed);
    interrupt.watch();
    while !generator.is_idle() && !interrupt.asked() {
        let begin = Instant::now();
        let events = generator.step()?;
        clock.count(begin.elapsed(), &events, &jobs);
        for event in events {
            let job = jobs.iter_mut().find(|job| job.id == event.id).expect("events are of our jobs");
            job.take(event.kind)?;
        }
        printer.show(&jobs)?;
    }
    printer.end(&jobs)?;
    if !arguments.quiet {
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

/// What is so unless someone says otherwise: as many prompts at once as there are, in pages that they share out.
fn defaults(prompts: usize) -> [(&'static str, serde_json::Value); 5] {
    [
        ("max_length", "auto".into()),
        ("max_new_tokens", 200.into()),
        ("max_cache_batch_size", prompts.clamp(1, MAX_SEQUENCES).into()),
        ("cache_strategy", "paged".into()),
        ("kv_cache_page_size", model::PAGE_SIZE.into()),
    ]
}

/// A generator with a job for each prompt; `request` is what they have in common.
fn start(
    model: &Arc<TextModel>,
    mut options: GeneratorOptions,
    request: &Request,
    prompts: Vec<String>,
) -> anyhow::Result<(Generator, Vec<Job>)> {
    let encode = |prompt: &String| model.tokenizer().encode(prompt, AddSpecial::Yes, ParseSpecial::Yes);
    let encoded: Vec<Vec<u32>> = prompts.iter().map(encode).collect::<Result<_, _>>()?;
    if options.cache_strategy == KVCacheStrategy::Paged {
        let most = options.cache_tokens.unwrap_or(usize::MAX);
        options.cache_tokens =
            Some(most.min(cache_tokens(model, &encoded, &options, request.max_new_tokens)));
    }
    let mut generator = Generator::new(Arc::clone(model), &options)?;
    let mut jobs = Vec::new();
    for (prompt, encoded) in prompts.into_iter().zip(encoded) {
        let prompt_tokens = encoded.len();
        let id = generator.add(Request { prompt: encoded, ..request.clone() })?;
        let (text, tokens) = (String::new(), Vec::new());
        jobs.push(Job { id, prompt, prompt_tokens, text, tokens, finished: None });
    }
    Ok((generator, jobs))
}

/// Room for as many of the longest sequences as may run at once.
fn cache_tokens(
    model: &TextModel,
    encoded: &[Vec<u32>],
    options: &GeneratorOptions,
    max_new_tokens: Option<usize>,
) -> usize {
    let longest = options.max_length.unwrap_or(model.decoder().context_length);
    let room = |prompt: &Vec<u32>| {
        let tokens = max_new_tokens.map_or(longest, |new| prompt.len().saturating_add(new));
        tokens.min(longest).next_multiple_of(model.page_size())
    };
    let mut rooms: Vec<usize> = encoded.iter().map(room).collect();
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    rooms.into_iter().take(options.max_cache_batch_size).fold(0, usize::saturating_add)
}

impl Job {
    fn take(&mut self, event: EventKind) -> anyhow::Result<()> {
        match event {
            EventKind::Token { token, text, .. } => {
                self.tokens.push(token);
                self.text.push_str(&text);
            }
            EventKind::Finished { reason, text } => {
                self.text.push_str(&text);
                self.finished = Some(reason);
            }
            EventKind::Failed(error) => return Err(error.into()),
            // Nothing was asked for that these report.
            EventKind::Started { .. } | EventKind::Warning(_) | EventKind::PromptToken { .. } => {}
        }
        Ok(())
    }
}

/// Writes results in the order of the prompts: text as it comes, JSON once it is complete.
struct Printer {
    json: bool,
    echo: bool,
    seed: u64,
    /// Jobs that were written whole.
    shown: usize,
    /// Whether the prompt of the next one was written, and how many bytes of its text.
    begun: bool,
    written: usize,
    output: TextOutput,
}

impl Printer {
    fn new(arguments: &Arguments, seed: u64) -> Printer {
        let (json, echo) = (arguments.json, !arguments.no_echo);
        Printer { json, echo, seed, shown: 0, begun: false, written: 0, output: TextOutput::new() }
    }

    /// Writes what is new.
    fn show(&mut self, jobs: &[Job]) -> anyhow::Result<()> {
        self.write(jobs, false).context("cannot write to standard output")
    }

    /// Writes what is left, complete or not.
    fn end(&mut self, jobs: &[Job]) -> anyhow::Result<()> {
        self.write(jobs, true).context("cannot write to standard output")
    }

    fn write(&mut self, jobs: &[Job], last: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        while let Some(job) = jobs.get(self.shown) {
            let complete = last || job.finished.is_some();
            match self.json {
                true if complete => writeln!(out, "{}", serde_json::to_string(&self.object(job))?)?,
                true => break,
                false => self.write_new(&mut out, job)?,
            }
            if !complete {
                break;
            }
            if !self.json {
                self.output.end(&mut out)?;
            }
            self.shown += 1;
            (self.begun, self.written) = (false, 0);
        }
        out.flush()
    }

    /// The part of a job's text that was not written yet.
    fn write_new(&mut self, out: &mut impl Write, job: &Job) -> std::io::Result<()> {
        if self.echo && !self.begun {
            self.output.write(out, &job.prompt)?;
        }
        self.output.write(out, &job.text[self.written..])?;
        (self.begun, self.written) = (true, job.text.len());
        Ok(())
    }

    fn object<'a>(&self, job: &'a Job) -> Object<'a> {
        Object {
            index: self.shown,
            prompt: &job.prompt,
            text: &job.text,
            tokens: &job.tokens,
            prompt_tokens: job.prompt_tokens,
            finish_reason: job.finished.map_or("interrupted", FinishReason::name),
            seed: self.seed,
        }
    }
}

/// Where the time went, for the closing line.
struct Clock {
    load: Duration,
    /// Of the steps that read prompts; tokens of other sequences may be made beside.
    prompt: Duration,
    /// Of the steps that only made tokens, and how many those were.
    decode: Duration,
    decoded: usize,
    first_token: Option<Duration>,
}

impl Clock {
    fn new(load: Duration) -> Clock {
        let (prompt, decode) = (Duration::ZERO, Duration::ZERO);
        Clock { load, prompt, decode, decoded: 0, first_token: None }
    }

    /// Counts a step, before its events are taken.
    fn count(&mut self, time: Duration, events: &[Event], jobs: &[Job]) {
        let first = |event: &Event| jobs.iter().any(|job| job.id == event.id && job.tokens.is_empty());
        let predicted = |event: &&Event| match event.kind {
            EventKind::Token { .. } => true,
            EventKind::Finished { reason, .. } => reason != FinishReason::Length,
            _ => false,
        };
        let predicted: Vec<&Event> = events.iter().filter(predicted).collect();
        if predicted.is_empty() || predicted.iter().any(|event| first(event)) {
            self.prompt += time;
            if !predicted.is_empty() {
                self.first_token.get_or_insert(self.prompt + self.decode);
            }
        } else {
            self.decode += time;
            self.decoded += predicted.len();
        }
    }

    /// The closing line on standard error.
    fn report(&self, jobs: &[Job], request: &Request) {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let mut facts = vec![format!("load {:.0} ms", milliseconds(self.load))];
        if let Some(first_token) = self.first_token {
            let prompt = jobs.iter().map(|job| job.prompt_tokens).sum();
            facts.push(format!("prompt {prompt} tokens, {:.1} tok/s", rate(prompt, self.prompt)));
            facts.push(format!("first token {:.1} ms", milliseconds(first_token)));
        }
        if self.decoded > 0 {
            let made: usize = jobs.iter().map(|job| job.tokens.len()).sum();
            facts.push(format!("decode {made} tokens, {:.1} tok/s", rate(self.decoded, self.decode)));
        }
        if request.sampling.params().temperature > 0.0 {
            facts.push(format!("seed {}", request.seed));
        }
        // A closed standard error changes nothing.
        let _ = writeln!(std::io::stderr(), "\n[{}]", facts.join(" | "));
    }
}
