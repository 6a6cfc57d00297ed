//! An immutable array in host memory: a weight, a constant, what references compute with.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{
    AlignedBytes, Bytes, DType, Element, Error, MAX_RANK, MappedFile, Shape, bf16, blocks, f16, float8,
    layout::Layout,
};

/// An immutable strided array. Clones and views share the bytes.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    /// Row-major for block dtypes.
    layout: Arc<Layout>,
    /// Of the first element, in elements.
    offset: usize,
    bytes: Bytes,
}

impl Tensor {
    /// A row-major tensor over shared bytes.
    ///
    /// # Errors
    /// If there are not exactly as many bytes as dtype and shape need.
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: Bytes) -> Result<Tensor, Error> {
        let shape = shape.into();
        let needed = dtype.bytes_for_shape(&shape);
        if needed != Some(bytes.len()) {
            let needed = needed.map_or("an impossible number of".to_string(), |n| n.to_string());
            return Err(Error::Bytes { dtype, shape: Box::new(shape), needed, got: bytes.len() });
        }
        Ok(Tensor { dtype, layout: Layout::row_major(shape), offset: 0, bytes })
    }

    /// A row-major tensor holding a copy of `values`.
    ///
    /// # Panics
    /// If the shape holds another number of elements, with both numbers.
    #[track_caller]
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Tensor {
        Tensor::copied(T::DTYPE, shape.into(), values.len(), bytemuck::cast_slice(values))
    }

    /// A `bool` tensor.
    ///
    /// # Panics
    /// If the shape holds another number of elements, with both numbers.
    #[track_caller]
    pub fn from_bools(shape: impl Into<Shape>, values: &[bool]) -> Tensor {
        let bytes: Vec<u8> = values.iter().map(|&value| u8::from(value)).collect();
        Tensor::copied(DType::Bool, shape.into(), values.len(), &bytes)
    }

    #[track_caller]
    fn copied(dtype: DType, shape: Shape, count: usize, bytes: &[u8]) -> Tensor {
        dtype.expect_elements(&shape, count);
        let bytes = Bytes::new(AlignedBytes::copy_of(bytes));
        Tensor::from_bytes(dtype, shape, bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A tensor of one value and no axes.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(Shape::SCALAR, &[value])
    }

    /// A tensor of zeros.
    ///
    /// # Panics
    /// If the size overflows, or rows do not divide into blocks.
    #[track_caller]
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let bytes = dtype.expect_bytes(&shape).unwrap_or_else(|error| panic!("{error}"));
        Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::zeroed(bytes)))
            .expect("bytes fit by construction")
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        &self.layout.shape
    }

    /// The distance between neighbours along each axis, in elements.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape().elements()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The same elements in row-major order: itself if it is contiguous, else a copy.
    ///
    /// # Panics
    /// If the system refuses memory for the copy.
    #[track_caller]
    pub fn contiguous(&self) -> Tensor {
        self.try_contiguous().unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Tensor::contiguous`], for sizes that may be more than there is memory for.
    ///
    /// # Errors
    /// If the system refuses memory for the copy, or it has more bytes than a `usize` counts.
    pub fn try_contiguous(&self) -> Result<Tensor, Error> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let mut packed = AlignedBytes::try_zeroed(self.dtype.expect_bytes(self.shape())?)?;
        let size = self.dtype.block().bytes;
        for (slot, position) in packed.chunks_exact_mut(size).zip(self.positions()) {
            slot.copy_from_slice(&self.bytes[position * size..][..size]);
        }
        Tensor::from_bytes(self.dtype, *self.shape(), Bytes::new(packed))
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

    /// The file that the elements are mapped from, if they are.
    pub fn file(&self) -> Option<&Arc<MappedFile>> {
        self.bytes.file()
    }

    /// Gives the physical pages of a range of a contiguous tensor's bytes back to the system if they are mapped from a file
    /// ([`MappedFile::release`]).
    ///
    /// # Panics
    /// If the tensor has no such bytes.
    pub fn release_pages(&self, range: Range<usize>) {
        if let Some(file) = self.file() {
            let (part, whole) = (&self.bytes()[range], (**file).as_ref());
            let start = part.as_ptr().addr() - whole.as_ptr().addr();
            file.release(start..start + part.len());
        }
    }

    /// The elements of a contiguous tensor, or `None` if `T` is another type or the bytes are not aligned for it.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        if !self.dtype.reads_as::<T>() || !self.is_contiguous() {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes()).ok()
    }

    /// A copy of the elements in row-major order.
    ///
    /// # Panics
    /// If `T` is another type, or the system refuses so much memory.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert!(self.dtype.reads_as::<T>(), "a {} tensor has no elements of type {}", self.dtype, T::DTYPE);
        let contiguous = self.contiguous();
        let mut values = reserved(self.elements());
        values.resize(self.elements(), bytemuck::Zeroable::zeroed());
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(contiguous.bytes());
        values
    }

    /// A copy of the elements as f32 in row-major order: blocks are dequantized, wider numbers rounded.
    ///
    /// # Panics
    /// If the system refuses so much memory.
    #[track_caller]
    pub fn to_f32_vec(&self) -> Vec<f32> {
        match self.dtype {
            DType::F32 => self.to_vec(),
            DType::F16 => self.collected(|value: f16| value.to_f32()),
            DType::BF16 => self.collected(|value: bf16| value.to_f32()),
            dtype if dtype.is_block() => {
                let mut values = reserved(self.elements());
                values.resize(self.elements(), 0.0);
                blocks::dequantize(dtype, self.contiguous().bytes(), &mut values);
                values
            }
            dtype if dtype.is_float8() => {
                let (decoded, contiguous) = (float8::values(dtype), self.contiguous());
                let mut values = reserved(self.elements());
                values.extend(contiguous.bytes().iter().map(|&byte| decoded[usize::from(byte)]));
                values
            }
            _ => converted(self.to_f64_vec(), |value| value as f32),
        }
    }

    /// A copy of the elements as f64 in row-major order; `bool` gives 0 and 1.
    ///
    /// # Panics
    /// If the system refuses so much memory.
    #[track_caller]
    pub fn to_f64_vec(&self) -> Vec<f64> {
        macro_rules! read {
            ($($dtype:ident: $rust:ty => $convert:expr),* $(,)?) => {
                match self.dtype {
                    $(DType::$dtype => self.collected::<$rust, f64>($convert),)*
                    _ => converted(self.to_f32_vec(), f64::from),
                }
            };
        }
        read!(
            Bool: u8 => f64::from, U8: u8 => f64::from, I8: i8 => f64::from, U16: u16 => f64::from,
            I16: i16 => f64::from, U32: u32 => f64::from, I32: i32 => f64::from, U64: u64 => |v| v as f64,
            I64: i64 => |v| v as f64, F64: f64 => |v| v,
        )
    }

    #[track_caller]
    fn collected<T: Element, U>(&self, convert: impl Fn(T) -> U) -> Vec<U> {
        converted(self.to_vec::<T>(), convert)
    }

    /// The same bytes seen with other strides and a first element, in elements.
    ///
    /// Strides that are never stepped along, those of axes of one and of empty tensors, become row-major ones.
    ///
    /// # Errors
    /// If any element would lie outside the storage, or the dtype is stored in blocks.
    pub fn strided(&self, shape: Shape, strides: &[isize], offset: usize) -> Result<Tensor, Error> {
        let block = self.dtype.block();
        if self.dtype.is_block() {
            return Err(Error::StridedBlocks { dtype: self.dtype, block: block.elements });
        }
        let len = self.bytes.len() / block.bytes;
        let out_of_bounds =
            || Error::OutOfBounds { shape: Box::new(shape), strides: strides.to_vec(), offset, len };
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
        // An offset that nothing was checked against must not be computed with.
        let offset = if shape.elements() == 0 { 0 } else { offset };
        Ok(Tensor { layout: Layout::strided(shape, strides), offset, ..self.clone() })
    }

    /// The same elements, in row-major order, under another shape; copies only if not contiguous.
    ///
    /// # Panics
    /// If the number of elements differs, or rows are no longer whole blocks.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        assert_eq!(shape.elements(), self.elements(), "reshape of {} to {shape}", self.shape());
        assert!(self.dtype.bytes_for_shape(&shape).is_some(), "{}{shape} splits blocks", self.dtype);
        Tensor { layout: Layout::row_major(shape), ..self.contiguous() }
    }

    /// A view with its axes in another order: axis `i` of the result is axis `order[i]` of this.
    ///
    /// # Panics
    /// If `order` is no permutation of the axes, or the dtype is stored in blocks.
    pub fn permute(&self, order: &[usize]) -> Tensor {
        let mut seen = [false; MAX_RANK];
        assert!(
            order.len() == self.shape().rank()
                && order.iter().all(|&a| a < order.len() && !std::mem::replace(&mut seen[a], true)),
            "{order:?} is no permutation of the axes of {}",
            self.shape()
        );
        let dims: Vec<usize> = order.iter().map(|&axis| self.shape()[axis]).collect();
        let strides: Vec<isize> = order.iter().map(|&axis| self.strides()[axis]).collect();
        self.strided(Shape::new(&dims), &strides, self.offset).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The part of an axis within `range`: a view, or a copy where blocks that lie apart must be gathered.
    ///
    /// # Panics
    /// If there is no such axis, the range is outside it, or the range splits blocks.
    pub fn narrow(&self, axis: usize, range: Range<usize>) -> Tensor {
        let inside =
            axis < self.shape().rank() && range.start <= range.end && range.end <= self.shape()[axis];
        assert!(inside, "{range:?} is no part of axis {axis} of {}", self.shape());
        let mut dims = self.shape().to_vec();
        dims[axis] = range.len();
        let shape = Shape::new(&dims);
        if self.dtype.is_block() {
            return self.narrow_blocks(axis, range, shape);
        }
        // An empty range at the end of an axis starts outside the storage; `strided` sets the offset of empty views.
        let offset = self.offset as isize + range.start as isize * self.strides()[axis];
        self.strided(shape, self.strides(), offset.max(0) as usize).unwrap_or_else(|error| panic!("{error}"))
    }

    /// One place of an axis, without that axis: a view, or a copy where blocks that lie apart must be gathered.
    ///
    /// # Panics
    /// As [`Tensor::narrow`].
    pub fn select(&self, axis: usize, index: usize) -> Tensor {
        let part = self.narrow(axis, index..index + 1);
        let (mut dims, mut strides) = (part.shape().to_vec(), part.strides().to_vec());
        dims.remove(axis);
        strides.remove(axis);
        if part.dtype.is_block() {
            return part.reshape(Shape::new(&dims));
        }
        part.strided(Shape::new(&dims), &strides, part.offset).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every `step`th place of an axis, from `start` on: a view, or a copy of blocks.
    ///
    /// # Panics
    /// If there is no such axis, `step` does not divide it, or `start` is not less than `step`.
    pub fn every(&self, axis: usize, start: usize, step: usize) -> Tensor {
        let size = self.shape()[axis];
        assert!(start < step && size.is_multiple_of(step), "each {step}th of the {size} places of an axis");
        let mut dims = self.shape().to_vec();
        dims[axis] = size / step;
        if self.dtype.is_block() {
            let apart = [&dims[..=axis], &[step], &dims[axis + 1..]].concat();
            return self.reshape(Shape::new(&apart)).select(axis + 1, start);
        }
        let mut strides = self.strides().to_vec();
        let offset = self.offset as isize + start as isize * strides[axis];
        strides[axis] *= step as isize;
        let view = self.strided(Shape::new(&dims), &strides, offset.max(0) as usize);
        view.unwrap_or_else(|error| panic!("{error}"))
    }

    fn narrow_blocks(&self, axis: usize, range: Range<usize>, shape: Shape) -> Tensor {
        let inner: usize = self.shape()[axis + 1..].iter().product();
        let position = |index: usize| {
            self.dtype
                .bytes_for(index * inner)
                .unwrap_or_else(|| panic!("{index} is inside a {} block", self.dtype))
        };
        let part = position(range.start)..position(range.end);
        let whole = position(self.shape()[axis]);
        let bytes = if self.shape()[..axis].iter().all(|&dim| dim == 1) {
            let start = self.offset / self.dtype.block().elements * self.dtype.block().bytes;
            self.bytes.slice(start + part.start..start + part.end).expect("a part of the tensor's bytes")
        } else if whole == 0 {
            Bytes::new([])
        } else {
            let parts = self.bytes().chunks_exact(whole).map(|bytes| &bytes[part.clone()]);
            Bytes::new(parts.collect::<Vec<_>>().concat())
        };
        Tensor::from_bytes(self.dtype, shape, bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A view that repeats axes of size 1, and adds axes in front, to reach a shape.
    ///
    /// # Panics
    /// If another axis would change, or the dtype is stored in blocks.
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let added = shape.rank().checked_sub(self.shape().rank());
        let fits = |added: usize| {
            self.shape().iter().zip(&shape[added..]).all(|(&from, &to)| from == to || from == 1)
        };
        let Some(added) = added.filter(|&added| fits(added)) else {
            panic!("{} does not broadcast to {shape}", self.shape())
        };
        let mut strides = [0; MAX_RANK];
        for axis in (0..self.shape().rank()).filter(|&axis| self.shape()[axis] > 1) {
            strides[added + axis] = self.strides()[axis];
        }
        self.strided(shape, &strides[..shape.rank()], self.offset).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The first element, valid while the storage lives.
    pub(crate) fn data(&self) -> *const u8 {
        let block = self.dtype.block();
        self.bytes[self.offset / block.elements * block.bytes..].as_ptr()
    }

    /// The bytes of one element, and of those stored behind it.
    ///
    /// # Panics
    /// If the index lies outside the shape, or elements share bytes.
    pub(crate) fn element_bytes(&self, index: &[usize]) -> &[u8] {
        assert_eq!(self.dtype.block().elements, 1, "elements of {} share bytes", self.dtype);
        let inside =
            index.len() == self.shape().rank() && index.iter().zip(&self.shape()[..]).all(|(i, dim)| i < dim);
        assert!(inside, "{index:?} lies outside {}", self.shape());
        let steps = index.iter().zip(self.strides()).map(|(&i, stride)| i as isize * stride);
        let position = self.offset as isize + steps.sum::<isize>();
        &self.bytes[position as usize * self.dtype.block().bytes..]
    }

    /// The storage position, in elements, of each element in row-major order.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.layout.positions(self.offset as isize)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{})", self.dtype, self.shape())
    }
}

/// Room for elements. Unlike [`Vec::with_capacity`], it panics where memory is refused, and does not end the process.
#[track_caller]
fn reserved<T>(elements: usize) -> Vec<T> {
    let mut values = Vec::new();
    if values.try_reserve_exact(elements).is_err() {
        panic!("{}", Error::OutOfMemory { bytes: elements.saturating_mul(size_of::<T>()) });
    }
    values
}

#[track_caller]
fn converted<T, U>(values: Vec<T>, convert: impl Fn(T) -> U) -> Vec<U> {
    let mut results = reserved(values.len());
    results.extend(values.into_iter().map(convert));
    results
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn copies_that_memory_refuses_are_panics_and_errors() {
        let refused = |copy: &dyn Fn() -> usize| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy)).unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(
                message.starts_with("the system refused ") && message.ends_with(" bytes of memory"),
                "{message}"
            );
        };
        for view in
            [Tensor::scalar(1.0f32).broadcast_to([1 << 44]), Tensor::scalar(1u8).broadcast_to([3, 1 << 45])]
        {
            assert!(matches!(view.try_contiguous(), Err(Error::OutOfMemory { .. })));
            refused(&|| view.contiguous().elements());
            refused(&|| view.to_f32_vec().len());
            refused(&|| view.to_f64_vec().len());
        }
        refused(&|| Tensor::zeros(DType::F32, [1 << 44]).elements());
        let uncounted = Tensor::scalar(1.0f32).broadcast_to([1 << 62]);
        assert!(matches!(uncounted.try_contiguous(), Err(Error::Impossible { .. })));
    }

    #[test]
    fn unused_strides_and_offsets_do_no_harm() {
        let tensor = Tensor::from_slice([3], &[1u8, 2, 3]);
        let one = tensor.strided(Shape::new(&[1, 2]), &[isize::MAX, -1], 2).unwrap();
        assert_eq!(one.to_vec::<u8>(), [3, 2]);
        let empty = tensor.strided(Shape::new(&[0, 2]), &[9, isize::MIN], 100).unwrap();
        assert_eq!((empty.bytes(), empty.is_contiguous()), (&[][..], true));
        assert_eq!(tensor.narrow(0, 3..3).to_vec::<u8>(), []);
        assert_eq!(tensor.permute(&[0]).broadcast_to([0, 3]).to_vec::<u8>(), []);
    }

    #[test]
    fn rows_of_blocks_are_narrowed_whole() {
        let bytes = blocks::random_blocks(DType::Q4_0, 12, 0);
        let tensor = Tensor::from_bytes(DType::Q4_0, [2, 3, 64], Bytes::new(bytes)).unwrap();
        let plain = Tensor::from_slice([2, 3, 64], &tensor.to_f32_vec());
        for (axis, range) in [(0, 1..2), (1, 1..3), (2, 32..64), (0, 0..0)] {
            let (narrow, expected) = (tensor.narrow(axis, range.clone()), plain.narrow(axis, range.clone()));
            assert_eq!(narrow.shape(), expected.shape());
            assert_eq!(narrow.to_f32_vec(), expected.to_f32_vec(), "axis {axis}, {range:?}");
            let again = narrow.narrow(1, 0..1);
            assert_eq!(again.to_f32_vec(), expected.narrow(1, 0..1).to_f32_vec());
        }
    }

    #[test]
    #[should_panic(expected = "16 is inside a q4_0 block")]
    fn narrowing_splits_no_block() {
        Tensor::zeros(DType::Q4_0, [2, 64]).narrow(1, 16..48);
    }

    #[test]
    #[should_panic(expected = "q4_0[8, 16] splits blocks")]
    fn reshaping_splits_no_block() {
        Tensor::zeros(DType::Q4_0, [2, 64]).reshape([8, 16]);
    }

    #[test]
    #[should_panic(expected = "[2, 3] does not broadcast to [3, 3]")]
    fn only_axes_of_one_are_repeated() {
        Tensor::zeros(DType::F32, [2, 3]).broadcast_to([3, 3]);
    }

    #[test]
    fn every_plain_dtype_reads_as_numbers() {
        for &dtype in DType::ALL.iter().filter(|dtype| !dtype.is_block()) {
            let bytes = Bytes::new(vec![0u8; 3 * dtype.block().bytes]);
            let tensor = Tensor::from_bytes(dtype, [3], bytes).unwrap();
            let zero = if dtype == DType::F8E8M0 { f64::powi(2.0, -127) } else { 0.0 };
            assert_eq!(tensor.to_f64_vec(), [zero; 3], "{dtype}");
            assert_eq!(tensor.to_f32_vec(), [zero as f32; 3], "{dtype}");
        }
        assert_eq!(Tensor::scalar(bf16::from_f32(-1.5)).to_f32_vec(), [-1.5]);
        assert_eq!(Tensor::scalar(i64::MIN).to_f64_vec(), [i64::MIN as f64]);
        let float8 = Tensor::from_bytes(DType::F8E4M3, [2], Bytes::new([0x38, 0xc4])).unwrap();
        assert_eq!((float8.to_f32_vec(), float8.to_f64_vec()), (vec![1.0, -3.0], vec![1.0, -3.0]));
    }

    /// The elements of a view by its definition: `offset + Σ index · stride`.
    fn naive(tensor: &Tensor, storage: &[u32]) -> Vec<u32> {
        let mut positions = vec![tensor.offset as isize];
        for (&dim, &stride) in tensor.shape().iter().zip(tensor.strides()) {
            positions =
                positions.iter().flat_map(|p| (0..dim).map(move |i| p + i as isize * stride)).collect();
        }
        positions.into_iter().map(|position| storage[position as usize]).collect()
    }

    proptest! {
        #[test]
        fn strided_views_read_by_definition_or_are_refused(
            axes in prop::collection::vec((0usize..4, -7isize..8), 0..4),
            offset in 0usize..30,
        ) {
            let storage: Vec<u32> = (0..24).collect();
            let (dims, strides): (Vec<_>, Vec<_>) = axes.iter().copied().unzip();
            let reach = |pick: fn(isize, isize) -> isize| -> isize {
                axes.iter().map(|&(dim, stride)| pick((dim as isize - 1) * stride, 0)).sum::<isize>() + offset as isize
            };
            let inside = dims.contains(&0) || (reach(isize::min) >= 0 && reach(isize::max) < 24);
            let view = Tensor::from_slice([24], &storage).strided(Shape::new(&dims), &strides, offset);
            prop_assert_eq!(view.is_ok(), inside);
            if let Ok(view) = view {
                prop_assert_eq!(view.to_vec::<u32>(), naive(&view, &storage));
                prop_assert!(view.contiguous().is_contiguous());
                prop_assert_eq!(view.contiguous().to_vec::<u32>(), view.to_vec::<u32>());
            }
        }

        #[test]
        fn chains_of_views_read_as_chains_of_copies(
            dims in prop::collection::vec(1usize..5, 3),
            order in Just(vec![0usize, 1, 2]).prop_shuffle(),
            axis in 0usize..3,
            (start, len) in (0usize..5, 0usize..5),
        ) {
            let storage: Vec<u32> = (0..dims.iter().product::<usize>() as u32).collect();
            let permuted = Tensor::from_slice(&dims[..], &storage).permute(&order);
            let size = permuted.shape()[axis];
            let range = start.min(size)..(start + len).min(size);
            let view = permuted.narrow(axis, range.clone());
            let copy = permuted.contiguous().narrow(axis, range).contiguous();
            prop_assert_eq!(view.to_vec::<u32>(), copy.to_vec::<u32>());
            prop_assert_eq!(view.to_vec::<u32>(), naive(&view, &storage));

            let flat = view.reshape([view.elements()]);
            prop_assert_eq!(flat.to_vec::<u32>(), view.to_vec::<u32>());
            let [a, b, c] = view.shape()[..] else { unreachable!("three axes") };
            let repeated = view.reshape([a, 1, b, c]).broadcast_to([2, a, 3, b, c]).contiguous();
            let row = |i: usize| &copy.bytes()[i * b * c * 4..][..b * c * 4];
            let expected: Vec<u8> = (0..2 * a * 3).flat_map(|i| row(i / 3 % a).iter().copied()).collect();
            prop_assert_eq!(repeated.bytes(), &expected[..]);
        }
    }
}
