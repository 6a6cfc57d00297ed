//! `peri key`: makes a key for clients of a server.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use serve::{KeyLimits, Keys};

use crate::exit::Usage;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  peri key alice --key-file keys
  peri key prometheus --scopes metrics
  peri key guest --requests-per-minute 20 --tokens-per-minute 20000
  peri serve --host 0.0.0.0 --key-file keys";

const DETAILS: &str = "\
The key is printed once and is stored nowhere; the file holds its hash. SIGHUP makes a running server read the file \
again. To revoke a key, delete its line.

Limits are of all clients with the key together. A limit per minute fills up evenly, and all of it can be used at once; \
requests beyond it get the status 429 and a Retry-After header. Keys without limits share the server in turns.

JSON (--json): name, scopes, key, line.";

/// Arguments of `peri key`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = super::details(DETAILS, EXAMPLES))]
pub(crate) struct Arguments {
    /// Name of the key, which the log shows: letters, digits and -_.@
    name: String,
    /// What the key allows: infer, metrics and admin, with commas between them
    #[arg(long, value_name = "SCOPES", default_value = "infer")]
    scopes: String,
    /// The most requests to models in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_minute: Option<u32>,
    /// The most tokens of prompts and answers in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tokens_per_minute: Option<u32>,
    /// The most requests to models at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrent_requests: Option<u32>,
    /// Append the line to this key file, which is created if it does not exist
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Makes a key, and prints it with its line.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let &Arguments { requests_per_minute, tokens_per_minute, concurrent_requests, .. } = arguments;
    let limits = KeyLimits { requests_per_minute, tokens_per_minute, concurrent_requests };
    let Arguments { name, scopes, key_file, json, .. } = arguments;
    let (key, line) = Keys::generate(name, scopes, &limits).map_err(Usage)?;
    if let Some(path) = key_file {
        append(path, &line).with_context(|| format!("cannot write the key to {}", path.display()))?;
    }
    let scopes: Vec<&str> = scopes.split(',').map(str::trim).collect();
    if *json {
        let object = json!({"name": name, "scopes": scopes, "key": key, "line": line});
        return output::print(format!("{object}\n"));
    }
    let kept = key_file.as_ref().map_or_else(
        || format!("Line for the file of --key-file:\n  {line}"),
        |path| format!("Its line was added to {}.", path.display()),
    );
    output::print(format!("Key of {name}, which is not shown again:\n  {key}\n{kept}\n"))
}

/// Adds a line to a file that only its owner may read.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let is_whole = std::fs::read(path).map_or(true, |text| text.last().is_none_or(|&byte| byte == b'\n'));
    let start = if is_whole { "" } else { "\n" };
    options.open(path)?.write_all(format!("{start}{line}\n").as_bytes())
}
