//! `peri serve`: answers requests over HTTP until it is stopped.

mod answers;
mod kv_events;
mod limits;
mod model_settings;
mod notify;
mod settings_file;
#[cfg_attr(not(feature = "otlp"), path = "no_traces.rs")]
mod traces;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, FromArgMatches};
use engine::InferenceSession;
use perihelion::driver::PLATFORM;
use pipelines::config::{PipelineConfig, SettingsTable};
use pipelines::{MemoryBytes, Plan};
use serde_json::json;
use serve::{
    Address, KeepAlive, Keys, LogFormat, ModelConfig, ModelSettings, Server, ServerConfig, ServerHandle,
    TlsFiles,
};

use self::settings_file::ModelTable;
use crate::command_profile;
use crate::exit;
use crate::interrupt::{self, Interrupt};
use crate::model::{ModelSource, ThreadArguments};
use crate::output;
use crate::parse;
use crate::progress::Progress;
use crate::settings::{API_KEY_VARIABLE, ModelAndTexts, ModelFlags};
use crate::state_folder::state_folder;
use crate::version;
use answers::AnswerFlags;
use kv_events::KvEventsFlags;
use limits::Limits;
use model_settings::ModelSettingsFlags;
use traces::TraceFlags;

const EXAMPLES: &str = "\
Examples:
  peri serve
  peri serve Qwen/Qwen3-0.6B-GGUF:q8_0 sentence-transformers/all-MiniLM-L6-v2
  peri serve --config peri.toml
  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";

const DETAILS: &str = "\
The server answers the routes of the OpenAI API: /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models. \
GET /openapi.json lists all routes.

Ctrl-C or SIGTERM ends the server once the requests that run are answered; a second one ends it at once. SIGHUP reads \
--key-file, the files of certificates, and the models of --config and --models-dir again.

JSON (--json), one line on standard output once the server listens: urls[], models[{id, memory_bytes}], threads, \
instruction_set, version.";

/// The default of `--catalog`, in the folder of the command's state.
const CATALOG: &str = "models.json";

/// How long `--probe` waits for a server.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

const LOG_FORMATS: [(&str, LogFormat); 3] =
    [("text", LogFormat::Text), ("json", LogFormat::Json), ("off", LogFormat::Off)];

/// Arguments of `peri serve`.
#[derive(clap::Args)]
#[command(
    override_usage = "peri serve [OPTIONS] [MODEL]...",
    after_help = EXAMPLES,
    after_long_help = super::details(DETAILS, EXAMPLES)
)]
pub(crate) struct Arguments {
    /// Models to serve [default: storyteller, which is built in]
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    #[command(flatten)]
    settings: ModelFlags<command_profile::Serve>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Address to listen on, or unix:PATH for a socket; repeatable [default: 127.0.0.1]
    #[arg(long = "host", value_name = "IP", value_parser = host, default_value = "127.0.0.1", hide_default_value = true)]
    hosts: Vec<Host>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8000)]
    port: u16,
    /// File with a line NAME:SCOPES:HASH or NAME:SCOPES:HASH:LIMITS for each API key
    ///
    /// Scopes are infer, metrics and admin; the hash is the key's BLAKE3. The environment variable PERI_API_KEY is one
    /// more key, with all scopes. Without keys, the server answers everyone.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    key_file: Option<PathBuf>,
    /// Certificate of the server in PEM, for https; with --tls-key
    #[arg(long, value_name = "FILE", requires = "tls_key", hide_short_help = true)]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    tls_key: Option<PathBuf>,
    /// Answer only clients with a certificate that one of these signed, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    tls_client_ca: Option<PathBuf>,
    /// Allow an address that other machines reach without keys
    #[arg(long, hide_short_help = true)]
    insecure: bool,
    /// Accept requests for this host name too if there are no keys; repeatable
    #[arg(long = "allowed-host", value_name = "NAME", hide_short_help = true)]
    allowed_hosts: Vec<String>,
    /// Let pages of this origin call the server; repeatable
    ///
    /// An origin such as https://example.com, localhost for pages of this machine, or * for all.
    #[arg(long = "cors-origin", value_name = "ORIGIN", hide_short_help = true)]
    cors_origins: Vec<String>,
    /// Let requests of different API keys use each other's cached prefixes
    ///
    /// The time of an answer then tells one client whether another sent the same prompt.
    #[arg(long, hide_short_help = true)]
    shared_cache: bool,
    /// Serve the model files and folders in DIR, too, each loaded when a request needs it
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    models_dir: Option<PathBuf>,
    /// File that keeps models that clients pull and presets that they create [default: peri/models.json below XDG_STATE_HOME]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    catalog: Option<PathBuf>,
    /// Unload a model after this time without requests [default: 5m, or -1 if there is only one]
    ///
    /// Seconds, or a duration such as 10m; 0 unloads it after each answer, -1 never does. Requests can override it.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, hide_short_help = true)]
    keep_alive: Option<KeepAlive>,
    /// Load no model before a request needs it
    #[arg(long, hide_short_help = true)]
    lazy: bool,
    /// Count on this much free memory for all models, such as 8GiB [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, hide_short_help = true)]
    memory: Option<MemoryBytes>,
    /// Write the log on standard error as text or json; off writes no lines for requests
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_short_help = true,
        value_parser = parse::Named { names: log_formats, parse: log_format }
    )]
    log_format: LogFormat,
    #[command(flatten)]
    model_settings: ModelSettingsFlags,
    #[command(flatten)]
    answers: AnswerFlags,
    #[command(flatten)]
    kv_events: KvEventsFlags,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    limits: Limits,
    /// Check that a server at this address and port takes requests, and exit: for health checks of containers
    ///
    /// Give the flags of the server: with --tls-cert, the connection is encrypted. If clients need certificates, let the
    /// server listen on --host unix:PATH too, and probe that.
    #[arg(long, hide_short_help = true)]
    probe: bool,
    /// Print the addresses, models and threads as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// An address without a port.
