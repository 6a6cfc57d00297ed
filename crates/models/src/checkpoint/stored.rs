//! Where in the files a weight is, and what it is read as.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, bf16, f16};
use weights::Weights;

use super::gptq;
use crate::WeightTypes;

/// Where in the files a weight is, by the names of tensors.
#[derive(Debug, Clone)]
pub(super) enum Stored {
    /// In a tensor of its own.
    Whole(String),
    /// In ranges of an axis of a tensor that holds other weights too.
    Part { name: String, axis: usize, ranges: Vec<Range<usize>> },
    /// With its two axes the other way round.
    Transposed(Box<Stored>),
    /// With more axes than the weight, which is a vector.
    Flat(Box<Stored>),
    /// As GPTQ stores it, in several tensors.
    Gptq(gptq::Layer),
    /// Apart, of the same type, one for each place of a first axis.
    Stack(Vec<Stored>),
    /// Nowhere: it was made when the checkpoint was opened.
    Made(Tensor),
}

impl Stored {
    /// The tensors it is in, by their names in the files.
    pub(super) fn tensors(&self) -> Vec<&str> {
        match self {
            Stored::Whole(name) | Stored::Part { name, .. } => vec![name],
            Stored::Transposed(inner) | Stored::Flat(inner) => inner.tensors(),
            Stored::Gptq(layer) => layer.stored().collect(),
            Stored::Stack(parts) => parts.iter().flat_map(Stored::tensors).collect(),
            Stored::Made(_) => Vec::new(),
        }
    }

    /// The layers among what it is made of that GPTQ quantized.
    pub(super) fn layers(&self) -> Vec<&gptq::Layer> {
        match self {
            Stored::Gptq(layer) => vec![layer],
            Stored::Stack(parts) => parts.iter().flat_map(Stored::layers).collect(),
            _ => Vec::new(),
        }
    }

    /// The weight that holds the order of its columns, if they have one of their own.
    pub(super) fn order(&self) -> Option<&str> {
        match self {
            Stored::Gptq(layer) => layer.order(),
            Stored::Stack(parts) => parts.iter().find_map(Stored::order),
            _ => None,
        }
    }
}

/// Weights by canonical name.
pub(super) struct Names<'a> {
    pub(super) weights: &'a Weights,
    pub(super) names: &'a HashMap<String, Stored>,
    /// What matrices of plain numbers are cast to, if that is not what they are stored as.
    pub(super) dtype: Option<DType>,
}

