//! Shell completions: the shell's script asks this binary, which knows its flags, their values and the models here.

use std::ffi::{OsStr, OsString};

use clap_complete::engine::ValueCompleter;
use clap_complete::{CompleteEnv, CompletionCandidate, PathCompleter};
use sources::Hub;

use crate::exit;

/// The environment variable in which the script names the shell.
pub(crate) const VARIABLE: &str = "PERI_COMPLETE";

/// Prints candidates if a completion script runs this process.
pub(crate) fn answer(command_line: &[OsString]) -> Option<u8> {
    std::env::var_os(VARIABLE)?;
    let folder = std::env::current_dir().ok();
    let environment = CompleteEnv::with_factory(crate::command).var(VARIABLE).bin("peri");
    match environment.try_complete(command_line, folder.as_deref()) {
        Ok(true) => Some(exit::SUCCESS),
        Ok(false) => None,
        Err(error) => Some(exit::usage(&error, "peri completions")),
    }
}

/// Candidates for MODEL: repos in the hub cache, then paths.
pub(crate) fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    repos(current).into_iter().chain(PathCompleter::any().complete(current)).collect()
}

/// Candidates for the name of a model in the hub cache.
pub(crate) fn repos(current: &OsStr) -> Vec<CompletionCandidate> {
    let repos = Hub::from_env().ok().and_then(|hub| hub.repos().ok()).unwrap_or_default();
    let names = repos.into_iter().map(|repo| repo.id);
    names.filter(|id| id.starts_with(&*current.to_string_lossy())).map(CompletionCandidate::new).collect()
}
