//! Messages from a terminal, a pipe or the command line: lines, continued lines, and blocks.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use reedline::{
    EditCommand, FileBackedHistory, Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal,
    ValidationResult, Validator,
};

use crate::exit::{self, Usage};
use crate::output;
use crate::state_folder::state_folder;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A message, or a command.
    Line(String),
    /// A message, even if it looks like a command.
    Block(String),
    /// Ctrl-C at the prompt.
    Cancelled,
    /// A signal ends the conversation.
    Terminated,
    End,
}

/// The source of messages.
pub(super) enum Reader {
    /// A terminal, with line editing and a history, and the lines typed before the editor ran.
    Terminal(Box<Reedline>, VecDeque<String>),
    /// Lines, with the number of those read.
    Lines(Box<dyn BufRead>, usize),
    /// The same, typed on a terminal without line editing.
    Typed(Box<dyn BufRead>, usize),
    /// One message of the command line, until it is read.
    Once(Option<String>),
}

/// Around a message that is taken as it stands.
const BLOCK: &str = "\"\"\"";
/// Messages that the history keeps.
const HISTORY: usize = 10_000;

impl Reader {
    /// Reads standard input. `history` says whether to keep typed messages for later conversations; `stop` ends the
    /// editor when set.
    pub(super) fn new(history: bool, stop: Arc<AtomicBool>) -> Reader {
        // The editor draws on standard error, and needs a terminal that can move its cursor.
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Reader::Lines(Box::new(std::io::stdin().lock()), 0);
        }
        if output::is_dumb_terminal() {
            return Reader::Typed(Box::new(std::io::stdin().lock()), 0);
        }
        // The default colours of the editor are unreadable on light backgrounds.
        let mut editor = Reedline::create()
            .with_validator(Box::new(Whole))
            .with_ansi_colors(false)
            .with_break_signal(stop)
            .use_bracketed_paste(true);
        if history {
            match history_file() {
                Ok(history) => editor = editor.with_history(Box::new(history)),
                Err(error) => exit::warn(&format!("typed messages are not kept: {error:#}")),
            }
        }
        Reader::Terminal(Box::new(editor), VecDeque::new())
    }

    /// Whether a person types.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Reader::Terminal(..) | Reader::Typed(..))
    }

    /// The next message that is not empty.
    pub(super) fn read(&mut self) -> anyhow::Result<Input> {
        loop {
            let input = match self {
                Reader::Terminal(editor, ahead) => typed(editor, ahead)?,
                Reader::Lines(lines, number) => piped(lines, number)?,
                Reader::Typed(lines, number) => {
                    // A closed standard error changes nothing.
                    let _ = write!(std::io::stderr(), "> ");
                    piped(lines, number)?
                }
                Reader::Once(message) => message.take().map_or(Input::End, Input::Block),
            };
            match input {
                Input::Line(text) | Input::Block(text) if text.trim().is_empty() => {}
                input => return Ok(input),
            }
        }
    }
}

fn typed(editor: &mut Reedline, ahead: &mut VecDeque<String>) -> anyhow::Result<Input> {
    read_ahead(ahead).context("cannot read from the terminal")?;
    let mut text = String::new();
    while let Some(line) = ahead.pop_front() {
        text.push_str(&line);
        if is_whole(&text) {
            // A closed standard error changes nothing.
            let _ = writeln!(std::io::stderr(), "> {}", output::printable(&text));
            return Ok(input(&text));
        }
        text.push('\n');
    }
    // The start of a message goes on in the editor.
    editor.run_edit_commands(&[EditCommand::InsertString(text)]);
    Ok(match editor.read_line(&Mark).context("cannot read from the terminal")? {
        Signal::Success(text) => input(&text),
        Signal::CtrlC => Input::Cancelled,
        Signal::ExternalBreak(_) => Input::Terminated,
        _ => Input::End,
    })
}

/// Takes the lines that were typed while no editor ran, during loading or an answer. The editor would read them all as
/// one message: outside of it, the terminal turns Enter into a line feed.
#[cfg(unix)]
fn read_ahead(ahead: &mut VecDeque<String>) -> std::io::Result<()> {
    let mut stdin = std::io::stdin().lock();
    // Only complete lines count, so reading one does not wait.
    while rustix::io::ioctl_fionread(&stdin)? > 0 {
        let mut line = Vec::new();
        stdin.read_until(b'\n', &mut line)?;
        ahead.push_back(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_string());
    }
    Ok(())
}

/// Elsewhere the terminal hands typed keys to the editor as they are.
#[cfg(not(unix))]
fn read_ahead(_: &mut VecDeque<String>) -> std::io::Result<()> {
    Ok(())
}

