//! Tells `peri --version` the commit and the target of this build.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo::rustc-env=BUILD_TARGET={}", std::env::var("TARGET").expect("cargo sets TARGET"));
    // Packagers who build without a checkout set BUILD_COMMIT themselves.
    let commit = std::env::var("BUILD_COMMIT").ok().or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    if let Some(commit) = commit {
        println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    }
    // The log of HEAD changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_string()).filter(|text| output.status.success() && !text.is_empty())
}
