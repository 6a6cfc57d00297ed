//! How many elements lie along each axis.

use std::fmt;
use std::ops::Deref;

/// The most axes a tensor can have.
pub const MAX_RANK: usize = 16;

/// The sizes of a tensor's axes, outermost first. Row-major unless a tensor has strides of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// A shape of the given sizes.
    ///
    /// # Panics
    /// With more than [`MAX_RANK`] axes; readers of untrusted input use [`Shape::try_new`].
    #[track_caller]
    pub fn new(dims: &[usize]) -> Shape {
        Shape::try_new(dims)
            .unwrap_or_else(|| panic!("rank {} is above the maximum of {MAX_RANK}", dims.len()))
    }

    /// A shape of the given sizes, or `None` with more than [`MAX_RANK`] axes.
    pub fn try_new(dims: &[usize]) -> Option<Shape> {
        let mut shape = Shape { dims: [0; MAX_RANK], rank: u8::try_from(dims.len()).ok()? };
        shape.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(shape)
    }

    /// The shape of a single value.
    pub const SCALAR: Shape = Shape { dims: [0; MAX_RANK], rank: 0 };

    /// The number of axes.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }

    /// The number of elements, or `None` when it overflows `isize`, empty axes counted as one.
    ///
    /// So counted, the order of the axes does not matter and no stride overflows.
    pub fn checked_elements(&self) -> Option<usize> {
        let product = self.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim.max(1)))?;
        let fits = isize::try_from(product).is_ok();
        fits.then_some(if self.contains(&0) { 0 } else { product })
    }

    /// The number of elements.
    ///
    /// # Panics
    /// When the product overflows; readers of untrusted input use [`Shape::checked_elements`].
    #[track_caller]
    pub fn elements(&self) -> usize {
        self.checked_elements().unwrap_or_else(|| panic!("the number of elements of {self} overflows"))
    }

    /// The strides, in elements, of a row-major tensor of this shape; meaningless if the number of elements overflows.
    pub fn row_major_strides(&self) -> [isize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1isize;
        for axis in (0..self.rank()).rev() {
            strides[axis] = stride;
            stride = stride.wrapping_mul(self.dims[axis].max(1) as isize);
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.dims()
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape::new(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape::new(&dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_in_any_order_of_axes() {
        assert_eq!(Shape::SCALAR.elements(), 1);
        assert_eq!(Shape::new(&[2, 3, 4]).elements(), 24);
        assert_eq!(Shape::new(&[2, 0, 4]).elements(), 0);
        for dims in [[0, usize::MAX, 2], [usize::MAX, 2, 0], [1 << 32, 1 << 31, 1]] {
            assert_eq!(Shape::new(&dims).checked_elements(), None, "{dims:?}");
        }
        assert_eq!(Shape::try_new(&[1; MAX_RANK + 1]), None);
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(Shape::new(&[2, 3, 4]).row_major_strides()[..3], [12, 4, 1]);
        assert_eq!(Shape::new(&[2, 0, 4]).row_major_strides()[..3], [4, 4, 1]);
    }
}
