//! `peri plan`: the memory of a model and its cache, and whether it fits, before anything is loaded.

use std::io::Write;

use anyhow::Context;
use engine::WeightMemory;
use models::Network;
use pipelines::config::{Described, DescribedByConfig, ResolvedConfig, Unfetched};
use pipelines::{MemoryBytes, MemoryPlan, MemoryRequest, OutOfMemory, available_memory};
use serde_json::{Value, json};
use sources::PlannedFile;

use crate::command_profile;
use crate::exit::{one_line, warn};
use crate::model::{self, Source};
use crate::progress::Progress;
use crate::settings::ModelPath;

const EXAMPLES: &str = "\
Examples:
  peri plan model.gguf --max-length 8192 --max-cache-batch-size 4
  peri plan Qwen/Qwen3-0.6B --json";

const DETAILS: &str = "\
Only headers are read. Of a repo that is not in the cache, only the list of files, config.json and the headers of the \
weights are downloaded (PyTorch files have none). The total is the weights as loaded, or their files if that is unknown, \
plus the cache. Free memory is what this machine, or its container, has left. If the model does not fit, the exit code \
is 4.

JSON: model, architecture, task, parameters, active_parameters, encoding, files[{name, bytes, cached}], bytes_to_fetch, \
weights_bytes, weights_packed_bytes, weights_mapped_bytes, cache_strategy, cache_dtype, cache_page_size, \
cache_bytes_per_token, cache_bytes, cache_tokens, max_length, max_length_inferred, max_cache_batch_size, \
max_cache_batch_size_inferred, total_bytes, usable_bytes, free_bytes, fits, problem, warnings. Unknown values are null.

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
    architecture: Option<String>,
    network: Option<Network>,
    encoding: Option<String>,
    files: Vec<PlannedFile>,
    to_fetch: u64,
    weights: Option<u64>,
    /// The weights in memory, if known.
    memory: Option<WeightMemory>,
    cache_dtype: String,
    request: Option<MemoryRequest>,
    /// The division of memory, or why the model does not fit.
    plan: Option<Result<MemoryPlan, OutOfMemory>>,
    warnings: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let source = arguments.model.source()?;
    let report = match source.look_ahead()? {
        Some(unfetched) => Report::ahead(&source, unfetched)?,
        None => Report::here(&source)?,
    };
    let mut text = report.lines();
    if arguments.json {
        text = format!("{:#}\n", report.json());
    } else {
        report.warnings.iter().for_each(|warning| warn(warning));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?;
    match report.plan {
        Some(Err(refusal)) => Err(pipelines::Error::from(refusal).into()),
        _ => Ok(()),
    }
}

impl Report {
    /// The report on a model on this machine.
    fn here(source: &Source) -> anyhow::Result<Report> {
        let resolved = source.look(&Progress::new(true))?;
        let file = |file: &weights::WeightFile| PlannedFile {
            name: file.path().display().to_string(),
            size: file.path().metadata().ok().map(|metadata| metadata.len()),
            cached: true,
        };
        let files = resolved.checkpoint().weights().files().iter().map(file).collect();
        Report::of(source, resolved, files)
    }

    /// The report on a model on a hub.
    fn ahead(source: &Source, unfetched: Unfetched) -> anyhow::Result<Report> {
        let to_fetch = unfetched.bytes_to_fetch();
        let Unfetched { files, bytes, described } = unfetched;
        let mut report = match described {
            Described::ByHeaders(resolved) => Report::of(source, *resolved, files)?,
            Described::ByConfig(described) => Report::by_config(source, *described, files, bytes),
        };
        report.to_fetch = to_fetch;
        Ok(report)
    }

