//! The access log: a line on standard error for each request, with figures and names, and never what users wrote.
//!
//! A thread of its own writes the lines, so that a slow reader of them delays no request: lines that it does not take
//! in time are left out.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

/// The form of the access log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// No lines.
    #[default]
    Off,
    /// Words with an equals sign between name and value.
    Text,
    /// An object of JSON in each line.
    Json,
}

/// Lines that may wait for the thread.
const WAITING: usize = 4096;
/// How long the thread may take at the end.
const FINISH: Duration = Duration::from_secs(1);

/// The access log of a server.
pub(crate) struct AccessLog {
    format: LogFormat,
    writer: Mutex<Option<Writer>>,
}

/// A thread that writes lines.
struct Writer {
    lines: SyncSender<String>,
    /// Closed when all lines are written.
    done: Receiver<()>,
}

impl AccessLog {
    /// Starts the thread, if there are to be lines.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(format: LogFormat) -> std::io::Result<AccessLog> {
        let writer = match format {
            LogFormat::Off => None,
            LogFormat::Text | LogFormat::Json => Some(Writer::start()?),
        };
        Ok(AccessLog { format, writer: Mutex::new(writer) })
    }

    /// Whether lines are written.
    pub(crate) fn is_on(&self) -> bool {
        self.format != LogFormat::Off
    }

    /// Writes a line.
    pub(crate) fn write(&self, fields: Map<String, Value>) {
        if let Some(writer) = &*self.writer() {
            // A line that the thread has no room for is lost.
            let _ = writer.lines.try_send(line(fields, self.format));
        }
    }

    /// Waits until the lines are written.
    pub(crate) fn finish(&self) {
        if let Some(Writer { lines, done }) = self.writer().take() {
            drop(lines);
            let _ = done.recv_timeout(FINISH);
        }
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn start() -> std::io::Result<Writer> {
        let (lines, waiting) = sync_channel::<String>(WAITING);
        let (end, done) = sync_channel(0);
        std::thread::Builder::new().name("access-log".to_string()).spawn(move || {
            let _end: SyncSender<()> = end;
            for line in waiting {
                // A closed standard error changes nothing.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        })?;
        Ok(Writer { lines, done })
    }
}

fn line(fields: Map<String, Value>, format: LogFormat) -> String {
    let mut line = match format {
        LogFormat::Json => escaped(&Value::Object(fields).to_string()),
        _ => {
            let words = fields.iter().map(|(name, value)| format!("{name}={}", word(value)));
            words.collect::<Vec<_>>().join(" ")
        }
    };
    line.push('\n');
    line
}

/// A value without blanks, or in quotes.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) if !text.is_empty() && text.bytes().all(is_plain) => text.clone(),
        value => escaped(&value.to_string()),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"=\\".contains(&byte)
}

/// JSON with escapes for all that a terminal would act on or that would change how a line reads.
fn escaped(json: &str) -> String {
    let is_active = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_active(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: &str, text: &str, json: &str) {
        let fields =
            Map::from_iter([("model".to_string(), json!(value)), ("status".to_string(), json!(200))]);
        assert_eq!(line(fields.clone(), LogFormat::Text), format!("model={text} status=200\n"));
        let line = line(fields.clone(), LogFormat::Json);
        assert_eq!(line, format!("{{\"model\":{json},\"status\":200}}\n"));
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), Value::Object(fields));
    }

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        check("org/name:q4_k", "org/name:q4_k", r#""org/name:q4_k""#);
        check("", r#""""#, r#""""#);
        check("two words", r#""two words""#, r#""two words""#);
        check("a\"b=c\\", r#""a\"b=c\\""#, r#""a\"b=c\\""#);
        check("\u{1b}[31mred\n200", r#""\u001b[31mred\n200""#, r#""\u001b[31mred\n200""#);
        check("\u{9b}31m\u{7f}", r#""\u009b31m\u007f""#, r#""\u009b31m\u007f""#);
        check("\u{202e}txt\u{feff}", r#""\u202etxt\ufeff""#, r#""\u202etxt\ufeff""#);
        check("größe", r#""größe""#, r#""größe""#);
    }
}
