//! What calls of a model leave for later calls: arenas, and frames for sizes seen before.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensor::{AlignedBytes, Allocator};

use crate::Error;
use crate::device::far::FarBytes;
use crate::run::Lists;

/// Frames of a plan kept for sizes seen before: a server's decode batches come in this many sizes or so.
pub(crate) const FRAMES: usize = 64;

/// What a call needs to itself and hands on to later calls, so that these allocate nothing large.
pub(crate) struct Workspace {
    pub(crate) arena: AlignedBytes,
    /// Of devices with memory of their own.
    far: Vec<FarBytes>,
    pub(crate) lists: Lists,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace { arena: AlignedBytes::zeroed(0), far: Vec::new(), lists: Lists::default() }
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

    /// The arena of a device, of at least so many bytes.
    pub(crate) fn reserve_far(&mut self, allocator: &dyn Allocator, bytes: usize) -> Result<FarBytes, Error> {
        let spec = allocator.spec();
        if let Some(known) = self.far.iter().position(|arena| arena.memory.allocator().spec() == spec) {
            if self.far[known].len >= bytes {
                return Ok(self.far[known].clone());
            }
            // Before more is taken.
            self.far.remove(known);
        }
        let ample = FarBytes::allocate(allocator, bytes.saturating_add(bytes / 2));
        self.far.push(ample.or_else(|_| FarBytes::allocate(allocator, bytes))?);
        Ok(self.far.last().expect("just added").clone())
    }
}

/// Nothing here can be left half changed, so what a panicking thread held is good still.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
