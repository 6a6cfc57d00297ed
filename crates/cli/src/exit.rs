//! Exit codes, and the one line on standard error that explains a failure.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::advice::{self, FAILURE, MEMORY, MODEL, USAGE};
use crate::{interrupt, verb_hints};

/// The codes as `peri --help` prints them.
pub(crate) const CODES: &str = "\
Exit codes:
  0    success
  1    something failed while running
  2    wrong arguments, or a prompt that the model cannot take
  3    the model cannot be opened: missing, damaged or unsupported
  4    not enough memory
  130  interrupted (Ctrl-C)
  143  terminated (SIGTERM)";

/// The exit code of a command that did what it was asked.
pub(crate) const SUCCESS: u8 = 0;

/// Whether lines on standard error are objects of JSON.
static LINES_ARE_JSON: AtomicBool = AtomicBool::new(false);

/// A signal came, and the command stopped in order.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Invalid arguments or input that clap cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub String);

/// An invalid artifact, or an invalid file next to the model's weights.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadModel(pub String);

/// The work does not fit into memory.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoMemory(pub String);

/// The exit code of a command, after printing its error.
pub(crate) fn code(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else { return SUCCESS };
    if is_broken_pipe(&error) {
        // The reader of our output has seen enough.
        return SUCCESS;
    }
    if error.is::<Interrupted>() {
        return interrupt::exit_code();
    }
    report(&error)
}

/// Prints an error with advice, and returns its exit code.
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
    let message = message(error, advice);
    if is_of_lines(error) && !are_lines_json() {
        let lines: Vec<String> = message.lines().map(one_line).collect();
        // A closed standard error changes nothing.
        let _ = writeln!(std::io::stderr(), "peri: {}", lines.join("\n"));
    } else {
        print_line("error", "", &message);
    }
    code
}

/// Whether an error has several lines, all of which are ours.
fn is_of_lines(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<pipelines::Error>();
    matches!(error, Some(pipelines::Error::Model(models::Error::Architecture { .. })))
}

/// Prints clap's error in one line, or the help or version the user asked for.
pub(crate) fn usage(error: &clap::Error, command: &str) -> u8 {
    use clap::error::ErrorKind;
    let asked = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if asked.contains(&error.kind()) {
        return match error.print() {
            Err(problem) if error.exit_code() == 0 => {
                code(Err(anyhow::Error::from(problem).context("cannot write to standard output")))
            }
            _ => error.exit_code() as u8,
        };
    }
    if let Some(clap::error::ContextValue::String(word)) =
        error.get(clap::error::ContextKind::InvalidSubcommand)
        && let Some(hint) = verb_hints::hint(word)
    {
        print_line("error", "", &format!("there is no command `{word}`: {hint}"));
        return USAGE;
    }
    let text = error.render().to_string();
    let text = text.split("\nUsage:").next().unwrap_or_default();
    let text = text.split("\nFor more information").next().unwrap_or_default();
    let text = text.trim_start_matches("error:").trim().replace("\n\n  tip: ", "; ");
    print_line("error", "", &format!("{text}; see `{command} --help`"));
    USAGE
}

/// A text made fit for one line of a terminal: no line breaks, no escape sequences, no runs of spaces.
pub(crate) fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// From now on, errors and warnings are lines of the server's log.
pub(crate) fn print_lines_as_json() {
    LINES_ARE_JSON.store(true, Ordering::Relaxed);
}

/// Whether errors and warnings are lines of the server's log.
pub(crate) fn are_lines_json() -> bool {
    LINES_ARE_JSON.load(Ordering::Relaxed)
}

/// Prints a warning.
pub(crate) fn warn(warning: &str) {
    print_line("warn", "warning: ", warning);
}

/// Prints an error that ends nothing.
pub(crate) fn complain(problem: &str) {
    print_line("error", "", problem);
}

/// Prints a line about what happened, as it stands.
pub(crate) fn inform(message: &str) {
    // A closed standard error changes nothing.
    let _ = if are_lines_json() {
        std::io::stderr().write_all(serve::json_log_line("info", message).as_bytes())
    } else {
        writeln!(std::io::stderr(), "{message}")
    };
}

fn print_line(level: &str, prefix: &str, message: &str) {
    let message = one_line(message);
    // A closed standard error changes nothing.
    let _ = if are_lines_json() {
        std::io::stderr().write_all(serve::json_log_line(level, &message).as_bytes())
    } else {
        writeln!(std::io::stderr(), "peri: {prefix}{message}")
    };
}

/// The error, those of its causes that add something, and the advice.
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

/// Whether the reader of our output is gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_causes_are_printed_once() {
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
    fn one_line_removes_control_characters() {
        assert_eq!(one_line("a\n  b\u{1b}[31m c\t"), "a b [31m c");
    }
}
