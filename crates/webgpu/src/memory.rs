//! The device's memory: buffers that the host reaches by copies alone.
//!
//! Copies of the API begin and end at multiples of 4 bytes. What does not is completed with the bytes around it, which are
//! read first.

use std::any::Any;
use std::sync::Arc;

use tensor::{Allocation, Allocator, DeviceSpec, Error, FarMemory};
use wgpu::{Buffer, BufferDescriptor, BufferUsages, CommandEncoderDescriptor, MapMode};

use crate::gpu::{Gpu, lock};

/// The most bytes that go to the host or come from it in one piece: as much of its memory is needed besides.
const PIECE: usize = 32 << 20;

/// Gives the memory of a device.
#[derive(Clone)]
pub(crate) struct WebGpuAllocator(pub(crate) Arc<Gpu>);

impl WebGpuAllocator {
    pub(crate) fn memory(&self, bytes: usize) -> Result<WebGpuMemory, Error> {
        Ok(WebGpuMemory { allocator: self.clone(), buffer: self.0.buffer(bytes)?, len: bytes })
    }
}

impl Allocator for WebGpuAllocator {
    fn spec(&self) -> DeviceSpec {
        self.0.spec
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        Ok(Allocation::Far(Arc::new(self.memory(bytes)?)))
    }
}

/// A buffer of a device.
pub(crate) struct WebGpuMemory {
    allocator: WebGpuAllocator,
    pub(crate) buffer: Buffer,
    len: usize,
}

impl WebGpuMemory {
    /// The buffer of memory that is this device's.
    pub(crate) fn of<'m>(memory: &'m dyn FarMemory, gpu: &Gpu) -> Result<&'m WebGpuMemory, String> {
        let memory: &dyn Any = memory;
        let own = memory.downcast_ref::<WebGpuMemory>();
        own.filter(|own| std::ptr::eq(&*own.allocator.0, gpu))
            .ok_or_else(|| "memory of another device".to_string())
    }

    fn gpu(&self) -> &Gpu {
        &self.allocator.0
    }

    /// Copies words to the host.
    fn read_words(&self, from: usize, into: &mut [u8]) -> Result<(), Error> {
        let gpu = self.gpu();
        gpu.check()?;
        let size = into.len() as u64;
        // Taken out, so that reads of other threads do not wait for this one.
        let kept = lock(&gpu.staging).take();
        let staging = match kept.filter(|staging| staging.size() >= size) {
            Some(staging) => staging,
            None => gpu.device.create_buffer(&BufferDescriptor {
                label: None,
                size: size.next_power_of_two(),
                usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }),
        };
        let mut encoder = gpu.device.create_command_encoder(&CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&self.buffer, from as u64, &staging, 0, size);
        let submission = gpu.queue.submit([encoder.finish()]);
        staging.map_async(MapMode::Read, 0..size, |_| {});
        gpu.wait(Some(submission))?;
        let mapped = staging.get_mapped_range(0..size);
        let mapped = mapped.map_err(|error| Error::Device(format!("{}: {error}", gpu.spec)))?;
        into.copy_from_slice(&mapped);
        drop(mapped);
        staging.unmap();
        *lock(&gpu.staging) = Some(staging);
        Ok(())
    }

    /// Writes bytes from a multiple of 4 on. The last word is completed by what it holds.
    fn write_from(&self, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let gpu = self.gpu();
        let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
        for (i, piece) in words.chunks(PIECE).enumerate() {
            gpu.queue.write_buffer(&self.buffer, (start + i * PIECE) as u64, piece);
            if piece.len() == PIECE {
                let submission = gpu.queue.submit([]);
                gpu.wait(Some(submission))?;
            }
        }
        if !rest.is_empty() {
            let at = start + words.len();
            let mut word = [0; 4];
            self.read_words(at, &mut word)?;
            word[..rest.len()].copy_from_slice(rest);
            gpu.queue.write_buffer(&self.buffer, at as u64, &word);
        }
        gpu.check()
    }

    /// Copies bytes of memory by way of the host.
    fn copy_by_host(&self, from: &WebGpuMemory, [start, to, len]: [usize; 3]) -> Result<(), Error> {
        let mut bytes = vec![0; len];
        from.read(start, &mut bytes)?;
        self.write(&[(to, &bytes)])
    }

    /// Copies words of another buffer, or of this one by way of another.
    fn copy_words(
        &self,
        from: &WebGpuMemory,
        [start, to, len]: [u64; 3],
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<(), Error> {
        if self.buffer != from.buffer {
            encoder.copy_buffer_to_buffer(&from.buffer, start, &self.buffer, to, len);
            return Ok(());
        }
        let between = self.gpu().buffer(len as usize)?;
        encoder.copy_buffer_to_buffer(&self.buffer, start, &between, 0, len);
        encoder.copy_buffer_to_buffer(&between, 0, &self.buffer, to, len);
        Ok(())
    }
}

impl FarMemory for WebGpuMemory {
    fn allocator(&self) -> &dyn Allocator {
        &self.allocator
    }

    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), Error> {
        let mut from = from;
        for piece in into.chunks_mut(PIECE) {
            let (start, end) = (from / 4 * 4, (from + piece.len()).next_multiple_of(4));
            if (start, end) == (from, from + piece.len()) {
                self.read_words(start, piece)?;
            } else {
                let mut words = vec![0; end - start];
                self.read_words(start, &mut words)?;
                piece.copy_from_slice(&words[from - start..][..piece.len()]);
            }
            from += piece.len();
        }
        Ok(())
    }

    fn write(&self, parts: &[(usize, &[u8])]) -> Result<(), Error> {
        for &(start, bytes) in parts.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let before = start % 4;
            if before == 0 {
                self.write_from(start, bytes)?;
            } else {
                let mut whole = vec![0; before];
                self.read(start - before, &mut whole)?;
                whole.extend(bytes);
                self.write_from(start - before, &whole)?;
            }
        }
        Ok(())
    }

    fn copy(&self, from: &dyn FarMemory, parts: &[[usize; 3]]) -> Result<(), Error> {
        let gpu = self.gpu();
        let from = WebGpuMemory::of(from, gpu).map_err(Error::Device)?;
        let new_encoder = || gpu.device.create_command_encoder(&CommandEncoderDescriptor::default());
        let mut encoder = new_encoder();
        for &[start, to, len] in parts {
            let is_whole = start.is_multiple_of(4) && to.is_multiple_of(4);
            let words = if is_whole { len / 4 * 4 } else { 0 };
            if words > 0 {
                self.copy_words(from, [start, to, words].map(|bytes| bytes as u64), &mut encoder)?;
            }
            if words < len {
                gpu.queue.submit([std::mem::replace(&mut encoder, new_encoder()).finish()]);
                self.copy_by_host(from, [start + words, to + words, len - words])?;
            }
        }
        gpu.queue.submit([encoder.finish()]);
        gpu.check()
    }
}
