//! The device's memory as others hold it: a number that the thread knows.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tensor::{Allocation, Allocator, DeviceSpec, Error, FarMemory};

use crate::queue::{Command, Queue};

/// Gives the device's memory.
#[derive(Clone)]
pub(crate) struct QueueAllocator {
    pub(crate) spec: DeviceSpec,
    pub(crate) queue: Arc<Queue>,
    numbers: Arc<AtomicU64>,
}

impl QueueAllocator {
    pub(crate) fn new(spec: DeviceSpec, queue: Queue) -> QueueAllocator {
        QueueAllocator { spec, queue: Arc::new(queue), numbers: Arc::default() }
    }

    pub(crate) fn memory(&self, bytes: usize) -> Result<QueueMemory, Error> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.queue.ask(Command::Allocate(number, bytes)).map_err(failed)?;
        Ok(QueueMemory { allocator: self.clone(), number, len: bytes })
    }
}

impl Allocator for QueueAllocator {
    fn spec(&self) -> DeviceSpec {
        self.spec
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        Ok(Allocation::Far(Arc::new(self.memory(bytes)?)))
    }
}

/// Memory of the thread.
pub(crate) struct QueueMemory {
    allocator: QueueAllocator,
    pub(crate) number: u64,
    len: usize,
}

impl QueueMemory {
    /// The number of memory of this kind.
    pub(crate) fn number_of(memory: &dyn FarMemory) -> Result<u64, String> {
        let memory: &dyn Any = memory;
        let own = memory.downcast_ref::<QueueMemory>();
        own.map(|own| own.number).ok_or_else(|| "memory of another device".to_string())
    }
}

impl FarMemory for QueueMemory {
    fn allocator(&self) -> &dyn Allocator {
        &self.allocator
    }

    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), Error> {
        let ask = |answer| Command::Read(self.number, from, into.len(), answer);
        into.copy_from_slice(&self.allocator.queue.answer(ask).map_err(failed)?);
        Ok(())
    }

    fn write(&self, parts: &[(usize, &[u8])]) -> Result<(), Error> {
        let parts = parts.iter().map(|(start, bytes)| (*start, bytes.to_vec())).collect();
        self.allocator.queue.ask(Command::Write(self.number, parts)).map_err(failed)
    }

    fn copy(&self, from: &dyn FarMemory, parts: &[[usize; 3]]) -> Result<(), Error> {
        let from = QueueMemory::number_of(from).map_err(Error::Device)?;
        self.allocator.queue.ask(Command::Copy(from, self.number, parts.to_vec())).map_err(failed)
    }
}

impl Drop for QueueMemory {
    fn drop(&mut self) {
        // A device that failed has no memory to give back.
        let _ = self.allocator.queue.ask(Command::Free(self.number));
    }
}

fn failed(error: engine::Error) -> Error {
    match error {
        engine::Error::Driver(error) => error,
        other => Error::Device(other.to_string()),
    }
}
