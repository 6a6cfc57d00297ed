//! What a device must offer: kernels for ops, a layout for weights.

pub(crate) mod far;

use std::any::Any;
use std::sync::Arc;

use graph::{Op, Type};
use tensor::{AlignedBytes, Allocator, Bytes, DType, DeviceSpec, HostAllocator, MappedFile, Shape, Tensor};

use crate::host::{self, DeviceStats};
use crate::{DeviceSettings, Error, Far, Target};

/// A place where plans run. The CPU is one; an accelerator is another crate that implements this.
///
/// The engine never names a device: doors make them and hand them to a session.
pub trait Device: Send + Sync {
    /// The short name in plans and messages, such as `cpu`.
    fn name(&self) -> &str;

    /// Which device this is: the host, unless it says otherwise.
    fn spec(&self) -> DeviceSpec {
        DeviceSpec::cpu()
    }

    /// The number among devices of its kind; the host's is 0.
    fn id(&self) -> i32 {
        self.spec().id().max(0)
    }

    /// The kind of device: `cpu` or `gpu`.
    fn label(&self) -> &'static str {
        self.spec().device_type().label()
    }

    /// How the device is driven: `cpu`, `cuda`, ….
    fn api(&self) -> &str {
        self.label()
    }

    /// Whether this is the host.
    fn is_host(&self) -> bool {
        self.spec().is_host()
    }

    /// Whether compiled models run on it.
    fn is_compatible(&self) -> bool {
        true
    }

    /// The memory there is, where that is known.
    fn stats(&self) -> Option<DeviceStats> {
        if self.is_host() { host::host_stats() } else { None }
    }

    /// The name that its maker gave to the processor, or its architecture if the system does not know.
    fn model_name(&self) -> String {
        host::processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_string())
    }

    /// The most bytes that one buffer can have; 0 if that is unknown.
    fn max_single_alloc_size(&self) -> u64 {
        self.stats().map_or(0, |stats| stats.total_memory)
    }

    /// Whether this device reads and writes the memory of another without a copy.
    fn can_access(&self, other: &dyn Device) -> bool {
        self.spec() == other.spec()
    }

    /// Waits until all that was asked of the device is done. The host computes while it is called, so nothing is left.
    ///
    /// # Errors
    /// If what was asked failed.
    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The name of an accelerator's architecture, such as `sm_90`.
    ///
    /// # Errors
    /// On the host, which has none.
    fn architecture_name(&self) -> Result<String, Error> {
        let message = format!("{} has no architecture name, accelerators do", self.spec());
        Err(tensor::Error::Device(message).into())
    }

    /// What compiled plans depend on, such as the instruction set. Part of the key of compiled artifacts, so it
    /// holds nothing that does not change a plan (the number of threads does not).
    fn target(&self) -> String {
        self.name().to_string()
    }

    /// The name of the products that this device uses with [`Reproducible::Machine`](crate::Reproducible::Machine) only, and
    /// that other machines may round differently; `None` if it has none.
    fn own_products(&self) -> Option<&'static str> {
        None
    }

    /// Whether this device can do what a device of its name with a target can, as [`Device::target`] tells it: whether
    /// artifacts made there run here.
    fn runs_target(&self, target: &str) -> bool {
        target == self.target()
    }

    /// The targets that [`Device::for_target`] knows, those of other machines among them; none if this device compiles for
    /// itself alone.
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    /// What compiles for a target: this device, kept to what the target has, if it has all of that; else a device that packs
    /// weights and is not [compatible](Device::is_compatible). `None` if the target is unknown.
    fn for_target(&self, _target: &Target) -> Option<Arc<dyn Device>> {
        None
    }

    /// The target that [`Device::for_target`] made this device for.
    fn chosen_target(&self) -> Option<&Target> {
        None
    }

    /// The kernel that computes a node, or `None` where this device has none: the engine then runs the op's
    /// reference on the host, and the plan says so.
    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>>;

    /// Its far side, if it has memory that the host does not reach. The host then computes what has no kernel there, and
    /// [`Device::kernel`] is not asked.
    fn far(&self) -> Option<&dyn Far> {
        None
    }

    /// Gives its memory.
    fn allocator(&self) -> &dyn Allocator {
        self.far().map_or(&HostAllocator, |far| far.allocator())
    }

    /// The layout in which the kernel of `node` wants its weight operand `position`, if not as it is stored.
    /// The answer is a name that [`Device::pack`] understands, such as `panel16`.
    fn packing(&self, _node: &NodeTypes<'_>, _position: usize) -> Option<String> {
        None
    }

    /// Brings a weight into a layout that [`Device::packing`] named, now or in [`Device::finish_packing`].
    ///
    /// # Errors
    /// If the weight cannot be brought into it, or there is not enough memory.
    fn pack(&self, layout: &str, _weight: &Tensor) -> Result<PackedWeight, PackError> {
        Err(PackError::Unfit(format!("{} packs no weights, got {layout}", self.name())))
    }

    /// Bytes that a weight of type `ty` will take in a layout that [`Device::packing`] named; `None` where the device
    /// does not know before it packs.
    fn packed_bytes(&self, _layout: &str, _ty: &Type) -> Option<usize> {
        None
    }

    /// Packs a weight that [`Device::pack`] did not pack at once. Kernels may be reading it.
    fn finish_packing(&self, _weight: &PackedWeight) {}

    /// The mapped file that a weight is still to be packed from; `None` once it is packed, before which the file is checked.
    fn file_of(&self, _weight: &PackedWeight) -> Option<Arc<MappedFile>> {
        None
    }

    /// Calls `body` once with each of `0..chunks`, on any of the device's threads and in any order, and returns when all
    /// are done. For ops of extensions.
    fn parallel_for(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..chunks).for_each(body);
    }

    /// A packed weight as bytes for [`Device::load_packed`], on this machine or another.
    ///
    /// # Errors
    /// If the device stores no packed weights, in words.
    fn save_packed(&self, weight: &PackedWeight) -> Result<Bytes, String> {
        Err(format!("{} stores no packed weights, got {}", self.name(), weight.layout))
    }

    /// The packed weight of saved bytes, used where they lie, if possible. They begin at a multiple of 64 bytes, and
    /// are untrusted: whatever they hold, no kernel may leave them.
    ///
    /// # Errors
    /// If they are no weight of the type `ty` in the layout, in words.
    fn load_packed(&self, layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
        let name = self.name();
        Err(format!("{name} stores no packed weights, got {} bytes for {ty} as {layout}", bytes.len()))
    }

    /// How many threads of the host compute for it, those that call it among them.
    fn threads(&self) -> usize {
        1
    }

    /// The same device with another number of threads; 0 means as many as it thinks best. `None` where threads are
    /// not its own to choose.
    fn with_threads(&self, _threads: usize) -> Option<Arc<dyn Device>> {
        None
    }

    /// The same device with kernels for at most an instruction set; `None` if there is nothing to choose.
    ///
    /// # Errors
    /// If the device knows no instruction set of that name: the names that it knows.
    fn limited_to(&self, _instruction_set: &str) -> Result<Option<Arc<dyn Device>>, String> {
        Ok(None)
    }

    /// Where to mark the steps of profiled calls, for tools that watch the device, such as NVTX ranges.
    fn marker(&self) -> Option<&dyn Marker> {
        None
    }
}

