//! Events of Rust as records of Python's `logging`.
//!
//! Any thread may log, without the GIL: events wait in a queue until a call returns to Python.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Events that wait, at most; older ones are dropped.
const CAPACITY: usize = 1 << 14;

static EVENTS: Mutex<VecDeque<Event>> = Mutex::new(VecDeque::new());
/// Whether events wait, so that calls without any take no lock.
static ARE_WAITING: AtomicBool = AtomicBool::new(false);

/// Sends events to the queue from now on, unless `PERIHELION_LOG` sends them to standard error.
pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        if std::env::var_os("PERIHELION_LOG").is_none_or(|value| value.is_empty()) {
            // Fails if another module of the process has a subscriber.
            let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Queue));
        }
    });
}

/// Logs the events that wait. Without a handler, models log to standard error if a session has a log level, and warnings
/// go through `warnings`.
pub(crate) fn deliver(py: Python<'_>) -> PyResult<()> {
    if !ARE_WAITING.load(Ordering::Relaxed) || !ARE_WAITING.swap(false, Ordering::Relaxed) {
        return Ok(());
    }
    let events = std::mem::take(&mut *EVENTS.lock().unwrap_or_else(PoisonError::into_inner));
    let get_logger = py.import("logging")?.getattr("getLogger")?;
    events.into_iter().try_for_each(|event| event.deliver(&get_logger))
}

/// Warns at the line of the program that called the package.
pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    py.import("perihelion._tracebacks")?.call_method1("warn", (text,)).map(drop)
}

struct Event {
    level: Level,
    target: &'static str,
    text: String,
}

impl Event {
    fn deliver(self, get_logger: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = get_logger.py();
        // `perihelion_engine::cache` becomes `perihelion.engine.cache`.
        let name = self.target.replacen("perihelion_", "perihelion.", 1).replace("::", ".");
        let logger = get_logger.call1((name,))?;
        if logger.call_method0("hasHandlers")?.is_truthy()? {
            logger.call_method1("log", (self.number(), self.text)).map(drop)
        } else if matches!(self.target, "perihelion::kernel" | "perihelion::op") {
            eprintln!("{:>5} {}: {}", self.level, self.target, self.text);
            Ok(())
        } else if self.level <= Level::WARN {
            warn(py, &self.text)
        } else {
            Ok(())
        }
    }

    /// The level of Python's `logging`.
    fn number(&self) -> u8 {
        match self.level {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        }
    }
}

struct Queue;

impl<S: Subscriber> Layer<S> for Queue {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("perihelion")
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let mut events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == CAPACITY {
            events.pop_front();
        }
        events.push_back(Event { level, target, text: text.message + &text.fields });
        ARE_WAITING.store(true, Ordering::Relaxed);
    }
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("writing to a string does not fail");
    }
}
