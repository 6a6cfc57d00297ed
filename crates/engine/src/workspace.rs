//! What calls of a model leave for later calls: arenas, and frames for sizes seen before.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensor::AlignedBytes;

use crate::Error;
use crate::run::Lists;

/// Frames of a plan kept for sizes seen before: a server's decode batches come in this many sizes or so.
pub(crate) const FRAMES: usize = 64;

/// What a call needs to itself and hands on to later calls, so that these allocate nothing large.
pub(crate) struct Workspace {
    pub(crate) arena: AlignedBytes,
    pub(crate) lists: Lists,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace { arena: AlignedBytes::zeroed(0), lists: Lists::default() }
    }
}

impl Workspace {
    pub(crate) fn reserve(&mut self, arena: usize) -> Result<(), Error> {
        if self.arena.len() < arena {
            // Before more is taken.
            self.arena = AlignedBytes::zeroed(0);
            // A half more than asked for: sizes that grow call by call then allocate but a few times.
            let ample = AlignedBytes::try_zeroed(arena.saturating_add(arena / 2));
            self.arena = ample.or_else(|_| AlignedBytes::try_zeroed(arena))?;
        }
        Ok(())
    }
}

/// Nothing here can be left half changed, so what a panicking thread held is good still.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
