//! The arguments.

use super::Error;
use super::client::Client;

/// The model, the load, and the servers to compare.
pub(crate) struct Options {
    /// `None` is the built-in model.
    pub(crate) model: Option<String>,
    pub(crate) streams: Vec<usize>,
    pub(crate) tokens: usize,
    pub(crate) prompt_tokens: usize,
    pub(crate) rounds: usize,
    pub(crate) peers: Vec<(String, Client)>,
}

impl Options {
    pub(crate) fn from_args(mut args: impl Iterator<Item = String>) -> Result<Options, Error> {
        let mut options = Options {
            model: None,
            streams: vec![1, 4, 16, 64],
            tokens: 64,
            prompt_tokens: 128,
            rounds: 5,
            peers: Vec::new(),
        };
        while let Some(arg) = args.next() {
            // Cargo adds this one.
            if arg == "--bench" {
                continue;
            }
            if !arg.starts_with("--") {
                options.model = Some(arg);
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--streams" => {
                    options.streams = value.split(',').map(str::parse).collect::<Result<_, _>>()?
                }
                "--tokens" => options.tokens = value.parse()?,
                "--prompt-tokens" => options.prompt_tokens = value.parse()?,
                "--rounds" => options.rounds = value.parse()?,
                "--peer" => options.peers.push(peer(&value)?),
                _ => return Err(format!("unknown option {arg}").into()),
            }
        }
        Ok(options)
    }
}

/// `NAME=HOST:PORT/MODEL`
fn peer(text: &str) -> Result<(String, Client), Error> {
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once('/')?)));
    let (name, (host, model)) = parts.ok_or_else(|| format!("{text} is not NAME=HOST:PORT/MODEL"))?;
    Ok((name.to_string(), Client { host: host.to_string(), model: model.to_string() }))
}
