//! `peri completions`: the script that makes a shell complete commands, flags, values and models.

use anyhow::Context;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::completion;
use crate::output;

const AFTER_HELP: &str = "\
The script asks `peri` for each completion, so it offers values of flags and the models on this machine too. Load it \
anew after updates, best from the shell's startup file:

  bash        echo 'source <(peri completions bash)' >> ~/.bashrc
  zsh         echo 'source <(peri completions zsh)' >> ~/.zshrc
  fish        echo 'peri completions fish | source' >> ~/.config/fish/config.fish
  elvish      echo 'eval (peri completions elvish | slurp)' >> ~/.elvish/rc.elv
  PowerShell  echo 'peri completions powershell | Out-String | Invoke-Expression' >> $PROFILE";

/// Arguments of `peri completions`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let name = arguments.shell.to_string();
    let shell = Shells::builtins();
    let shell = shell.completer(&name).context("every shell of the flag has a script")?;
    let mut script = Vec::new();
    shell.write_registration(completion::VARIABLE, "peri", "peri", "peri", &mut script)?;
    output::print(&script)
}
