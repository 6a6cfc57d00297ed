//! What `peri --version` prints.

use std::sync::LazyLock;

use cpu::Cpu;
use engine::Device;

/// The version alone.
pub(crate) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// The commit this binary was built from, if it was built from a checkout.
pub(crate) const COMMIT: Option<&str> = option_env!("BUILD_COMMIT");

/// The version and the commit, if it is known.
pub(crate) fn build() -> String {
    COMMIT.map_or_else(|| SHORT.to_string(), |commit| format!("{SHORT}-{commit}"))
}

/// The version, the commit if known, the target this binary was built for, and the instruction set it uses here.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let commit = COMMIT.map_or_else(String::new, |commit| format!("commit {commit}, "));
        let target = Cpu::new(1).target();
        let instructions = target.split_once(' ').map_or(&target[..], |(_, set)| set);
        format!("{SHORT} ({commit}{}, {instructions})", env!("BUILD_TARGET"))
    });
    &LONG
}
