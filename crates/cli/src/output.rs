//! What models write, on standard output: as it is in pipes, harmless on terminals.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

/// A text that comes in parts and ends with exactly one newline.
pub(crate) struct TextOutput {
    terminal: bool,
    /// Newlines that were held back.
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

/// A text with the control characters that could command a terminal written out: all but line breaks and tabs.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match harmless(c) {
            true => escaped.push(c),
            false => escaped.extend(c.escape_default()),
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
    fn terminals_are_not_commanded() {
        let hostile = "\u{1b}]2;title\u{7}\u{1b}[2J\u{9b}31m\r\tok\u{7f}";
        assert_eq!(written(false, &[hostile]), format!("{hostile}\n"));
        let shown = r"\u{1b}]2;title\u{7}\u{1b}[2J\u{9b}31m\r".to_string() + "\tok\\u{7f}\n";
        assert_eq!(written(true, &[hostile]), shown);
    }
}
