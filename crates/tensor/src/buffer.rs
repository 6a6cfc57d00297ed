//! Memory that a computation may change while others hold it: a KV cache, an output, an input.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use crate::{AlignedBytes, DType, Element, Shape, Tensor};

/// A row-major array in shared, mutable host memory. Clones share the memory.
///
/// Access is checked at run time, as a `RefCell` does: many readers or one writer. The engine holds a guard on
/// each input for the length of a call, so two calls that would write the same cache get an error, not a race.
#[derive(Clone)]
pub struct Buffer {
    dtype: DType,
    shape: Shape,
    memory: Arc<Memory>,
}

struct Memory {
    bytes: UnsafeCell<AlignedBytes>,
    /// The number of readers, or -1 for a writer.
    state: AtomicIsize,
}

// SAFETY: `bytes` is reached only through guards, and `state` admits one writer or any number of readers.
unsafe impl Sync for Memory {}

/// A buffer is in use in a way that excludes the access asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer is being {0} by another call")]
pub struct BufferBusy(&'static str);

impl Buffer {
    /// A buffer of zeros.
    ///
    /// # Panics
    /// If the size overflows, or the dtype's blocks do not divide the elements.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Buffer {
        let shape = shape.into();
        let bytes = dtype.bytes_for_shape(&shape).unwrap_or_else(|| {
            panic!("{dtype}{shape} overflows or is no whole number of blocks of {}", dtype.block().elements)
        });
        Buffer::from_bytes(dtype, shape, AlignedBytes::zeroed(bytes))
    }

    /// A buffer over bytes of our own.
    ///
    /// # Panics
    /// If the number of bytes is not what dtype and shape need.
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: AlignedBytes) -> Buffer {
        let shape = shape.into();
        assert_eq!(dtype.bytes_for_shape(&shape), Some(bytes.len()), "bytes for {dtype}{shape}");
        let memory = Memory { bytes: UnsafeCell::new(bytes), state: AtomicIsize::new(0) };
        Buffer { dtype, shape, memory: Arc::new(memory) }
    }

    /// A buffer holding a copy of `values`.
    ///
    /// # Panics
    /// If the shape holds another number of elements.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Buffer {
        Buffer::from_bytes(T::DTYPE, shape, AlignedBytes::copy_of(bytemuck::cast_slice(values)))
    }

    /// A buffer holding a copy of a tensor, made row-major.
    pub fn from_tensor(tensor: &Tensor) -> Buffer {
        let tensor = tensor.contiguous();
        Buffer::from_bytes(tensor.dtype(), *tensor.shape(), AlignedBytes::copy_of(tensor.bytes()))
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether both are views of the same memory.
    pub fn shares_memory_with(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Read access to the bytes.
    ///
    /// # Errors
    /// While someone writes.
    pub fn read(&self) -> Result<ReadGuard, BufferBusy> {
        let state = &self.memory.state;
        let mut current = state.load(Ordering::Relaxed);
        loop {
            if current < 0 {
                return Err(BufferBusy("written"));
            }
            match state.compare_exchange_weak(current, current + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(ReadGuard { memory: Arc::clone(&self.memory) }),
                Err(now) => current = now,
            }
        }
    }

    /// Write access to the bytes.
    ///
    /// # Errors
    /// While anyone else reads or writes.
    pub fn write(&self) -> Result<WriteGuard, BufferBusy> {
        match self.memory.state.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(WriteGuard { memory: Arc::clone(&self.memory) }),
            Err(state) => Err(BufferBusy(if state < 0 { "written" } else { "read" })),
        }
    }

    /// A copy of the elements; `bool` is read as `u8`.
    ///
    /// # Panics
    /// If `T` is not this buffer's element type, or someone writes at the same time.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert!(self.dtype.reads_as::<T>(), "a {} buffer has no elements of type {}", self.dtype, T::DTYPE);
        let guard = self.read().expect("nobody writes a buffer that is being read back");
        bytemuck::pod_collect_to_vec(&guard)
    }

    /// A copy of the contents.
    ///
    /// # Errors
    /// While someone writes.
    pub fn to_tensor(&self) -> Result<Tensor, BufferBusy> {
        let guard = self.read()?;
        let bytes = crate::Bytes::new(AlignedBytes::copy_of(&guard));
        Ok(Tensor::from_bytes(self.dtype, self.shape, bytes).expect("a buffer's bytes fit its shape"))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}{})", self.dtype, self.shape)
    }
}

/// Read access to a buffer's bytes; others may read, nobody writes.
pub struct ReadGuard {
    memory: Arc<Memory>,
}

impl ReadGuard {
    /// The bytes as elements.
    ///
    /// # Panics
    /// If they are no whole number of elements of type `T`.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        bytemuck::cast_slice(self)
    }
}

impl Deref for ReadGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this guard counts as a reader, so no writer exists.
        unsafe { &*self.memory.bytes.get() }
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.memory.state.fetch_sub(1, Ordering::Release);
    }
}

/// Write access to a buffer's bytes; nobody else has any.
pub struct WriteGuard {
    memory: Arc<Memory>,
}

impl Deref for WriteGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this guard is the only access.
        unsafe { &*self.memory.bytes.get() }
    }
}

impl DerefMut for WriteGuard {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this guard is the only access.
        unsafe { &mut *self.memory.bytes.get() }
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.memory.state.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers() {
        let buffer = Buffer::from_slice([2], &[1.0f32, 2.0]);
        let (first, second) = (buffer.read().unwrap(), buffer.clone().read().unwrap());
        assert_eq!(buffer.write().err().unwrap().to_string(), "the buffer is being read by another call");
        drop((first, second));
        let mut writer = buffer.write().unwrap();
        writer[..4].copy_from_slice(&3.0f32.to_le_bytes());
        assert!(buffer.read().is_err() && buffer.write().is_err());
        drop(writer);
        assert_eq!(buffer.to_vec::<f32>(), [3.0, 2.0]);
    }

    #[test]
    fn tensors_are_copied_in_and_out() {
        let transposed = Tensor::from_slice([2, 2], &[1i32, 2, 3, 4]).permute(&[1, 0]);
        let buffer = Buffer::from_tensor(&transposed);
        assert!(buffer.shares_memory_with(&buffer.clone()));
        assert_eq!(buffer.to_tensor().unwrap().to_vec::<i32>(), [1, 3, 2, 4]);
        let writer = buffer.write().unwrap();
        assert_eq!(
            buffer.to_tensor().unwrap_err().to_string(),
            "the buffer is being written by another call"
        );
        drop(writer);
    }

    /// Threads that count up under a writer's guard lose no count, so guards exclude each other.
    #[test]
    fn guards_exclude_each_other_across_threads() {
        let buffer = Buffer::from_slice([1], &[0u64]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut guard = loop {
                            match buffer.write() {
                                Ok(guard) => break guard,
                                Err(_) => std::thread::yield_now(),
                            }
                        };
                        let count = u64::from_le_bytes(guard[..].try_into().unwrap());
                        guard.copy_from_slice(&(count + 1).to_le_bytes());
                    }
                });
            }
        });
        assert_eq!(buffer.to_vec::<u64>(), [4000]);
    }

    #[test]
    #[should_panic(expected = "bytes for q4_0[2, 16]")]
    fn rows_end_with_a_block() {
        let _ = Buffer::from_bytes(DType::Q4_0, [2, 16], AlignedBytes::zeroed(18));
    }
}
