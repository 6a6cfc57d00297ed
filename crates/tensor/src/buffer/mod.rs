//! Memory that a computation may change while others hold it: a KV cache, an output, an input.

mod element;
mod index;
mod mapped;
mod memory;
mod view;

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::print::{self, Elements};
use crate::{
    AlignedBytes, Allocation, Allocator, Bytes, DType, DeviceSpec, Element, Error, Scalar, Shape, Tensor,
    layout::Layout,
};

pub use index::Index;
pub use mapped::MapMode;
pub use memory::{FarGuard, ReadGuard, WriteGuard};
use memory::{Fetched, Memory};

/// An array in shared, mutable memory. Clones and views share the memory.
///
/// Access is checked at run time, as a `RefCell` does: many readers or one writer of the memory, whichever part of it
/// they look at. The engine holds a guard on each input for the length of a call, so two calls that would write the
/// same cache get an error, not a race.
///
/// Buffers are row-major when made. Views made by [`Buffer::slice`] may have gaps; what needs the bytes in a row, such
/// as [`Buffer::read`] and the engine, refuses these, and [`Buffer::contiguous`] makes a row-major copy.
///
/// The memory may be a device's, which the host does not reach. Then copies work, and so does what copies a part of the
/// buffer, such as [`Buffer::get`] and printing; guards on its bytes are refused.
#[derive(Clone)]
pub struct Buffer {
    dtype: DType,
    layout: Arc<Layout>,
    /// Of the first element in the memory, in bytes.
    start: usize,
    read_only: bool,
    memory: Arc<Memory>,
}

/// Making buffers.
impl Buffer {
    /// A buffer for others to fill. What it holds until then is unspecified; it costs no more than [`Buffer::zeros`].
    ///
    /// # Panics
    /// As [`Buffer::zeros`].
    #[track_caller]
    pub fn uninitialized(dtype: DType, shape: impl Into<Shape>) -> Buffer {
        Buffer::zeros(dtype, shape)
    }

