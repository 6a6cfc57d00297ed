//! `peri doctor`: the processor, memory, caches and environment of this machine, and a self-test.

mod machine;

use std::time::Duration;

use anyhow::{bail, ensure};
use cpu::{Pool, limits};
use engine::CompileCache;
use perihelion::driver::{PLATFORM, accelerator};
use pipelines::{AddSpecial, EventKind, Generator, MemoryBytes, ParseSpecial, Request, SamplingOptions};
use serde_json::{Value, json};
use sources::Hub;

use crate::exit::one_line;
use crate::model::{self, ThreadArguments};
use crate::output;
use crate::progress::Progress;
use crate::version;

const AFTER_HELP: &str = "\
Problems and warnings have lines of their own. If something is broken, the exit code is 1.

JSON: ok, problems[], warnings[], version, commit, system{os, architecture, kernel}, cpu{model, instruction_sets[], used, \
cores, physical_cores, allowed, quota_cores, threads}, accelerators[]{device, model, api}, \
memory{total_bytes, available_bytes, limit_bytes, transparent_hugepages}, limits{read_bytes_per_second, read_buffer_bytes, f32_operations_per_second}, \
compile_cache{folder, entries, bytes, limit_bytes, unfinished, outdated, damaged[]}, hub_cache{folder, repos, bytes, free_bytes, incomplete[], \
offline, endpoint, token}, environment{}, self_test{prompt, text, ok}. Unknown values are null.";

/// Arguments of `peri doctor`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    threads: ThreadArguments,
    /// Skip the measurements of memory and arithmetic, which take a second
    #[arg(long)]
    no_bench: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The time of each measurement.
const TIME: Duration = Duration::from_millis(250);
/// Bytes read to measure memory: more than last-level caches hold.
const BUFFER: u64 = 512 << 20;
/// A prompt for the built-in model, and its next token.
const PROMPT: &str = "Once upon a time";
const NEXT: &str = " there";
/// Available memory below which only the smallest models run.
const LITTLE_MEMORY: u64 = 512 << 20;

/// The findings, as lines and as JSON.
#[derive(Default)]
struct Findings {
    report: serde_json::Map<String, Value>,
    lines: Vec<(&'static str, String)>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let session = arguments.threads.session([])?;
    let mut findings = Findings::default();
    findings.system();
    findings.cpu(&session);
    findings.accelerators();
    findings.memory();
    if !arguments.no_bench {
        findings.limits(session.host().threads());
    }
    findings.compile_cache();
    findings.hub_cache();
    findings.environment();
    findings.self_test(&session);
    let text = if arguments.json { findings.json() } else { findings.text() };
    output::print(text + "\n")?;
    match &findings.problems[..] {
        [] => Ok(()),
        [problem] => bail!("something is broken: {problem}"),
        [first, ..] => bail!("something is broken: {first} (problems in all: {})", findings.problems.len()),
    }
}

impl Findings {
    fn line(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.lines.push((name, one_line(value.as_ref())));
    }

    fn system(&mut self) {
        let kernel = machine::kernel();
        let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
        self.line("version", format!("peri {}", version::long()));
        self.line("system", format!("{os} {} {architecture}", kernel.as_deref().unwrap_or("")));
        self.report.insert("version".into(), version::SHORT.into());
        self.report.insert("commit".into(), version::COMMIT.into());
        let system = json!({"os": os, "architecture": architecture, "kernel": kernel});
        self.report.insert("system".into(), system);
    }

    fn cpu(&mut self, session: &engine::InferenceSession) {
        let (device, cores) = (session.host(), machine::Cores::detect());
        let (found, used) = (machine::instruction_sets(), device.target());
        self.line("processor", device.model_name());
        self.line("instruction sets", if found.is_empty() { "portable".into() } else { found.join(" ") });
        self.line("used", &used);
        self.line("cores", cores.words());
        self.line("threads", device.threads().to_string());
        if let Some(quota) = cores.quota.filter(|&quota| quota + 0.5 < device.threads() as f64) {
            self.warnings.push(format!(
                "{} threads share the {quota:.2} cores that the control group allows: use --threads {}",
                device.threads(),
                (quota as usize).max(1)
            ));
        }
        let cpu = json!({
            "model": device.model_name(),
            "instruction_sets": found,
            "used": used,
            "cores": cores.usable,
            "physical_cores": cores.physical,
            "allowed": cores.allowed,
            "quota_cores": cores.quota,
            "threads": device.threads(),
        });
        self.report.insert("cpu".into(), cpu);
    }

