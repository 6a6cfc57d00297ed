//! Wake-ups of an asyncio loop: one for all answers that a step of the model brings.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Whether the interpreter ends, so that no thread may attach to it any more.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that are attached to wake a loop.
static ATTACHED: AtomicUsize = AtomicUsize::new(0);
/// How long the end of the interpreter waits for them.
const PATIENCE: Duration = Duration::from_secs(1);
/// After the first answer of a step, the others take less than this to come.
const STEP_TAIL: Duration = Duration::from_micros(50);

/// A thread that wakes an asyncio loop.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Wakeups(Arc<Ready>);

/// The answers that the loop has not looked at yet.
struct Ready {
    keys: Mutex<Vec<u64>>,
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
            while signals.recv().is_ok() {
                thread::sleep(STEP_TAIL);
                attached(|py| {
                    // A loop that is closed needs no wake-up.
                    let _ = wake.call0(py);
                });
            }
        };
        thread::Builder::new().name("perihelion-wakeups".to_string()).spawn(run)?;
        let ready = Ready { keys: Mutex::default(), is_woken: AtomicBool::new(false), signal };
        Ok(Wakeups(Arc::new(ready)))
    }

    /// The keys of the answers that may be polled again.
    fn ready(&self) -> Vec<u64> {
        self.0.is_woken.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.0.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wakeups {
    pub(super) fn waker(&self, key: u64) -> Waker {
        Waker::from(Arc::new(ReadyWaker { ready: Arc::clone(&self.0), key }))
    }
}

struct ReadyWaker {
    ready: Arc<Ready>,
    key: u64,
}

impl Wake for ReadyWaker {
    fn wake(self: Arc<Self>) {
        self.ready.keys.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
        if !self.ready.is_woken.swap(true, Ordering::SeqCst) {
            let _ = self.ready.signal.send(());
        }
    }
}

/// Attaches this thread, unless the interpreter ends.
fn attached(act: impl FnOnce(Python<'_>)) {
    ATTACHED.fetch_add(1, Ordering::SeqCst);
    if !ENDING.load(Ordering::SeqCst) {
        Python::try_attach(act);
    }
    ATTACHED.fetch_sub(1, Ordering::SeqCst);
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