    /// A buffer of zeros.
    ///
    /// # Panics
    /// Where [`Buffer::try_zeros`] fails.
    #[track_caller]
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Buffer {
        Buffer::try_zeros(dtype, shape).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A buffer of zeros, of a size that may be more than there is.
    ///
    /// # Errors
    /// If the system refuses so much memory, the size overflows, or rows do not divide into the dtype's blocks.
    pub fn try_zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Buffer, Error> {
        let shape = shape.into();
        let bytes = AlignedBytes::try_zeroed(dtype.expect_bytes(&shape)?)?;
        Ok(Buffer::from_bytes(dtype, shape, bytes))
    }

    /// A buffer of zeros in the memory of a device.
    ///
    /// # Errors
    /// If the device refuses so much memory, and as [`Buffer::try_zeros`].
    pub fn zeros_on(
        allocator: &dyn Allocator,
        dtype: DType,
        shape: impl Into<Shape>,
    ) -> Result<Buffer, Error> {
        let shape = shape.into();
        let memory = allocator.allocate(dtype.expect_bytes(&shape)?)?;
        Ok(Buffer::from_allocation(dtype, shape, memory))
    }

    /// A buffer over memory that an allocator gave.
    ///
    /// # Panics
    /// As [`Buffer::from_bytes`].
    #[track_caller]
    pub fn from_allocation(dtype: DType, shape: impl Into<Shape>, memory: Allocation) -> Buffer {
        Buffer::over(dtype, shape.into(), Memory::allocated(memory))
    }

    /// A buffer of ones.
    ///
    /// # Panics
    /// Where [`Buffer::full`] fails.
    #[track_caller]
    pub fn ones(dtype: DType, shape: impl Into<Shape>) -> Buffer {
        Buffer::full(dtype, shape, 1).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A buffer of one value throughout, rounded to the dtype if that is a float.
    ///
    /// # Errors
    /// If the elements cannot hold the value, as [`Buffer::set`] says, and as [`Buffer::try_zeros`].
    pub fn full(dtype: DType, shape: impl Into<Shape>, value: impl Into<Scalar>) -> Result<Buffer, Error> {
        let (shape, mut element) = (shape.into(), [0; 8]);
        value.into().write(dtype, &mut element)?;
        let mut bytes = AlignedBytes::try_zeroed(dtype.expect_bytes(&shape)?)?;
        let size = dtype.block().bytes;
        bytes.chunks_exact_mut(size).for_each(|slot| slot.copy_from_slice(&element[..size]));
        Ok(Buffer::from_bytes(dtype, shape, bytes))
    }

    /// A buffer of one value and no axes.
    pub fn scalar<T: Element>(value: T) -> Buffer {
        Buffer::from_slice(Shape::SCALAR, &[value])
    }

    /// A buffer over bytes of our own.
    ///
    /// # Panics
    /// If the number of bytes is not what dtype and shape need, with both numbers.
    #[track_caller]
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: AlignedBytes) -> Buffer {
        Buffer::over(dtype, shape.into(), Memory::aligned(bytes))
    }

    /// A buffer holding a copy of `values`.
    ///
    /// # Panics
    /// If the shape holds another number of elements, with both numbers.
    #[track_caller]
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Buffer {
        let shape = shape.into();
        T::DTYPE.expect_elements(&shape, values.len());
        Buffer::from_bytes(T::DTYPE, shape, AlignedBytes::copy_of(bytemuck::cast_slice(values)))
    }

    /// A `bool` buffer.
    ///
    /// # Panics
    /// If the shape holds another number of elements, with both numbers.
    #[track_caller]
    pub fn from_bools(shape: impl Into<Shape>, values: &[bool]) -> Buffer {
        let shape = shape.into();
        DType::Bool.expect_elements(&shape, values.len());
        let values: Vec<u8> = values.iter().map(|&value| u8::from(value)).collect();
        Buffer::from_bytes(DType::Bool, shape, AlignedBytes::copy_of(&values))
    }

    /// A buffer holding a copy of a tensor, made row-major.
    pub fn from_tensor(tensor: &Tensor) -> Buffer {
        let tensor = tensor.contiguous();
        Buffer::from_bytes(tensor.dtype(), *tensor.shape(), AlignedBytes::copy_of(tensor.bytes()))
    }

    /// A read-only buffer over the memory of a tensor, or of a row-major copy if it has gaps.
    pub fn over_tensor(tensor: &Tensor) -> Buffer {
        let tensor = tensor.contiguous();
        let (data, len) = (NonNull::from(tensor.bytes()).cast(), tensor.bytes().len());
        // SAFETY: the tensor keeps its bytes, which nothing writes, and a read-only buffer does not either.
        let memory = unsafe { Memory::foreign(data, len, Box::new(tensor.clone())) };
        Buffer::over(tensor.dtype(), *tensor.shape(), memory).read_only()
    }

    /// A row-major buffer over memory of another owner, which is dropped with the last view of it; its drop frees the
    /// memory. A null pointer may stand for no bytes.
    ///
    /// # Errors
    /// If the size overflows, rows do not divide into blocks, or `data` is null where there are bytes. The owner is
    /// dropped then.
    ///
    /// # Safety
    /// Until the owner is dropped, `data` is valid for reads and writes of the bytes that dtype and shape need, but for
    /// reads only if the buffer is at once made [`Buffer::read_only`]; and they are written only through this buffer's
    /// guards, and not read elsewhere while one of its [`WriteGuard`]s lives. The owner may be dropped on any thread.
    pub unsafe fn from_foreign(
        dtype: DType,
        shape: impl Into<Shape>,
        data: *mut u8,
        owner: impl Send + 'static,
    ) -> Result<Buffer, Error> {
        let shape = shape.into();
        let impossible = |needed: &str| {
            let (shape, needed) = (Box::new(shape), needed.to_string());
            Error::Bytes { dtype, shape, needed, got: 0 }
        };
        let len = dtype.bytes_for_shape(&shape).filter(|&len| isize::try_from(len).is_ok());
        let len = len.ok_or_else(|| impossible("an impossible number of"))?;
        let data = match NonNull::new(data) {
            Some(data) => data,
            None if len == 0 => NonNull::dangling(),
            None => return Err(impossible(&len.to_string())),
        };
        // SAFETY: the caller's promise is that of `foreign`.
        let memory = unsafe { Memory::foreign(data, len, Box::new(owner)) };
        Ok(Buffer::over(dtype, shape, memory))
    }

    /// The whole memory as a row-major array.
    #[track_caller]
    fn over(dtype: DType, shape: Shape, memory: Memory) -> Buffer {
        let needed = dtype.expect_bytes(&shape).unwrap_or_else(|error| panic!("{error}"));
        assert!(needed == memory.len(), "{dtype}{shape} needs {needed} bytes, got {}", memory.len());
        let (layout, memory) = (Layout::row_major(shape), Arc::new(memory));
        Buffer { dtype, layout, start: 0, read_only: false, memory }
    }
}

/// What a buffer is.
impl Buffer {
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        &self.layout.shape
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// The number of elements; one if there are no axes.
    pub fn num_elements(&self) -> usize {
        self.shape().elements()
    }

