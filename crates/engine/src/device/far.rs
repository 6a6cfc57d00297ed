//! What a device with memory of its own must offer: kernels that are recorded and launched later, in the order of one
//! queue.

use std::any::Any;
use std::sync::Arc;

use tensor::{AlignedBytes, Allocation, Allocator, DType, FarMemory, Shape};

use crate::{Error, NodeTypes, PackedWeight};

/// The far side of a device: memory that the host reaches by copies alone, and kernels that run there.
pub trait Far: Send + Sync {
    /// Gives its memory.
    fn allocator(&self) -> &dyn Allocator;

    /// What the places of values are multiples of.
    fn alignment(&self) -> usize;

    /// The kernel that computes a node there, or `None` if there is none: the host then computes it.
    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>>;

    /// Whether kernels read values of a dtype where the device packs weights of it. If not, the host computes with a weight
    /// that a graph computes.
    fn reads(&self, _dtype: DType) -> bool {
        true
    }

    /// Steps that can be launched again and again, each time on what the memory then holds.
    ///
    /// # Errors
    /// If the device fails.
    fn record(&self, steps: &[FarStep<'_>]) -> Result<Box<dyn Segment>, Error>;
}

/// Computes one node on a device. Made once per step of a plan.
pub trait FarKernel: Send + Sync {
    /// The name in plans and traces.
    fn name(&self) -> String;

    /// As [`Kernel::scratch`](crate::Kernel::scratch).
    fn scratch(&self, _inputs: &[Shape], _outputs: &[Shape]) -> usize {
        0
    }

    /// As [`Kernel::in_place`](crate::Kernel::in_place).
    fn in_place(&self) -> Option<usize> {
        None
    }

    /// Adds the work of a call to the device's own recorder. What is recorded follows from shapes and places alone.
    ///
    /// # Errors
    /// If the device cannot record the call, in words.
    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String>;
}

/// Recorded steps.
pub trait Segment: Send {
    /// Asks the device to run them, behind all that was asked of it before.
    ///
    /// # Errors
    /// If the device fails.
    fn launch(&self) -> Result<(), Error>;
}

/// A step to record.
pub struct FarStep<'a> {
    /// What computes it.
    pub kernel: &'a dyn FarKernel,
    /// The operands and results that it computes with.
    pub call: FarCall<'a>,
}

/// One call of a kernel on a device.
///
/// Results, scratch and buffers start at multiples of [`Far::alignment`]. Operands may start at any element.
pub struct FarCall<'a> {
    /// The operands.
    pub inputs: Vec<FarOperand<'a>>,
    /// The results; the contents are undefined but for an operand computed in place.
    pub outputs: Vec<FarArray<'a>>,
    /// Scratch memory of the size asked for, if that is any; contents undefined.
    pub scratch: Option<FarBytes>,
}

/// An operand of a call on a device.
pub enum FarOperand<'a> {
    /// A value in memory.
    View(FarArray<'a>),
    /// The contents are in result 0, which the kernel overwrites.
    InResult,
    /// A buffer the node writes.
    Buffer(FarArray<'a>),
    /// A weight in the device's layout.
    Packed(&'a PackedWeight),
}

/// A row-major array in the memory of a device.
pub struct FarArray<'a> {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: &'a Shape,
    /// The elements.
    pub bytes: FarBytes,
}

/// A part of the memory of a device.
#[derive(Clone)]
pub struct FarBytes {
    /// The memory.
    pub memory: Arc<dyn FarMemory>,
    /// Where in it the part starts.
    pub start: usize,
    /// How many bytes there are.
    pub len: usize,
}

impl FarBytes {
    /// Memory of a device, all zero.
    ///
    /// # Panics
    /// If the allocator is the host's.
    pub(crate) fn allocate(allocator: &dyn Allocator, len: usize) -> Result<FarBytes, Error> {
        match allocator.allocate(len)? {
            Allocation::Far(memory) => Ok(FarBytes { memory, start: 0, len }),
            Allocation::Host(_) => unreachable!("{} has memory of its own", allocator.spec()),
        }
    }

    /// Copies these bytes over as many other bytes of the same device.
    pub(crate) fn copy_to(&self, to: &FarBytes) -> Result<(), Error> {
        Ok(to.memory.copy(&*self.memory, &[[self.start, to.start, self.len]])?)
    }

    /// The same bytes in memory of their own.
    pub(crate) fn copied(&self) -> Result<FarBytes, Error> {
        let copy = FarBytes::allocate(self.memory.allocator(), self.len)?;
        self.copy_to(&copy)?;
        Ok(copy)
    }

    /// Overwrites the bytes with as many of the host.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.memory.write(&[(self.start, bytes)])?)
    }

    /// Copies the bytes to as many of the host.
    pub(crate) fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.memory.read(self.start, into)?)
    }

    /// The same bytes in the host's memory.
    pub(crate) fn copied_here(&self) -> Result<AlignedBytes, Error> {
        let mut bytes = AlignedBytes::try_zeroed(self.len)?;
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Gives a part of these bytes, which share their memory: from byte `start` up to byte `end`.
    pub(crate) fn part(&self, start: usize, end: usize) -> FarBytes {
        assert!(start <= end && end <= self.len, "a part lies within its memory");
        FarBytes { memory: Arc::clone(&self.memory), start: self.start + start, len: end - start }
    }
}
