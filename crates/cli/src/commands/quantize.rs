//! `peri quantize`: a model's weights in fewer bits, as a GGUF file or an artifact.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use models::{Checkpoint, MIXES, Mix};
use pipelines::{AddSpecial, Importance, MemoryBytes, ParseSpecial, Plan, QuantizeOptions, Quantized};
use serde_json::{Value, json};

use crate::command_profile;
use crate::exit::{Usage, one_line, warn};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::output;
use crate::parse;
use crate::progress::Progress;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  peri quantize Qwen/Qwen3-0.6B --to q4_k_m --out qwen3-0.6b-q4_k_m.gguf
  peri quantize model-f16.gguf --to q3_k_m --out model-q3_k_m.gguf --importance book.txt
  peri quantize model/ --to bf16 --out model.gguf
  peri quantize model.gguf --to q4_k_m --out model.mef";

const DETAILS: &str = "\
A .gguf file is the one that llama.cpp writes from the same weights, to the bit. A .mef file (artifact) holds the same \
weights compiled and packed for this kind of processor: it starts faster, and needs no other file. To quantize a model \
while it is loaded, without a file, give --quantize to the command that runs it.

A mix (q4_k_m) gives more bits to the matrices where errors cost most; --pure gives all matrices the same format. \
Vectors stay f32. If a matrix has rows that do not divide into blocks, it gets the nearest format that fits, and the \
command warns.

With --importance, the model first reads a text; then errors are kept smallest in the columns with the largest inputs. \
A few hundred kilobytes of typical text are enough. Only this step needs memory for the whole model.

JSON: model, file, to, bytes, weights, bits_per_weight, dtypes{name: tensors}, importance_tokens, seconds, warnings[].";

/// Arguments of `peri quantize`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = super::details(DETAILS, EXAMPLES))]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Quantize>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// The format or mix of formats for the new weights, such as q4_k_m
    #[arg(long, value_name = "FORMAT", value_parser = mix)]
    to: &'static Mix,
    /// The file to write: .gguf, or .mef for an artifact
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Give all matrices the same format
    #[arg(long)]
    pure: bool,
    /// Measure the importance of columns on this text
    #[arg(long, value_name = "FILE")]
    importance: Option<PathBuf>,
    /// Tokens of that text per window
    #[arg(long, value_name = "TOKENS", default_value = "512", value_parser = parse::count)]
    importance_window: NonZeroUsize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// The mix with a name.
fn mix(name: &str) -> Result<&'static Mix, String> {
    let names = || MIXES.iter().map(|mix| mix.name).collect::<Vec<_>>().join(", ");
    Mix::find(name).ok_or_else(|| format!("expected one of {}", names()))
}

/// Quantizes.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let start = Instant::now();
    let is_artifact = arguments.is_artifact()?;
    // A signal leaves no unfinished file.
    Interrupt::listen()?;
    let mut source = arguments.model.source()?;
    if is_artifact {
        let path = arguments.out.to_str().ok_or_else(|| Usage("--out is not UTF-8".into()))?;
        source.set("save_to_serialized_model_path", &path.into())?;
    }
    let progress = Progress::new(arguments.quiet);
    let plan = source.open(&progress)?;
    plan.expect_graph("peri quantize")?;
    let checkpoint = plan.checkpoint().expect("its files are fetched");
    let importance = arguments
        .importance
        .as_ref()
        .map(|_| measure(arguments, (&plan, checkpoint), &progress))
        .transpose()?
        .map(Arc::new);
    let tokens = importance.as_ref().map(|importance| importance.tokens);
    let options = QuantizeOptions { mix: arguments.to, pure: arguments.pure, importance };
    let written = if is_artifact {
        save(arguments, &plan, &options, &progress)
    } else {
        let show = &mut |done, total| progress.bytes("quantizing", "quantizing", done, total);
        let written = pipelines::quantize(checkpoint, plan.folder(), &options, &arguments.out, show);
        progress.clear();
        written.context("cannot quantize the model")
    }?;
    written.warnings.iter().for_each(|warning| warn(warning));
    let seconds = start.elapsed().as_secs_f64();
    let text = if arguments.json {
        format!("{:#}\n", as_json(arguments, &source.name(), &written, tokens, seconds))
    } else {
        lines(arguments, &source.name(), &written, tokens, seconds)
    };
    output::print(text)
}

