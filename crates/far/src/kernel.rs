//! The host's kernels as kernels of the device: what is recorded, and how the thread runs it.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use engine::{
    Device, FarArray, FarBytes, FarCall, FarKernel, FarOperand, Kernel, KernelCall, Operand, PackedWeight,
    View, ViewMut,
};
use graph::Type;
use tensor::{AlignedBytes, Bytes, DType, Shape};

use crate::memory::QueueMemory;
use crate::queue::{Memories, Work, missing, part, part_mut};

/// What the places of results are multiples of.
pub(crate) const ALIGNMENT: usize = 256;

/// Neither zero nor a number: a NaN of every float.
const UNWRITTEN: u8 = 0xff;

/// A kernel of the host that runs in the thread.
pub(crate) struct HostKernel(pub(crate) Arc<dyn Kernel>);

/// A weight in the host's layout, in the device's memory.
pub(crate) struct PackedMemory {
    pub(crate) memory: QueueMemory,
    pub(crate) layout: String,
    pub(crate) ty: Type,
    pub(crate) host: Arc<dyn Device>,
    /// Once a kernel has read it.
    pub(crate) read: OnceLock<PackedWeight>,
}

/// A step as the thread runs it.
pub(crate) struct RecordedStep {
    kernel: Arc<dyn Kernel>,
    operands: Vec<RecordedOperand>,
    results: Vec<RecordedArray>,
    scratch: usize,
}

enum RecordedOperand {
    View(RecordedArray),
    InResult,
    Buffer(RecordedArray),
    Packed(Arc<PackedMemory>),
}

#[derive(Clone)]
struct RecordedArray {
    dtype: DType,
    shape: Shape,
    memory: u64,
    start: usize,
    len: usize,
}

impl FarKernel for HostKernel {
    fn name(&self) -> String {
        self.0.name()
    }

    fn scratch(&self, inputs: &[Shape], outputs: &[Shape]) -> usize {
        self.0.scratch(inputs, outputs)
    }

    fn in_place(&self) -> Option<usize> {
        self.0.in_place()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let steps = recorder.downcast_mut::<Vec<RecordedStep>>().ok_or("the recorder of another device")?;
        let operands = call.inputs.iter().map(|operand| {
            Ok(match operand {
                FarOperand::View(array) => RecordedOperand::View(recorded(array)?),
                FarOperand::InResult => RecordedOperand::InResult,
                FarOperand::Buffer(array) => RecordedOperand::Buffer(aligned(array)?),
                FarOperand::Packed(weight) => {
                    let packed = Arc::clone(&weight.data).downcast::<PackedMemory>();
                    RecordedOperand::Packed(packed.map_err(|_| "a weight of another device")?)
                }
            })
        });
        let operands = operands.collect::<Result<_, String>>()?;
        let results = call.outputs.iter().map(aligned).collect::<Result<_, String>>()?;
        let scratch = call.scratch.as_ref().map_or(0, |bytes| bytes.len);
        steps.push(RecordedStep { kernel: Arc::clone(&self.0), operands, results, scratch });
        Ok(())
    }
}

fn aligned(array: &FarArray<'_>) -> Result<RecordedArray, String> {
    match array.bytes.start.is_multiple_of(ALIGNMENT) {
        true => recorded(array),
        false => Err(format!("a result at byte {}, no multiple of {ALIGNMENT}", array.bytes.start)),
    }
}

fn recorded(array: &FarArray<'_>) -> Result<RecordedArray, String> {
    let FarBytes { memory, start, len } = &array.bytes;
    let memory = QueueMemory::number_of(&**memory)?;
    Ok(RecordedArray { dtype: array.dtype, shape: *array.shape, memory, start: *start, len: *len })
}

