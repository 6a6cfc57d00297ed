//! Where in the files a weight is, and what it is read as.

pub(crate) mod bitsandbytes;
pub(crate) mod fp8;
pub(crate) mod gptq;
pub(crate) mod integers;
pub(crate) mod mxfp4;
pub(crate) mod nvfp4;
pub(crate) mod repacked;

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;
use tensor::blocks::quantize_row;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};
use weights::Weights;

use self::repacked::Repacked;
use crate::{Error, Quantizer, WeightTypes};

/// Elements that are cast at a time.
const CAST: usize = 1 << 16;

/// Where in the files a weight is, by the names of tensors.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    /// In a tensor of its own.
    Whole(String),
    /// In ranges of an axis of a tensor that holds other weights too.
    Part { name: String, axis: usize, ranges: Vec<Range<usize>> },
    /// With its last two axes the other way round.
    Transposed(Box<Stored>),
    /// At every `step`th place of an axis, from `start` on, between other weights.
    Every { inner: Box<Stored>, axis: usize, start: usize, step: usize },
    /// At a place of the first axis.
    Place { inner: Box<Stored>, index: usize },
    /// With more axes than the weight, which is a vector.
    Flat(Box<Stored>),
    /// As the logarithms of what the weight is below 0: `-e^x`, in f32.
    NegativeExp(Box<Stored>),
    /// In several tensors, or with its bits in another order.
    Repacked(Repacked),
    /// Apart, of the same type, one for each place of a first axis.
    Stack(Vec<Stored>),
    /// Apart, of types that are the same but for the first axis, whose places follow each other.
    Joined(Vec<Stored>),
    /// In some rows of each head of a matrix [heads · rows, columns]: as [heads, rows, columns], or with the last two axes
    /// the other way round. Blocks then do not part, and become f16.
    Heads { whole: Box<Stored>, heads: usize, rows: Range<usize>, transposed: bool },
    /// Nowhere: it was made when the checkpoint was opened.
    Made(Tensor),
}

impl Stored {
    /// The tensors it is in, by their names in the files.
    pub(crate) fn tensors(&self) -> Vec<&str> {
        match self {
            Stored::Whole(name) | Stored::Part { name, .. } => vec![name],
            Stored::Transposed(inner)
            | Stored::Flat(inner)
            | Stored::NegativeExp(inner)
            | Stored::Every { inner, .. }
            | Stored::Place { inner, .. }
            | Stored::Heads { whole: inner, .. } => inner.tensors(),
            Stored::Repacked(weight) => weight.tensors().collect(),
            Stored::Stack(parts) | Stored::Joined(parts) => parts.iter().flat_map(Stored::tensors).collect(),
            Stored::Made(_) => Vec::new(),
        }
    }

    /// The weights among what it is made of that are repacked.
    pub(crate) fn repacked(&self) -> Vec<&Repacked> {
        match self {
            Stored::Repacked(weight) => vec![weight],
            Stored::Stack(parts) | Stored::Joined(parts) => parts.iter().flat_map(Stored::repacked).collect(),
            // Its other rows are named too, and it counts once.
            Stored::Heads { whole, transposed: false, .. } => whole.repacked(),
            _ => Vec::new(),
        }
    }

    /// The weight that holds the order of its columns, if they have one of their own.
    pub(crate) fn order(&self) -> Option<&str> {
        match self {
            Stored::Repacked(weight) => weight.order(),
            Stored::Stack(parts) => parts.iter().find_map(Stored::order),
            Stored::Heads { whole, .. } => whole.order(),
            _ => None,
        }
    }
}

/// The tensors of files, as they are stored or quantized as they are read.
#[derive(Clone, Copy)]
pub(crate) struct TensorReader<'a> {
    pub(crate) weights: &'a Weights,
    /// What makes the tensors whose values `weights` lacks.
    pub(crate) quantizer: Option<&'a Quantizer>,
}

impl TensorReader<'_> {
    /// A tensor, or those places of its first axis that are asked for.
    fn get(&self, name: &str, range: Option<&Range<usize>>) -> Result<Option<Tensor>, Error> {
        match self.quantizer {
            Some(quantizer) if !self.weights.has_value(name) => quantizer.tensor(name, range),
            _ => Ok(self.weights.get(name).map(|tensor| match range {
                Some(range) => tensor.narrow(0, range.clone()),
                None => tensor.clone(),
            })),
        }
    }
}

impl<'a> From<&'a Weights> for TensorReader<'a> {
    fn from(weights: &'a Weights) -> TensorReader<'a> {
        TensorReader { weights, quantizer: None }
    }
}

