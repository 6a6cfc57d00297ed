//! An immutable array in host memory: a weight, a constant, what references compute with.

use std::fmt;

use crate::{AlignedBytes, Bytes, DType, Element, MAX_RANK, Shape, bf16, blocks, f16, float8};

/// Why bytes, a shape and strides make no tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The bytes given are not the bytes needed.
    #[error("{dtype}{shape} needs {needed} bytes, got {got}")]
    Bytes {
        /// Of the elements.
        dtype: DType,
        /// The sizes of the axes.
        shape: Shape,
        /// A number, or words where no number of bytes would do.
        needed: String,
        /// The number of bytes given.
        got: usize,
    },
    /// A view reaches outside its storage.
    #[error(
        "a view of {shape} with strides {strides:?} at offset {offset} leaves its storage of {len} elements"
    )]
    OutOfBounds {
        /// Of the view.
        shape: Shape,
        /// Of the view, in elements.
        strides: Vec<isize>,
        /// Of the view's first element, in elements.
        offset: usize,
        /// How many elements are stored.
        len: usize,
    },
    /// Quantized blocks cannot be viewed with strides.
    #[error("{dtype} is stored in blocks of {block}, which cannot be strided")]
    StridedBlocks {
        /// A block format.
        dtype: DType,
        /// Elements in one block.
        block: usize,
    },
}

/// An immutable strided array. Clones and views share the bytes.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    /// In elements; row-major for block dtypes.
    strides: [isize; MAX_RANK],
    /// Of the first element, in elements.
    offset: usize,
    bytes: Bytes,
}