    /// The report on a model whose headers are known.
    fn of(source: &Source, resolved: ResolvedConfig, files: Vec<PlannedFile>) -> anyhow::Result<Report> {
        let config = resolved.config();
        let (architecture, encoding) = (config.architecture.clone(), config.quantization_encoding);
        let (request, cache_dtype) = (*resolved.memory_request(), resolved.cache_dtype().to_string());
        // The memory was ignored while resolving, so its warnings do not apply.
        let limits = &resolved.memory().warnings;
        let warnings =
            resolved.warnings().iter().filter(|warning| !limits.contains(warning)).cloned().collect();
        // Nothing is computed, so one thread is enough.
        let compiled = model::compile(&model::session(1)?, resolved)?;
        let memory = compiled.compiled().programs().next().map(engine::Program::weight_memory);
        // The same check as in the commands that run, which only know the files at this point.
        let request = MemoryRequest { free: available_memory(), ..request };
        let mut report = Report {
            model: source.name(),
            architecture,
            network: Some(compiled.checkpoint().network.clone()),
            encoding: encoding.map(|encoding| encoding.to_string()),
            files,
            to_fetch: 0,
            weights: Some(compiled.checkpoint().weights().bytes()),
            memory,
            cache_dtype,
            request: Some(request),
            plan: Some(request.plan()),
            warnings,
        };
        report.add_plan_warnings();
        Ok(report)
    }

    /// The report on a model whose `config.json` is known.
    fn by_config(
        source: &Source,
        described: DescribedByConfig,
        files: Vec<PlannedFile>,
        bytes: Option<u64>,
    ) -> Report {
        let cache_dtype = described.cache_dtype().to_string();
        let DescribedByConfig { config, architecture, network, memory, warnings } = described;
        let request = memory.map(|memory| MemoryRequest { free: available_memory(), ..memory });
        let mut report = Report {
            model: source.name(),
            architecture: Some(architecture),
            network: Some(network),
            encoding: config.quantization_encoding.map(|encoding| encoding.to_string()),
            files,
            to_fetch: 0,
            weights: bytes,
            memory: None,
            cache_dtype,
            request,
            plan: request.map(|request| request.plan()),
            warnings,
        };
        report.add_plan_warnings();
        report
    }

    fn add_plan_warnings(&mut self) {
        if let Some(Ok(plan)) = &self.plan {
            self.warnings.extend(plan.warnings.iter().cloned());
        }
    }

    fn fits(&self) -> Option<&MemoryPlan> {
        self.plan.as_ref()?.as_ref().ok()
    }

    /// Bytes of the weights as loaded, or of their files, plus the cache.
    fn total(&self) -> Option<u64> {
        let loaded = self.memory.map(|WeightMemory { packed, stored }| packed.saturating_add(stored));
        let weights = loaded.or(self.request.map(|request| request.weights))?;
        Some(weights.saturating_add(self.fits().map_or(0, |plan| plan.cache)))
    }

    fn problem(&self) -> Option<String> {
        self.plan.as_ref()?.as_ref().err().map(ToString::to_string)
    }

    /// Names and values, in the order they print.
    fn lines(&self) -> String {
        let unknown = || "unknown".to_string();
        let mut rows = vec![
            ("model", one_line(&self.model)),
            ("architecture", self.architecture.as_deref().map_or_else(unknown, one_line)),
            ("parameters", self.parameters().unwrap_or_else(unknown)),
            ("encoding", self.encoding.clone().unwrap_or_else(unknown)),
            ("weights on disk", self.on_disk().or(self.weights).map_or_else(unknown, words)),
        ];
        if self.to_fetch > 0 {
            rows.push(("to download", words(self.to_fetch)));
        }
        if let Some(WeightMemory { packed, stored }) = self.memory {
            rows.push(("weights loaded", format!("{} packed, {} mapped", words(packed), words(stored))));
        }
        if let Some(request) = self.request.filter(|request| request.cache_bytes_per_token > 0) {
            let per_token = words(request.cache_bytes_per_token);
            let cache = format!(
                "{}, pages of {} tokens, {}, {per_token} a token",
                request.strategy, request.page_size, self.cache_dtype
            );
            rows.push(("cache", cache));
        }
        rows.extend(self.fits().into_iter().flat_map(division));
        if let (Some(plan), Some(total)) = (self.fits(), self.total().map(words)) {
            rows.push((
                "total",
                plan.free.map_or(total.clone(), |free| format!("{total} of {} free", words(free))),
            ));
        }
        let verdict = match (&self.plan, self.problem()) {
            (Some(_), Some(problem)) => format!("no: {problem}"),
            (Some(Ok(MemoryPlan { free: None, .. })), _) => unknown(),
            (Some(_), None) => "yes".to_string(),
            (None, _) => unknown(),
        };
        rows.push(("fits", verdict));
        rows.into_iter().map(|(name, value)| format!("{name:<21} {value}\n")).collect()
    }

