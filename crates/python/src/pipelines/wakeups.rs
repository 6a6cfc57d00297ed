//! Wake-ups of an asyncio loop: one for all answers that a step of the model brings, and few if steps are short.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Wake;
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Whether the interpreter ends, so that no thread may attach to it any more.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that are attached to wake a loop or to call a callable.
static ATTACHED: AtomicUsize = AtomicUsize::new(0);
/// How long the end of the interpreter waits for them.
const PATIENCE: Duration = Duration::from_secs(1);
/// After the first answer of a step, the others take less than this to come.
const STEP_TAIL: Duration = Duration::from_micros(50);
/// A loop is woken at most this often: a wake-up costs about as much as a step of a tiny model.
const INTERVAL: Duration = Duration::from_millis(2);

/// A thread that wakes an asyncio loop.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Wakeups(Arc<Ready>);

/// What tasks of a loop wait for.
pub(super) trait Awaited: Send + Sync {
    /// What came for the task that waits, or the exception; `None` if no task waits or nothing came.
    fn awaited(&self, py: Python<'_>) -> Option<Py<PyAny>>;
}

/// The answers that the loop has not looked at yet.
struct Ready {
    inboxes: Mutex<Vec<(u64, Weak<dyn Awaited>)>>,
    /// Whether the loop was woken and has not looked yet.
    is_woken: AtomicBool,
    signal: Sender<()>,
}

#[pymethods]
impl Wakeups {
    /// `wake` makes the loop call `ready` soon. It is called from a thread of its own.
    #[new]
    fn new(wake: Py<PyAny>) -> PyResult<Wakeups> {
        let (signal, signals) = channel();
        let run = move || {
            let mut last: Option<Instant> = None;
            while signals.recv().is_ok() {
                let since = last.map_or(INTERVAL, |last| last.elapsed());
                thread::sleep(INTERVAL.saturating_sub(since).max(STEP_TAIL));
                last = Some(Instant::now());
                attached(|py| {
                    // A loop that is closed needs no wake-up.
                    let _ = wake.call0(py);
                });
            }
        };
        thread::Builder::new().name("perihelion-wakeups".to_string()).spawn(run)?;
        let ready = Ready { inboxes: Mutex::default(), is_woken: AtomicBool::new(false), signal };
        Ok(Wakeups(Arc::new(ready)))
    }

    /// What came for tasks that wait, by the keys of their answers: items and exceptions.
    fn ready(&self, py: Python<'_>) -> Vec<(u64, Py<PyAny>)> {
        self.0.is_woken.store(false, Ordering::SeqCst);
        let inboxes = std::mem::take(&mut *self.0.inboxes.lock().unwrap_or_else(PoisonError::into_inner));
        let awaited = |(key, inbox): (u64, Weak<dyn Awaited>)| Some((key, inbox.upgrade()?.awaited(py)?));
        inboxes.into_iter().filter_map(awaited).collect()
    }
}

impl Wakeups {
    /// The waker of answers.
    pub(super) fn waker(&self, key: u64, inbox: Weak<dyn Awaited>) -> Arc<InboxWaker> {
        Arc::new(InboxWaker { ready: Arc::clone(&self.0), key, inbox, was_called: AtomicBool::new(false) })
    }

    /// Whether a waker wakes this loop.
    pub(super) fn made(&self, waker: &InboxWaker) -> bool {
        Arc::ptr_eq(&self.0, &waker.ready)
    }
}

/// Tells a loop that an item came.
pub(super) struct InboxWaker {
    ready: Arc<Ready>,
    key: u64,
    inbox: Weak<dyn Awaited>,
    was_called: AtomicBool,
}

impl InboxWaker {
    /// Whether it was called since this was asked last.
    pub(super) fn take_call(&self) -> bool {
        self.was_called.swap(false, Ordering::SeqCst)
    }
}

impl Wake for InboxWaker {
    fn wake(self: Arc<Self>) {
        self.was_called.store(true, Ordering::SeqCst);
        let inbox = (self.key, Weak::clone(&self.inbox));
        self.ready.inboxes.lock().unwrap_or_else(PoisonError::into_inner).push(inbox);
        if !self.ready.is_woken.swap(true, Ordering::SeqCst) {
            let _ = self.ready.signal.send(());
        }
    }
}

/// Attaches this thread; `None` if the interpreter ends.
pub(super) fn attached<T>(act: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    ATTACHED.fetch_add(1, Ordering::SeqCst);
    let done = if ENDING.load(Ordering::SeqCst) { None } else { Python::try_attach(act) };
    ATTACHED.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Called when the interpreter ends: from now on, no thread of ours attaches to it.
#[pyfunction]
pub(crate) fn stop_attaching(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let start = Instant::now();
        while ATTACHED.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
