//! `peri serve`: answers requests over HTTP until it is stopped.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serve::{Keys, ModelConfig, Server, ServerConfig};

use crate::command_profile;
use crate::interrupt::Interrupt;
use crate::model::{self, Source, ThreadArguments};
use crate::progress::Progress;
use crate::settings::{ModelAndTexts, ModelFlags};

const EXAMPLES: &str = "\
Examples:
  peri serve
  peri serve Qwen/Qwen3-0.6B-GGUF:q8_0 sentence-transformers/all-MiniLM-L6-v2
  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";

const DETAILS: &str = "\
The server answers the routes of the OpenAI API: /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models. \
GET /openapi.json lists all routes.

Ctrl-C or SIGTERM ends the server once the requests that run are answered; a second one ends it at once.";

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
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8000)]
    port: u16,
    /// File with a line NAME:SCOPES:HASH for each API key
    ///
    /// Scopes are infer, metrics and admin; the hash is the key's BLAKE3. Without keys, the server answers everyone.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    key_file: Option<PathBuf>,
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
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let session = arguments.threads.session()?;
    let progress = Progress::new(arguments.quiet);
    let mut models = Vec::new();
    for source in arguments.sources()? {
        source.plan_and_fetch(&progress)?;
        models.push(ModelConfig::new(source.config().clone()));
    }
    let server = Server::start(arguments.config()?, models, Arc::new(session), model::platform())?;
    interrupt.watch();
    let handle = server.handle();
    std::thread::spawn(move || {
        futures_lite::future::block_on(interrupt.pressed());
        handle.stop();
    });
    // A closed standard error changes nothing.
    for address in server.addresses() {
        let _ = writeln!(std::io::stderr(), "listening on http://{address}");
    }
    server.run();
    Ok(())
}

impl Arguments {
    fn config(&self) -> anyhow::Result<ServerConfig> {
        Ok(ServerConfig {
            addresses: vec![SocketAddr::new(self.host, self.port).into()],
            keys: match &self.key_file {
                Some(path) => Keys::default().with_file(path)?,
                None => Keys::default(),
            },
            insecure: self.insecure,
            allowed_hosts: self.allowed_hosts.clone(),
            cors_origins: self.cors_origins.clone(),
            ..ServerConfig::default()
        })
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
