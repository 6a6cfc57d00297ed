//! Views of a buffer: parts, other types and shapes of the same memory; and copies between buffers.

use std::sync::Arc;

use super::index::Taken;
use super::memory::{Reader, Writer};
use super::{Buffer, Index};
use crate::{Allocator, DType, Error, HostAllocator, MAX_RANK, Shape, layout::Layout};

impl Buffer {
    /// The same memory, which cannot be written through this view and those made of it.
    pub fn read_only(&self) -> Buffer {
        Buffer { read_only: true, ..self.clone() }
    }

    /// A part of the buffer that shares its memory: one index for each axis from the outermost on, the axes left being
    /// taken whole.
    ///
    /// # Errors
    /// If there are more indices than axes, a position is outside its axis, a step is 0, or several elements share the
    /// bytes of an axis that is not taken whole.
    pub fn slice(&self, indices: &[Index]) -> Result<Buffer, Error> {
        if indices.len() > self.rank() {
            let expected = format!("at most {}", self.rank());
            return Err(Error::IndexCount { got: indices.len(), expected, shape: Box::new(*self.shape()) });
        }
        let (mut dims, mut strides, mut axes) = ([0; MAX_RANK], [0isize; MAX_RANK], 0);
        let mut first = 0isize;
        for axis in 0..self.rank() {
            let dim = self.shape()[axis];
            let taken = self.taken(axis, indices.get(axis).copied().unwrap_or(Index::ALL))?;
            // Within the memory, as the position is within the axis.
            first += taken.first as isize * self.strides()[axis];
            if let Some(count) = taken.count {
                dims[axes] = count;
                // A stride that is stepped along leads to another element of the axis, so it does not overflow.
                strides[axes] = if count > 1 && dim > 1 { self.strides()[axis] * taken.step } else { 0 };
                axes += 1;
            }
        }
        let shape = Shape::new(&dims[..axes]);
        let start = if shape.contains(&0) { self.start } else { self.byte_offset(first) };
        Ok(Buffer { layout: Layout::strided(shape, &strides[..axes]), start, ..self.clone() })
    }

    fn taken(&self, axis: usize, index: Index) -> Result<Taken, Error> {
        let dim = self.shape()[axis];
        let fail = |message| Error::Index { position: axis, shape: Box::new(*self.shape()), message };
        let taken = index.of_axis(dim).map_err(fail)?;
        let block = self.dtype.block().elements;
        let is_whole = taken.count == Some(dim) && (taken.step == 1 || dim < 2);
        match block > 1 && axis + 1 == self.rank() && !is_whole {
            true => Err(Error::StridedBlocks { dtype: self.dtype, block }),
            false => Ok(taken),
        }
    }

    /// The same bytes as another type, of the same shape but for the last axis, which gets as many elements as its bytes
    /// hold.
    ///
    /// # Errors
    /// If the bytes of the last axis are no whole number of elements, there is no axis and the size differs, or the
    /// buffer has gaps.
    pub fn view_as(&self, dtype: DType) -> Result<Buffer, Error> {
        let fail = |message: String| Error::View { from: self.description(), to: dtype.to_string(), message };
        let (from, to) = (self.dtype.block(), dtype.block());
        let Some((&last, outer)) = self.shape().split_last() else {
            return match from == to {
                true => self.view(dtype, Shape::SCALAR),
                false => Err(fail(format!("{} bytes are no element of {}", from.bytes, to.bytes))),
            };
        };
        let bytes = last / from.elements * from.bytes;
        if !bytes.is_multiple_of(to.bytes) {
            let message = format!("the last axis is {bytes} bytes, no whole number of {} each", to.bytes);
            return Err(fail(message));
        }
        let mut dims = outer.to_vec();
        dims.push(bytes / to.bytes * to.elements);
        self.view(dtype, &dims[..])
    }

    /// The same bytes as another type and shape.
    ///
    /// # Errors
    /// If these need another number of bytes, or the buffer has gaps.
    pub fn view(&self, dtype: DType, shape: impl Into<Shape>) -> Result<Buffer, Error> {
        self.check_contiguous()?;
        let (shape, bytes) = (shape.into(), self.bytes());
        let needed = dtype.bytes_for_shape(&shape);
        if needed != Some(bytes) {
            let needed = needed.map_or("an impossible number of".to_string(), |needed| needed.to_string());
            let message = format!("there are {bytes} bytes, and {needed} are needed");
            return Err(Error::View { from: self.description(), to: format!("{dtype}{shape}"), message });
        }
        Ok(Buffer { dtype, layout: Layout::row_major(shape), ..self.clone() })
    }