    /// Bytes of one element; of one block where several elements share bytes.
    pub fn element_size(&self) -> usize {
        self.dtype.block().bytes
    }

    /// The distance between neighbours along each axis, in elements.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Whether writing is refused, through this view and those made of it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the memory is page-locked.
    pub fn is_pinned(&self) -> bool {
        self.memory.pinned
    }

    /// Where the memory is.
    pub fn device(&self) -> DeviceSpec {
        self.memory.far().map_or(DeviceSpec::cpu(), |far| far.allocator().spec())
    }

    /// Whether the host reads and writes the memory itself.
    pub fn is_host(&self) -> bool {
        self.memory.far().is_none()
    }

    /// Whether both are views of the same memory.
    pub fn shares_memory_with(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// The first element. Valid while this or another view of the memory lives; reading and writing through it heeds no
    /// guard.
    ///
    /// # Errors
    /// If the host does not reach the memory.
    pub(crate) fn data(&self) -> Result<NonNull<u8>, Error> {
        self.memory.part(self.start, 0)
    }
}

/// Access to the contents.
impl Buffer {
    /// Read access to the bytes.
    ///
    /// # Errors
    /// While someone writes, for a view with gaps, and for the memory of a device.
    pub fn read(&self) -> Result<ReadGuard, Error> {
        self.check_contiguous()?;
        self.memory.read(self.start, self.bytes())
    }

    /// Write access to the bytes.
    ///
    /// # Errors
    /// While anyone else reads or writes, for a view with gaps, for read-only memory, and for that of a device.
    pub fn write(&self) -> Result<WriteGuard, Error> {
        self.check_contiguous()?;
        self.check_writable()?;
        self.memory.write(self.start, self.bytes())
    }

    /// Access to the bytes where they are, to read or to write them there, if that is the memory of a device.
    ///
    /// # Errors
    /// If [`Buffer::read`] or, for bytes that are to be written, [`Buffer::write`] is refused.
    pub fn hold_far(&self, written: bool) -> Result<Option<FarGuard>, Error> {
        self.check_contiguous()?;
        if written {
            self.check_writable()?;
        }
        self.memory.hold(self.start, self.bytes(), written)
    }

    /// A copy of the elements in row-major order; `bool` is read as `u8`.
    ///
    /// # Panics
    /// If `T` is not this buffer's element type, someone writes at the same time, or a device fails.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert!(self.dtype.reads_as::<T>(), "a {} buffer has no elements of type {}", self.dtype, T::DTYPE);
        let bytes = self.row_major().unwrap_or_else(|error| panic!("{error}"));
        bytemuck::pod_collect_to_vec(&bytes)
    }

    /// A copy of the contents.
    ///
    /// # Errors
    /// While someone writes, if the system refuses so much memory, or a device fails.
    pub fn to_tensor(&self) -> Result<Tensor, Error> {
        let bytes = Bytes::new(self.row_major()?.into_aligned()?);
        Ok(Tensor::from_bytes(self.dtype, *self.shape(), bytes).expect("a buffer's bytes fit its shape"))
    }

