//! The log on standard error: a line for each request, with figures and names and never what users wrote, and lines of the
//! program.
//!
//! A thread of its own writes the lines, so that a slow reader of them delays no request: lines that it does not take
//! in time are left out.

use std::fmt::Debug;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::stamp;

/// The form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// No lines of requests.
    #[default]
    Off,
    /// Words with an equals sign between name and value.
    Text,
    /// An object of JSON in each line, also in those of the program.
    Json,
}

/// The variable that says what the program logs.
const LOG_VARIABLE: &str = "PERIHELION_LOG";
/// Lines that may wait for the thread.
const WAITING: usize = 4096;
/// How long the thread may take at the end.
const FINISH: Duration = Duration::from_secs(1);

/// The access log of a server.
pub(crate) struct AccessLog {
    format: LogFormat,
}

/// What the thread is handed.
enum Entry {
    Line(String),
    /// Closed when all lines before it are written.
    Finish(SyncSender<()>),
}

impl AccessLog {
    pub(crate) fn new(format: LogFormat) -> AccessLog {
        AccessLog { format }
    }

    /// Whether lines are written.
    pub(crate) fn is_on(&self) -> bool {
        self.format != LogFormat::Off
    }

    /// Writes a line.
    pub(crate) fn write(&self, fields: Map<String, Value>) {
        write(line(fields, self.format));
    }

    /// Waits until the lines are written.
    pub(crate) fn finish(&self) {
        let (done, wait) = sync_channel(0);
        if writer().is_some_and(|entries| entries.try_send(Entry::Finish(done)).is_ok()) {
            // Closed without a message.
            let _ = wait.recv_timeout(FINISH);
        }
    }
}

/// Has the log show warnings and errors of the whole program in a form; as objects of JSON, also when models come and
/// go, and when the server starts and ends. The variable `PERIHELION_LOG` says otherwise, as in [`engine::show_logs`]. A
/// program that has a subscriber of [`tracing`] keeps it.
///
/// # Errors
/// If the variable is wrong; the message says how.
pub fn show_logs(format: LogFormat) -> Result<(), String> {
    let text = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let Some(targets) = targets(text.trim(), format)? else { return Ok(()) };
    let subscriber = tracing_subscriber::registry().with(ProgramLines(format)).with(targets);
    // Fails where the program has one.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// What is shown where the variable says this; `None` for nothing at all.
fn targets(text: &str, format: LogFormat) -> Result<Option<Targets>, String> {
    let own = if format == LogFormat::Json { LevelFilter::INFO } else { LevelFilter::WARN };
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    if text.is_empty() {
        let others = [("perihelion", LevelFilter::WARN), ("perihelion::kernel", LevelFilter::TRACE)];
        let targets = Targets::new().with_targets(others).with_target("perihelion::op", LevelFilter::TRACE);
        return Ok(Some(targets.with_target("serve", own)));
    }
    let targets = text.parse::<Targets>().map_err(|_| {
        format!(
            "{LOG_VARIABLE} is `{text}`: give a level (off, error, warn, info, debug, trace), or targets with levels, as \
             in warn,perihelion::kernel=debug"
        )
    })?;
    Ok(Some(targets))
}

/// Writes what the program logs.
struct ProgramLines(LogFormat);

impl<S: Subscriber> Layer<S> for ProgramLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let (level, target) = (event.metadata().level(), event.metadata().target());
        write(match self.0 {
            LogFormat::Json => {
                line(fields(&level.as_str().to_ascii_lowercase(), Some(target), &message.0), LogFormat::Json)
            }
            LogFormat::Text | LogFormat::Off => format!("{level:>5} {target}: {}\n", escaped(&message.0)),
        });
    }
}

/// The message of an event, and its other fields as `name=value`.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        self.0.push_str(&match field.name() {
            "message" => format!("{space}{value:?}"),
            name => format!("{space}{name}={value:?}"),
        });
    }
}

/// A line of the log as JSON, with its line break.
pub fn json_log_line(level: &str, message: &str) -> String {
    line(fields(level, None, message), LogFormat::Json)
}

fn fields(level: &str, target: Option<&str>, message: &str) -> Map<String, Value> {
    let all = [
        ("time", Some(stamp::rfc3339().into())),
        ("level", Some(level.into())),
        ("target", target.map(Value::from)),
        ("message", Some(message.into())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

/// Hands a line to the thread. One that the thread has no room for is lost.
fn write(line: String) {
    if let Some(entries) = writer() {
        let _ = entries.try_send(Entry::Line(line));
    }
}

/// The thread that writes lines, of which a process has one, as it has one standard error; `None` if the system refuses it.
fn writer() -> Option<&'static SyncSender<Entry>> {
    static WRITER: OnceLock<Option<SyncSender<Entry>>> = OnceLock::new();
    let start = || {
        let (entries, waiting) = sync_channel::<Entry>(WAITING);
        let body = move || {
            for entry in waiting {
                match entry {
                    // A closed standard error changes nothing.
                    Entry::Line(line) => drop(std::io::stderr().write_all(line.as_bytes())),
                    Entry::Finish(done) => drop(done),
                }
            }
        };
        let thread = std::thread::Builder::new().name("log".to_string()).spawn(body);
        thread.ok().map(|_| entries)
    };
    WRITER.get_or_init(start).as_ref()
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
    fn variable_and_form_say_what_of_the_program_is_shown() {
        let check = |text: &str, format: LogFormat, shown: [bool; 3]| {
            let targets = targets(text, format).unwrap().unwrap_or_default();
            let (info, warn) = (tracing::Level::INFO, tracing::Level::WARN);
            let of = [("serve::server", info), ("serve::server", warn), ("perihelion_engine::cache", info)];
            assert_eq!(of.map(|(target, level)| targets.would_enable(target, &level)), shown, "{text:?}");
        };
        check("", LogFormat::Json, [true, true, false]);
        check("", LogFormat::Text, [false, true, false]);
        check("off", LogFormat::Json, [false; 3]);
        check("info", LogFormat::Text, [true; 3]);
        let error = targets("serve=loud", LogFormat::Json).unwrap_err();
        assert!(error.starts_with("PERIHELION_LOG is `serve=loud`: give a level (off, "), "{error}");
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