/// Marks ranges of time for a tool that watches a device.
pub trait Marker: Send + Sync {
    /// A range begins on this thread, within those that have not ended.
    fn push(&self, name: &str);

    /// The range that began last ends.
    fn pop(&self);
}

/// A node as lowering sees it: the op and the types around it.
#[derive(Debug, Clone, Copy)]
pub struct NodeTypes<'a> {
    /// What is computed.
    pub op: &'a Op,
    /// The types of the operands.
    pub inputs: &'a [&'a Type],
    /// The types of the results.
    pub outputs: &'a [&'a Type],
    /// How the session wants kernels to be chosen.
    pub settings: DeviceSettings,
}

/// A weight in a layout of its device's own.
#[derive(Clone)]
pub struct PackedWeight {
    /// The layout, as plans print it.
    pub layout: String,
    /// Bytes it takes.
    pub bytes: usize,
    /// The device's own type.
    pub data: Arc<dyn Any + Send + Sync>,
}

/// Why a weight cannot be read or packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// It is not as it must be, for a reason in words.
    #[error("{0}")]
    Unfit(String),
    /// The system refuses so much memory.
    #[error("the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// How many were asked for.
        bytes: usize,
    },
}

impl From<String> for PackError {
    fn from(message: String) -> PackError {
        PackError::Unfit(message)
    }
}

