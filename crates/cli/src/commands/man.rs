//! `peri man`: manual pages, made from the same text as `--help`.

use std::path::PathBuf;

use anyhow::Context;
use clap_mangen::Man;

use crate::exit::Usage;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  peri man --out ~/.local/share/man/man1
  peri man generate | man -l -";

/// Arguments of `peri man`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The command, such as generate or config show [default: peri itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Write a page for every command to this folder, which is created if missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // `peri help` prints what `--help` does.
    let mut root = crate::command().disable_help_subcommand(true);
    root.build();
    if let Some(folder) = &arguments.out {
        let failed = || format!("cannot write manual pages to {}", folder.display());
        std::fs::create_dir_all(folder).with_context(failed)?;
        return clap_mangen::generate_to(root, folder).with_context(failed);
    }
    let mut command = &root;
    for name in &arguments.command {
        let unknown = || Usage(format!("there is no command `{name}`: `peri --help` lists all"));
        command = command.find_subcommand(name).ok_or_else(unknown)?;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).context("cannot make the manual page")?;
    output::print(&page)
}