    /// Bytes of the files, if all are known.
    fn on_disk(&self) -> Option<u64> {
        let sizes = self.files.iter().map(|file| file.size);
        sizes.reduce(|sum, size| Some(sum?.saturating_add(size?))).flatten()
    }

    fn parameters(&self) -> Option<String> {
        let network = self.network.as_ref()?;
        let (all, active) = (network.parameters(), active(network));
        Some(if all == active { all.to_string() } else { format!("{all}, {active} active for each token") })
    }

    fn json(&self) -> Value {
        let (network, request, plan) = (self.network.as_ref(), self.request.as_ref(), self.fits());
        let file = |file: &PlannedFile| json!({"name": file.name, "bytes": file.size, "cached": file.cached});
        let usable = request.and_then(|request| Some((request.free? as f64 * request.utilization) as u64));
        json!({
            "model": self.model,
            "architecture": self.architecture,
            "task": network.map(|network| match network {
                Network::Decoder(_) => "text_generation",
                Network::Encoder(_) => "embeddings_generation",
            }),
            "parameters": network.map(Network::parameters),
            "active_parameters": network.map(active),
            "encoding": self.encoding,
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "bytes_to_fetch": self.to_fetch,
            "weights_bytes": self.weights,
            "weights_packed_bytes": self.memory.map(|memory| memory.packed),
            "weights_mapped_bytes": self.memory.map(|memory| memory.stored),
            "cache_strategy": request.map(|request| request.strategy.to_string()),
            "cache_dtype": self.cache_dtype,
            "cache_page_size": request.map(|request| request.page_size),
            "cache_bytes_per_token": request.map(|request| request.cache_bytes_per_token),
            "cache_bytes": plan.map(|plan| plan.cache),
            "cache_tokens": plan.map(|plan| plan.cache_tokens),
            "max_length": plan.map(|plan| plan.max_length),
            "max_length_inferred": plan.map(|plan| plan.length_inferred),
            "max_cache_batch_size": plan.map(|plan| plan.max_batch),
            "max_cache_batch_size_inferred": plan.map(|plan| plan.batch_inferred),
            "total_bytes": self.total(),
            "usable_bytes": usable,
            "free_bytes": request.and_then(|request| request.free),
            "fits": self.plan.as_ref().filter(|_| request.is_some_and(|r| r.free.is_some())).map(Result::is_ok),
            "problem": self.problem(),
            "warnings": self.warnings,
        })
    }
}

/// The rows about the division of memory.
fn division(plan: &MemoryPlan) -> Vec<(&'static str, String)> {
    let origin = |inferred: bool| if inferred { "auto-inferred" } else { "current" };
    // Encoders have no cache.
    let cache = (plan.cache_tokens > 0)
        .then(|| ("cache in all", format!("{} for {} tokens", words(plan.cache), plan.cache_tokens)));
    let limits = [
        ("max_length", format!("{} ({})", plan.max_length, origin(plan.length_inferred))),
        ("max_cache_batch_size", format!("{} ({})", plan.max_batch, origin(plan.batch_inferred))),
    ];
    cache.into_iter().chain(limits).collect()
}

/// Parameters active per token.
fn active(network: &Network) -> usize {
    match network {
        Network::Decoder(decoder) => decoder.active_parameters(),
        Network::Encoder(encoder) => encoder.parameters(),
    }
}

fn words(bytes: u64) -> String {
    MemoryBytes(bytes).to_string()
}
