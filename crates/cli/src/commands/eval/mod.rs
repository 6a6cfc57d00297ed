//! `peri eval`: perplexity of a text, and divergence from saved logits.

mod logits_file;
mod statistics;

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use pipelines::{AddSpecial, ParseSpecial, TextModel, divergence, log_probability, visit_logits};
use serde_json::{Value, json};

use crate::command_profile;
use crate::exit::{BadModel, Interrupted, Usage, one_line, warn};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::parse;
use crate::progress::Progress;
use crate::settings::ModelPath;

use logits_file::{LogitsReader, LogitsWriter, Tokens};
use statistics::{Agreement, Likelihood};

const EXAMPLES: &str = "\
Examples:
  peri eval model.gguf --text book.txt --window 512 --stride 256
  peri eval model-F16.gguf --text book.txt --logits-out f16.safetensors
  peri eval model-Q4_K_M.gguf --logits f16.safetensors --json";

const DETAILS: &str = "\
Perplexity is exp of the mean negative log-probability, in nats, of each token but the first, given the tokens before \
it in its window. The first window scores all its tokens, each later one its last --stride tokens; so every token counts \
once, with at least --window minus --stride tokens of context. Windows start without a prompt.

Saved logits are a safetensors file with `tokens` u32[tokens] and `logits` f32[rows, vocab]. Row i holds the logits at \
token i; with fewer rows than tokens, the rows belong to the last tokens. Divergence is KL(saved || model) in nats per \
position. Window and stride default to those of the file.

JSON: model, tokens, window, stride, scored, nats, perplexity, seconds, tokens_per_second, logits_out, divergence{file, \
rows, mean, median, p99, max, top1_agreement, saved_nats, saved_perplexity, perplexity_ratio}. Values not asked for are \
null.

Examples:
  peri eval model.gguf --text book.txt --window 512 --stride 256
  peri eval model-F16.gguf --text book.txt --logits-out f16.safetensors
  peri eval model-Q4_K_M.gguf --logits f16.safetensors --json";

/// Arguments of `peri eval`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = DETAILS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Eval>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// A text file to score; - for standard input
    #[arg(long, short = 'f', value_name = "FILE", required_unless_present_any = ["logits", "prompt"])]
    text: Option<PathBuf>,
    /// The text itself
    #[arg(long, short, value_name = "TEXT", conflicts_with = "text")]
    prompt: Option<String>,
    /// Do not add the model's special tokens around the text
    #[arg(long, conflicts_with = "logits")]
    no_special: bool,
    /// Tokens the model sees at once [default: 512, or the context length if shorter]
    #[arg(long, value_name = "TOKENS", value_parser = parse::count)]
    window: Option<NonZeroUsize>,
    /// Tokens from one window to the next [default: half a window]
    #[arg(long, value_name = "TOKENS", value_parser = parse::count)]
    stride: Option<NonZeroUsize>,
    /// Saved logits to compare with; without a text, their tokens are scored
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    /// A file to save the logits of every token to, for --logits
    #[arg(long, value_name = "FILE")]
    logits_out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// The default window, in tokens.
const WINDOW: usize = 512;

