//! `peri models`: the models on this machine.

use std::time::SystemTime;

use anyhow::Context;
use chrono::DateTime;
use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use comfy_table::{CellAlignment, Table, presets};
use engine::CompileCache;
use pipelines::MemoryBytes;
use serde_json::{Value, json};
use sources::{CachedRepo, Hub, Repo, RepoFile, Snapshot};

use crate::completion;
use crate::exit::{Usage, one_line};
use crate::output;

const AFTER_HELP: &str = "\
The models are those in the cache shared by Hugging Face tools (HF_HOME, HF_HUB_CACHE). The compile cache holds \
compiled models without weights; `peri doctor` checks both.

JSON of list: models[{name, commits[], bytes, modified, folder}]. JSON of show: name, bytes, commits[{commit, folder, \
files[{name, bytes}]}]. JSON of du: hub_cache{folder, bytes, free_bytes}, compile_cache{folder, entries, bytes}.

Examples:
  peri models
  peri models show Qwen/Qwen3-0.6B
  peri models rm Qwen/Qwen3-0.6B";

/// Arguments of `peri models`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// List the models (the default)
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the commits and files of a model
    Show {
        /// The model, as `peri models` names it
        #[arg(add = ArgValueCompleter::new(completion::repos))]
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete models from the cache
    Rm {
        /// The models, as `peri models` names them
        #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(completion::repos))]
        names: Vec<String>,
    },
    /// Show the disk space of the caches
    Du {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let hub = Hub::from_env().map_err(pipelines::Error::from)?;
    let text = match &arguments.command {
        None => list(&hub, arguments.json)?,
        Some(Command::List { json }) => list(&hub, *json)?,
        Some(Command::Show { name, json }) => show(&hub, name, *json)?,
        Some(Command::Rm { names }) => remove(&hub, names)?,
        Some(Command::Du { json }) => disk_usage(&hub, *json)?,
    };
    output::print(text + "\n")
}

fn repos(hub: &Hub) -> anyhow::Result<Vec<CachedRepo>> {
    Ok(hub.repos().map_err(pipelines::Error::from)?)
}

/// The model with a name.
fn find(hub: &Hub, name: &str) -> anyhow::Result<CachedRepo> {
    let found = hub.cached_repo(name).map_err(pipelines::Error::from)?;
    found.ok_or_else(|| {
        let cache = hub.cache.display();
        Usage(format!("{} is not in the cache at {cache}; `peri models` lists the models", one_line(name)))
            .into()
    })
}

fn list(hub: &Hub, json: bool) -> anyhow::Result<String> {
    let repos = repos(hub)?;
    if json {
        let model = |repo: &CachedRepo| {
            json!({
                "name": repo.id,
                "commits": repo.commits,
                "bytes": repo.bytes,
                "modified": repo.modified.and_then(timestamp),
                "folder": repo.folder,
            })
        };
        return Ok(json!({ "models": repos.iter().map(model).collect::<Vec<_>>() }).to_string());
    }
    if repos.is_empty() {
        let cache = hub.cache.display();
        return Ok(format!("no models in {cache}; `peri pull OWNER/NAME` downloads one"));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NAME", "SIZE", "COMMIT", "MODIFIED"]);
    for repo in &repos {
        let commit = match &repo.commits[..] {
            [] => "incomplete".to_string(),
            [commit] => commit[..12].to_string(),
            commits => format!("{} commits", commits.len()),
        };
        let modified = repo.modified.and_then(timestamp).unwrap_or_default();
        table.add_row([one_line(&repo.id), MemoryBytes(repo.bytes).to_string(), commit, modified]);
    }
    table.column_mut(1).expect("four columns").set_cell_alignment(CellAlignment::Right);
    Ok(table.trim_fmt())
}

fn show(hub: &Hub, name: &str, json: bool) -> anyhow::Result<String> {
    let repo = find(hub, name)?;
    let snapshots = snapshots(hub, &repo)?;
    if json {
        let file = |file: &RepoFile| json!({"name": file.name, "bytes": file.size});
        let commit = |(snapshot, files): &(Snapshot, Vec<RepoFile>)| {
            let files: Vec<Value> = files.iter().map(file).collect();
            json!({"commit": snapshot.commit, "folder": snapshot.folder, "files": files})
        };
        let commits: Vec<Value> = snapshots.iter().map(commit).collect();
        return Ok(json!({"name": repo.id, "bytes": repo.bytes, "commits": commits}).to_string());
    }
    let mut lines = vec![format!("{}, {}", repo.id, MemoryBytes(repo.bytes))];
    for (snapshot, files) in &snapshots {
        lines.push(format!("{}", snapshot.folder.display()));
        let width = files.iter().map(|file| file.name.chars().count()).max().unwrap_or(0);
        for file in files {
            let size =
                file.size.map_or_else(|| "unknown size".to_string(), |size| MemoryBytes(size).to_string());
            lines.push(format!("  {:<width$}  {size:>12}", one_line(&file.name)));
        }
    }
    Ok(lines.join("\n"))
}

/// The commits of a repository in the cache, with their files.
fn snapshots(hub: &Hub, repo: &CachedRepo) -> anyhow::Result<Vec<(Snapshot, Vec<RepoFile>)>> {
    let mut snapshots = Vec::new();
    for commit in &repo.commits {
        let at = Repo::new(&repo.id).and_then(|repo| repo.at(commit)).map_err(pipelines::Error::from)?;
        if let Some(snapshot) = hub.snapshot(&at).map_err(pipelines::Error::from)? {
            let files = snapshot.files().map_err(pipelines::Error::from)?;
            snapshots.push((snapshot, files));
        }
    }
    Ok(snapshots)
}

fn remove(hub: &Hub, names: &[String]) -> anyhow::Result<String> {
    // A wrong name is an error before anything is deleted.
    let repos = names.iter().map(|name| find(hub, name)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut lines = Vec::new();
    for repo in repos {
        hub.remove(&repo).map_err(pipelines::Error::from)?;
        lines.push(format!("removed {}, {}", repo.id, MemoryBytes(repo.bytes)));
    }
    Ok(lines.join("\n"))
}

fn disk_usage(hub: &Hub, json: bool) -> anyhow::Result<String> {
    let contents = hub.contents().map_err(pipelines::Error::from)?;
    let compiled = CompileCache::user().map(|cache| {
        let health = cache.check().with_context(|| format!("cannot read {}", cache.folder().display()));
        health.map(|health| (cache.folder().to_path_buf(), health.entries, health.bytes))
    });
    let compiled = compiled.transpose()?;
    if json {
        let compiled = compiled
            .map(|(folder, entries, bytes)| json!({"folder": folder, "entries": entries, "bytes": bytes}));
        let hub_cache = json!({"folder": hub.cache, "bytes": contents.bytes, "free_bytes": hub.free_space()});
        return Ok(json!({"hub_cache": hub_cache, "compile_cache": compiled}).to_string());
    }
    let free = hub.free_space().map_or_else(String::new, |free| format!(", {} free", MemoryBytes(free)));
    let mut lines =
        vec![format!("hub cache      {} in {}{free}", MemoryBytes(contents.bytes), hub.cache.display())];
    lines.push(match compiled {
        Some((folder, entries, bytes)) => {
            format!("compile cache  {} in {}, {entries} entries", MemoryBytes(bytes), folder.display())
        }
        None => "compile cache  off".to_string(),
    });
    Ok(lines.join("\n"))
}

/// A time since 1970 in UTC, to the second.
fn timestamp(time: SystemTime) -> Option<String> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let time = DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    Some(time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}