impl PackedMemory {
    /// The weight in the host's own form.
    fn weight(&self, memories: &Memories) -> Result<&PackedWeight, String> {
        if let Some(weight) = self.read.get() {
            return Ok(weight);
        }
        let bytes = memories.get(&self.memory.number).ok_or_else(|| missing(self.memory.number))?;
        let bytes = Bytes::new(AlignedBytes::copy_of(bytes));
        let weight = self.host.load_packed(&self.layout, &self.ty, bytes)?;
        Ok(self.read.get_or_init(|| weight))
    }
}

impl RecordedArray {
    fn fetch(&self, memories: &Memories) -> Result<AlignedBytes, String> {
        let memory = memories.get(&self.memory).ok_or_else(|| missing(self.memory))?;
        Ok(AlignedBytes::copy_of(part(memory, self.start, self.len)?))
    }

    fn store(&self, bytes: &[u8], memories: &mut Memories) -> Result<(), String> {
        let memory = memories.get_mut(&self.memory).ok_or_else(|| missing(self.memory))?;
        part_mut(memory, self.start, self.len)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Steps, one after another.
pub(crate) struct Steps(pub(crate) Vec<RecordedStep>);

impl Work for Steps {
    fn run(&self, memories: &mut Memories) -> Result<(), String> {
        self.0.iter().try_for_each(|step| step.run(memories))
    }
}

/// The contents of an operand while a step runs.
enum Contents {
    Bytes(AlignedBytes),
    InResult,
    Packed(PackedWeight),
}

impl RecordedStep {
    /// Runs the kernel on copies.
    fn run(&self, memories: &mut Memories) -> Result<(), String> {
        let mut contents = Vec::with_capacity(self.operands.len());
        for operand in &self.operands {
            contents.push(match operand {
                RecordedOperand::View(array) | RecordedOperand::Buffer(array) => {
                    Contents::Bytes(array.fetch(memories)?)
                }
                RecordedOperand::InResult => Contents::InResult,
                RecordedOperand::Packed(packed) => Contents::Packed(packed.weight(memories)?.clone()),
            });
        }
        let is_in_place = contents.iter().any(|content| matches!(content, Contents::InResult));
        let mut results = Vec::with_capacity(self.results.len());
        for (i, array) in self.results.iter().enumerate() {
            let mut bytes = array.fetch(memories)?;
            if !(i == 0 && is_in_place) {
                bytes.fill(UNWRITTEN);
            }
            results.push(bytes);
        }
        self.compute(&mut contents, &mut results)?;
        for (array, bytes) in self.results.iter().zip(&results) {
            array.store(bytes, memories)?;
        }
        for (operand, content) in self.operands.iter().zip(&contents) {
            if let (RecordedOperand::Buffer(array), Contents::Bytes(bytes)) = (operand, content) {
                array.store(bytes, memories)?;
            }
        }
        Ok(())
    }

    fn compute(&self, contents: &mut [Contents], results: &mut [AlignedBytes]) -> Result<(), String> {
        let mut scratch = AlignedBytes::zeroed(self.scratch);
        scratch.fill(UNWRITTEN);
        let operands =
            self.operands.iter().zip(contents).map(|(operand, content)| match (operand, content) {
                (RecordedOperand::View(RecordedArray { dtype, shape, .. }), Contents::Bytes(bytes)) => {
                    Operand::View(View { dtype: *dtype, shape, bytes })
                }
                (RecordedOperand::Buffer(RecordedArray { dtype, shape, .. }), Contents::Bytes(bytes)) => {
                    Operand::Buffer(ViewMut { dtype: *dtype, shape, bytes })
                }
                (_, Contents::Packed(weight)) => Operand::Packed(weight),
                _ => Operand::InResult,
            });
        let mut operands: Vec<Operand<'_>> = operands.collect();
        let arrays = self.results.iter().zip(results);
        let mut outputs: Vec<ViewMut<'_>> =
            arrays.map(|(array, bytes)| ViewMut { dtype: array.dtype, shape: &array.shape, bytes }).collect();
        self.kernel.run(KernelCall { inputs: &mut operands, outputs: &mut outputs, scratch: &mut scratch })
    }
}