/// The result.
struct Outcome {
    model: String,
    tokens: usize,
    window: usize,
    stride: usize,
    likelihood: Likelihood,
    agreement: Option<Agreement>,
    seconds: f64,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let text = text(arguments)?;
    let saved = arguments.logits.as_deref().map(LogitsReader::open).transpose()?;
    let source = arguments.model.source()?;
    let progress = Progress::new(arguments.quiet);
    let plan = source.plan_and_fetch(&progress)?;
    let session = arguments.threads.session([plan.config()])?;
    source.warn(&plan);
    let (max_length, context) = (plan.max_length()?, plan.context_length());
    let model = model::load(model::compile(&session, plan)?, &session, &progress)?;
    let tokens = tokens(arguments, text, saved.as_ref(), &model)?;
    let (window, stride) = sizes(arguments, saved.as_ref(), max_length, context)?;
    let mut outcome = Outcome {
        model: source.name(),
        tokens: tokens.len(),
        window,
        stride,
        likelihood: Likelihood::default(),
        agreement: saved.as_ref().map(|_| Agreement::default()),
        seconds: 0.0,
    };
    interrupt.watch();
    let start = Instant::now();
    score(arguments, &model, &tokens, saved.as_ref(), &mut outcome, (&interrupt, &progress))?;
    outcome.seconds = start.elapsed().as_secs_f64();
    progress.clear();
    let text =
        if arguments.json { format!("{:#}\n", outcome.json(arguments)) } else { outcome.lines(arguments) };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Adds every position to the outcome, and writes its logits to the file of `--logits-out`.
fn score(
    arguments: &Arguments,
    model: &Arc<TextModel>,
    tokens: &[u32],
    saved: Option<&LogitsReader>,
    outcome: &mut Outcome,
    (interrupt, progress): (&Interrupt, &Progress),
) -> anyhow::Result<()> {
    let (window, stride) = (outcome.window, outcome.stride);
    let mut writer = match &arguments.logits_out {
        Some(path) => {
            let of = Tokens { tokens, vocab: model.vocab(), window, stride, model: &outcome.model };
            Some(LogitsWriter::create(path, &of)?)
        }
        None => None,
    };
    let show = |at| progress.phase(format!("scoring token {at} of {}", tokens.len()));
    show(0);
    visit_logits(model, tokens, window, stride, |at, logits| -> anyhow::Result<()> {
        if interrupt.asked() {
            return Err(Interrupted.into());
        }
        if at % stride == 0 {
            show(at);
        }
        if let Some(writer) = &mut writer {
            writer.row(logits)?;
        }
        let next = tokens.get(at + 1).copied();
        if let Some(next) = next {
            outcome.likelihood.add(log_probability(logits, next), at)?;
        }
        if let Some((reader, agreement)) = saved.zip(outcome.agreement.as_mut())
            && let Some(row) = reader.row(at)
        {
            let nats = next.map(|next| (-log_probability(row, next), -log_probability(logits, next)));
            agreement.add(divergence(row, logits), nats, at)?;
        }
        Ok(())
    })?;
    writer.map_or(Ok(()), LogitsWriter::finish)
}

/// The text of the flags, if any.
fn text(arguments: &Arguments) -> anyhow::Result<Option<String>> {
    let Some(path) = &arguments.text else { return Ok(arguments.prompt.clone()) };
    let mut bytes = Vec::new();
    let (name, read) = match path.as_os_str() == "-" {
        true => ("standard input".to_string(), std::io::stdin().lock().read_to_end(&mut bytes)),
        false => {
            let read = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
            (path.display().to_string(), read)
        }
    };
    read.map_err(|error| Usage(format!("cannot read {name}: {error}; check the path of the text")))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| Usage(format!("{name}: {error}; convert it, with iconv say")))?;
    Ok(Some(text))
}

/// The tokens to score: those of the text, else of the saved logits. If both are given, they must agree.
fn tokens(
    arguments: &Arguments,
    text: Option<String>,
    saved: Option<&LogitsReader>,
    model: &TextModel,
) -> anyhow::Result<Vec<u32>> {
    let special = if arguments.no_special { AddSpecial::No } else { AddSpecial::Yes };
    let encoded = text.map(|text| model.tokenizer().encode(&text, special, ParseSpecial::No)).transpose()?;
    let vocab = model.vocab();
    if let Some(saved) = saved {
        saved.check(vocab, encoded.as_deref())?;
    }
    let tokens = encoded.or_else(|| saved.map(|saved| saved.tokens().to_vec())).unwrap_or_default();
    if tokens.len() < 2 && saved.is_none() && arguments.logits_out.is_none() {
        let problem = format!("the text is {} tokens, and scoring takes 2; give a longer one", tokens.len());
        return Err(Usage(problem).into());
    }
    match tokens.iter().find(|&&token| token as usize >= vocab) {
        _ if tokens.is_empty() => Err(Usage("the text is empty; give one".into()).into()),
        Some(token) => {
            let problem = format!("token {token} is beyond the model's vocabulary of {vocab}");
            Err(BadModel(format!("{problem}: the tokenizer, or the saved logits, are of another model"))
                .into())
        }
        None => Ok(tokens),
    }
}