    fn accelerators(&mut self) {
        let mut found = Vec::new();
        if let Some(absence) = PLATFORM.absence() {
            self.line("accelerators", format!("none: {absence}"));
        }
        for id in 0..PLATFORM.accelerator_count() {
            let opened = i32::try_from(id).map_err(anyhow::Error::from).and_then(|id| Ok(accelerator(id)?));
            match opened {
                Ok(device) => {
                    let (spec, model, api) = (device.spec(), device.model_name(), device.api());
                    self.line("accelerator", format!("{spec} {model}, by {api}"));
                    found.push(json!({"device": spec.to_string(), "model": model, "api": api}));
                }
                Err(error) => self.problems.push(format!("accelerator {id} cannot be used: {error:#}")),
            }
        }
        self.report.insert("accelerators".into(), found.into());
    }

    fn memory(&mut self) {
        let total = engine::devices::host_stats().map(|stats| stats.total_memory);
        let available = pipelines::available_memory();
        let (limit, huge) = (pipelines::memory_limit(), machine::huge_pages());
        let words =
            |bytes: Option<u64>| bytes.map_or("unknown".to_string(), |bytes| MemoryBytes(bytes).to_string());
        let allowed = limit.map_or(String::new(), |limit| format!(", {} allowed", MemoryBytes(limit)));
        self.line("memory", format!("{} in all, {} available{allowed}", words(total), words(available)));
        self.line("huge pages", huge.as_deref().unwrap_or("unknown"));
        if available.is_some_and(|available| available < LITTLE_MEMORY) {
            self.warnings.push(format!("only {} of memory is available", words(available)));
        }
        if huge.as_deref() == Some("never") {
            let advice = "transparent huge pages are off, which slows reading weights: allow them with `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`";
            self.warnings.push(advice.to_string());
        }
        let memory = json!({
            "total_bytes": total,
            "available_bytes": available,
            "limit_bytes": limit,
            "transparent_hugepages": huge,
        });
        self.report.insert("memory".into(), memory);
    }

    fn limits(&mut self, threads: usize) {
        let pool = Pool::new(threads);
        let buffer = pipelines::available_memory().map_or(BUFFER, |available| BUFFER.min(available / 4));
        let read = limits::read_bandwidth(&pool, buffer as usize, TIME);
        let operations = limits::f32_operations(&pool, TIME);
        self.line(
            "memory reads",
            format!("{:.1} GB/s from {}, {} threads", read / 1e9, MemoryBytes(buffer), pool.threads()),
        );
        if let Some(operations) = operations {
            self.line("f32 arithmetic", format!("{:.0} GFLOP/s", operations / 1e9));
        }
        let limits = json!({
            "read_bytes_per_second": read,
            "read_buffer_bytes": buffer,
            "f32_operations_per_second": operations,
        });
        self.report.insert("limits".into(), limits);
    }

    fn compile_cache(&mut self) {
        let Some(cache) = CompileCache::user() else {
            self.line("compile cache", "off");
            self.report.insert("compile_cache".into(), Value::Null);
            return;
        };
        let folder = cache.folder().display().to_string();
        let health = match cache.check() {
            Ok(health) => health,
            Err(error) => {
                self.problems.push(format!("the compile cache {folder} cannot be read: {error}"));
                return;
            }
        };
        let damaged: Vec<String> = health.damaged.iter().map(ToString::to_string).collect();
        let (bytes, limit) = (MemoryBytes(health.bytes), MemoryBytes(cache.limit()));
        self.line(
            "compile cache",
            match health.outdated {
                0 => format!("{folder}: {} models, {bytes} of at most {limit}", health.entries),
                outdated => format!(
                    "{folder}: {} models, {outdated} of them from another version, {bytes} of at most {limit}",
                    health.entries
                ),
            },
        );
        for problem in &damaged {
            self.problems.push(format!("damaged in the compile cache: {problem}: delete it"));
        }
        let report = json!({
            "folder": folder,
            "entries": health.entries,
            "bytes": health.bytes,
            "limit_bytes": cache.limit(),
            "unfinished": health.unfinished,
            "outdated": health.outdated,
            "damaged": damaged,
        });
        self.report.insert("compile_cache".into(), report);
    }

