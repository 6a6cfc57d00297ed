//! Programs of functions of elements, tile by tile: each step is the kernel of its op, run on a tile that stays in
//! the L1 cache, so operands are read and results written once whatever the number of steps.
//!
//! Bound by memory for a handful of arithmetic steps, by arithmetic beyond. Each step rounds to its own dtype, so
//! the results are to the bit those of the steps one by one.

use std::ops::Deref;
use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand};
use graph::Type;
use graph::ops::{ElementFunction, ElementSource, Elementwise};
use tensor::{AlignedBytes, DType, Shape};

use super::convert::CastKernel;
use super::elementwise::ElementKernel;
use super::operands::{CHUNK, elements, elements_mut, with_width};
use super::select::SelectKernel;
use super::strided::Strided;
use super::{binary, unary};
use crate::vec::{Stream, prefetch, with_scratch};
use crate::{Cpu, Pool};

/// Elements of a tile: a dozen of f32 fit in the L1 cache.
const TILE: usize = 512;
/// Results from this many bytes on find no place in a cache, and are streamed past it.
const STREAMED: usize = 32 << 20;
/// Step names that a kernel's name shows.
const SHOWN: usize = 8;

/// A kernel for a program, if each step has one that takes all data; `in_place` is an operand of the result's very
/// type.
pub(crate) fn kernel(
    cpu: &Cpu,
    op: &Elementwise,
    inputs: &[&Type],
    in_place: Option<usize>,
) -> Option<Arc<dyn Kernel>> {
    let types = op.types(inputs).ok()?;
    let places = registers(op);
    let mut steps = Vec::with_capacity(op.program.len());
    for ((step, &register), result) in op.program.iter().zip(&places).zip(&types) {
        let dtype = |&source: &ElementSource| match source {
            ElementSource::Operand(i) => inputs[i].dtype,
            ElementSource::Step(i) => types[i].dtype,
        };
        let dtypes: Vec<DType> = step.operands.iter().map(dtype).collect();
        let kernel = member(cpu, step.function, &dtypes).filter(|kernel| kernel.is_total())?;
        let slot = |&source: &ElementSource| match source {
            ElementSource::Operand(i) => Slot::Operand(i),
            ElementSource::Step(i) => Slot::Register(places[i]),
        };
        let operands = step.operands.iter().zip(&dtypes);
        let operands = operands.map(|(source, dtype)| (slot(source), dtype.block().bytes)).collect();
        steps.push(Step { kernel, operands, register, width: result.dtype.block().bytes });
    }
    let widths: Vec<usize> = inputs.iter().map(|ty| ty.dtype.block().bytes).collect();
    let widest = widths.iter().copied().chain(steps.iter().map(|step| step.width)).max()?;
    let registers = places.iter().max()? + 1;
    let (name, pool) = (name(cpu, op), Arc::clone(&cpu.pool));
    Some(Arc::new(ProgramKernel { name, steps, registers, widths, widest, in_place, pool }))
}

struct ProgramKernel {
    name: String,
    steps: Vec<Step>,
    /// Tiles that hold results of steps.
    registers: usize,
    /// Bytes of an element of each operand.
    widths: Vec<usize>,
    /// The largest element among operands and results of steps.
    widest: usize,
    in_place: Option<usize>,
    pool: Arc<Pool>,
}

struct Step {
    kernel: Arc<dyn ElementKernel>,
    /// Each with the bytes of its elements.
    operands: Vec<(Slot, usize)>,
    /// Where the result goes.
    register: usize,
    /// Bytes of an element of the result.
    width: usize,
}

#[derive(Clone, Copy)]
enum Slot {
    Operand(usize),
    Register(usize),
}

impl Kernel for ProgramKernel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let result = &mut call.outputs[0];
        let in_result = call.inputs.iter().any(|operand| matches!(operand, Operand::InResult));
        let streamed = result.bytes.len() >= STREAMED && !in_result;
        let sources = call.inputs.iter().zip(&self.widths);
        let sources = sources.map(|(operand, &width)| Source::new(operand, width, result.shape));
        let sources: Vec<Source<'_>> =
            sources.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let width = self.steps.last().expect("a program has steps").width;
        // A few pieces for each thread, in whole tiles.
        let pieces = 4 * self.pool.threads();
        let chunk = (result.bytes.len() / width).div_ceil(pieces).next_multiple_of(TILE).clamp(TILE, CHUNK);
        self.pool.run_on_pieces(&mut *result.bytes, chunk * width, &|index, piece| {
            self.run_chunk(&sources, index * chunk, piece, streamed);
        });
        Ok(())
    }
}