fn piped(lines: &mut dyn BufRead, number: &mut usize) -> anyhow::Result<Input> {
    let (mut text, begin) = (String::new(), *number + 1);
    loop {
        let mut line = Vec::new();
        let ended = lines.read_until(b'\n', &mut line).context("cannot read standard input")? == 0;
        if ended && text.is_empty() {
            return Ok(Input::End);
        }
        if ended && text.starts_with(BLOCK) {
            return Err(Usage(format!(
                "standard input, line {begin}: {BLOCK} begins a block that never ends"
            ))
            .into());
        }
        if ended {
            return Ok(input(text.strip_suffix("\\\n").unwrap_or(&text)));
        }
        *number += 1;
        let line = String::from_utf8(line).map_err(|_| {
            Usage(format!("standard input, line {number}: not UTF-8; convert it, for example with iconv"))
        })?;
        let line = line.strip_suffix('\n').unwrap_or(&line);
        text.push_str(line.strip_suffix('\r').unwrap_or(line));
        if is_whole(&text) {
            return Ok(input(&text));
        }
        text.push('\n');
    }
}

/// Whether a message is complete. A block that opens with a line of quotes ends with one, and may contain others.
fn is_whole(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(BLOCK) else { return !text.ends_with('\\') };
    match rest.split_once('\n') {
        Some((first, rest)) if first.trim().is_empty() => {
            rest.rsplit('\n').next().is_some_and(|last| last.trim_end() == BLOCK)
        }
        _ => rest.trim_end().ends_with(BLOCK),
    }
}

/// The message of a complete text: the inside of a block, or lines without the backslashes that joined them.
fn input(text: &str) -> Input {
    match text.strip_prefix(BLOCK).and_then(|rest| rest.trim_end().strip_suffix(BLOCK)) {
        Some(inside) => {
            let inside = match inside.split_once('\n') {
                Some((first, rest)) if first.trim().is_empty() => rest,
                _ => inside,
            };
            Input::Block(inside.strip_suffix('\n').unwrap_or(inside).to_string())
        }
        None => Input::Line(text.replace("\\\n", "\n")),
    }
}

/// The history, in a file that only the user can read.
fn history_file() -> anyhow::Result<FileBackedHistory> {
    let folder = state_folder().context("there is no home folder: set XDG_STATE_HOME")?;
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let path = folder.join("chat_history");
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&path).with_context(|| path.display().to_string())?;
    FileBackedHistory::with_file(HISTORY, path.clone()).with_context(|| path.display().to_string())
}

/// Makes Enter start a new line while a message is incomplete.
struct Whole;

impl Validator for Whole {
    fn validate(&self, text: &str) -> ValidationResult {
        if is_whole(text) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

/// The prompt before a message.
struct Mark;

impl Prompt for Mark {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("search `{}`: ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of an input, and why it ended if not in order.
    fn messages(text: &[u8]) -> (Vec<String>, Option<String>) {
        let mut reader = Reader::Lines(Box::new(std::io::Cursor::new(text.to_vec())), 0);
        let mut messages = Vec::new();
        loop {
            match reader.read() {
                Ok(Input::Line(text) | Input::Block(text)) => messages.push(text),
                Ok(_) => return (messages, None),
                Err(error) => return (messages, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn backslashes_continue_lines_and_quotes_make_blocks() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(
                messages(text.as_bytes()),
                (expected.iter().map(|&m| m.into()).collect(), None),
                "{text}"
            );
        };
        check("", &[]);
        check("Hi\n\n  \nthere", &["Hi", "there"]);
        check("Hi\r\n/reset\r\n", &["Hi", "/reset"]);
        check("one\\\ntwo\\\r\nthree\nfour\n", &["one\ntwo\nthree", "four"]);
        check("the end\\\n", &["the end"]);
        check("\"\"\"\na\\\n\n/b\n\"\"\"\nc\n", &["a\\\n\n/b", "c"]);
        check("\"\"\"one line\"\"\"\n", &["one line"]);
        let python = "def f():\n    \"\"\"Does.\"\"\"\n    \"\"\"";
        check(&format!("\"\"\"\n{python}\n\"\"\"\nrun it"), &[python, "run it"]);
        check("say \"\"\"\nnothing\n", &["say \"\"\"", "nothing"]);
    }

    #[test]
    fn blocks_are_never_commands() {
        assert_eq!(input("/exit"), Input::Line("/exit".into()));
        assert_eq!(input("\"\"\"/exit\"\"\" "), Input::Block("/exit".into()));
    }

    #[test]
    fn errors_name_the_line() {
        let (before, error) = messages(b"Hi\n\"\"\"\nno end\n");
        assert_eq!(before, ["Hi"]);
        assert!(error.unwrap().starts_with("standard input, line 2: "));
        assert!(messages(b"a\n\xff\n").1.unwrap().contains("line 2: not UTF-8"));
    }
}