impl Arguments {
    /// Whether the file to write is an artifact, as its name says.
    fn is_artifact(&self) -> Result<bool, Usage> {
        let extension = self.out.extension().unwrap_or_default().to_ascii_lowercase();
        match extension.to_str() {
            Some("gguf") => Ok(false),
            Some("mef") => Ok(true),
            _ => Err(Usage(format!("--out {} ends in neither .gguf nor .mef", self.out.display()))),
        }
    }
}

/// Compiles and packs the quantized model, whose plan says where it is saved.
fn save(
    arguments: &Arguments,
    plan: &Plan,
    options: &QuantizeOptions,
    progress: &Progress,
) -> anyhow::Result<Quantized> {
    let plan = plan.quantized(options).context("cannot quantize the model")?;
    let checkpoint = plan.checkpoint().expect("it was quantized");
    let quantizer = checkpoint.quantizer().expect("it was quantized");
    let written = Quantized::from_quantizer(quantizer, checkpoint);
    let session = arguments.threads.session([plan.config()])?;
    let compiled = model::compile(&session, plan)?;
    model::load_and_drop(compiled, &session, progress)?;
    Ok(written)
}

/// Runs the model over the text.
fn measure(
    arguments: &Arguments,
    (plan, checkpoint): (&Plan, &Checkpoint),
    progress: &Progress,
) -> anyhow::Result<Importance> {
    let path = arguments.importance.as_deref().expect("asked for");
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read {}: {error}; give a text in UTF-8", path.display())))?;
    let tokens = plan.tokenizer()?.encode(&text, AddSpecial::Yes, ParseSpecial::No)?;
    let session = arguments.threads.session([plan.config()])?;
    let show = &mut |done| progress.phase(format!("importance: token {done} of {}", tokens.len()));
    let window = arguments.importance_window.get();
    Ok(pipelines::measure_importance(&session, checkpoint, &tokens, window, show)?)
}

fn bits_per_weight(written: &Quantized) -> f64 {
    written.bytes as f64 * 8.0 / written.weights.max(1) as f64
}

fn lines(
    arguments: &Arguments,
    model: &str,
    written: &Quantized,
    tokens: Option<usize>,
    seconds: f64,
) -> String {
    let counts: Vec<String> =
        written.dtypes.iter().map(|(dtype, count)| format!("{count} {dtype}")).collect();
    let bits = bits_per_weight(written);
    let mut rows = vec![
        ("model", one_line(model)),
        ("tensors", counts.join(", ")),
        ("size", format!("{}, {bits:.2} bits a weight", MemoryBytes(written.bytes))),
    ];
    rows.extend(tokens.map(|tokens| ("importance", format!("of {tokens} tokens"))));
    rows.push(("file", one_line(&arguments.out.display().to_string())));
    rows.push(("time", format!("{seconds:.1} s")));
    rows.into_iter().map(|(name, value)| format!("{name:<16} {value}\n")).collect()
}

fn as_json(
    arguments: &Arguments,
    model: &str,
    written: &Quantized,
    tokens: Option<usize>,
    seconds: f64,
) -> Value {
    let dtypes = written.dtypes.iter().map(|(dtype, count)| (dtype.to_string(), Value::from(*count)));
    json!({
        "model": model,
        "file": arguments.out,
        "to": arguments.to.name,
        "bytes": written.bytes,
        "weights": written.weights,
        "bits_per_weight": bits_per_weight(written),
        "dtypes": dtypes.collect::<serde_json::Map<String, Value>>(),
        "importance_tokens": tokens,
        "seconds": seconds,
        "warnings": written.warnings,
    })
}
