//! What calls of a model leave for later calls: arenas, and frames for sizes seen before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tensor::{AlignedBytes, Allocator, FarMemory};

use crate::device::far::FarBytes;
use crate::frame::Frame;
use crate::run::Lists;
use crate::{Error, Segment};

/// Frames of a plan kept for sizes seen before: a server's decode batches come in this many sizes or so.
pub(crate) const FRAMES: usize = 64;

/// Recordings of a plan kept for sizes and memory seen before. Each keeps the memory between plans as it was.
const RECORDINGS: usize = 16;

/// How many unused pieces of memory for values between plans are kept for later calls.
const SPARE: usize = 64;

/// What a call needs to itself and hands on to later calls, so that these allocate nothing large.
pub(crate) struct Workspace {
    pub(crate) arena: AlignedBytes,
    pub(crate) lists: Lists,
    /// Of devices with memory of their own.
    pub(crate) far: FarWorkspace,
}

/// What calls leave on devices. A call that is like an earlier one finds the same memory again, so that what was recorded
/// for that can be launched again.
#[derive(Default)]
pub(crate) struct FarWorkspace {
    arenas: Vec<FarBytes>,
    /// Memory for values between plans: free where nobody else holds it, the least recently used first.
    values: Vec<FarBytes>,
    /// What was recorded of each plan; the recording that was launched last stands first.
    recordings: Vec<Vec<Recording>>,
}

/// Steps of a plan that a device can launch again.
struct Recording {
    key: RecordingKey,
    segment: Box<dyn Segment>,
}

/// What recorded steps depend on besides their plan.
pub(crate) struct RecordingKey {
    pub(crate) frame: Arc<Frame>,
    /// Which weights are bound.
    pub(crate) weights: u64,
    /// The memory of inputs, results and values between steps.
    pub(crate) places: Vec<FarPlace>,
}

/// A part of a device's memory, which is not kept from being freed.
pub(crate) struct FarPlace {
    memory: Weak<dyn FarMemory>,
    start: usize,
    len: usize,
}

impl Default for Workspace {
    fn default() -> Workspace {
        Workspace { arena: AlignedBytes::zeroed(0), lists: Lists::default(), far: FarWorkspace::default() }
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

impl FarWorkspace {
    /// The arena of a device, of at least so many bytes.
    pub(crate) fn reserve(&mut self, allocator: &dyn Allocator, bytes: usize) -> Result<FarBytes, Error> {
        if let Some(known) = self.arenas.iter().position(|arena| is_of(arena, allocator)) {
            if self.arenas[known].len >= bytes {
                return Ok(self.arenas[known].clone());
            }
            // Before more is taken.
            self.arenas.remove(known);
            self.recordings.clear();
        }
        let ample = FarBytes::allocate(allocator, bytes.saturating_add(bytes / 2));
        self.arenas.push(ample.or_else(|_| FarBytes::allocate(allocator, bytes))?);
        Ok(self.arenas.last().expect("just added").clone())
    }

    /// Memory of a device for values between plans. Who holds it longer than the call keeps it to himself.
    pub(crate) fn take(&mut self, allocator: &dyn Allocator, bytes: usize) -> Result<FarBytes, Error> {
        let fits = |value: &FarBytes| {
            is_of(value, allocator)
                && (bytes..=bytes.saturating_mul(2)).contains(&value.len)
                && is_free(value)
        };
        let fitting = self.values.iter().enumerate().filter(|(_, value)| fits(value));
        let value = match fitting.min_by_key(|(_, value)| value.len).map(|(position, _)| position) {
            Some(position) => self.values.remove(position),
            None => {
                while self.values.iter().filter(|value| is_free(value)).count() >= SPARE {
                    let oldest = self.values.iter().position(is_free).expect("counted above");
                    self.values.remove(oldest);
                }
                FarBytes::allocate(allocator, bytes)?
            }
        };
        self.values.push(value.clone());
        Ok(value.part(0, bytes))
    }

    /// Forgets the memory that others still hold when a call ends, such as that of its outputs.
    pub(crate) fn end_call(&mut self) {
        self.values.retain(is_free);
    }

    /// What was recorded of a plan for the same sizes, weights and memory, or else is recorded now.
    pub(crate) fn recorded(
        &mut self,
        plan: usize,
        key: RecordingKey,
        record: impl FnOnce() -> Result<Box<dyn Segment>, Error>,
    ) -> Result<&dyn Segment, Error> {
        if self.recordings.len() <= plan {
            self.recordings.resize_with(plan + 1, Vec::new);
        }
        let recordings = &mut self.recordings[plan];
        match recordings.iter().position(|recording| recording.key == key) {
            Some(position) => recordings[..=position].rotate_right(1),
            None => {
                recordings.retain(|recording| recording.key.places.iter().all(FarPlace::is_there));
                recordings.truncate(RECORDINGS - 1);
                recordings.insert(0, Recording { key, segment: record()? });
            }
        }
        Ok(&*recordings[0].segment)
    }
}

impl PartialEq for RecordingKey {
    fn eq(&self, other: &RecordingKey) -> bool {
        Arc::ptr_eq(&self.frame, &other.frame) && self.weights == other.weights && self.places == other.places
    }
}

impl FarPlace {
    pub(crate) fn of(bytes: &FarBytes) -> FarPlace {
        FarPlace { memory: Arc::downgrade(&bytes.memory), start: bytes.start, len: bytes.len }
    }

    fn is_there(&self) -> bool {
        self.memory.strong_count() > 0
    }
}

impl PartialEq for FarPlace {
    fn eq(&self, other: &FarPlace) -> bool {
        Weak::ptr_eq(&self.memory, &other.memory) && (self.start, self.len) == (other.start, other.len)
    }
}

/// Whether memory belongs to the same device as an allocator.
fn is_of(bytes: &FarBytes, allocator: &dyn Allocator) -> bool {
    bytes.memory.allocator().spec() == allocator.spec()
}

/// Whether nobody else holds memory.
fn is_free(bytes: &FarBytes) -> bool {
    Arc::strong_count(&bytes.memory) == 1
}

/// Nothing here can be left half changed, so what a panicking thread held is good still.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
