//! `peri plan`: the memory of a model and its cache, and whether it fits, before anything is loaded.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use engine::{DeviceShare, Program, WeightMemory};
use pipelines::{MemoryBytes, MemoryPlan, Plan};
use serde_json::{Value, json};
use sources::PlannedFile;

use crate::command_profile;
use crate::exit::{one_line, warn};
use crate::model;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  peri plan model.gguf --max-length 8192 --max-cache-batch-size 4
  peri plan Qwen/Qwen3-0.6B --json";

const DETAILS: &str = "\
Only headers are read. Of a repo that is not in the cache, only the list of files, config.json and the headers of the \
weights are downloaded (PyTorch files have none). The total is the weights as loaded, or their files if that is unknown, \
plus the cache. Free memory is what this machine, or its container, has left. If the model does not fit, the exit code \
is 4. Of a model on an accelerator, the steps that the host computes are shown with the reason why.

JSON: model, architecture, task, parameters, active_parameters, encoding, quantize, files[{name, bytes, cached}], \
bytes_to_fetch, weights_bytes, weights_packed_bytes, weights_mapped_bytes, cache_strategy, cache_dtype, cache_page_size, \
cache_bytes_per_token, cache_bytes, cache_tokens, state_bytes_per_slot, state_slots, states_bytes, max_length, \
max_length_inferred, max_cache_batch_size, max_cache_batch_size_inferred, total_bytes, usable_bytes, free_bytes, fits, device, device_steps, \
host_steps[{op, reason, count}], bytes_to_device, bytes_from_device, problem, warnings. Unknown values are null.

Examples:
  peri plan model.gguf --max-length 8192 --max-cache-batch-size 4
  peri plan Qwen/Qwen3-0.6B --json";

/// Arguments of `peri plan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = DETAILS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Plan>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is known about a model, cached or not.
struct Report {
    model: String,
    plan: Plan,
    files: Vec<PlannedFile>,
    /// Bytes of the weights as they are stored, if known.
    weights: Option<u64>,
    /// The weights in memory, if known.
    memory: Option<WeightMemory>,
    /// What the accelerator does, if the model runs on one.
    share: Option<DeviceShare>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let source = arguments.model.source()?;
    let report = Report::new(source.name(), source.plan()?)?;
    let mut text = report.lines();
    if arguments.json {
        text = format!("{:#}\n", report.json());
    } else {
        report.warnings().iter().for_each(|warning| warn(warning));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?;
    match report.plan.memory() {
        Err(refusal) if report.is_sized() => Err(pipelines::Error::from(refusal).into()),
        _ => Ok(()),
    }
}

impl Report {
    fn new(model: String, plan: Plan) -> anyhow::Result<Report> {
        let files = plan.files()?;
        let Some(checkpoint) = plan.checkpoint() else {
            let report = Report { model, plan, files, weights: None, memory: None, share: None };
            return Ok(Report { weights: report.on_disk(), ..report });
        };
        let weights = Some(checkpoint.weights().bytes());
        // Nothing is computed, so one thread is enough.
        let compiled = model::compile(&model::session(1, [plan.config()])?, plan.clone())?;
        let program = compiled.model().and_then(|model| model.programs().next());
        let (memory, share) = (program.map(Program::weight_memory), program.and_then(Program::device_share));
        Ok(Report { model, plan, files, weights, memory, share })
    }

    /// Whether the bytes of the weights in memory are known, on which all but the model depends.
    fn is_sized(&self) -> bool {
        self.plan.weight_bytes().is_some()
    }

    fn fits(&self) -> Option<&MemoryPlan> {
        self.plan.memory().ok().filter(|_| self.is_sized())
    }

    fn warnings(&self) -> Vec<String> {
        let of_memory = self.fits().map_or(&[][..], |memory| &memory.warnings);
        [self.plan.warnings(), of_memory].concat()
    }

    /// Bytes of the files that are not here, as far as the hub says.
    fn to_fetch(&self) -> u64 {
        let lacking = self.files.iter().filter(|file| !file.cached);
        lacking.filter_map(PlannedFile::missing).fold(0, u64::saturating_add)
    }