    /// The contents without a copy. While the tensor or a view of it lives, the buffer's memory cannot be written.
    ///
    /// # Errors
    /// While someone writes, for a view with gaps, and for the memory of a device.
    pub fn as_tensor(&self) -> Result<Tensor, Error> {
        let bytes = Bytes::new(self.read()?);
        Ok(Tensor::from_bytes(self.dtype, *self.shape(), bytes).expect("a buffer's bytes fit its shape"))
    }

    /// The elements in row-major order, on the host.
    fn row_major(&self) -> Result<Fetched, Error> {
        let span = self.span();
        let memory = self.memory.fetch(span.start, span.len())?;
        if self.is_contiguous() {
            return Ok(memory);
        }
        let (run, positions) = self.layout.runs();
        let bytes_of = |elements: usize| self.dtype.bytes_for(elements).expect("runs of whole blocks");
        let mut packed = AlignedBytes::try_zeroed(bytes_of(self.num_elements()))?;
        for (slot, position) in packed.chunks_exact_mut(bytes_of(run)).zip(positions) {
            // Positions before the first element are negative, and wrap around.
            let offset = self.byte_offset(position as isize) - span.start;
            slot.copy_from_slice(&memory[offset..][..slot.len()]);
        }
        Ok(Fetched::Copied(packed))
    }

    /// The bytes of the memory from the lowest element to the highest.
    fn span(&self) -> Range<usize> {
        if self.is_contiguous() {
            return self.start..self.start + self.bytes();
        }
        let reaches =
            self.shape().iter().zip(self.strides()).map(|(&dim, stride)| (dim as isize - 1) * stride);
        let (low, high) =
            reaches.fold((0, 0), |(low, high), reach| (low + reach.min(0), high + reach.max(0)));
        self.byte_offset(low)..self.byte_offset(high) + self.element_size()
    }

    /// Where in the memory an element lies, given its distance from the first.
    fn byte_offset(&self, elements: isize) -> usize {
        let block = self.dtype.block();
        self.start.wrapping_add_signed(elements / block.elements as isize * block.bytes as isize)
    }

    /// The bytes of all elements.
    fn bytes(&self) -> usize {
        let block = self.dtype.block();
        self.shape().elements() / block.elements * block.bytes
    }

    fn check_contiguous(&self) -> Result<(), Error> {
        match self.is_contiguous() {
            true => Ok(()),
            false => Err(Error::NotContiguous { strides: self.strides().to_vec() }),
        }
    }

    fn check_writable(&self) -> Result<(), Error> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

/// What it is, not what it holds.
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}{}", self.dtype, self.shape())?;
        if !self.is_contiguous() {
            write!(f, ", strides {:?}", self.strides())?;
        }
        if self.read_only {
            f.write_str(", read-only")?;
        }
        if self.is_pinned() {
            f.write_str(", pinned")?;
        }
        write!(f, ", {})", self.device())
    }
}

/// The values in columns as NumPy shows them, summarized beyond 1000; dtype, shape and device.
impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values("Buffer(".len()).unwrap_or_else(|error| format!("<{error}>"));
        write!(f, "Buffer({values}, dtype={}, shape={}, device={})", self.dtype, self.shape(), self.device())
    }
}

impl Buffer {
    fn values(&self, indent: usize) -> Result<String, Error> {
        if self.dtype.block().elements > 1 {
            return Ok(print::format_values(&Elements::of(&self.to_tensor()?), indent));
        }
        let span = self.span();
        let memory = self.memory.fetch(span.start, span.len())?;
        let read = |index: &[usize]| {
            let steps =
                index.iter().zip(self.strides()).map(|(&position, stride)| position as isize * stride);
            Scalar::read(self.dtype, &memory[self.byte_offset(steps.sum()) - span.start..])
        };
        let elements = Elements { dtype: self.dtype, dims: self.shape().to_vec(), read: Box::new(read) };
        Ok(print::format_values(&elements, indent))
    }
}

#[cfg(test)]
mod tests;