#[derive(Debug, Clone)]
enum Host {
    Ip(IpAddr),
    Unix(PathBuf),
}

/// A model whose files are on this machine, and the bytes of its weights and its cache.
struct Fetched {
    model: ModelConfig,
    memory: u64,
}

/// Runs the command, whose words after its name are given too: flags in a file stand before them.
pub(crate) fn run(arguments: Arguments, words: &[OsString], return_memory: fn()) -> anyhow::Result<()> {
    let flags = settings_file::server_flags(&arguments.settings.tables()?)?;
    if flags.is_empty() {
        return serve(arguments, return_memory);
    }
    let line = std::iter::once(OsString::from("serve")).chain(flags).chain(words.iter().cloned());
    let matches = parser().args_override_self(true).try_get_matches_from(line)?;
    serve(Arguments::from_arg_matches(&matches)?, return_memory)
}

/// The parser of the command's own words.
fn parser() -> clap::Command {
    Arguments::augment_args(clap::Command::new("serve"))
}

fn serve(arguments: Arguments, return_memory: fn()) -> anyhow::Result<()> {
    if arguments.probe {
        return arguments.probe();
    }
    serve::show_logs(arguments.log_format).map_err(exit::Usage)?;
    if arguments.log_format == LogFormat::Json {
        exit::print_lines_as_json();
    }
    let interrupt = Interrupt::listen()?;
    let fetched = arguments.fetch_models(&Progress::new(arguments.quiet))?;
    let mut config = arguments.config()?;
    let configs = fetched.iter().map(|fetched| &fetched.model.config).chain([&config.models.defaults]);
    let session = Arc::new(arguments.threads.session(configs)?);
    let memory: Vec<(String, u64)> =
        fetched.iter().map(|Fetched { model, memory }| (model.id.clone(), *memory)).collect();
    let models = fetched.into_iter().map(|fetched| fetched.model).collect();
    config.models.return_memory = return_memory;
    let server = Server::start(config, models, Arc::clone(&session), &PLATFORM)?;
    interrupt.watch();
    let (stopped, reloaded) = (server.handle(), server.handle());
    let arguments = Arc::new(arguments);
    let of_reload = Arc::clone(&arguments);
    std::thread::spawn(move || {
        futures_lite::future::block_on(interrupt.pressed());
        notify::notify("STOPPING=1");
        stopped.stop();
    });
    interrupt::on_hangup(move || {
        let read = |result: anyhow::Result<()>, files: &str| match result {
            Ok(()) => exit::inform(&format!("read {files} again")),
            Err(error) => exit::complain(&format!("{error:#}; kept {files}")),
        };
        read(reloaded.reload().map_err(Into::into), "keys and certificates");
        read(of_reload.list_models_again(&reloaded), "the list of models");
    })?;
    arguments.announce(&server, &session, &memory)?;
    notify::watch(server.handle())?;
    notify::notify("READY=1");
    server.run();
    Ok(())
}