    /// Bytes of the weights as loaded, or of their files, plus the cache.
    fn total(&self) -> Option<u64> {
        let loaded = self.memory.map(|WeightMemory { packed, stored }| packed.saturating_add(stored));
        let weights = loaded.or(self.plan.weight_bytes())?;
        Some(weights.saturating_add(self.fits().map_or(0, |plan| plan.cache)))
    }

    fn problem(&self) -> Option<String> {
        self.plan.memory().err().filter(|_| self.is_sized()).map(|error| error.to_string())
    }

    /// The encoding, if known.
    fn encoding(&self) -> Option<String> {
        self.plan.config().quantization_encoding.map(|encoding| encoding.to_string())
    }

    /// Names and values, in the order they print.
    fn lines(&self) -> String {
        let unknown = || "unknown".to_string();
        let (plan, config) = (&self.plan, self.plan.config());
        let mut rows = vec![
            ("model", one_line(&self.model)),
            ("architecture", one_line(self.architecture())),
            ("parameters", parameters(plan).unwrap_or_else(unknown)),
            ("encoding", self.encoding().unwrap_or_else(unknown)),
        ];
        rows.extend(config.quantize.map(|mix| ("quantized to", mix.name.to_string())));
        rows.push(("weights on disk", self.on_disk().or(self.weights).map_or_else(unknown, words)));
        if self.to_fetch() > 0 {
            rows.push(("to download", words(self.to_fetch())));
        }
        if let Some(WeightMemory { packed, stored }) = self.memory {
            rows.push(("weights loaded", format!("{} packed, {} mapped", words(packed), words(stored))));
        }
        if self.is_sized() && plan.cache_bytes_per_token() > 0 {
            let (strategy, page_size) = (config.cache_strategy, config.kv_cache_page_size);
            let (dtype, per_token) = (plan.cache_dtype(), words(plan.cache_bytes_per_token()));
            rows.push((
                "cache",
                format!("{strategy}, pages of {page_size} tokens, {dtype}, {per_token} a token"),
            ));
        }
        if self.is_sized() && plan.state_bytes_per_slot() > 0 {
            rows.push(("state of a sequence", words(plan.state_bytes_per_slot())));
        }
        rows.extend(self.fits().into_iter().flat_map(division));
        if let (Some(plan), Some(total)) = (self.fits(), self.total().map(words)) {
            rows.push((
                "total",
                plan.free.map_or(total.clone(), |free| format!("{total} of {} free", words(free))),
            ));
        }
        let verdict = match (self.fits(), self.problem()) {
            (_, Some(problem)) => format!("no: {problem}"),
            (Some(MemoryPlan { free: Some(_), .. }), None) => "yes".to_string(),
            _ => unknown(),
        };
        rows.push(("fits", verdict));
        if let Some(share) = &self.share {
            let DeviceShare { device, steps, bytes_there, bytes_back, .. } = share;
            let (there, back) = (words(*bytes_there), words(*bytes_back));
            rows.push(("steps on the device", format!("{steps} on {device}")));
            rows.push(("steps on the host", on_host(share)));
            rows.push(("moved for a token", format!("{there} to {device}, {back} back")));
        }
        rows.into_iter().map(|(name, value)| format!("{name:<21} {value}\n")).collect()
    }

    /// The architecture by its Hugging Face name, if it has one.
    fn architecture(&self) -> &str {
        self.plan.config().architecture.as_deref().unwrap_or_else(|| self.plan.architecture())
    }

    /// Bytes of the files, if all are known.
    fn on_disk(&self) -> Option<u64> {
        let sizes = self.files.iter().map(|file| file.size);
        sizes.reduce(|sum, size| Some(sum?.saturating_add(size?))).flatten()
    }