impl ProgramKernel {
    /// Computes the part of the result that lies `start` elements into it.
    fn run_chunk(&self, sources: &[Source<'_>], start: usize, part: &mut [u8], streamed: bool) {
        // A cache line more, so that tiles do not all begin in the same set of the cache.
        let stride = TILE * self.widest + 64;
        let tiles = sources.len() + self.registers;
        with_scratch(tiles * stride / size_of::<f32>(), |scratch| {
            let mut tiles: Vec<&mut [u8]> =
                bytemuck::cast_slice_mut::<f32, u8>(scratch).chunks_exact_mut(stride).collect();
            let (stages, registers) = tiles.split_at_mut(sources.len());
            let width = self.steps.last().expect("a program has steps").width;
            let longest = TILE.min(part.len() / width);
            let repeated = sources.iter().zip(&mut *stages).filter(|(source, _)| source.is_repeated());
            repeated.for_each(|(source, stage)| source.copy(start, &mut stage[..longest * source.width]));
            let stream = streamed.then(Stream::begin);
            let mut found = vec![None; sources.len()];
            for (index, result) in part.chunks_mut(TILE * width).enumerate() {
                let (start, len) = (start + index * TILE, result.len() / width);
                for ((source, stage), found) in sources.iter().zip(&mut *stages).zip(&mut found) {
                    *found = source.find(start, len, result, stage);
                }
                let tile = Tile { sources, found: &found, stages, len };
                self.run_tile(&tile, registers, result, stream.as_ref());
            }
        });
    }

    fn run_tile(
        &self,
        tile: &Tile<'_>,
        registers: &mut [&mut [u8]],
        result: &mut [u8],
        stream: Option<&Stream>,
    ) {
        for (number, step) in self.steps.iter().enumerate() {
            let direct = number + 1 == self.steps.len() && stream.is_none();
            // No operand is in this register, so the others stay readable.
            let register = std::mem::take(&mut registers[step.register]);
            let mut operands: [&[u8]; 3] = [&[]; 3];
            for (operand, &(slot, width)) in operands.iter_mut().zip(&step.operands) {
                *operand = match slot {
                    Slot::Operand(i) => tile.operand(i),
                    Slot::Register(i) => &registers[i][..tile.len * width],
                };
            }
            let to = if direct { &mut *result } else { &mut register[..tile.len * step.width] };
            step.kernel.run_on_tile(&operands[..step.operands.len()], to);
            registers[step.register] = register;
        }
        if let Some(stream) = stream {
            let last = self.steps.last().expect("a program has steps");
            stream.copy(&registers[last.register][..result.len()], result);
        }
    }
}

/// The operands of one tile.
struct Tile<'t> {
    sources: &'t [Source<'t>],
    /// Where each operand's elements lie in its memory; otherwise they are in its stage.
    found: &'t [Option<usize>],
    stages: &'t [&'t mut [u8]],
    len: usize,
}

impl Tile<'_> {
    fn operand(&self, i: usize) -> &[u8] {
        let source = &self.sources[i];
        let bytes = self.len * source.width;
        match (&source.memory, self.found[i]) {
            (Some((memory, _)), Some(position)) => &memory[position * source.width..][..bytes],
            _ => &self.stages[i][..bytes],
        }
    }
}

/// An operand, as the result's shape sees it.
struct Source<'m> {
    width: usize,
    /// Its elements and the walk over them; `None` if it is in the result itself.
    memory: Option<(Aligned<'m>, Strided)>,
}

/// Elements that start at a multiple of their size.
enum Aligned<'m> {
    AsGiven(&'m [u8]),
    /// As those of a mapped file need not.
    Copied(AlignedBytes),
}

impl Deref for Aligned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Aligned::AsGiven(bytes) => bytes,
            Aligned::Copied(bytes) => bytes,
        }
    }
}