/// Window and stride: from flags, else from the saved logits, else the defaults.
fn sizes(
    arguments: &Arguments,
    saved: Option<&LogitsReader>,
    max_length: usize,
    context: usize,
) -> anyhow::Result<(usize, usize)> {
    let given = |size: Option<NonZeroUsize>| size.map(NonZeroUsize::get);
    let (saved_window, saved_stride) = saved.map_or((None, None), LogitsReader::sizes);
    let window = given(arguments.window).or(saved_window).unwrap_or(WINDOW.min(max_length));
    if window > max_length {
        let limit = if max_length < context {
            format!("max_length is {max_length}")
        } else {
            format!("the model takes {context}")
        };
        let problem = format!("a window of {window} tokens, but {limit}; give a smaller --window");
        return Err(Usage(problem).into());
    }
    let same = given(arguments.window).is_none_or(|given| Some(given) == saved_window);
    let stride = given(arguments.stride).or(saved_stride.filter(|_| same)).unwrap_or(window.div_ceil(2));
    if stride > window {
        let problem = format!("a stride of {stride} tokens, but a window of {window}");
        return Err(Usage(format!("{problem}; give a --stride of at most the window")).into());
    }
    if let (Some(expected), _) | (_, Some(expected)) =
        (saved_window.filter(|&saved| saved != window), saved_stride.filter(|&saved| saved != stride))
    {
        warn(&format!(
            "the saved logits have another window or stride ({expected}), so their contexts differ"
        ));
    }
    Ok((window, stride))
}

impl Outcome {
    fn lines(&self, arguments: &Arguments) -> String {
        let mut rows = vec![
            ("model", one_line(&self.model)),
            ("tokens", format!("{}, windows of {}, stride {}", self.tokens, self.window, self.stride)),
        ];
        if let Some(nats) = self.likelihood.mean() {
            rows.push(("scored", format!("{} tokens", self.likelihood.count)));
            rows.push(("nats per token", format!("{nats:.4}")));
            rows.push(("perplexity", format!("{:.4}", nats.exp())));
        }
        if let Some(agreement) = self.agreement.as_ref().filter(|agreement| !agreement.is_empty()) {
            let [mean, median, p99, max] = agreement.summary();
            rows.push((
                "divergence",
                format!("mean {mean:.6}, median {median:.6}, p99 {p99:.6}, max {max:.6}"),
            ));
            let percent = 100.0 * agreement.top1();
            rows.push(("same top token", format!("{percent:.2} % of {} rows", agreement.rows())));
            if let Some((saved, ratio)) = agreement.perplexities() {
                rows.push(("saved perplexity", format!("{saved:.4}, of which this is {ratio:.4} times")));
            }
        }
        if let Some(path) = &arguments.logits_out {
            rows.push(("logits saved to", one_line(&path.display().to_string())));
        }
        rows.push(("speed", format!("{:.1} tokens/s", self.tokens as f64 / self.seconds.max(1e-9))));
        rows.into_iter().map(|(name, value)| format!("{name:<16} {value}\n")).collect()
    }

    fn json(&self, arguments: &Arguments) -> Value {
        let nats = self.likelihood.mean();
        let divergence = self.agreement.as_ref().filter(|agreement| !agreement.is_empty()).map(|agreement| {
            let [mean, median, p99, max] = agreement.summary();
            let (saved, ratio) = agreement.perplexities().unzip();
            json!({
                "file": arguments.logits,
                "rows": agreement.rows(),
                "mean": mean,
                "median": median,
                "p99": p99,
                "max": max,
                "top1_agreement": agreement.top1(),
                "saved_nats": saved.map(f64::ln),
                "saved_perplexity": saved,
                "perplexity_ratio": ratio,
            })
        });
        json!({
            "model": self.model,
            "tokens": self.tokens,
            "window": self.window,
            "stride": self.stride,
            "scored": self.likelihood.count,
            "nats": nats,
            "perplexity": nats.map(f64::exp),
            "seconds": self.seconds,
            "tokens_per_second": self.tokens as f64 / self.seconds.max(1e-9),
            "logits_out": arguments.logits_out.as_deref().map(Path::display).map(|path| path.to_string()),
            "divergence": divergence,
        })
    }
}