    fn hub_cache(&mut self) {
        let hub = match Hub::from_env() {
            Ok(hub) => hub,
            Err(error) => return self.problems.push(error.to_string()),
        };
        let folder = hub.cache.display().to_string();
        let contents = match hub.contents() {
            Ok(contents) => contents,
            Err(error) => return self.problems.push(format!("the cache of models: {error}")),
        };
        let bytes = MemoryBytes(contents.bytes);
        self.line("hub cache", format!("{folder}: {} repos, {bytes}", contents.repos));
        self.line(
            "hub",
            if hub.offline { "offline".to_string() } else { machine::without_secrets(&hub.endpoint) },
        );
        if !contents.incomplete.is_empty() {
            let names: Vec<String> =
                contents.incomplete.iter().map(|path| path.display().to_string()).collect();
            self.warnings
                .push(format!("interrupted downloads, which `peri pull` resumes: {}", names.join(", ")));
        }
        let report = json!({
            "folder": folder,
            "repos": contents.repos,
            "bytes": contents.bytes,
            "free_bytes": hub.free_space(),
            "incomplete": contents.incomplete,
            "offline": hub.offline,
            "endpoint": machine::without_secrets(&hub.endpoint),
            "token": hub.token.is_some(),
        });
        self.report.insert("hub_cache".into(), report);
    }

    fn environment(&mut self) {
        let variables = machine::variables(std::env::vars_os());
        if variables.is_empty() {
            self.line("environment", "no PERI_*, PERIHELION_* or HF_* variable is set");
        }
        for (name, value) in &variables {
            self.line("environment", format!("{name}={value}"));
        }
        let variables: serde_json::Map<String, Value> =
            variables.into_iter().map(|(name, value)| (name, value.into())).collect();
        self.report.insert("environment".into(), variables.into());
    }

    /// Generates one token with the built-in model, which exercises everything from file to sampler.
    fn self_test(&mut self, session: &engine::InferenceSession) {
        let text = next_token(session).map_err(|error| format!("{error:#}"));
        let ok = text.as_deref() == Ok(NEXT);
        self.line(
            "self-test",
            if ok { format!("{PROMPT:?} goes on with {NEXT:?}") } else { "failed".to_string() },
        );
        match &text {
            Ok(text) if !ok => {
                self.problems.push(format!(
                    "the built-in model goes on with {text:?} after {PROMPT:?}, expected {NEXT:?}"
                ));
            }
            Err(error) => self.problems.push(format!("the built-in model does not run: {error}")),
            Ok(_) => {}
        }
        self.report.insert("self_test".into(), json!({"prompt": PROMPT, "text": text.ok(), "ok": ok}));
    }

    fn text(&self) -> String {
        let rows = self.lines.iter().map(|(name, value)| format!("{name:<16} {value}"));
        let warnings = self.warnings.iter().map(|warning| format!("{:<16} {}", "warning", one_line(warning)));
        let problems = self.problems.iter().map(|problem| format!("{:<16} {}", "problem", one_line(problem)));
        let end = match (&self.problems[..], &self.warnings[..]) {
            ([], []) => "everything is in order",
            ([], _) => "nothing is broken",
            _ => "something is broken",
        };
        rows.chain(warnings).chain(problems).chain([end.to_string()]).collect::<Vec<_>>().join("\n")
    }

    fn json(&self) -> String {
        let mut report = json!({
            "ok": self.problems.is_empty(),
            "problems": self.problems,
            "warnings": self.warnings,
        });
        let object = report.as_object_mut().expect("made as an object");
        object.extend(self.report.clone());
        format!("{report:#}")
    }
}

/// The likeliest token after the prompt, as text.
fn next_token(session: &engine::InferenceSession) -> anyhow::Result<String> {
    let source = model::ModelSource::built_in();
    let progress = Progress::new(true);
    let compiled = model::compile(session, source.plan_and_fetch(&progress)?)?;
    let model = model::load(compiled, session, &progress)?;
    let prompt = model.tokenizer().encode(PROMPT, AddSpecial::Yes, ParseSpecial::No)?;
    let short = model.plan().with(|config| config.max_length(64))?;
    let mut generator = Generator::with_plan(model, &short)?;
    let sampling = SamplingOptions::GREEDY;
    generator.add(Request { prompt, sampling, max_new_tokens: Some(1), ..Request::default() })?;
    let mut text = String::new();
    while !generator.is_idle() {
        for event in generator.step()? {
            if let EventKind::Token { text: new, .. } = event.kind {
                text += &new;
            }
        }
    }
    ensure!(!text.is_empty(), "it made no text");
    Ok(text)
}