/// For kernels that pack what they compute with.
impl From<PackError> for String {
    fn from(error: PackError) -> String {
        error.to_string()
    }
}

impl From<tensor::Error> for PackError {
    fn from(error: tensor::Error) -> PackError {
        match error {
            tensor::Error::OutOfMemory { bytes } => PackError::OutOfMemory { bytes },
            other => PackError::Unfit(other.to_string()),
        }
    }
}

/// Computes one node. Made once per step of a plan, run many times with many sizes, from many threads.
pub trait Kernel: Send + Sync {
    /// The name in plans and traces, such as `linear[q4_k, silu].avx512`.
    fn name(&self) -> String;

    /// Bytes of scratch memory a call needs with operands and results of these shapes.
    fn scratch(&self, _inputs: &[Shape], _outputs: &[Shape]) -> usize {
        0
    }

    /// An operand whose memory result 0 may take over: the kernel then gets [`Operand::InResult`] for it and
    /// finds its contents in the result.
    fn in_place(&self) -> Option<usize> {
        None
    }

    /// For an op that defines symbols: their sizes, in the order of [`graph::ops::Define::defines`]; `None` leaves it
    /// to the op. The engine then calls [`Kernel::run`] with results of these sizes.
    ///
    /// # Errors
    /// If the data makes no sense, in words.
    fn sizes(&self, _inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        Ok(None)
    }

    /// The operands whose elements [`Kernel::check`] reads, such as indices and lengths; `None` if the kernel refuses no call.
    fn checked(&self) -> Option<&'static [usize]> {
        None
    }

    /// Refuses what [`Kernel::run`] refuses, before a device computes it. Operands that are not [`Kernel::checked`], and
    /// those whose elements are known to be good, are shapes without bytes.
    ///
    /// # Errors
    /// Those of [`Kernel::run`].
    fn check(&self, _inputs: &[View<'_>]) -> Result<(), String> {
        Ok(())
    }

    /// Computes the results.
    ///
    /// # Errors
    /// If the data (an index, say) makes no sense, in words that name operand, position and limit.
    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String>;
}

/// One call of a kernel.
///
/// Results, scratch and buffers start at multiples of 64 bytes. Operands may start anywhere: one may be a part of
/// a value, or a weight in a mapped file.
pub struct KernelCall<'a, 'm> {
    /// The operands.
    pub inputs: &'a mut [Operand<'m>],
    /// The results. Row-major; the contents are undefined but for an operand computed in place.
    pub outputs: &'a mut [ViewMut<'m>],
    /// Scratch memory, 64-byte aligned, of the size asked for; contents undefined.
    pub scratch: &'a mut [u8],
}

/// An operand of a call.
pub enum Operand<'m> {
    /// A value in memory.
    View(View<'m>),
    /// The contents are in result 0, which the kernel overwrites.
    InResult,
    /// A buffer the node writes.
    Buffer(ViewMut<'m>),
    /// A weight in the device's layout.
    Packed(&'m PackedWeight),
}

/// A row-major array to read.
#[derive(Debug, Clone, Copy)]
pub struct View<'m> {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: &'m Shape,
    /// The elements.
    pub bytes: &'m [u8],
}

impl View<'_> {
    /// A copy that outlives the call.
    pub(crate) fn to_tensor(self) -> Result<Tensor, tensor::Error> {
        let bytes = AlignedBytes::try_copy_of(self.bytes)?;
        Tensor::from_bytes(self.dtype, *self.shape, Bytes::new(bytes))
    }
}

/// A row-major array to write.
#[derive(Debug)]
pub struct ViewMut<'m> {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: &'m Shape,
    /// The elements.
    pub bytes: &'m mut [u8],
}
