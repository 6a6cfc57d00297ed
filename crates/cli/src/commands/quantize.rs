//! `peri quantize`: a model's weights in fewer bits, as a GGUF file.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use models::{MIXES, Mix};
use pipelines::config::ResolvedConfig;
use pipelines::{AddSpecial, Importance, MemoryBytes, ParseSpecial, QuantizeOptions, Quantized};
use serde_json::{Value, json};

use crate::command_profile;
use crate::exit::{Usage, one_line, warn};
use crate::model::ThreadArguments;
use crate::parse;
use crate::progress::Progress;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  peri quantize Qwen/Qwen3-0.6B --to q4_k_m --out qwen3-0.6b-q4_k_m.gguf
  peri quantize model-f16.gguf --to q3_k_m --out model-q3_k_m.gguf --importance book.txt
  peri quantize model/ --to bf16 --out model.gguf";

const DETAILS: &str = "\
Formats are those of llama.cpp, and the same weights give the same bits. The mixes (q4_k_m) use more bits where errors \
cost most; --pure gives all matrices the same format. Vectors stay f32. Rows that do not fit the blocks of a format get \
the nearest format that fits, with a warning.

With --importance, the model first runs over a text, and errors become smaller in columns whose input is large. A few \
hundred kilobytes of text like what the model is for are enough. Only this needs memory for the whole model.

JSON: model, file, to, bytes, weights, bits_per_weight, dtypes{name: tensors}, importance_tokens, seconds, warnings[].

Examples:
  peri quantize Qwen/Qwen3-0.6B --to q4_k_m --out qwen3-0.6b-q4_k_m.gguf
  peri quantize model-f16.gguf --to q3_k_m --out model-q3_k_m.gguf --importance book.txt
  peri quantize model/ --to bf16 --out model.gguf";

/// Arguments of `peri quantize`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = DETAILS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Quantize>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// The format, or the mix of formats, of the new weights
    #[arg(long, value_name = "FORMAT", value_parser = mix)]
    to: &'static Mix,
    /// The GGUF file to write; it appears whole or not at all
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Give all matrices the same format
    #[arg(long)]
    pure: bool,
    /// A text to measure the importance of columns with
    #[arg(long, value_name = "FILE")]
    importance: Option<PathBuf>,
    /// Tokens of that text which the model sees at once
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
    let extension = arguments.out.extension().unwrap_or_default().to_ascii_lowercase();
    if extension != "gguf" {
        let fix = if extension == "mef" {
            "write a GGUF file, and then `peri warm-cache FILE.gguf --target FILE.mef`"
        } else {
            "let it end in .gguf"
        };
        let problem = format!("--out {} is not the name of a GGUF file", arguments.out.display());
        return Err(Usage(format!("{problem}: {fix}")).into());
    }
    let source = arguments.model.source()?;
    let progress = Progress::new(arguments.quiet);
    let resolved = source.look(&progress)?;
    let importance =
        arguments.importance.as_ref().map(|_| measure(arguments, &resolved, &progress)).transpose()?;
    let options =
        QuantizeOptions { mix: arguments.to, pure: arguments.pure, importance: importance.as_ref() };
    let show = &mut |done, total| progress.bytes("quantizing", done, total);
    let written =
        pipelines::quantize(resolved.checkpoint(), resolved.folder(), &options, &arguments.out, show);
    progress.clear();
    let written = written.context("cannot quantize the model")?;
    written.warnings.iter().for_each(|warning| warn(warning));
    let tokens = importance.map(|importance| importance.tokens);
    let seconds = start.elapsed().as_secs_f64();
    let text = if arguments.json {
        format!("{:#}\n", as_json(arguments, &source.name(), &written, tokens, seconds))
    } else {
        lines(arguments, &source.name(), &written, tokens, seconds)
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Runs the model over the text.
fn measure(
    arguments: &Arguments,
    resolved: &ResolvedConfig,
    progress: &Progress,
) -> anyhow::Result<Importance> {
    let path = arguments.importance.as_deref().expect("asked for");
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read {}: {error}; give a text in UTF-8", path.display())))?;
    let tokens = resolved.tokenizer()?.encode(&text, AddSpecial::Yes, ParseSpecial::No)?;
    let session = arguments.threads.session()?;
    let show = &mut |done| progress.phase(format!("importance: token {done} of {}", tokens.len()));
    let window = arguments.importance_window.get();
    Ok(Importance::measure(&session, resolved.checkpoint(), &tokens, window, show)?)
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