impl Tensor {
    /// A row-major tensor over shared bytes.
    ///
    /// # Errors
    /// If there are not exactly as many bytes as dtype and shape need.
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: Bytes) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        // A row of blocks must end with a block: the last axis counts, not the product.
        let whole_rows = !dtype.is_block() || shape.last().is_some_and(|&n| dtype.bytes_for(n).is_some());
        let needed = shape.checked_elements().and_then(|n| dtype.bytes_for(n)).filter(|_| whole_rows);
        if needed != Some(bytes.len()) {
            let needed = needed.map_or("an impossible number of".to_string(), |n| n.to_string());
            return Err(TensorError::Bytes { dtype, shape, needed, got: bytes.len() });
        }
        Ok(Tensor { dtype, shape, strides: shape.row_major_strides(), offset: 0, bytes })
    }

    /// A row-major tensor holding a copy of `values`.
    ///
    /// # Panics
    /// If the shape holds another number of elements.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Tensor {
        let bytes = Bytes::new(AlignedBytes::copy_of(bytemuck::cast_slice(values)));
        Tensor::from_bytes(T::DTYPE, shape, bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A `bool` tensor.
    ///
    /// # Panics
    /// If the shape holds another number of elements.
    pub fn from_bools(shape: impl Into<Shape>, values: &[bool]) -> Tensor {
        let bytes: Vec<u8> = values.iter().map(|&value| u8::from(value)).collect();
        let bytes = Bytes::new(AlignedBytes::copy_of(&bytes));
        Tensor::from_bytes(DType::Bool, shape, bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A tensor of one value and no axes.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(Shape::SCALAR, &[value])
    }

    /// A tensor of zeros.
    ///
    /// # Panics
    /// If the size overflows or is no whole number of blocks.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let bytes = dtype.bytes_for(shape.elements()).expect("a whole number of blocks");
        Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::zeroed(bytes)))
            .expect("bytes fit by construction")
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The distance between neighbours along each axis, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank()]
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let expected = self.shape.row_major_strides();
        self.elements() == 0
            || (0..self.shape.rank())
                .all(|axis| self.shape[axis] == 1 || self.strides[axis] == expected[axis])
    }

    /// The same elements in row-major order: itself when it is so already, else a copy.
    pub fn contiguous(&self) -> Tensor {
        if self.is_contiguous() {
            return Tensor { strides: self.shape.row_major_strides(), ..self.clone() };
        }
        let size = self.dtype.block().bytes;
        let mut packed = AlignedBytes::zeroed(self.elements() * size);
        for (slot, position) in packed.chunks_exact_mut(size).zip(self.positions()) {
            slot.copy_from_slice(&self.bytes[position * size..][..size]);
        }
        Tensor::from_bytes(self.dtype, self.shape, Bytes::new(packed)).expect("a copy fits its shape")
    }

    /// The bytes of a contiguous tensor.
    ///
    /// # Panics
    /// If it is not contiguous: call [`Tensor::contiguous`] first.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.is_contiguous(), "bytes of a tensor with strides {:?}", self.strides());
        let block = self.dtype.block();
        let start = self.offset / block.elements * block.bytes;
        &self.bytes[start..start + self.elements() / block.elements * block.bytes]
    }

    /// The elements of a contiguous tensor, or `None` if `T` is another type or the bytes are not aligned for it.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let same = T::DTYPE == self.dtype || (self.dtype == DType::Bool && T::DTYPE == DType::U8);
        if !same || !self.is_contiguous() {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes()).ok()
    }

    /// A copy of the elements in row-major order.
    ///
    /// # Panics
    /// If `T` is another type.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        let same = T::DTYPE == self.dtype || (self.dtype == DType::Bool && T::DTYPE == DType::U8);
        assert!(same, "a {} tensor has no elements of type {}", self.dtype, T::DTYPE);
        bytemuck::pod_collect_to_vec(self.contiguous().bytes())
    }

    /// A copy of the elements as f32 in row-major order: blocks are dequantized, wider numbers rounded.
    pub fn to_f32_vec(&self) -> Vec<f32> {
        match self.dtype {
            DType::F32 => self.to_vec(),
            DType::F16 => self.to_vec::<f16>().into_iter().map(f32::from).collect(),
            DType::BF16 => self.to_vec::<bf16>().into_iter().map(f32::from).collect(),
            dtype if dtype.is_block() => {
                let mut values = vec![0.0; self.elements()];
                blocks::dequantize(dtype, self.contiguous().bytes(), &mut values);
                values
            }
            dtype if dtype.is_float8() => {
                let values = float8::values(dtype);
                self.contiguous().bytes().iter().map(|&byte| values[usize::from(byte)]).collect()
            }
            _ => self.to_f64_vec().into_iter().map(|value| value as f32).collect(),
        }
    }

    /// A copy of the elements as f64 in row-major order; `bool` gives 0 and 1.
    pub fn to_f64_vec(&self) -> Vec<f64> {
        macro_rules! read {
            ($($dtype:ident: $rust:ty => $convert:expr),* $(,)?) => {
                match self.dtype {
                    $(DType::$dtype => self.to_vec::<$rust>().into_iter().map($convert).collect(),)*
                    _ => self.to_f32_vec().into_iter().map(f64::from).collect(),
                }
            };
        }
        read!(
            Bool: u8 => f64::from, U8: u8 => f64::from, I8: i8 => f64::from, U16: u16 => f64::from,
            I16: i16 => f64::from, U32: u32 => f64::from, I32: i32 => f64::from, U64: u64 => |v| v as f64,
            I64: i64 => |v| v as f64, F64: f64 => |v| v,
        )
    }

    /// The same bytes seen with other strides and a first element, in elements.
    ///
    /// # Errors
    /// If any element would lie outside the storage, or the dtype is stored in blocks.
    pub fn strided(&self, shape: Shape, strides: &[isize], offset: usize) -> Result<Tensor, TensorError> {
        let block = self.dtype.block();
        if self.dtype.is_block() {
            return Err(TensorError::StridedBlocks { dtype: self.dtype, block: block.elements });
        }
        let len = self.bytes.len() / block.bytes;
        let out_of_bounds = || TensorError::OutOfBounds { shape, strides: strides.to_vec(), offset, len };
        if strides.len() != shape.rank() || shape.checked_elements().is_none() {
            return Err(out_of_bounds());
        }
        if shape.elements() > 0 {
            let (mut low, mut high) = (offset as i128, offset as i128);
            for (&dim, &stride) in shape.iter().zip(strides) {
                let reach = (dim as i128 - 1) * stride as i128;
                if reach < 0 { low += reach } else { high += reach }
            }
            if low < 0 || high >= len as i128 {
                return Err(out_of_bounds());
            }
        }
        let mut all = [0; MAX_RANK];
        all[..strides.len()].copy_from_slice(strides);
        Ok(Tensor { shape, strides: all, offset, ..self.clone() })
    }

    /// The same elements, in row-major order, under another shape; copies only if not contiguous.
    ///
    /// # Panics
    /// If the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        assert_eq!(shape.elements(), self.elements(), "reshape of {} to {shape}", self.shape);
        let tensor = self.contiguous();
        Tensor { shape, strides: shape.row_major_strides(), ..tensor }
    }

    /// A view with its axes in another order: axis `i` of the result is axis `order[i]` of this.
    ///
    /// # Panics
    /// If `order` is no permutation of the axes, or the dtype is stored in blocks.
    pub fn permute(&self, order: &[usize]) -> Tensor {
        let mut seen = [false; MAX_RANK];
        assert!(
            order.len() == self.shape.rank()
                && order.iter().all(|&a| a < order.len() && !std::mem::replace(&mut seen[a], true)),
            "{order:?} is no permutation of the axes of {}",
            self.shape
        );
        let dims: Vec<usize> = order.iter().map(|&axis| self.shape[axis]).collect();
        let strides: Vec<isize> = order.iter().map(|&axis| self.strides[axis]).collect();
        self.strided(Shape::new(&dims), &strides, self.offset).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The storage position, in elements, of each element in row-major order.
    fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        let mut index = [0usize; MAX_RANK];
        let mut position = self.offset as isize;
        (0..self.elements()).map(move |_| {
            let current = position as usize;
            for axis in (0..self.shape.rank()).rev() {
                index[axis] += 1;
                position += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                position -= self.strides[axis] * self.shape[axis] as isize;
                index[axis] = 0;
            }
            current
        })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{})", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_read_what_they_should() {
        let tensor = Tensor::from_slice([2, 3], &[1i32, 2, 3, 4, 5, 6]);
        assert_eq!(tensor.permute(&[1, 0]).to_vec::<i32>(), [1, 4, 2, 5, 3, 6]);
        let reversed = tensor.strided(Shape::new(&[6]), &[-1], 5).unwrap();
        assert_eq!(reversed.to_vec::<i32>(), [6, 5, 4, 3, 2, 1]);
        assert!(!reversed.is_contiguous());
        assert!(tensor.strided(Shape::new(&[3]), &[3], 0).is_err());
        assert!(tensor.strided(Shape::new(&[2]), &[-1], 0).is_err());
        assert!(tensor.strided(Shape::new(&[0]), &[9], 100).is_ok());
    }

    #[test]
    fn bytes_must_fit() {
        let error = Tensor::from_bytes(DType::F32, [2, 2], Bytes::new(vec![0u8; 15])).unwrap_err();
        assert_eq!(error.to_string(), "f32[2, 2] needs 16 bytes, got 15");
        assert!(Tensor::from_bytes(DType::Q4_0, [2, 16], Bytes::new(vec![0u8; 18])).is_err());
        assert!(Tensor::from_bytes(DType::F32, [usize::MAX, 8], Bytes::new(vec![0u8; 8])).is_err());
    }
}
