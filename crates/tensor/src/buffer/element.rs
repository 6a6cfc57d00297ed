//! Single elements of a buffer.

use super::Buffer;
use crate::{Element, Error, Scalar};

impl Buffer {
    /// The value of one element. Negative positions count from the end; without axes, `[0]` names the element as `[]`
    /// does.
    ///
    /// # Errors
    /// If there is not one position for each axis, one is outside its axis, several elements share bytes, or someone
    /// writes.
    pub fn get(&self, index: &[isize]) -> Result<Scalar, Error> {
        let start = self.element_start(index)?;
        let bytes = self.memory.fetch(start, self.element_size())?;
        Ok(Scalar::read(self.dtype, &bytes))
    }

    /// Sets one element, named as in [`Buffer::get`]. Floats are rounded to the nearest value of the dtype; beyond the
    /// largest they become infinity, or NaN where the dtype has none.
    ///
    /// # Errors
    /// As [`Buffer::get`]; if an integer dtype cannot hold the value exactly, or `bool` is given neither 0 nor 1; and if
    /// the buffer is read-only, or anyone else reads it.
    pub fn set(&self, index: &[isize], value: impl Into<Scalar>) -> Result<(), Error> {
        self.check_writable()?;
        let start = self.element_start(index)?;
        let mut element = [0; 8];
        value.into().write(self.dtype, &mut element)?;
        self.memory.store(start, &element[..self.element_size()])
    }

    /// The value of a buffer of exactly one element, of any rank; `bool` is read as `u8`.
    ///
    /// # Errors
    /// If there is another number of elements, `T` is not their type, or someone writes.
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        if self.num_elements() != 1 {
            return Err(Error::NotOneElement { shape: Box::new(*self.shape()), count: self.num_elements() });
        }
        if !self.dtype.reads_as::<T>() {
            return Err(Error::ElementType { dtype: self.dtype, asked: T::DTYPE });
        }
        let bytes = self.memory.fetch(self.start, self.element_size())?;
        Ok(bytemuck::pod_read_unaligned(&bytes))
    }

    /// Where in the memory an element lies.
    fn element_start(&self, index: &[isize]) -> Result<usize, Error> {
        let index = if self.rank() == 0 && index == [0] { &[] } else { index };
        if index.len() != self.rank() {
            let expected = self.rank().to_string();
            return Err(Error::IndexCount { got: index.len(), expected, shape: Box::new(*self.shape()) });
        }
        let block = self.dtype.block().elements;
        if block > 1 {
            return Err(Error::StridedBlocks { dtype: self.dtype, block });
        }
        let mut steps = 0;
        for (position, &at) in index.iter().enumerate() {
            let fail = |message| Error::Index { position, shape: Box::new(*self.shape()), message };
            let taken = super::Index::At(at).of_axis(self.shape()[position]).map_err(fail)?;
            steps += taken.first as isize * self.strides()[position];
        }
        Ok(self.byte_offset(steps))
    }
}
