//! Where the command keeps what it remembers between runs.

use std::path::PathBuf;

/// The folder `peri` below `XDG_STATE_HOME` or `~/.local/state`; `None` without a home folder.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = std::env::home_dir().filter(|path| !path.as_os_str().is_empty());
    Some(state.or_else(|| Some(home?.join(".local/state")))?.join("peri"))
}
