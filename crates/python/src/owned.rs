//! Values that have threads: they belong to the process that made them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

use crate::running::detached;

/// How many forks lie between this process and the one that imported the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts forks. Systems without `fork` have no `os.register_at_fork`.
pub(crate) fn count_forks(py: Python<'_>) -> PyResult<()> {
    let Some(register) = py.import("os")?.getattr_opt("register_at_fork")? else { return Ok(()) };
    let count = PyCFunction::new_closure(py, None, None, |_, _| {
        FORKS.fetch_add(1, Ordering::Relaxed);
    })?;
    let keywords = PyDict::new(py);
    keywords.set_item("after_in_child", count)?;
    register.call((), Some(&keywords)).map(drop)
}

/// A value with threads. A forked process has a copy of it without the threads, which it can neither use nor drop.
#[derive(Clone)]
pub(crate) struct Owned<T> {
    name: &'static str,
    forks: u32,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(name: &'static str, value: T) -> Owned<T> {
        Owned { name, forks: FORKS.load(Ordering::Relaxed), value: Some(value) }
    }

    /// Whether this process made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.is_ours() => Ok(value),
            _ => Err(PyRuntimeError::new_err(format!(
                "{} was made before this process was forked: start processes with `spawn` or `forkserver`, or make it here",
                self.name
            ))),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            // Its locks may be held by threads that are not here.
            std::mem::forget(self.value.take());
        }
    }
}

/// A value with threads that can be closed.
pub(crate) struct Closable<T>(Owned<Mutex<Option<T>>>);

impl<T> Closable<T> {
    pub(crate) fn new(name: &'static str, value: T) -> Closable<T> {
        Closable(Owned::new(name, Mutex::new(Some(value))))
    }

    /// Whether this process made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.is_ours()
    }

    /// A clone of the value, which is a handle.
    pub(crate) fn get(&self) -> PyResult<T>
    where
        T: Clone,
    {
        self.with(|value| value.clone())?
            .ok_or_else(|| PyRuntimeError::new_err(format!("{} is closed", self.0.name)))
    }

    /// Takes the value out.
    pub(crate) fn take(&self) -> PyResult<Option<T>> {
        self.with(Option::take)
    }

    /// Puts a value back that was taken.
    pub(crate) fn put(&self, value: T) -> PyResult<()> {
        self.with(|place| *place = Some(value))
    }

    /// Takes the value out, ends its threads, and returns its memory to the system.
    pub(crate) fn close(&self, py: Python<'_>, shutdown: impl FnOnce(T) + Send) -> PyResult<()>
    where
        T: Send,
    {
        let value = self.take()?;
        detached(py, move || {
            value.map(shutdown);
            return_memory();
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Option<T>) -> R) -> PyResult<R> {
        Ok(act(&mut self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Returns memory that the allocator keeps after it was freed to the system.
pub(crate) fn return_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
