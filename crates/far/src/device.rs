//! The device as sessions take it.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use engine::devices::{Accelerators, DeviceStats};
use engine::{Device, Error, Far, FarKernel, FarStep, Kernel, NodeTypes, PackError, PackedWeight, Segment};
use graph::Type;
use tensor::{Allocator, Bytes, DeviceSpec, FarMemory, Tensor};

use crate::kernel::{ALIGNMENT, HostKernel, PackedMemory, RecordedStep, Steps};
use crate::memory::QueueAllocator;
use crate::queue::{Command, Queue};

/// A device whose memory is a thread's, and whose kernels are the host's.
pub struct FarDevice {
    host: Arc<dyn Device>,
    allocator: QueueAllocator,
    /// The ops that have kernels; all that the host has if there is no list.
    only: Option<BTreeSet<&'static str>>,
}

/// One such device, for platforms of tests.
pub struct OneFarDevice;

/// What a [`FarDevice`] says of its memory.
const MEMORY: DeviceStats = DeviceStats::new(1 << 30, 1 << 30);
/// The most bytes of a buffer.
const BUFFER: u64 = 1 << 26;

impl Accelerators for OneFarDevice {
    fn count(&self) -> usize {
        1
    }

    fn absence(&self) -> String {
        unreachable!("there is one")
    }

    fn open(&self, id: usize, host: Arc<dyn Device>) -> Result<Arc<dyn Device>, tensor::Error> {
        let id = i32::try_from(id).expect("below the count");
        let device = FarDevice::new(id, host, 1).map_err(|error| tensor::Error::Device(error.to_string()))?;
        Ok(Arc::new(device))
    }
}

impl FarDevice {
    /// The accelerator of a number, which waits between commands as a seed says.
    ///
    /// # Errors
    /// If the number is negative.
    pub fn new(id: i32, host: Arc<dyn Device>, seed: u64) -> Result<FarDevice, Error> {
        let spec = DeviceSpec::accelerator(id)?;
        let queue = Queue::start(seed);
        Ok(FarDevice { host, allocator: QueueAllocator::new(spec, queue), only: None })
    }

    /// The device with kernels for these ops alone.
    #[must_use]
    pub fn only(self, ops: impl IntoIterator<Item = &'static str>) -> FarDevice {
        FarDevice { only: Some(ops.into_iter().collect()), ..self }
    }

    fn upload(&self, layout: &str, ty: Type, bytes: &[u8]) -> Result<PackedWeight, tensor::Error> {
        let memory = self.allocator.memory(bytes.len())?;
        memory.write(&[(0, bytes)])?;
        let packed = PackedMemory {
            memory,
            layout: layout.to_string(),
            ty,
            host: Arc::clone(&self.host),
            read: OnceLock::new(),
        };
        Ok(PackedWeight { layout: layout.to_string(), bytes: bytes.len(), data: Arc::new(packed) })
    }
}

impl Device for FarDevice {
    fn name(&self) -> &str {
        "far"
    }

    fn spec(&self) -> DeviceSpec {
        self.allocator.spec
    }

    fn stats(&self) -> Option<DeviceStats> {
        Some(MEMORY)
    }

    fn max_single_alloc_size(&self) -> u64 {
        BUFFER
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.allocator.queue.answer(Command::Wait)
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        None
    }

    fn far(&self) -> Option<&dyn Far> {
        Some(self)
    }

    fn packing(&self, node: &NodeTypes<'_>, position: usize) -> Option<String> {
        self.host.packing(node, position)
    }

    fn pack(&self, layout: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
        let packed = self.host.pack(layout, weight)?;
        self.host.finish_packing(&packed);
        let ty = Type::new(weight.dtype(), weight.shape().iter().copied());
        Ok(self.upload(layout, ty, &self.host.save_packed(&packed)?)?)
    }

    fn packed_bytes(&self, layout: &str, ty: &Type) -> Option<usize> {
        self.host.packed_bytes(layout, ty)
    }

    fn save_packed(&self, weight: &PackedWeight) -> Result<Bytes, String> {
        let packed = weight.data.downcast_ref::<PackedMemory>().ok_or("a weight of another device")?;
        let mut bytes = vec![0; packed.memory.len()];
        packed.memory.read(0, &mut bytes).map_err(|error| error.to_string())?;
        Ok(Bytes::new(bytes))
    }

    fn load_packed(&self, layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
        self.upload(layout, ty.clone(), &bytes).map_err(|error| error.to_string())
    }
}

impl Far for FarDevice {
    fn allocator(&self) -> &dyn Allocator {
        &self.allocator
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
        let has = self.only.as_ref().is_none_or(|only| only.contains(node.op.name()));
        let kernel = self.host.kernel(node).filter(|_| has)?;
        Some(Arc::new(HostKernel(kernel)))
    }

    fn record(&self, steps: &[FarStep<'_>]) -> Result<Box<dyn Segment>, Error> {
        let mut recorded: Vec<RecordedStep> = Vec::with_capacity(steps.len());
        for FarStep { kernel, call } in steps {
            let fail = |message| tensor::Error::Device(format!("recording {}: {message}", kernel.name()));
            kernel.record(call, &mut recorded).map_err(fail)?;
        }
        Ok(Box::new(Recording { steps: Arc::new(Steps(recorded)), queue: Arc::clone(&self.allocator.queue) }))
    }
}

struct Recording {
    steps: Arc<Steps>,
    queue: Arc<Queue>,
}

impl Segment for Recording {
    fn launch(&self) -> Result<(), Error> {
        let steps = Arc::clone(&self.steps);
        self.queue.ask(Command::Run(steps))
    }
}