/// Weights by canonical name.
pub(crate) struct Names<'a> {
    pub(crate) reader: TensorReader<'a>,
    pub(crate) names: &'a HashMap<String, Stored>,
    /// What matrices of plain numbers are cast to, if that is not what they are stored as.
    pub(crate) dtype: Option<DType>,
}

impl Names<'_> {
    /// A view, or a copy of what lies apart or is stored otherwise.
    ///
    /// # Errors
    /// If there is not enough memory for a copy, or a value cannot be quantized.
    pub(crate) fn tensor(&self, canonical: &str) -> Result<Option<Tensor>, Error> {
        let Some(stored) = self.names.get(canonical) else { return Ok(None) };
        let Some(tensor) = read(self.reader, stored)? else { return Ok(None) };
        let dtype = self.dtype_for(tensor.dtype(), tensor.shape());
        Ok(Some(if dtype == tensor.dtype() { tensor } else { cast(&tensor, dtype)? }))
    }

    /// The dtype and shape of what [`Names::tensor`] gives.
    pub(crate) fn describe(&self, canonical: &str) -> Option<(DType, Shape)> {
        let (dtype, shape) = describe(self.reader.weights, self.names.get(canonical)?)?;
        Some((self.dtype_for(dtype, &shape), shape))
    }

    /// The bytes of all weights less those that the files have for them, after casts.
    pub(crate) fn bytes_of_casts(&self) -> i64 {
        let of_cast = |stored: &Stored| {
            let (dtype, shape) = describe(self.reader.weights, stored)?;
            let size = |dtype: DType| Some(dtype.bytes_for(shape.elements())? as i64);
            let stored = match stored {
                Stored::Heads { whole, .. } => describe(self.reader.weights, whole)?.0,
                _ => dtype,
            };
            Some(size(self.dtype_for(dtype, &shape))? - size(stored)?)
        };
        self.names.values().filter_map(of_cast).sum()
    }

    fn dtype_for(&self, stored: DType, shape: &Shape) -> DType {
        self.dtype.filter(|_| is_plain(stored) && shape.rank() >= 2).unwrap_or(stored)
    }
}

impl WeightTypes for Names<'_> {
    fn dtype(&self, name: &str) -> Option<DType> {
        self.describe(name).map(|(dtype, _)| dtype)
    }

    fn order(&self, name: &str) -> Option<&str> {
        self.names.get(name)?.order()
    }

    fn rows(&self, name: &str) -> Option<usize> {
        self.describe(name)?.1.first().copied()
    }
}

