//! Model output on standard output: unchanged in pipes, with control characters escaped on terminals.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use anyhow::Context;

/// A text written in parts that ends with exactly one newline.
pub(crate) struct TextOutput {
    terminal: bool,
    /// Trailing newlines not yet written.
    held: usize,
}

impl TextOutput {
    /// For standard output.
    pub(crate) fn new() -> TextOutput {
        TextOutput { terminal: std::io::stdout().is_terminal(), held: 0 }
    }

    /// Writes the next part, without the newlines at its end.
    pub(crate) fn write(&mut self, out: &mut impl Write, text: &str) -> std::io::Result<()> {
        let body = text.trim_end_matches('\n');
        if !body.is_empty() {
            let body = if self.terminal { printable(body) } else { Cow::Borrowed(body) };
            write!(out, "{}{body}", "\n".repeat(self.held))?;
            self.held = 0;
        }
        self.held += text.len() - text.trim_end_matches('\n').len();
        Ok(())
    }

    /// Ends the text; another may begin.
    pub(crate) fn end(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        self.held = 0;
        writeln!(out)
    }
}

/// Prints a whole text, or as much as its reader takes.
///
/// # Errors
/// If standard output cannot be written to.
pub(crate) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Whether the terminal cannot move its cursor or change colours (`TERM=dumb`).
pub(crate) fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether standard output is a terminal that shows styles, and the user did not turn them off (`NO_COLOR`).
pub(crate) fn is_styled() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !plain && !is_dumb_terminal()
}

/// A text with control characters escaped, except line breaks and tabs.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmless(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_default());
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(terminal: bool, parts: &[&str]) -> String {
        let (mut output, mut bytes) = (TextOutput { terminal, held: 0 }, Vec::new());
        parts.iter().for_each(|part| output.write(&mut bytes, part).unwrap());
        output.end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn texts_end_with_one_newline() {
        assert_eq!(written(false, &["a\n", "\n", "b", "\n\n"]), "a\n\nb\n");
        assert_eq!(written(false, &[]), "\n");
    }

    #[test]
    fn control_characters_are_escaped_on_terminals() {
        let hostile = "\u{1b}]2;title\u{7}\u{1b}[2J\u{9b}31m\r\tok\u{7f}";
        assert_eq!(written(false, &[hostile]), format!("{hostile}\n"));
        let shown = r"\u{1b}]2;title\u{7}\u{1b}[2J\u{9b}31m\r".to_string() + "\tok\\u{7f}\n";
        assert_eq!(written(true, &[hostile]), shown);
    }
}
