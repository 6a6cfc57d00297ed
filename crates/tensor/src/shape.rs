//! How many elements lie along each axis.

use std::fmt;
use std::ops::Deref;

/// The most axes a tensor can have.
pub const MAX_RANK: usize = 8;

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

    /// The number of elements, or `None` when it overflows.
    pub fn checked_elements(&self) -> Option<usize> {
        self.dims().iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))
    }

    /// The number of elements.
    ///
    /// # Panics
    /// When the product overflows; readers of untrusted input use [`Shape::checked_elements`].
    pub fn elements(&self) -> usize {
        self.checked_elements().unwrap_or_else(|| panic!("the number of elements of {self} overflows"))
    }

    /// The strides, in elements, of a row-major tensor of this shape.
    pub fn row_major_strides(&self) -> [isize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1isize;
        for axis in (0..self.rank()).rev() {
            strides[axis] = stride;
            stride = stride.saturating_mul(self.dims[axis].max(1) as isize);
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
