//! The memory under buffers: who owns it, and guards that admit many readers or one writer.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use crate::{AlignedBytes, Element, Error};

/// Bytes that live as long as this value, reached only through guards.
pub(super) struct Memory {
    data: NonNull<u8>,
    len: usize,
    /// The number of readers, or -1 for a writer.
    state: AtomicIsize,
    /// Whether the pages stay in memory.
    pub(super) pinned: bool,
    /// Frees the bytes; never looked at otherwise.
    _owner: Owner,
}

enum Owner {
    Aligned { _bytes: AlignedBytes },
    Other { _owner: Box<dyn Send> },
}

// SAFETY: the bytes are reached only through guards, and `state` admits one writer or any number of readers; the owner
// may be dropped on any thread and is not reached otherwise.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn aligned(mut bytes: AlignedBytes) -> Memory {
        let (data, len) = (NonNull::from(&mut bytes[..]).cast(), bytes.len());
        Memory {
            data,
            len,
            state: AtomicIsize::new(0),
            pinned: false,
            _owner: Owner::Aligned { _bytes: bytes },
        }
    }

    /// Memory of another owner.
    ///
    /// # Safety
    /// Until the owner is dropped, `data` is valid for reads of `len` bytes, and for writes unless every buffer over it
    /// is read-only; it is written only through guards on this memory, and not read elsewhere while such a guard writes.
    pub(super) unsafe fn foreign(data: NonNull<u8>, len: usize, owner: Box<dyn Send>) -> Memory {
        Memory {
            data,
            len,
            state: AtomicIsize::new(0),
            pinned: false,
            _owner: Owner::Other { _owner: owner },
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first byte; for those who hand the memory to others.
    pub(super) fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Read access to `len` bytes from `start`.
    ///
    /// # Panics
    /// If they lie outside.
    pub(super) fn read(self: &Arc<Memory>, start: usize, len: usize) -> Result<ReadGuard, Error> {
        let data = self.part(start, len);
        let mut current = self.state.load(Ordering::Relaxed);
        loop {
            if current < 0 {
                return Err(Error::Busy("written"));
            }
            match self.state.compare_exchange_weak(current, current + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(ReadGuard { data, len, memory: Arc::clone(self) }),
                Err(now) => current = now,
            }
        }
    }

    /// Write access to `len` bytes from `start`.
    ///
    /// # Panics
    /// If they lie outside.
    pub(super) fn write(self: &Arc<Memory>, start: usize, len: usize) -> Result<WriteGuard, Error> {
        let data = self.part(start, len);
        match self.state.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(WriteGuard { data, len, memory: Arc::clone(self) }),
            Err(state) => Err(Error::Busy(if state < 0 { "written" } else { "read" })),
        }
    }

    fn part(&self, start: usize, len: usize) -> NonNull<u8> {
        let inside = start.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "a buffer lies within its memory");
        // SAFETY: `start` is at most the length of the memory.
        unsafe { self.data.add(start) }
    }
}

/// Read access to a buffer's bytes; others may read, none may write.
pub struct ReadGuard {
    data: NonNull<u8>,
    len: usize,
    memory: Arc<Memory>,
}

// SAFETY: the guard gives shared access to plain bytes, kept alive by `memory`.
unsafe impl Send for ReadGuard {}
// SAFETY: as above.
unsafe impl Sync for ReadGuard {}

impl ReadGuard {
    /// The bytes as elements.
    ///
    /// # Panics
    /// If they are no whole number of elements of type `T`, or lie at no multiple of its alignment, as a view or a part
    /// of a file may.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        bytemuck::cast_slice(self)
    }
}

impl Deref for ReadGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie within the memory, and this guard counts as a reader, so no writer exists.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for ReadGuard {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.memory.state.fetch_sub(1, Ordering::Release);
    }
}

/// The only access to a buffer's bytes, for writing.
pub struct WriteGuard {
    data: NonNull<u8>,
    len: usize,
    memory: Arc<Memory>,
}

// SAFETY: the guard gives the only access to plain bytes, kept alive by `memory`.
unsafe impl Send for WriteGuard {}
// SAFETY: a shared reference to it gives read access only.
unsafe impl Sync for WriteGuard {}

impl Deref for WriteGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie within the memory, and this guard is the only access.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl DerefMut for WriteGuard {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; guards to write are made only of memory that may be written.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.memory.state.store(0, Ordering::Release);
    }
}
