//! Running Rust from Python: without the GIL, interrupted by signals, and with panics as exceptions.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use perihelion::engine::{CancelHandle, ExecuteOptions};
use pyo3::prelude::*;

use crate::error::InternalError;
use crate::logs;

/// How often a call looks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether Python delivers signals to this thread.
    static IS_MAIN: OnceCell<bool> = const { OnceCell::new() };
    /// When this thread last looked for signals.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The exception that a signal raised during the call that runs on this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// How many of our calls this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Where this thread panicked.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work` without the GIL. If a signal raises an exception meanwhile, that is the result; a panic is an
/// [`InternalError`].
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    logs::install();
    LOOKED.set(Some(Instant::now()));
    let outcome = guarded(|| py.detach(work));
    let logged = logs::deliver(py);
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => outcome.and_then(|value| logged.map(|()| value)),
    }
}

/// Runs `work`; a panic is an [`InternalError`].
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    DEPTH.set(DEPTH.get() + 1);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let place = PLACE.take();
        InternalError::new_err(format!("{text} (at {place}); this is a bug in Perihelion, please report it"))
    })
}

/// Whether a signal raised an exception, which [`detached`] then raises. Looks at most once every [`SLICE`], and only
/// where Python handles signals: on the main thread.
pub(crate) fn is_interrupted() -> bool {
    if LOOKED.get().is_some_and(|looked| looked.elapsed() < SLICE) {
        return false;
    }
    LOOKED.set(Some(Instant::now()));
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    })
}

/// How a model is executed from this thread: interrupted by signals if it is the main thread.
pub(crate) fn execute_options(py: Python<'_>) -> PyResult<ExecuteOptions> {
    static HANDLE: OnceLock<CancelHandle> = OnceLock::new();
    let cancel = is_main_thread(py)?.then(|| HANDLE.get_or_init(|| CancelHandle::polling(is_interrupted)));
    Ok(ExecuteOptions { cancel: cancel.cloned(), deadline: None })
}

pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    if let Some(known) = IS_MAIN.with(|known| known.get().copied()) {
        return Ok(known);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = main.eq(threading.call_method0("get_ident")?)?;
    Ok(IS_MAIN.with(|known| *known.get_or_init(|| is_main)))
}

/// Panics of our own calls become exceptions, so they are not printed too.
pub(crate) fn keep_panics_quiet() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.get() == 0 {
                return usual(info);
            }
            PLACE.set(info.location().map(ToString::to_string).unwrap_or_default());
        }));
    });
}

/// Panics, for the test of what becomes of panics.
#[cfg(feature = "panics")]
#[pyfunction]
pub(crate) fn _panic(py: Python<'_>, message: String) -> PyResult<()> {
    detached(py, || panic!("{message}"))
}
