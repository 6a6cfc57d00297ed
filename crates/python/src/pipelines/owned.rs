//! Values that have threads: they belong to the process that made them.

use std::process;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A value until it is closed. A fork copies it without its threads, so that the child can neither use nor drop it.
pub(crate) struct Owned<T> {
    name: &'static str,
    process: u32,
    value: Mutex<Option<T>>,
}

impl<T> Owned<T> {
    pub(crate) fn new(name: &'static str, value: T) -> Owned<T> {
        Owned { name, process: process::id(), value: Mutex::new(Some(value)) }
    }

    /// Whether this process made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == process::id()
    }

    /// A copy of the value, which is a handle.
    pub(crate) fn get(&self) -> PyResult<T>
    where
        T: Clone,
    {
        self.with(|value| value.clone())?
            .ok_or_else(|| PyRuntimeError::new_err(format!("{} is closed", self.name)))
    }

    /// The value, which is gone then.
    pub(crate) fn take(&self) -> PyResult<Option<T>> {
        self.with(Option::take)
    }

    /// Puts a value back that was taken.
    pub(crate) fn put(&self, value: T) -> PyResult<()> {
        self.with(|place| *place = Some(value))
    }

    fn with<R>(&self, act: impl FnOnce(&mut Option<T>) -> R) -> PyResult<R> {
        if !self.is_ours() {
            return Err(PyRuntimeError::new_err(format!(
                "{} was made before this process was forked: start processes with `spawn` or `forkserver`, or make it here",
                self.name
            )));
        }
        Ok(act(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            // Its locks may be held by threads that are not here.
            std::mem::forget(self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Gives the system back what the allocator keeps of the memory that was freed.
pub(crate) fn return_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