/// Whether a dtype is one that matrices can be cast from and to.
pub(crate) fn is_plain(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// What is stored: a view if it can be one, else a copy.
pub(crate) fn read(reader: TensorReader<'_>, stored: &Stored) -> Result<Option<Tensor>, Error> {
    let concatenate = |parts: &mut dyn Iterator<Item = Result<Tensor, Error>>| {
        concatenate(describe(reader.weights, stored), parts)
    };
    match stored {
        Stored::Whole(name) => reader.get(name, None),
        Stored::Part { name, axis: 0, ranges } => match &ranges[..] {
            [range] => reader.get(name, Some(range)),
            ranges => {
                let mut parts = ranges.iter().filter_map(|range| reader.get(name, Some(range)).transpose());
                concatenate(&mut parts)
            }
        },
        Stored::Part { name, axis, ranges } => {
            let Some(tensor) = reader.get(name, None)? else { return Ok(None) };
            let places = 0..tensor.shape()[0];
            let mut parts = places.flat_map(|i| {
                let row = tensor.narrow(0, i..i + 1);
                ranges.iter().map(move |range| Ok(row.narrow(*axis, range.clone())))
            });
            concatenate(&mut parts)
        }
        Stored::Transposed(_) | Stored::Every { .. } | Stored::Place { .. } => {
            Ok(view(reader, stored)?.map(|tensor| tensor.try_contiguous()).transpose()?)
        }
        Stored::Flat(inner) => match read(reader, inner)? {
            Some(tensor) => Ok(Some(tensor.try_contiguous()?.reshape([tensor.elements()]))),
            None => Ok(None),
        },
        Stored::NegativeExp(inner) => Ok(read(reader, inner)?.map(|tensor| {
            let values: Vec<f32> = tensor.to_f32_vec().into_iter().map(|x| -x.exp()).collect();
            Tensor::from_slice(*tensor.shape(), &values)
        })),
        Stored::Repacked(weight) => Ok(weight.read(reader.weights)?),
        Stored::Stack(parts) | Stored::Joined(parts) => {
            concatenate(&mut parts.iter().filter_map(|part| read(reader, part).transpose()))
        }
        Stored::Heads { whole, heads, rows, transposed } => {
            let Some(whole) = read(reader, whole)? else { return Ok(None) };
            let whole = whole.try_contiguous()?;
            let each = whole.shape()[0] / heads;
            let mut parts = (0..*heads).map(|head| {
                let part = whole.narrow(0, head * each + rows.start..head * each + rows.end);
                Ok(if *transposed { plain(&part).permute(&[1, 0]) } else { part })
            });
            concatenate(&mut parts)
        }
        Stored::Made(tensor) => Ok(Some(tensor.clone())),
    }
}

/// As [`read`], but a view of what is stored in another order.
pub(crate) fn view(reader: TensorReader<'_>, stored: &Stored) -> Result<Option<Tensor>, Error> {
    match stored {
        Stored::Transposed(inner) => Ok(view(reader, inner)?.map(|tensor| transposed(&tensor))),
        Stored::Every { inner, axis, start, step } => {
            Ok(view(reader, inner)?.map(|tensor| tensor.every(*axis, *start, *step)))
        }
        Stored::Place { inner, index } => Ok(view(reader, inner)?.map(|tensor| tensor.select(0, *index))),
        Stored::Part { name, axis, ranges } => match &ranges[..] {
            [range] => Ok(reader.get(name, None)?.map(|tensor| tensor.narrow(*axis, range.clone()))),
            _ => read(reader, stored),
        },
        _ => read(reader, stored),
    }
}

/// A tensor with its last two axes the other way round.
pub(crate) fn transposed(tensor: &Tensor) -> Tensor {
    let mut axes: Vec<usize> = (0..tensor.shape().rank()).collect();
    let last = axes.len() - 1;
    axes.swap(last - 1, last);
    tensor.permute(&axes)
}

/// A tensor of plain numbers, or what blocks stand for in f32, which holds it exactly.
fn plain(tensor: &Tensor) -> Tensor {
    if tensor.dtype().is_block() {
        return Tensor::from_slice(*tensor.shape(), &tensor.to_f32_vec());
    }
    tensor.clone()
}

/// The dtype and shape of what [`read`] gives.
pub(crate) fn describe(weights: &Weights, stored: &Stored) -> Option<(DType, Shape)> {
    let of = |name: &str| weights.get(name).map(|tensor| (tensor.dtype(), *tensor.shape()));
    match stored {
        Stored::Whole(name) => of(name),
        Stored::Part { name, axis, ranges } => {
            let (dtype, shape) = of(name)?;
            let mut shape = shape.to_vec();
            shape[*axis] = ranges.iter().map(Range::len).sum();
            Some((dtype, Shape::new(&shape)))
        }
        Stored::Transposed(inner) => {
            let (dtype, shape) = describe(weights, inner)?;
            let [outer @ .., rows, columns] = &shape[..] else { return None };
            Some((dtype, Shape::new(&[outer, &[*columns, *rows]].concat())))
        }
        Stored::Place { inner, .. } => {
            let (dtype, shape) = describe(weights, inner)?;
            Some((dtype, Shape::new(shape.get(1..)?)))
        }
        Stored::Every { inner, axis, step, .. } => {
            let (dtype, shape) = describe(weights, inner)?;
            let mut shape = shape.to_vec();
            shape[*axis] /= step;
            Some((dtype, Shape::new(&shape)))
        }
        Stored::Flat(inner) => {
            let (dtype, shape) = describe(weights, inner)?;
            Some((dtype, Shape::new(&[shape.elements()])))
        }
        Stored::NegativeExp(inner) => Some((DType::F32, describe(weights, inner)?.1)),
        Stored::Repacked(weight) => Some(weight.describe()),
        Stored::Stack(parts) => {
            let (dtype, shape) = describe(weights, parts.first()?)?;
            Some((dtype, Shape::new(&[&[parts.len()], &shape[..]].concat())))
        }
        Stored::Joined(parts) => {
            let (dtype, shape) = describe(weights, parts.first()?)?;
            let rows = parts.iter().map(|part| describe(weights, part)?.1.first().copied());
            let rows: usize = rows.sum::<Option<usize>>()?;
            Some((dtype, Shape::new(&[&[rows], shape.get(1..)?].concat())))
        }
        Stored::Heads { whole, heads, rows, transposed } => {
            let (dtype, shape) = describe(weights, whole)?;
            let [_, columns] = shape[..] else { return None };
            Some(match (transposed, dtype.is_block()) {
                (false, _) => (dtype, Shape::new(&[*heads, rows.len(), columns])),
                (true, false) => (dtype, Shape::new(&[*heads, columns, rows.len()])),
                (true, true) => (DType::F32, Shape::new(&[*heads, columns, rows.len()])),
            })
        }
        Stored::Made(tensor) => Some((tensor.dtype(), *tensor.shape())),
    }
}

/// A tensor of plain numbers as another such dtype, rounded to the nearest.
fn cast(tensor: &Tensor, dtype: DType) -> Result<Tensor, tensor::Error> {
    let tensor = tensor.try_contiguous()?;
    let (from, to) = (tensor.dtype().block().bytes, dtype.block().bytes);
    let mut bytes = AlignedBytes::try_zeroed(tensor.elements() * to)?;
    let chunks = bytes.par_chunks_mut(CAST * to).zip(tensor.bytes().par_chunks(CAST * from));
    chunks.for_each(|(to, from)| {
        let part = from.len() / tensor.dtype().block().bytes;
        let part = Tensor::from_bytes(tensor.dtype(), [part], Bytes::new(from.to_vec()));
        let values = part.expect("whole elements").to_f32_vec();
        quantize_row(dtype, &values, None, to);
    });
    Tensor::from_bytes(dtype, *tensor.shape(), Bytes::new(bytes))
}

/// The tensor of a type, of parts that follow each other in memory.
fn concatenate(
    ty: Option<(DType, Shape)>,
    parts: &mut dyn Iterator<Item = Result<Tensor, Error>>,
) -> Result<Option<Tensor>, Error> {
    let Some((dtype, shape)) = ty else { return Ok(None) };
    let total = dtype.bytes_for(shape.elements()).expect("parts of whole blocks");
    let mut bytes = AlignedBytes::try_zeroed(total)?;
    let mut rest = &mut bytes[..];
    for part in parts {
        let part = part?.try_contiguous()?;
        let (slot, after) = rest.split_at_mut(part.bytes().len());
        slot.copy_from_slice(part.bytes());
        rest = after;
    }
    Ok(Some(Tensor::from_bytes(dtype, shape, Bytes::new(bytes))?))
}

#[cfg(test)]
mod tests {
    use tensor::blocks::quantize;

    use super::*;

    fn no_weights() -> Weights {
        let header = br#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0]].concat();
        Weights::from_bytes("one.safetensors", Bytes::new(file)).unwrap()
    }

    #[test]
    fn joined_tensors_follow_each_other() {
        let made = |rows: usize, values: &[f32]| Stored::Made(Tensor::from_slice([rows, 2], values));
        let joined = Stored::Joined(vec![made(1, &[1.0, 2.0]), made(2, &[3.0, 4.0, 5.0, 6.0])]);
        let weights = no_weights();
        let tensor = read((&weights).into(), &joined).unwrap().unwrap();
        assert_eq!(describe(&weights, &joined), Some((DType::F32, Shape::new(&[3, 2]))));
        assert_eq!(
            (*tensor.shape(), tensor.to_f32_vec()),
            (Shape::new(&[3, 2]), vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        );
    }

    /// Two heads of three rows of 32 columns.
    fn heads(dtype: DType, rows: Range<usize>, transposed: bool) -> (Tensor, (DType, Shape), Vec<f32>) {
        let values: Vec<f32> = (0..6 * 32).map(|i| ((i * 37 % 101) as f32 - 50.0) / 16.0).collect();
        let whole = match dtype {
            DType::F32 => Tensor::from_slice([6, 32], &values),
            _ => Tensor::from_bytes(
                dtype,
                [6, 32],
                Bytes::new(AlignedBytes::copy_of(&quantize(dtype, &values))),
            )
            .unwrap(),
        };
        let held = whole.to_f32_vec();
        let whole = Box::new(Stored::Made(whole));
        let stored = Stored::Heads { whole, heads: 2, rows, transposed };
        let weights = no_weights();
        let tensor = read((&weights).into(), &stored).unwrap().unwrap();
        (tensor, describe(&weights, &stored).unwrap(), held)
    }

    #[test]
    fn rows_of_heads_are_read_as_they_are_described() {
        for dtype in [DType::F32, DType::Q8_0] {
            let (values, described, held) = heads(dtype, 2..3, false);
            assert_eq!((values.dtype(), *values.shape()), described);
            assert_eq!(described, (dtype, Shape::new(&[2, 1, 32])));
            assert_eq!(values.to_f32_vec(), [&held[64..96], &held[160..192]].concat());
            let (keys, described, held) = heads(dtype, 0..2, true);
            assert_eq!((keys.dtype(), *keys.shape()), described);
            assert_eq!(described, (DType::F32, Shape::new(&[2, 32, 2])));
            for (i, found) in keys.to_f32_vec().into_iter().enumerate() {
                let (head, column, row) = (i / 64, i / 2 % 32, i % 2);
                let expected = held[(head * 3 + row) * 32 + column];
                assert_eq!(found, expected, "{dtype}: at {i}");
            }
        }
    }
}
