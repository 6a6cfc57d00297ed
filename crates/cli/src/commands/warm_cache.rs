//! `peri warm-cache`: downloads, compiles, packs and saves a model, so that it starts faster later.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use engine::{InferenceSession, Target};
use pipelines::{MemoryBytes, Plan};
use serde_json::{Value, json};

use crate::command_profile;
use crate::exit::{Usage, one_line};
use crate::interrupt::Interrupt;
use crate::model::{self, ThreadArguments};
use crate::output;
use crate::progress::Progress;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  peri warm-cache Qwen/Qwen3-0.6B
  peri warm-cache model.gguf --target model.mef
  peri warm-cache model.gguf --target arm.mef --compile-for \"aarch64 neon\"
  peri generate model.mef \"Once upon a time\"";

const DETAILS: &str = "\
Downloaded files stay in the hub cache. With --target, the compiled model and its packed weights are saved to an \
artifact; without it, they are discarded. An artifact made from a GGUF file or with --quantize is a model by itself; one \
made from another model starts with that model and --serialized-model-path.

With --compile-for, the artifact is for another kind of machine, and is not loaded here. It runs on machines of the \
architecture that have the instruction set or a larger one: x86_64 with portable, avx2, avx512 or avx512+vnni; aarch64 \
with portable, neon, neon+dotprod or neon+dotprod+i8mm.

JSON: model, files[], serialized_model_path, serialized_bytes, seconds{resolve, compile, load}.";

/// Arguments of `peri warm-cache`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = super::details(DETAILS, EXAMPLES))]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::WarmCache>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Save the compiled model with its packed weights to this file (--save-to-serialized-model-path)
    #[arg(long, value_name = "PATH", conflicts_with = "save_to_serialized_model_path")]
    target: Option<PathBuf>,
    /// Compile for another kind of machine, such as "aarch64 neon", and do not load the model
    #[arg(long, value_name = "TARGET")]
    compile_for: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// The result.
struct Warmed {
    model: String,
    files: Vec<PathBuf>,
    saved: Option<(PathBuf, u64)>,
    resolve: Duration,
    compile: Duration,
    load: Duration,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let warmed = warm(arguments)?;
    let text = if arguments.json { format!("{:#}\n", warmed.json()) } else { warmed.lines() };
    output::print(text)
}

fn warm(arguments: &Arguments) -> anyhow::Result<Warmed> {
    // A signal leaves no unfinished file.
    Interrupt::listen()?;
    let mut source = arguments.model.source()?;
    if let Some(path) = &arguments.target {
        let text = path.to_str().ok_or_else(|| Usage("--target is not UTF-8".into()))?;
        source.set("save_to_serialized_model_path", &text.into())?;
    }
    let session = arguments.threads.session([source.config()])?;
    let target = arguments.compile_for.as_deref().map(|text| target(text, &session)).transpose()?;
    if target.is_some() && source.config().save_to_serialized_model_path.is_none() {
        return Err(Usage("--compile-for makes a file: name it with --target".into()).into());
    }
    let progress = Progress::new(arguments.quiet);
    let start = Instant::now();
    let plan = source.plan_and_fetch(&progress)?;
    let resolve = start.elapsed();
    source.warn(&plan);
    let (files, path) = (files(&plan), plan.config().save_to_serialized_model_path.clone());
    let start = Instant::now();
    plan.expect_graph("peri warm-cache")?;
    let compiled = model::compile_for(&session, plan, target.as_ref())?;
    let compile = start.elapsed();
    let start = Instant::now();
    match target {
        Some(_) => model::save(compiled, &progress)?,
        None => model::load_and_drop(compiled, &session, &progress)?,
    }
    let load = start.elapsed();
    let size = |path: PathBuf| {
        let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok::<_, anyhow::Error>((path, bytes))
    };
    let saved = path.map(size).transpose()?;
    Ok(Warmed { model: source.name(), files, saved, resolve, compile, load })
}

/// The kind of machine of `--compile-for`.
fn target(text: &str, session: &InferenceSession) -> Result<Target, Usage> {
    let known = |target: Target| session.device_for(&target).map(|_| target);
    text.parse().and_then(known).map_err(|error| Usage(format!("--compile-for: {error}")))
}

/// The weight files; none for the built-in model.
fn files(plan: &Plan) -> Vec<PathBuf> {
    let files = plan.checkpoint().into_iter().flat_map(|checkpoint| checkpoint.weights().files());
    let files = files.map(|file| file.path().to_path_buf());
    files.filter(|file| file.exists()).collect()
}

impl Warmed {
    fn lines(&self) -> String {
        let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        let mut lines = vec![format!("{}: found in {}", one_line(&self.model), seconds(self.resolve))];
        lines.extend(self.files.iter().map(|file| format!("  {}", one_line(&file.display().to_string()))));
        lines.push(format!("compiled in {}, packed in {}", seconds(self.compile), seconds(self.load)));
        lines.push(match &self.saved {
            Some((path, bytes)) => {
                format!("saved to {} ({})", one_line(&path.display().to_string()), MemoryBytes(*bytes))
            }
            None => "the compiled model was not saved: name a file with --target".to_string(),
        });
        lines.join("\n") + "\n"
    }

    fn json(&self) -> Value {
        let (path, bytes) = self.saved.clone().unzip();
        json!({
            "model": self.model,
            "files": self.files,
            "serialized_model_path": path,
            "serialized_bytes": bytes,
            "seconds": {
                "resolve": self.resolve.as_secs_f64(),
                "compile": self.compile.as_secs_f64(),
                "load": self.load.as_secs_f64(),
            },
        })
    }
}
