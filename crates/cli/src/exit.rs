//! How a command ends: one line on standard error, and a code that scripts can tell apart.

use std::io::Write;
use std::process::ExitCode;

use crate::advice;

/// The codes as `peri --help` prints them.
pub(crate) const CODES: &str = "\
Exit codes:
  0    success
  1    something went wrong while running
  2    wrong arguments, or a prompt that the model cannot take
  3    the model cannot be opened: missing, damaged or unsupported
  4    not enough memory
  130  interrupted";

/// Something went wrong while running.
pub(crate) const FAILURE: u8 = 1;
/// Wrong arguments, or a prompt that the model cannot take.
pub(crate) const USAGE: u8 = 2;
/// The model cannot be opened.
pub(crate) const MODEL: u8 = 3;
/// Not enough memory.
pub(crate) const MEMORY: u8 = 4;
/// Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The user pressed Ctrl-C, and what was under way was ended in order.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Arguments that parse but make no sense, or input that does not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub String);

/// An artifact, or a file beside the model's weights, that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadModel(pub String);

/// More is asked for than fits into memory.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoMemory(pub String);

/// Says what went wrong, and gives its code.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if is_broken_pipe(&error) {
        // Whoever reads our output has seen enough.
        return ExitCode::SUCCESS;
    }
    if error.is::<Interrupted>() {
        return ExitCode::from(INTERRUPTED);
    }
    ExitCode::from(report(&error))
}

/// Says what went wrong and what to do about it; gives the code that a command ends with for it.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    let (code, advice) = match error.downcast_ref::<pipelines::Error>() {
        Some(pipelines_error) => advice::of(pipelines_error),
        None if let Some(text_error) = error.downcast_ref::<pipelines::TextError>() => {
            advice::text(text_error)
        }
        None if error.is::<Usage>() => (USAGE, None),
        None if error.is::<BadModel>() => (MODEL, None),
        None if error.is::<NoMemory>() => (MEMORY, None),
        None if error.downcast_ref().is_some_and(engine::Error::is_out_of_memory) => {
            (MEMORY, Some(advice::LESS))
        }
        None => (FAILURE, None),
    };
    say(&message(error, advice));
    code
}

/// What clap finds wrong with the arguments of a command, in one line; help and versions as they are.
pub(crate) fn usage(error: &clap::Error, command: &str) -> ExitCode {
    use clap::error::ErrorKind;
    let asked = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if asked.contains(&error.kind()) {
        // A closed standard output is none of our business here.
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    let text = error.render().to_string();
    let text = text.split("\nUsage:").next().unwrap_or_default();
    let text = text.split("\nFor more information").next().unwrap_or_default();
    let text = text.trim_start_matches("error:").trim().replace("\n\n  tip: ", "; ");
    say(&format!("{text}; see `{command} --help`"));
    ExitCode::from(USAGE)
}

/// Text as it may stand in a line on a terminal: no line breaks, no escape sequences, no runs of spaces.
pub(crate) fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Says what is no failure.
pub(crate) fn warn(warning: &str) {
    say(&format!("warning: {warning}"));
}

fn say(message: &str) {
    // A closed standard error changes nothing.
    let _ = writeln!(std::io::stderr(), "peri: {}", one_line(message));
}

/// The error and its causes, each that says something new, and what to do.
fn message(error: &anyhow::Error, advice: Option<&str>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if !parts.iter().any(|part| part.contains(&cause)) {
            parts.push(cause);
        }
    }
    let message = parts.join(": ");
    match advice {
        Some(another) if another.starts_with("or ") => format!("{message}, {another}"),
        Some(advice) => format!("{message}; {advice}"),
        None => message,
    }
}

/// Whether whoever reads our output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let inner = std::io::Error::other("the disk is on fire");
        let outer = anyhow::Error::new(inner).context("a.gguf: the disk is on fire").context("cannot open");
        assert_eq!(message(&outer, Some("run")), "cannot open: a.gguf: the disk is on fire; run");
    }

    #[test]
    fn a_session_that_runs_out_of_memory_ends_with_the_code_of_models_that_do() {
        let error = engine::Error::OutOfMemory { what: "mapping model.mef".to_string(), bytes: 1 };
        assert_eq!(report(&anyhow::Error::new(error)), MEMORY);
        assert_eq!(report(&anyhow::Error::new(engine::Error::NoDevice)), FAILURE);
    }

    #[test]
    fn lines_hold_no_surprises() {
        assert_eq!(one_line("a\n  b\u{1b}[31m c\t"), "a b [31m c");
    }
}
