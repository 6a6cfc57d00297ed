//! What is known of a value before it runs.

use std::fmt;

use tensor::{DType, Shape};

use crate::{Bindings, Dim, Error, Substitution};

/// Where a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum DeviceRef {
    /// The host.
    #[default]
    Cpu,
    /// The accelerator with this index.
    Gpu(u32),
}

/// Whether a value is fixed once made, or memory that nodes may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Kind {
    /// A value, fixed once made.
    #[default]
    Tensor,
    /// Memory; loads and stores happen in program order.
    Buffer,
}

/// The type of a value: `f32[tokens, 64]`, `mut f32[pages, 2, 16]`, `q4_k[256, 512] @gpu:0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Type {
    /// A fixed value, or mutable memory.
    pub kind: Kind,
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes, outermost first.
    pub shape: Vec<Dim>,
    /// Where the value lives.
    pub device: DeviceRef,
}

impl Type {
    /// A tensor on the host.
    pub fn new<D: Into<Dim>>(dtype: DType, shape: impl IntoIterator<Item = D>) -> Type {
        let shape = shape.into_iter().map(Into::into).collect();
        Type { kind: Kind::Tensor, dtype, shape, device: DeviceRef::Cpu }
    }

    /// Mutable memory on the host.
    pub fn buffer<D: Into<Dim>>(dtype: DType, shape: impl IntoIterator<Item = D>) -> Type {
        Type { kind: Kind::Buffer, ..Type::new(dtype, shape) }
    }

    /// The same type, on the host.
    #[must_use]
    pub fn here(&self) -> Type {
        Type { device: DeviceRef::Cpu, ..self.clone() }
    }

    /// A tensor of the same dtype and device with another shape.
    pub fn with_shape<D: Into<Dim>>(&self, shape: impl IntoIterator<Item = D>) -> Type {
        Type { kind: Kind::Tensor, shape: shape.into_iter().map(Into::into).collect(), ..self.clone() }
    }

    /// A tensor of the same shape and device with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> Type {
        Type { kind: Kind::Tensor, dtype, ..self.clone() }
    }

    /// The type with other dims in place of symbols, unless an expression gets too large or divides by 0.
    pub(crate) fn substitute(&self, symbols: &Substitution) -> Option<Type> {
        let shape = self.shape.iter().map(|dim| dim.substitute(symbols)).collect::<Option<Vec<Dim>>>()?;
        Some(Type { shape, ..self.clone() })
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements, as an expression.
    pub fn elements(&self) -> Dim {
        self.shape.iter().fold(Dim::from(1), |product, dim| &product * dim)
    }

    /// The most axes of a value in a graph. Programs that run have no more than [`tensor::MAX_RANK`].
    pub const MAX_RANK: usize = 64;

    /// Whether there are few enough axes, and short enough expressions, to reason about.
    pub(crate) fn is_tractable(&self) -> bool {
        let terms: usize = self.shape.iter().map(Dim::terms).fold(1, usize::saturating_mul);
        let expressions =
            self.shape.iter().filter(|dim| dim.as_integer().is_none() && dim.as_symbol().is_none());
        let complexity: usize = expressions.map(Dim::complexity).sum();
        self.rank() <= Type::MAX_RANK && complexity <= Dim::MAX_COMPLEXITY && terms <= 1024
    }

    /// The shape in numbers, if every dim has one already.
    pub fn static_shape(&self) -> Option<Shape> {
        let dims: Option<Vec<usize>> = self.shape.iter().map(Dim::as_static).collect();
        Shape::try_new(&dims?)
    }

    /// How many elements fill whole bytes together, if the last axis is known to be no multiple of that.
    pub fn partial_block(&self) -> Option<usize> {
        let elements = self.dtype.block().elements;
        let last = self.shape.last().map_or(Some(1), Dim::as_static)?;
        (self.dtype.is_sub_byte() && !last.is_multiple_of(elements)).then_some(elements)
    }

    /// Gives lone symbols that have no number yet the sizes of their axes.
    pub fn bind_symbols(&self, shape: &Shape, bindings: &mut Bindings) {
        for (dim, &size) in self.shape.iter().zip(shape.iter()) {
            if let Some(symbol) = dim.as_symbol()
                && bindings.get(symbol).is_none()
            {
                bindings.insert(symbol, size);
            }
        }
    }

    /// The shape in numbers once the symbols have theirs.
    ///
    /// # Errors
    /// If a symbol has no number, or an expression gives an impossible size.
    pub fn resolve(&self, bindings: &Bindings) -> Result<Shape, Error> {
        let mut dims = [0; tensor::MAX_RANK];
        let dims = dims
            .get_mut(..self.rank())
            .ok_or_else(|| Error::Dim(format!("{self} has more than {} axes", tensor::MAX_RANK)))?;
        for (size, dim) in dims.iter_mut().zip(&self.shape) {
            *size = dim.resolve(bindings)?;
        }
        Ok(Shape::new(dims))
    }
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceRef::Cpu => f.write_str("cpu"),
            DeviceRef::Gpu(index) => write!(f, "gpu:{index}"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Kind::Buffer {
            f.write_str("mut ")?;
        }
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.device != DeviceRef::Cpu {
            write!(f, " @{}", self.device)?;
        }
        Ok(())
    }
}
