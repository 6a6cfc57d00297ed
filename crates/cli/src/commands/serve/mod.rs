//! `peri serve`: answers requests over HTTP until it is stopped.

mod kv_events;
mod limits;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::InferenceSession;
use pipelines::{MemoryBytes, Plan};
use serde_json::json;
use serve::{Address, Keys, LogFormat, ModelConfig, Server, ServerConfig, TlsFiles};

use crate::command_profile;
use crate::interrupt::{self, Interrupt};
use crate::model::{self, Source, ThreadArguments};
use crate::output;
use crate::parse;
use crate::progress::Progress;
use crate::settings::{API_KEY_VARIABLE, ModelAndTexts, ModelFlags};
use kv_events::KvEventsFlags;
use limits::Limits;

const EXAMPLES: &str = "\
Examples:
  peri serve
  peri serve Qwen/Qwen3-0.6B-GGUF:q8_0 sentence-transformers/all-MiniLM-L6-v2
  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";

const DETAILS: &str = "\
The server answers the routes of the OpenAI API: /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models. \
GET /openapi.json lists all routes.

Ctrl-C or SIGTERM ends the server once the requests that run are answered; a second one ends it at once. SIGHUP reads \
--key-file and the files of certificates again.

JSON (--json), one line on standard output once the server listens: urls[], models[{id, memory_bytes}], threads, \
instruction_set, version.";

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
    /// File with a line NAME:SCOPES:HASH for each API key
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
    /// Answer everyone on an address that other machines reach
    #[arg(long, hide_short_help = true)]
    insecure: bool,
    /// Another name that the server answers to without keys; repeatable
    #[arg(long = "allowed-host", value_name = "NAME", hide_short_help = true)]
    allowed_hosts: Vec<String>,
    /// Let pages of this origin call the server; repeatable
    ///
    /// An origin such as https://example.com, localhost for pages of this machine, or * for all.
    #[arg(long = "cors-origin", value_name = "ORIGIN", hide_short_help = true)]
    cors_origins: Vec<String>,
    /// Form of the access log on standard error: text, json or off
    #[arg(
        long,
        value_name = "FORM",
        default_value = "text",
        hide_short_help = true,
        value_parser = parse::Named { names: log_formats, parse: log_format }
    )]
    log_format: LogFormat,
    #[command(flatten)]
    kv_events: KvEventsFlags,
    #[command(flatten)]
    limits: Limits,
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

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let session = arguments.threads.session()?;
    let progress = Progress::new(arguments.quiet);
    let (mut models, mut memory) = (Vec::new(), Vec::new());
    for source in arguments.sources()? {
        let plan = source.plan_and_fetch(&progress)?;
        memory.push(bytes(&plan)?);
        models.push(ModelConfig::new(source.config().clone()));
    }
    let names: Vec<String> = models.iter().map(|model| model.id.clone()).collect();
    let session = Arc::new(session);
    let server = Server::start(arguments.config()?, models, Arc::clone(&session), model::platform())?;
    interrupt.watch();
    let (stopped, reloaded) = (server.handle(), server.handle());
    std::thread::spawn(move || {
        futures_lite::future::block_on(interrupt.pressed());
        stopped.stop();
    });
    interrupt::on_hangup(move || {
        let _ = match reloaded.reload() {
            Ok(()) => writeln!(std::io::stderr(), "read keys and certificates again"),
            Err(error) => writeln!(std::io::stderr(), "peri: {error}; all stays as it was"),
        };
    })?;
    arguments.announce(&server, &session, &names, &memory)?;
    server.run();
    Ok(())
}

/// Bytes of weights and cache.
fn bytes(plan: &Plan) -> anyhow::Result<u64> {
    let memory = plan.memory()?;
    Ok(memory.weights + memory.cache)
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
            allowed_hosts: self.allowed_hosts.clone(),
            cors_origins: self.cors_origins.clone(),
            log: self.log_format,
            kv_events: self.kv_events.config(),
            ..ServerConfig::default()
        };
        Ok(self.limits.apply(config))
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
        names: &[String],
        memory: &[u64],
    ) -> anyhow::Result<()> {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        let url = |address: &Address| match address {
            Address::Tcp(address) => format!("{scheme}://{address}"),
            Address::Unix(_) => address.to_string(),
        };
        let urls: Vec<String> = server.addresses().iter().map(url).collect();
        let (threads, set) = (session.devices()[0].threads(), session.devices()[0].target());
        let models = names.iter().zip(memory);
        if self.json {
            let models: Vec<_> = models.map(|(id, bytes)| json!({"id": id, "memory_bytes": bytes})).collect();
            let line = json!({
                "urls": urls,
                "models": models,
                "threads": threads,
                "instruction_set": set,
                "version": crate::version::SHORT,
            });
            return output::print(format!("{line}\n"));
        }
        let models: Vec<String> =
            models.map(|(id, bytes)| format!("{id} ({})", MemoryBytes(*bytes))).collect();
        let urls = urls.join(" and ");
        // A closed standard error changes nothing.
        let _ = writeln!(
            std::io::stderr(),
            "listening on {urls}\nserving {} on {threads} threads, {set}",
            models.join(", ")
        );
        Ok(())
    }

    /// The models, each with the settings of the flags.
    fn sources(&self) -> anyhow::Result<Vec<Source>> {
        if self.models.is_empty() {
            let ModelAndTexts { source, .. } = self.settings.model_and_texts(&[], |_| false)?;
            return Ok(vec![source]);
        }
        let source = |name: &String| {
            if name == storyteller::NAME && !Path::new(name).exists() {
                let ModelAndTexts { source, .. } = self.settings.model_and_texts(&[], |_| false)?;
                return Ok(source);
            }
            let ModelAndTexts { source, .. } =
                self.settings.model_and_texts(std::slice::from_ref(name), |_| true)?;
            Ok(source)
        };
        self.models.iter().map(source).collect()
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
