//! The dispatches that kernels add, and that a segment launches again and again.

use std::any::Any;
use std::sync::Arc;

use engine::{Error, FarBytes, Segment};
use tensor::DType;
use wgpu::util::{BufferInitDescriptor, DeviceExt};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding, BufferUsages,
    CommandEncoderDescriptor, ComputePassDescriptor,
};

use crate::gpu::{Gpu, Pipeline};
use crate::memory::WebGpuMemory;
use crate::shader::{ROW, Shader};

/// What the places of values are multiples of: as much as any adapter asks for.
pub(crate) const ALIGNMENT: usize = 256;
/// The most dispatches of a submission: drivers end work that takes seconds.
const DISPATCHES: usize = 64;
/// The most operations of a submission of several dispatches: a tenth of a second of a small card.
const WORK: u64 = 1 << 35;

/// Where a binding lies.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// In memory, from an element on.
    Memory(&'a FarBytes),
    /// A whole buffer.
    Weight(&'a WebGpuMemory),
}

/// What kernels add their dispatches to.
pub(crate) struct Recorder {
    gpu: Arc<Gpu>,
    dispatches: Vec<Dispatch>,
    /// What the dispatches read as `p`, each from a multiple of [`ALIGNMENT`] on.
    params: Vec<u8>,
}

/// A dispatch to be.
struct Dispatch {
    pipeline: Arc<Pipeline>,
    bindings: Vec<Bound>,
    params: std::ops::Range<usize>,
    groups: usize,
    work: u64,
}

/// A part of a buffer.
struct Bound {
    buffer: Buffer,
    start: u64,
    len: u64,
}

impl Recorder {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Recorder {
        Recorder { gpu: Arc::clone(gpu), dispatches: Vec::new(), params: Vec::new() }
    }

    /// The recorder that a kernel is given.
    pub(crate) fn of(recorder: &mut dyn Any) -> Result<&mut Recorder, String> {
        recorder.downcast_mut().ok_or_else(|| "the recorder of another device".to_string())
    }

    /// Adds a dispatch of so many workgroups, none if there are none, which takes about so many operations (`work`).
    pub(crate) fn dispatch(
        &mut self,
        shader: &Shader,
        places: &[Place<'_>],
        params: &[u32],
        groups: usize,
        work: u64,
    ) -> Result<(), String> {
        assert_eq!(places.len(), shader.accesses().len(), "{} has other bindings", shader.name());
        if groups == 0 {
            return Ok(());
        }
        let most = ROW * self.gpu.limits.max_compute_workgroups_per_dimension as usize;
        if groups > most {
            return Err(format!("{groups} workgroups, the device has at most {most}"));
        }
        let mut words = vec![groups as u32];
        let mut bindings = Vec::with_capacity(places.len());
        for (place, dtype) in places.iter().zip(shader.dtypes()) {
            let (bound, first) = self.bound(place, *dtype)?;
            bindings.push(bound);
            words.push(first);
        }
        words.extend(params);
        let start = self.params.len().next_multiple_of(ALIGNMENT);
        self.params.resize(start, 0);
        self.params.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let pipeline = self.gpu.pipeline(shader).map_err(|error| error.to_string())?;
        let params = start..self.params.len();
        self.dispatches.push(Dispatch { pipeline, bindings, params, groups, work });
        Ok(())
    }

    /// What a binding sees, and the element of that which it begins with.
    fn bound(&self, place: &Place<'_>, dtype: DType) -> Result<(Bound, u32), String> {
        let (memory, from, len) = match place {
            Place::Memory(FarBytes { memory, start, len }) => {
                (WebGpuMemory::of(&**memory, &self.gpu)?, *start, *len)
            }
            Place::Weight(memory) => (*memory, 0, memory.buffer.size() as usize),
        };
        // An empty operand may lie behind the end; a binding has a byte at least.
        let start = if len == 0 { 0 } else { from / ALIGNMENT * ALIGNMENT };
        let end = if len == 0 { 4 } else { (from + len).next_multiple_of(4) };
        let bound = Bound { buffer: memory.buffer.clone(), start: start as u64, len: (end - start) as u64 };
        let most = self.gpu.max_binding();
        if bound.len > most {
            return Err(format!("{} bytes, a binding of the device has at most {most}", bound.len));
        }
        let size = dtype.size_in_bytes().max(1);
        let before = if len == 0 { 0 } else { from - start };
        if !before.is_multiple_of(size) {
            return Err(format!("an array of {dtype} from byte {from} on"));
        }
        Ok((bound, (before / size) as u32))
    }

    /// What was recorded, to be launched.
    pub(crate) fn finish(self) -> Result<Recording, Error> {
        let Recorder { gpu, dispatches, params } = self;
        gpu.check()?;
        let params = gpu.device.create_buffer_init(&BufferInitDescriptor {
            label: None,
            contents: &params,
            usage: BufferUsages::UNIFORM,
        });
        let ready = dispatches.into_iter().map(|dispatch| ReadyDispatch::of(&gpu, &params, dispatch));
        let dispatches = ready.collect();
        gpu.check()?;
        Ok(Recording { gpu, dispatches })
    }
}

/// Dispatches with all that they need.
pub(crate) struct Recording {
    gpu: Arc<Gpu>,
    dispatches: Vec<ReadyDispatch>,
}

struct ReadyDispatch {
    pipeline: Arc<Pipeline>,
    bindings: BindGroup,
    grid: [u32; 2],
    work: u64,
}

impl ReadyDispatch {
    fn of(gpu: &Gpu, params: &Buffer, dispatch: Dispatch) -> ReadyDispatch {
        let part = |buffer, offset, size| {
            BindingResource::Buffer(BufferBinding { buffer, offset, size: std::num::NonZero::new(size) })
        };
        let own = part(params, dispatch.params.start as u64, dispatch.params.len() as u64);
        let others = dispatch.bindings.iter().map(|bound| part(&bound.buffer, bound.start, bound.len));
        let resources = [own].into_iter().chain(others);
        let entries = (0..).zip(resources).map(|(binding, resource)| BindGroupEntry { binding, resource });
        let entries: Vec<BindGroupEntry<'_>> = entries.collect();
        let layout = &dispatch.pipeline.layout;
        let bindings =
            gpu.device.create_bind_group(&BindGroupDescriptor { label: None, layout, entries: &entries });
        let grid = [dispatch.groups.min(ROW) as u32, dispatch.groups.div_ceil(ROW) as u32];
        ReadyDispatch { pipeline: dispatch.pipeline, bindings, grid, work: dispatch.work }
    }
}

impl Segment for Recording {
    fn launch(&self) -> Result<(), Error> {
        self.gpu.check()?;
        let mut rest = &self.dispatches[..];
        while !rest.is_empty() {
            let mut work = 0u64;
            let fits = rest.iter().take(DISPATCHES).take_while(|dispatch| {
                let is_first = work == 0;
                work = work.saturating_add(dispatch.work.max(1));
                is_first || work <= WORK
            });
            let (now, later) = rest.split_at(fits.count());
            let mut encoder = self.gpu.device.create_command_encoder(&CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
            for dispatch in now {
                pass.set_pipeline(&dispatch.pipeline.compute);
                pass.set_bind_group(0, &dispatch.bindings, &[]);
                pass.dispatch_workgroups(dispatch.grid[0], dispatch.grid[1], 1);
            }
            drop(pass);
            self.gpu.queue.submit([encoder.finish()]);
            rest = later;
        }
        Ok(self.gpu.check()?)
    }
}