impl Names<'_> {
    /// A view, or a copy of what lies apart or is stored otherwise.
    pub(super) fn tensor(&self, canonical: &str) -> Option<Tensor> {
        let tensor = read(self.weights, self.names.get(canonical)?)?;
        let dtype = self.dtype_for(tensor.dtype(), tensor.shape());
        Some(if dtype == tensor.dtype() { tensor } else { cast(&tensor, dtype) })
    }

    /// The dtype and shape of what [`Names::tensor`] gives.
    pub(super) fn describe(&self, canonical: &str) -> Option<(DType, Shape)> {
        let (dtype, shape) = describe(self.weights, self.names.get(canonical)?)?;
        Some((self.dtype_for(dtype, &shape), shape))
    }

    /// The bytes of all weights less those that the files have for them, after casts.
    pub(super) fn bytes_of_casts(&self) -> i64 {
        let of_cast = |stored: &Stored| {
            let (dtype, shape) = describe(self.weights, stored)?;
            let size = |dtype: DType| Some(dtype.bytes_for_shape(&shape)? as i64);
            Some(size(self.dtype_for(dtype, &shape))? - size(dtype)?)
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
}

/// Whether a dtype is one that matrices can be cast from and to.
pub(super) fn is_plain(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// What is stored: a view if it can be one, else a copy.
pub(super) fn read(weights: &Weights, stored: &Stored) -> Option<Tensor> {
    match stored {
        Stored::Whole(name) => weights.get(name).cloned(),
        Stored::Part { name, axis, ranges } => {
            let tensor = weights.get(name)?;
            match (&ranges[..], axis) {
                ([range], 0) => Some(tensor.narrow(0, range.clone())),
                (ranges, 0) => {
                    let parts = ranges.iter().map(|range| tensor.narrow(0, range.clone()));
                    let (dtype, shape) = describe(weights, stored)?;
                    Some(concatenate(dtype, shape, parts))
                }
                (ranges, axis) => {
                    let places = 0..tensor.shape()[0];
                    let parts = places.flat_map(|i| {
                        let row = tensor.narrow(0, i..i + 1);
                        ranges.iter().map(move |range| row.narrow(*axis, range.clone()))
                    });
                    let (dtype, shape) = describe(weights, stored)?;
                    Some(concatenate(dtype, shape, parts))
                }
            }
        }
        Stored::Transposed(inner) => Some(read(weights, inner)?.permute(&[1, 0]).contiguous()),
        Stored::Flat(inner) => {
            let tensor = read(weights, inner)?.contiguous();
            Some(tensor.reshape([tensor.elements()]))
        }
        Stored::Gptq(layer) => layer.repack(weights),
        Stored::Stack(parts) => {
            let parts = parts.iter().filter_map(|part| read(weights, part));
            let (dtype, shape) = describe(weights, stored)?;
            Some(concatenate(dtype, shape, parts))
        }
        Stored::Made(tensor) => Some(tensor.clone()),
    }
}

/// The dtype and shape of what [`read`] gives.
pub(super) fn describe(weights: &Weights, stored: &Stored) -> Option<(DType, Shape)> {
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
            let [rows, columns] = shape[..] else { return None };
            Some((dtype, Shape::new(&[columns, rows])))
        }
        Stored::Flat(inner) => {
            let (dtype, shape) = describe(weights, inner)?;
            Some((dtype, Shape::new(&[shape.elements()])))
        }
        Stored::Gptq(layer) => Some(layer.describe()),
        Stored::Stack(parts) => {
            let (dtype, shape) = describe(weights, parts.first()?)?;
            Some((dtype, Shape::new(&[&[parts.len()], &shape[..]].concat())))
        }
        Stored::Made(tensor) => Some((tensor.dtype(), *tensor.shape())),
    }
}

/// A tensor of plain numbers as another such dtype, rounded to the nearest.
fn cast(tensor: &Tensor, dtype: DType) -> Tensor {
    let shape = *tensor.shape();
    let values = tensor.as_slice::<f32>().map_or_else(|| Cow::Owned(tensor.to_f32_vec()), Cow::Borrowed);
    match dtype {
        DType::BF16 => {
            let values: Vec<bf16> = values.par_iter().map(|&value| bf16::from_f32(value)).collect();
            Tensor::from_slice(shape, &values)
        }
        DType::F16 => {
            let values: Vec<f16> = values.par_iter().map(|&value| f16::from_f32(value)).collect();
            Tensor::from_slice(shape, &values)
        }
        DType::F32 => Tensor::from_slice(shape, &values),
        other => unreachable!("refused when the checkpoint was opened: {other}"),
    }
}

/// A tensor of parts that follow each other in memory.
fn concatenate(dtype: DType, shape: Shape, parts: impl Iterator<Item = Tensor>) -> Tensor {
    let mut bytes = AlignedBytes::zeroed(dtype.bytes_for(shape.elements()).expect("parts of whole blocks"));
    let mut rest = &mut bytes[..];
    for part in parts {
        let part = part.contiguous();
        let (slot, after) = rest.split_at_mut(part.bytes().len());
        slot.copy_from_slice(part.bytes());
        rest = after;
    }
    Tensor::from_bytes(dtype, shape, Bytes::new(bytes)).expect("as many bytes as the shape asks for")
}
