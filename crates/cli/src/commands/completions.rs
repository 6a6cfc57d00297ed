//! `peri completions`: what a shell needs to complete commands, flags and values.

use std::io::Write;

use anyhow::Context;
use clap_complete::Shell;

const AFTER_HELP: &str = "\
Examples:
  peri completions bash > ~/.local/share/bash-completion/completions/peri
  peri completions zsh > ~/.zfunc/_peri
  peri completions fish > ~/.config/fish/completions/peri.fish";

/// Arguments of `peri completions`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::command(), "peri", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).context("cannot write to standard output")
}
