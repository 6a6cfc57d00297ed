//! What parts hand to one another, and who borrows, copies or keeps it.

use tensor::AlignedBytes;

use crate::Program;
use crate::block::PartOperand;
use crate::bound_weight::BoundWeight;
use crate::device::far::FarBytes;
use crate::frame::Array;
use crate::{Error, View};

/// A value between parts.
pub(crate) struct Held<'m> {
    pub(crate) array: Array,
    pub(crate) memory: HeldMemory<'m>,
}

/// The memory of a value between parts.
pub(crate) enum HeldMemory<'m> {
    Read(&'m [u8]),
    /// A buffer that parts may write.
    Write(&'m mut [u8]),
    /// Made by a part: a tensor, or a buffer that later parts may write.
    Own(MadeMemory),
    /// In the memory of a device, whose own queue orders what reads and writes it.
    Far(FarBytes),
}

/// The memory that a part makes.
pub(crate) enum MadeMemory {
    Host(AlignedBytes),
    Far(FarBytes),
}

/// A result of a block.
pub(crate) type Made = (Array, MadeMemory);

impl Held<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.memory {
            HeldMemory::Read(bytes) => bytes,
            HeldMemory::Write(bytes) => bytes,
            HeldMemory::Own(memory) => memory.bytes(),
            HeldMemory::Far(_) => unreachable!("placement brings values to the host that it reads"),
        }
    }

    /// The bytes of a value on a device.
    pub(super) fn far(&self) -> &FarBytes {
        match &self.memory {
            HeldMemory::Far(bytes) | HeldMemory::Own(MadeMemory::Far(bytes)) => bytes,
            _ => unreachable!("placement brings values to a device that it reads"),
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        View { dtype: self.array.dtype, shape: &self.array.shape, bytes: self.bytes() }
    }

    pub(super) fn copy(&self) -> Result<Made, Error> {
        let copy = match &self.memory {
            HeldMemory::Far(bytes) | HeldMemory::Own(MadeMemory::Far(bytes)) => {
                MadeMemory::Far(bytes.copied()?)
            }
            _ => MadeMemory::Host(AlignedBytes::try_copy_of(self.bytes())?),
        };
        Ok((self.array, copy))
    }

    fn borrow(&mut self, written: bool) -> Held<'_> {
        if !written {
            return self.share();
        }
        let memory = match &mut self.memory {
            HeldMemory::Write(bytes) => HeldMemory::Write(bytes),
            HeldMemory::Read(bytes) => HeldMemory::Read(bytes),
            // A buffer that an earlier part created, as parts write only buffers.
            HeldMemory::Own(MadeMemory::Host(bytes)) => HeldMemory::Write(bytes),
            HeldMemory::Far(bytes) | HeldMemory::Own(MadeMemory::Far(bytes)) => {
                HeldMemory::Far(bytes.clone())
            }
        };
        Held { array: self.array, memory }
    }

    fn share(&self) -> Held<'_> {
        let memory = match &self.memory {
            HeldMemory::Far(bytes) | HeldMemory::Own(MadeMemory::Far(bytes)) => {
                HeldMemory::Far(bytes.clone())
            }
            _ => HeldMemory::Read(self.bytes()),
        };
        Held { array: self.array, memory }
    }
}

impl MadeMemory {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            MadeMemory::Host(bytes) => bytes,
            MadeMemory::Far(_) => unreachable!("placement brings values to the host that it reads"),
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            MadeMemory::Host(bytes) => bytes,
            MadeMemory::Far(_) => unreachable!("the host's plans make host memory"),
        }
    }

    /// Whether the memory holds nothing else.
    fn is_whole(&self) -> bool {
        match self {
            MadeMemory::Host(_) => true,
            MadeMemory::Far(bytes) => bytes.len == bytes.memory.len(),
        }
    }
}

/// Values to hand to a part: each to write by one taker, or to read by any number.
pub(super) fn borrow<'v>(
    values: &'v mut [Option<Held<'_>>],
    wanted: &[usize],
    written: impl Fn(usize) -> bool,
) -> Vec<Held<'v>> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&position| wanted[position]);
    let mut borrowed: Vec<(usize, Held<'v>)> = Vec::with_capacity(wanted.len());
    let mut values = values.iter_mut().enumerate();
    for takers in order.chunk_by(|&a, &b| wanted[a] == wanted[b]) {
        let (_, value) = values.find(|(i, _)| *i == wanted[takers[0]]).expect("a value of the block");
        let value = value.as_mut().expect("made by an earlier part");
        match takers {
            [taker] => borrowed.push((*taker, value.borrow(written(*taker)))),
            takers => borrowed.extend(takers.iter().map(|&taker| (taker, value.share()))),
        }
    }
    borrowed.sort_by_key(|(position, _)| *position);
    borrowed.into_iter().map(|(_, held)| held).collect()
}

pub(super) fn put(values: &mut [Option<Held<'_>>], outputs: &[usize], made: Vec<Made>) {
    for (&output, (array, memory)) in outputs.iter().zip(made) {
        values[output] = Some(Held { array, memory: HeldMemory::Own(memory) });
    }
}

/// The results of a block: what parts made is handed on, where nothing else is it; all else is copied.
pub(super) fn results(
    sources: &[PartOperand],
    values: &mut [Option<Held<'_>>],
    program: &Program,
    weights: &[BoundWeight],
) -> Result<Vec<Made>, Error> {
    let result = |(i, source): (usize, &PartOperand)| {
        let value = match source {
            PartOperand::Weight(slot) => return weight(program, weights, *slot).copy(),
            PartOperand::Value(value) => *value,
        };
        let again = sources[i + 1..].contains(source);
        match values[value].take().expect("made by a part, or an input") {
            Held { array, memory: HeldMemory::Own(memory) } if !again && memory.is_whole() => {
                Ok((array, memory))
            }
            held => {
                let copy = held.copy();
                values[value] = Some(held);
                copy
            }
        }
    };
    sources.iter().enumerate().map(result).collect()
}

/// The carried values and the captured ones.
pub(super) fn state<'s>(carried: &'s [Made], captured: &'s mut [Held<'_>]) -> Vec<Held<'s>> {
    let carried = carried
        .iter()
        .map(|(array, memory)| Held { array: *array, memory: HeldMemory::Read(memory.bytes()) });
    carried.chain(captured.iter_mut().map(|held| held.borrow(true))).collect()
}

pub(super) fn weight<'r>(program: &Program, weights: &'r [BoundWeight], slot: usize) -> Held<'r> {
    let ty = &program.weights[slot].ty;
    let shape = ty.static_shape().expect("lowering admits only static weights");
    let memory = match &weights[slot] {
        BoundWeight::Far(bytes) => HeldMemory::Far(bytes.clone()),
        weight => HeldMemory::Read(weight.raw()),
    };
    Held { array: Array { dtype: ty.dtype, shape }, memory }
}

pub(super) fn empty(array: Array) -> Result<Made, Error> {
    let bytes = array.dtype.bytes_for(array.shape.elements()).expect("frames have whole blocks");
    Ok((array, MadeMemory::Host(AlignedBytes::try_zeroed(bytes)?)))
}
