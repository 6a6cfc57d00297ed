//! Which graph a value belongs to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of each graph that exists now, by number: a value keeps the number alone.
static NAMES: Mutex<BTreeMap<u64, Arc<str>>> = Mutex::new(BTreeMap::new());

/// The name of a graph, and a number that no other graph of this process has. A clone is another graph.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) number: u64,
    pub(super) name: Arc<str>,
}

impl Identity {
    pub(super) fn new(name: Arc<str>) -> Identity {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(&name));
        Identity { number, name }
    }

    /// The name of the graph with a number, or `None` if it was dropped.
    pub(super) fn name_of(number: u64) -> Option<Arc<str>> {
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Identity {
        Identity::new(Arc::clone(&self.name))
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}
