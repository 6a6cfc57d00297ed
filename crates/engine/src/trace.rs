//! Profiled calls as a trace file that Perfetto and Chrome's `about:tracing` show.
//!
//! The format is an array of complete events (`"ph": "X"`) in microseconds: "Trace Event Format", Google 2016.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::{Error, StepTime, Totals};

/// Spans kept in memory before they go to the file.
const BATCH: usize = 1 << 16;

/// Where traces go, unless the session says otherwise.
const VARIABLE: &str = "PERIHELION_TRACE_FILE";

/// A range of time on the thread that called a model.
struct Span {
    name: String,
    /// The kind of range: a call, a phase of a call, an op, a kernel, or a name of the caller's.
    category: &'static str,
    start: Instant,
    duration: Duration,
    /// Details that are shown with it.
    detail: Option<(&'static str, String)>,
}

impl Span {
    fn of(name: &str, category: &'static str, start: Instant, duration: Duration) -> Span {
        Span { name: name.to_string(), category, start, duration, detail: None }
    }
}

/// The profiled calls of all models of a session. Written when its last holder goes, at the latest.
pub(crate) struct Recorder {
    state: Mutex<State>,
}

struct State {
    /// The zero of the trace's time.
    start: Instant,
    path: Option<PathBuf>,
    file: Option<BufWriter<File>>,
    events: Vec<String>,
    threads: HashMap<ThreadId, usize>,
    totals: Totals,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let (events, threads, totals) = (Vec::new(), HashMap::new(), Totals::default());
        let state = State { start: Instant::now(), path: None, file: None, events, threads, totals };
        Recorder { state: Mutex::new(state) }
    }
}

impl Recorder {
    /// Lets the trace go to another file; what is in memory goes there too.
    pub(crate) fn set_path(&self, path: PathBuf) {
        let mut state = self.lock();
        (state.path, state.file) = (Some(path), None);
    }

    /// Adds a call of a model that began at `start`, and the steps it has made.
    pub(crate) fn record(
        &self,
        model: &str,
        start: Instant,
        steps: &[(Instant, StepTime)],
        detailed: bool,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        let thread = state.thread();
        let mut spans = vec![Span::of(model, "call", start, start.elapsed())];
        if detailed {
            let first = steps.first().map_or(start, |(begun, _)| *begun);
            spans.push(Span::of("prepare", "phase", start, first - start));
            spans.push(Span::of("steps", "phase", first, first.elapsed()));
        }
        for (start, time) in steps {
            let duration = Duration::from_secs_f64(time.microseconds * 1e-6);
            spans.push(Span::of(time.op, "op", *start, duration));
            if detailed {
                let detail = Some(("shapes", time.shapes.clone()));
                spans.push(Span { detail, ..Span::of(&time.computed_by(), "kernel", *start, duration) });
            }
            state.totals.add(time);
        }
        let zero = state.start;
        state.events.extend(spans.iter().map(|span| event(span, zero, thread)));
        if state.events.len() >= BATCH { state.write() } else { Ok(()) }
    }

    /// Adds a range of time on this thread that does not belong to a call.
    pub(crate) fn record_range(
        &self,
        name: &str,
        category: &'static str,
        start: Instant,
        duration: Duration,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        let thread = state.thread();
        let event = event(&Span::of(name, category, start, duration), state.start, thread);
        state.events.push(event);
        if state.events.len() >= BATCH { state.write() } else { Ok(()) }
    }

    /// Writes what was recorded so far. Gives the file, or nothing if nothing was recorded.
    pub(crate) fn write(&self) -> Result<Option<PathBuf>, Error> {
        let mut state = self.lock();
        state.write()?;
        Ok(state.file.is_some().then(|| state.path.clone()).flatten())
    }

    /// How long kernels took so far.
    pub(crate) fn totals(&self) -> Totals {
        self.lock().totals.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The number of this thread.
    fn thread(&mut self) -> usize {
        let next = self.threads.len();
        *self.threads.entry(std::thread::current().id()).or_insert(next)
    }

    fn write(&mut self) -> Result<(), Error> {
        if self.events.is_empty() {
            return Ok(());
        }
        let path = self.path.get_or_insert_with(default_path).clone();
        self.append(&path).map_err(|error| Error::Write { path, message: error.to_string() })
    }

    /// The array stays open, as the format allows, so that more can follow.
    fn append(&mut self, path: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut file = BufWriter::new(File::create(path)?);
                file.write_all(b"[\n")?;
                self.file.insert(file)
            }
        };
        for event in self.events.drain(..) {
            writeln!(file, "{event},")?;
        }
        file.flush()
    }
}

impl Drop for Recorder {
    /// Closes the array.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = state.write() {
            tracing::warn!(target: "perihelion::profile", "{error}");
        }
        if let Some(file) = &mut state.file {
            let name = "{\"ph\": \"M\", \"name\": \"process_name\", \"args\": {\"name\": \"perihelion\"}";
            let end = format!("{name}, \"pid\": {}}}", std::process::id());
            let _ = writeln!(file, "{end}\n]").and_then(|()| file.flush());
        }
    }
}

/// `perihelion-PID-NUMBER.trace.json` in the current directory, if the environment names no file.
fn default_path() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            format!("perihelion-{}-{number}.trace.json", std::process::id()).into()
        }
    }
}

/// A complete event as JSON.
fn event(span: &Span, zero: Instant, thread: usize) -> String {
    let microseconds = |duration: Duration| duration.as_secs_f64() * 1e6;
    let (name, category, process) = (quoted(&span.name), quoted(span.category), std::process::id());
    let start = microseconds(span.start.saturating_duration_since(zero));
    let duration = microseconds(span.duration);
    let detail = span
        .detail
        .as_ref()
        .map_or(String::new(), |(name, text)| format!(", \"args\": {{{}: {}}}", quoted(name), quoted(text)));
    format!(
        "{{\"ph\": \"X\", \"name\": {name}, \"cat\": {category}, \"ts\": {start:.3}, \"dur\": {duration:.3}, \
         \"pid\": {process}, \"tid\": {thread}{detail}}}"
    )
}

/// A text as JSON writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn traces_are_json_once_all_are_gone() {
        let path = std::env::temp_dir().join(format!("perihelion-trace-{}.json", std::process::id()));
        let recorder = Recorder::default();
        recorder.set_path(path.clone());
        let (start, shapes) = (Instant::now(), "f32[1] → f32[1]".to_string());
        let step = StepTime { op: "add", kernel: Some("add.x".to_string()), shapes, microseconds: 7.0 };
        recorder.record("a \"name\"\n", start, &[(start, step.clone())], false).unwrap();
        assert_eq!(recorder.write().unwrap().as_deref(), Some(&*path));
        recorder.record("b", start, &[(start, step)], true).unwrap();
        assert_eq!(recorder.totals().iter().collect::<Vec<_>>(), [("add.x", 2, 14.0)]);
        recorder.record_range("load", "caller", start, Duration::from_micros(9)).unwrap();
        drop(recorder);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let events: Vec<Value> = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = events.iter().filter_map(|event| event["name"].as_str()).collect();
        let expected =
            ["a \"name\"\n", "add", "b", "prepare", "steps", "add", "add.x", "load", "process_name"];
        assert_eq!(names, expected);
        assert_eq!((&events[1]["dur"], &events[1]["cat"]), (&7.0.into(), &"op".into()));
        assert_eq!((&events[7]["dur"], &events[7]["cat"]), (&9.0.into(), &"caller".into()));
        assert_eq!(events[6]["args"]["shapes"], "f32[1] → f32[1]");
    }
}