impl<'m> Source<'m> {
    fn new(operand: &'m Operand<'_>, width: usize, result: &Shape) -> Result<Source<'m>, tensor::Error> {
        let (shape, bytes): (&Shape, &'m [u8]) = match operand {
            Operand::InResult => return Ok(Source { width, memory: None }),
            Operand::View(view) => (view.shape, view.bytes),
            Operand::Buffer(view) => (view.shape, view.bytes),
            Operand::Packed(packed) => panic!("an elementwise operand packed as {}", packed.layout),
        };
        let bytes = match bytes.as_ptr().addr().is_multiple_of(width) {
            true => Aligned::AsGiven(bytes),
            false => Aligned::Copied(AlignedBytes::try_copy_of(bytes)?),
        };
        Ok(Source { width, memory: Some((bytes, Strided::broadcast(shape, result))) })
    }

    /// Whether one element is everywhere.
    fn is_repeated(&self) -> bool {
        self.memory.as_ref().is_some_and(|(_, walk)| walk.axes().all(|(_, stride)| stride == 0))
    }

    /// Where the elements for a tile lie in memory, or `None` once they are in the stage.
    fn find(&self, start: usize, len: usize, result: &[u8], stage: &mut [u8]) -> Option<usize> {
        match &self.memory {
            None => stage[..result.len()].copy_from_slice(result),
            Some(_) if self.is_repeated() => {}
            Some((memory, walk)) => match walk.run(start, len) {
                Some(position) => {
                    // The tile after this one, meanwhile.
                    let next = memory.len().min((position + len) * self.width);
                    prefetch(&memory[next..memory.len().min(next + len * self.width)]);
                    return Some(position);
                }
                None => self.copy(start, &mut stage[..len * self.width]),
            },
        }
        None
    }

    /// Copies elements from `start` on.
    fn copy(&self, start: usize, to: &mut [u8]) {
        if let Some((memory, walk)) = &self.memory {
            with_width!(self.width, T => walk.copy(&elements::<T>(memory), start, elements_mut(to)));
        }
    }
}

/// The kernel of one step.
fn member(cpu: &Cpu, function: ElementFunction, operands: &[DType]) -> Option<Arc<dyn ElementKernel>> {
    let pool = Arc::clone(&cpu.pool);
    match (function, operands) {
        (_, operands) if operands.iter().any(|dtype| dtype.is_block()) => None,
        (ElementFunction::Unary(function), &[x]) => unary::kernel(cpu, function, x),
        (ElementFunction::Binary(function), &[x, _]) => binary::kernel(cpu, function, x, None),
        (ElementFunction::Select, &[_, a, _]) => {
            Some(Arc::new(SelectKernel { in_place: None, width: a.block().bytes, pool }))
        }
        (ElementFunction::Cast(to), &[from]) => Some(Arc::new(CastKernel { from, to, pool })),
        (function, operands) => {
            panic!("{function} of {} operands, which the type rule refuses", operands.len())
        }
    }
}

/// A register for each step's result, used again once no later step reads it; never one that the step itself reads.
fn registers(op: &Elementwise) -> Vec<usize> {
    let mut last_uses = vec![usize::MAX; op.program.len()];
    for (position, step) in op.program.iter().enumerate() {
        for source in &step.operands {
            if let &ElementSource::Step(i) = source {
                last_uses[i] = position;
            }
        }
    }
    let (mut places, mut free, mut used) = (Vec::new(), Vec::new(), 0);
    for (position, step) in op.program.iter().enumerate() {
        places.push(free.pop().unwrap_or(used));
        used = used.max(places[position] + 1);
        for source in &step.operands {
            if let &ElementSource::Step(i) = source
                && last_uses[i] == position
            {
                // The step may read it twice.
                last_uses[i] = usize::MAX;
                free.push(places[i]);
            }
        }
    }
    places
}

/// Such as `elementwise[mul, add, gelu].avx512`.
fn name(cpu: &Cpu, op: &Elementwise) -> String {
    let mut functions: Vec<String> =
        op.program.iter().take(SHOWN).map(|step| step.function.to_string()).collect();
    if op.program.len() > SHOWN {
        functions.push(format!("{} more", op.program.len() - SHOWN));
    }
    format!("elementwise[{}].{}", functions.join(", "), cpu.pick(unary::F32).name)
}