/// Bytes of weights and cache.
fn bytes(plan: &Plan) -> anyhow::Result<u64> {
    let memory = plan.memory()?;
    Ok(memory.weights + memory.cache)
}

/// Whether a name means the built-in model.
fn is_built_in(name: &str) -> bool {
    name == storyteller::NAME && !Path::new(name).exists()
}

/// The model files and model folders of a folder, by name.
fn models_in(folder: &Path) -> anyhow::Result<Vec<String>> {
    let wrong = || format!("cannot read {}; check --models-dir", folder.display());
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(wrong)? {
        let path = entry.with_context(wrong)?.path();
        let is_file = path.extension().is_some_and(|extension| extension == "gguf") && path.is_file();
        if is_file || path.join("config.json").is_file() {
            models.push(path.display().to_string());
        }
    }
    models.sort();
    Ok(models)
}

impl Fetched {
    /// Fetches a model.
    fn new(source: &ModelSource, progress: &Progress) -> anyhow::Result<Fetched> {
        let memory = bytes(&source.plan_and_fetch(progress)?)?;
        Ok(Fetched { model: ModelConfig::new(source.config().clone()), memory })
    }
}

impl Arguments {
    fn config(&self) -> anyhow::Result<ServerConfig> {
        let address = |host: &Host| match host {
            Host::Ip(ip) => Address::Tcp(SocketAddr::new(*ip, self.port)),
            Host::Unix(path) => Address::Unix(path.clone()),
        };
        let config = ServerConfig {
            addresses: self.hosts.iter().map(address).collect(),
            keys: self.keys()?,
            tls: self.tls(),
            insecure: self.insecure,
            shared_cache: self.shared_cache,
            allowed_hosts: self.allowed_hosts.clone(),
            cors_origins: self.cors_origins.clone(),
            log: self.log_format,
            kv_events: self.kv_events.config(),
            traces: self.traces.config(),
            build: version::build(),
            models: ModelSettings {
                memory: self.memory.map(|bytes| bytes.0),
                keep_alive: self.keep_alive,
                sampling: self.model_settings.sampling(),
                lazy: self.lazy || self.models_dir.is_some(),
                defaults: self.defaults()?,
                catalog: self.catalog.clone().or_else(|| Some(state_folder()?.join(CATALOG))),
                ..ModelSettings::default()
            },
            ..ServerConfig::default()
        };
        Ok(self.limits.apply(self.answers.apply(config)))
    }

    /// Asks a server whether it takes requests.
    fn probe(&self) -> anyhow::Result<()> {
        let (address, answer) = match &self.hosts[..] {
            #[cfg(unix)]
            [.., Host::Unix(path)] => {
                let ask = || {
                    let stream = std::os::unix::net::UnixStream::connect(path)?;
                    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
                    serve::is_ready(stream, None)
                };
                (format!("unix:{}", path.display()), ask())
            }
            hosts => {
                let ip = hosts.iter().find_map(|host| if let Host::Ip(ip) = host { Some(*ip) } else { None });
                let address = SocketAddr::new(ip.unwrap_or(Ipv4Addr::LOCALHOST.into()), self.port);
                let ask = || {
                    let stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
                    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
                    serve::is_ready(stream, self.tls().as_ref())
                };
                (address.to_string(), ask())
            }
        };
        let is_ready = answer.with_context(|| format!("no server answers at {address}"))?;
        anyhow::ensure!(is_ready, "the server at {address} takes no requests");
        Ok(())
    }

    fn keys(&self) -> anyhow::Result<Keys> {
        let keys = match &self.key_file {
            Some(path) => Keys::default().with_file(path)?,
            None => Keys::default(),
        };
        let secret = std::env::var(API_KEY_VARIABLE).unwrap_or_default();
        Ok(if secret.is_empty() { keys } else { keys.with_key(&secret) })
    }

    fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(TlsFiles { certificate, key, client_ca: self.tls_client_ca.clone() })
    }

    /// Tells people and programs that the server listens, where, and with what.
    fn announce(
        &self,
        server: &Server,
        session: &InferenceSession,
        models: &[(String, u64)],
    ) -> anyhow::Result<()> {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        let url = |address: &Address| match address {
            Address::Tcp(address) => format!("{scheme}://{address}"),
            Address::Unix(_) => address.to_string(),
        };
        let urls: Vec<String> = server.addresses().iter().map(url).collect();
        let (threads, set) = (session.host().threads(), session.host().target());
        let far = session.devices().iter().filter(|device| !device.is_host());
        let far: String =
            far.map(|device| format!("{} ({}) and ", device.spec(), device.model_name())).collect();
        if self.json {
            let models = models.iter();
            let models: Vec<_> = models.map(|(id, bytes)| json!({"id": id, "memory_bytes": bytes})).collect();
            let line = json!({
                "urls": urls,
                "models": models,
                "threads": threads,
                "instruction_set": set,
                "version": version::SHORT,
            });
            output::print(format!("{line}\n"))?;
        }
        if self.json && !exit::are_lines_json() {
            return Ok(());
        }
        let models: Vec<String> =
            models.iter().map(|(id, bytes)| format!("{id} ({})", MemoryBytes(*bytes))).collect();
        exit::inform(&format!("listening on {}", urls.join(" and ")));
        exit::inform(&format!("serving {} on {far}{threads} threads, {set}", models.join(", ")));
        Ok(())
    }

    /// Has a server serve the models that the file of settings and the folder name now.
    fn list_models_again(&self, server: &ServerHandle) -> anyhow::Result<()> {
        let fetched = self.fetch_models(&Progress::new(true))?;
        Ok(server.set_models(fetched.into_iter().map(|fetched| fetched.model).collect())?)
    }

    /// The models of the command line, of the file of settings and of the folder.
    fn fetch_models(&self, progress: &Progress) -> anyhow::Result<Vec<Fetched>> {
        let mut models = Vec::new();
        for name in &self.models {
            models.push(Fetched::new(&self.source(name)?, progress)?);
        }
        for table in self.settings.tables()?.iter().filter(|table| table.name == settings_file::MODEL) {
            models.push(self.model_of_table(table, progress)?);
        }
        for path in self.models_dir.as_deref().map_or(Ok(Vec::new()), models_in)? {
            match Fetched::new(&self.source(&path)?, progress) {
                Ok(model) => models.push(model),
                Err(error) => exit::warn(&format!("{path} is left out: {error:#}")),
            }
        }
        if models.is_empty() && self.models_dir.is_none() {
            let ModelAndTexts { source, .. } = self.settings.model_and_texts(&[], |_| false)?;
            models.push(Fetched::new(&source, progress)?);
        }
        let mut configs: Vec<&mut ModelConfig> =
            models.iter_mut().map(|fetched| &mut fetched.model).collect();
        self.model_settings.apply(&mut configs)?;
        Ok(models)
    }

    /// The configuration of models that clients pull: the settings of the flags that are not about one model's files.
    fn defaults(&self) -> anyhow::Result<PipelineConfig> {
        let ModelAndTexts { source, .. } = self.settings.model_and_texts(&[], |_| false)?;
        let config = source.config().clone();
        Ok(PipelineConfig {
            architecture: None,
            weight_path: Vec::new(),
            serialized_model_path: None,
            save_to_serialized_model_path: None,
            ..config
        })
    }

    /// A model with the settings of the flags.
    fn source(&self, name: &str) -> anyhow::Result<ModelSource> {
        let is_model = |_: &str| !is_built_in(name);
        let words = if is_built_in(name) { Vec::new() } else { vec![name.to_string()] };
        Ok(self.settings.model_and_texts(&words, is_model)?.source)
    }

    fn model_of_table(&self, table: &SettingsTable, progress: &Progress) -> anyhow::Result<Fetched> {
        let (own, fields) = ModelTable::read(table)?;
        let ModelTable { path, id, aliases, kind, keep_alive, pin, template, sampling } = own;
        let path = Some(&path[..]).filter(|path| !is_built_in(path));
        let source = self.settings.source_of_table(path, table, &fields)?;
        let Fetched { model, memory } = Fetched::new(&source, progress)?;
        let id = id.unwrap_or(model.id);
        Ok(Fetched {
            model: ModelConfig { id, aliases, kind, keep_alive, pin, template, sampling, ..model },
            memory,
        })
    }
}

fn host(text: &str) -> Result<Host, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("give a path after unix:".to_string()),
        Some(path) => Ok(Host::Unix(path.into())),
        None => text.parse().map(Host::Ip).map_err(|_| "give an IP address, or unix:PATH".to_string()),
    }
}

fn log_formats() -> Vec<&'static str> {
    LOG_FORMATS.map(|(name, _)| name).to_vec()
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    let found = LOG_FORMATS.iter().find(|(name, _)| *name == text);
    found.map(|(_, format)| *format).ok_or_else(|| format!("give one of {}", log_formats().join(", ")))
}
