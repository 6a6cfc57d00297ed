//! Memory that the host cannot reach, and who gives it: what a device implements so that buffers live on it.

use std::any::Any;
use std::sync::Arc;

use crate::{AlignedBytes, DeviceSpec, Error};

/// Gives the memory of one device.
pub trait Allocator: Send + Sync {
    /// The device.
    fn spec(&self) -> DeviceSpec;

    /// So many bytes, all zero. There may be none.
    ///
    /// # Errors
    /// If the device refuses so much memory.
    fn allocate(&self, bytes: usize) -> Result<Allocation, Error>;
}

/// Memory as an [`Allocator`] gives it.
pub enum Allocation {
    /// In the host's memory.
    Host(AlignedBytes),
    /// In memory that is reached by copies alone.
    Far(Arc<dyn FarMemory>),
}

/// Memory of a device that the host reaches by copies alone; dropping it frees it.
///
/// All that is done to it happens in the order of the device's one queue: what is read was written by all that was
/// asked for before, whoever asked. Ranges are in bytes, and lie inside.
pub trait FarMemory: Any + Send + Sync {
    /// Who gave it.
    fn allocator(&self) -> &dyn Allocator;

    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `from` on to the host, once all that was asked for before is done.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), Error>;

    /// Copies bytes of the host to where each part says. They may be reused at once.
    ///
    /// # Errors
    /// If the device fails.
    fn write(&self, parts: &[(usize, &[u8])]) -> Result<(), Error>;

    /// Copies bytes of the same device, one part after the other: from where in `from`, to where here, how many. No part
    /// overlaps itself.
    ///
    /// # Errors
    /// If the device fails, or `from` is memory of another one.
    fn copy(&self, from: &dyn FarMemory, parts: &[[usize; 3]]) -> Result<(), Error>;
}

/// Gives the host's memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostAllocator;

impl Allocator for HostAllocator {
    fn spec(&self) -> DeviceSpec {
        DeviceSpec::cpu()
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        AlignedBytes::try_zeroed(bytes).map(Allocation::Host)
    }
}

#[cfg(test)]
mod tests;