    fn json(&self) -> Value {
        let (plan, config, memory) = (&self.plan, self.plan.config(), self.fits());
        let file = |file: &PlannedFile| json!({"name": file.name, "bytes": file.size, "cached": file.cached});
        let free = self.plan.free_memory().filter(|_| self.is_sized());
        let usable = free.map(|free| (free as f64 * config.gpu_memory_utilization) as u64);
        let sized = |value: Value| if self.is_sized() { value } else { Value::Null };
        json!({
            "model": self.model,
            "architecture": self.architecture(),
            "task": if plan.is_classifier() {
                "text_classification"
            } else if plan.makes_text() {
                "text_generation"
            } else {
                "embeddings_generation"
            },
            "parameters": plan.parameters().map(|count| count.all),
            "active_parameters": plan.model().and_then(|model| model.parameters().ok()).map(|count| count.active),
            "encoding": self.encoding(),
            "quantize": config.quantize.map(|mix| mix.name),
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "bytes_to_fetch": self.to_fetch(),
            "weights_bytes": self.weights,
            "weights_packed_bytes": self.memory.map(|memory| memory.packed),
            "weights_mapped_bytes": self.memory.map(|memory| memory.stored),
            "cache_strategy": sized(config.cache_strategy.to_string().into()),
            "cache_dtype": self.plan.cache_dtype().to_string(),
            "cache_page_size": sized(config.kv_cache_page_size.into()),
            "cache_bytes_per_token": sized(self.plan.cache_bytes_per_token().into()),
            "cache_bytes": memory.map(|memory| memory.cache),
            "cache_tokens": memory.map(|memory| memory.cache_tokens),
            "state_bytes_per_slot": sized(self.plan.state_bytes_per_slot().into()),
            "state_slots": memory.map(|memory| memory.state_slots),
            "states_bytes": memory.map(|memory| memory.states),
            "max_length": memory.map(|memory| memory.max_length),
            "max_length_inferred": memory.map(|memory| memory.length_inferred),
            "max_cache_batch_size": memory.map(|memory| memory.max_batch),
            "max_cache_batch_size_inferred": memory.map(|memory| memory.batch_inferred),
            "total_bytes": self.total(),
            "usable_bytes": usable,
            "free_bytes": free,
            "fits": free.map(|_| memory.is_some()),
            "device": self.share.as_ref().map(|share| share.device.to_string()),
            "device_steps": self.share.as_ref().map(|share| share.steps),
            "host_steps": self.share.as_ref().map(|share| {
                let step = |((op, reason), count): (&(&str, Option<String>), &usize)| {
                    json!({"op": op, "reason": reason, "count": count})
                };
                share.on_host.iter().map(step).collect::<Vec<_>>()
            }),
            "bytes_to_device": self.share.as_ref().map(|share| share.bytes_there),
            "bytes_from_device": self.share.as_ref().map(|share| share.bytes_back),
            "problem": self.problem(),
            "warnings": self.warnings(),
        })
    }
}

/// All parameters, and those active per token; `None` if they are not known.
fn parameters(plan: &Plan) -> Option<String> {
    let models::Parameters { all, active } = plan.parameters()?;
    Some(if all == active { all.to_string() } else { format!("{all}, {active} active for each token") })
}

/// The ops that the host computes, by the reason why.
fn on_host(share: &DeviceShare) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((op, reason), count) in &share.on_host {
        let reason = reason.as_deref().unwrap_or("its values are the host's");
        by_reason.entry(reason).or_default().push(if *count > 1 {
            format!("{count} {op}")
        } else {
            op.to_string()
        });
    }
    let parts: Vec<String> =
        by_reason.iter().map(|(reason, ops)| format!("{} ({reason})", ops.join(", "))).collect();
    if parts.is_empty() { "none".to_string() } else { parts.join("; ") }
}

/// The rows about the division of memory.
fn division(plan: &MemoryPlan) -> Vec<(&'static str, String)> {
    let origin = |inferred: bool| if inferred { "auto-inferred" } else { "current" };
    // Encoders have no cache.
    let cache = (plan.cache_tokens > 0).then(|| ("cache in all", plan.cache_in_words()));
    let limits = [
        ("max_length", format!("{} ({})", plan.max_length, origin(plan.length_inferred))),
        ("max_cache_batch_size", format!("{} ({})", plan.max_batch, origin(plan.batch_inferred))),
    ];
    cache.into_iter().chain(limits).collect()
}

fn words(bytes: u64) -> String {
    MemoryBytes(bytes).to_string()
}