    /// The same elements in row-major order: itself when it is so already, else a copy.
    ///
    /// # Errors
    /// While someone writes, if it has to be copied.
    pub fn contiguous(&self) -> Result<Buffer, Error> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.copy() }
    }

    /// The same elements, row-major, in memory of their own on the same device.
    ///
    /// # Errors
    /// While someone writes, or if there is no memory for the copy.
    pub fn copy(&self) -> Result<Buffer, Error> {
        match self.memory.far() {
            Some(far) => self.copied_to(far.allocator()),
            None => self.copied_to(&HostAllocator),
        }
    }

    /// The elements on a device: itself when it is there already, else a row-major copy.
    ///
    /// # Errors
    /// As [`Buffer::copy`].
    pub fn to(&self, allocator: &dyn Allocator) -> Result<Buffer, Error> {
        match allocator.spec() == self.device() {
            true => Ok(self.clone()),
            false => self.copied_to(allocator),
        }
    }

    fn copied_to(&self, allocator: &dyn Allocator) -> Result<Buffer, Error> {
        if allocator.spec().is_host() {
            return Ok(Buffer::from_bytes(self.dtype, *self.shape(), self.row_major()?.into_aligned()?));
        }
        let copy = Buffer::zeros_on(allocator, self.dtype, *self.shape())?;
        copy.overwrite(self)?;
        Ok(copy)
    }

    /// Copies ranges of the outermost axis onto others, one after the other: from which position, to which one, how many.
    ///
    /// # Errors
    /// If a range is outside, or the buffer has gaps, no axes, is in use, or read-only. Nothing is copied then.
    pub fn copy_within(&self, parts: &[[usize; 3]]) -> Result<(), Error> {
        self.check_contiguous()?;
        self.check_writable()?;
        let rows = self.shape().first().copied().unwrap_or(0);
        let is_inside = |at: usize, count: usize| at.checked_add(count).is_some_and(|end| end <= rows);
        if let Some([from, to, count]) =
            parts.iter().find(|[from, to, count]| !is_inside(*from, *count) || !is_inside(*to, *count))
        {
            let message = format!("{count} positions from {from} to {to} are outside the axis of {rows}");
            return Err(Error::Index { position: 0, shape: Box::new(*self.shape()), message });
        }
        let row = self.bytes() / rows.max(1);
        let parts = parts
            .iter()
            .map(|[from, to, count]| [self.start + from * row, self.start + to * row, count * row]);
        self.move_bytes(&parts.collect::<Vec<_>>())
    }

    /// Copies bytes of the memory over others of it, one part after the other: from where, to where, how many.
    fn move_bytes(&self, parts: &[[usize; 3]]) -> Result<(), Error> {
        let Some(far) = self.memory.far() else {
            let mut memory = self.memory.write(0, self.memory.len())?;
            parts.iter().for_each(|&[from, to, len]| memory.copy_within(from..from + len, to));
            return Ok(());
        };
        let _writer = Writer::new(&self.memory)?;
        if parts.iter().all(|[from, to, len]| from.abs_diff(*to) >= *len) {
            return far.copy(far, parts);
        }
        for &[from, to, len] in parts {
            let mut bytes = vec![0; len];
            far.read(from, &mut bytes)?;
            far.write(&[(to, &bytes)])?;
        }
        Ok(())
    }

    /// Overwrites the elements with those of another buffer, whose shape may differ. Onto itself, it does nothing. Parts
    /// of the same memory may overlap.
    ///
    /// # Errors
    /// If the dtypes or the numbers of elements differ, either has gaps or is in use, or this one is read-only.
    pub fn inplace_copy_from(&self, source: &Buffer) -> Result<(), Error> {
        if self.is_same_view(source) {
            return Ok(());
        }
        let fail =
            |message: String| Error::Copy { from: source.description(), to: self.description(), message };
        if self.dtype != source.dtype {
            return Err(fail("the dtypes differ".to_string()));
        }
        if self.num_elements() != source.num_elements() {
            let counts = format!("{} elements, expected {}", source.num_elements(), self.num_elements());
            return Err(fail(counts));
        }
        source.check_contiguous()?;
        self.check_contiguous()?;
        self.check_writable()?;
        if self.shares_memory_with(source) {
            return self.move_bytes(&[[source.start, self.start, source.bytes()]]);
        }
        self.overwrite(source)
    }

    /// Overwrites a row-major buffer with as many elements of other memory, wherever both are.
    fn overwrite(&self, source: &Buffer) -> Result<(), Error> {
        match (self.memory.far(), source.memory.far()) {
            (Some(to), Some(from)) if source.is_contiguous() && self.device() == source.device() => {
                let (_reader, _writer) = (Reader::new(&source.memory)?, Writer::new(&self.memory)?);
                to.copy(from, &[[source.start, self.start, self.bytes()]])
            }
            _ => self.memory.store(self.start, &source.row_major()?),
        }
    }

    fn is_same_view(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
            && (self.dtype, &self.layout, self.start) == (other.dtype, &other.layout, other.start)
    }

    fn description(&self) -> String {
        format!("{}{}", self.dtype, self.shape())
    }
}
