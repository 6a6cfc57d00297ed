//! Weights of blocks that files store otherwise: in several tensors, or with the bits in another order.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};
use weights::Weights;

/// Rows that are worth repacking together: their blocks stay in the second-level cache.
pub(super) const ROWS: usize = 64;

/// How files store a weight, and the blocks that it becomes.
pub(crate) trait Repack: Debug + Send + Sync {
    /// The dtype of the blocks, and the shape of the weight: [rows, columns], or [experts, rows, columns].
    fn describe(&self) -> (DType, Shape);

    /// The tensors it is made of, by their names in the files.
    fn tensors(&self) -> &[String];

    /// A function that fills a buffer with the blocks of neighbouring rows, given the first of them; rows are numbered
    /// through all experts. `None` if a tensor is missing.
    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error>;

    /// The weight that holds the order of its columns, if that is not as it goes.
    fn order(&self) -> Option<&str> {
        None
    }

    /// The dtype that names the scheme, if the blocks are of one that files store as well.
    fn scheme(&self) -> DType {
        self.describe().0
    }
}

/// Writes the blocks of rows from a first one on.
pub(crate) type RowWriter<'a> = Box<dyn Fn(usize, &mut [u8]) + Sync + 'a>;

/// All rows of a weight that is repacked, or some rows of each expert.
#[derive(Debug, Clone)]
pub(crate) struct Repacked {
    whole: Arc<dyn Repack>,
    rows: Vec<Range<usize>>,
}

impl Repacked {
    pub(crate) fn new(whole: impl Repack + 'static) -> Repacked {
        let (_, shape) = whole.describe();
        let rows = shape[shape.rank() - 2];
        Repacked { whole: Arc::new(whole), rows: std::iter::once(0..rows).collect() }
    }

    /// These of the rows of a whole weight, in this order.
    pub(crate) fn with_rows(&self, rows: Vec<Range<usize>>) -> Repacked {
        Repacked { whole: Arc::clone(&self.whole), rows }
    }

    /// The dtype and shape of the weight.
    pub(crate) fn describe(&self) -> (DType, Shape) {
        let (dtype, shape) = self.whole.describe();
        let mut dims = shape.to_vec();
        dims[shape.rank() - 2] = self.rows.iter().map(Range::len).sum();
        (dtype, Shape::new(&dims))
    }

    pub(crate) fn tensors(&self) -> impl Iterator<Item = &str> {
        self.whole.tensors().iter().map(String::as_str)
    }

    pub(crate) fn order(&self) -> Option<&str> {
        self.whole.order()
    }

    pub(crate) fn scheme(&self) -> DType {
        self.whole.scheme()
    }

    /// The weight.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn read(&self, weights: &Weights) -> Result<Option<Tensor>, tensor::Error> {
        let Some(write) = self.whole.writer(weights)? else { return Ok(None) };
        let (dtype, shape) = self.describe();
        let (_, whole) = self.whole.describe();
        let [.., rows, columns] = whole[..] else { unreachable!("matrices have two axes") };
        let row_bytes = dtype.bytes_for(columns).expect("rows of whole blocks");
        let total = dtype.bytes_for_shape(&shape).expect("fewer than all rows");
        let mut blocks = AlignedBytes::try_zeroed(total)?;
        let mut pieces = Vec::new();
        let mut rest = &mut blocks[..];
        for expert in 0..whole.elements().checked_div(rows * columns).unwrap_or(0) {
            for range in &self.rows {
                for first in range.clone().step_by(ROWS) {
                    let count = ROWS.min(range.end - first);
                    let (piece, after) = rest.split_at_mut(count * row_bytes);
                    pieces.push((expert * rows + first, piece));
                    rest = after;
                }
            }
        }
        pieces.into_par_iter().for_each(|(first, piece)| write(first, piece));
        Tensor::from_bytes(dtype, shape, Bytes::new(blocks)).map(Some)
    }
}

/// One of the tensors of a weight.
pub(crate) struct Part<'a> {
    pub(crate) leaf: &'static str,
    /// In the files.
    pub(crate) name: String,
    pub(crate) tensor: &'a Tensor,
}

/// Which of the tensors is wrong, and why.
pub(crate) type Refusal = (&'static str, String);

impl Part<'_> {
    /// The shape of a matrix.
    pub(crate) fn matrix(&self, dtypes: &[DType]) -> Result<[usize; 2], Refusal> {
        match self.tensor.shape()[..] {
            [first, second] if dtypes.contains(&self.tensor.dtype()) => Ok([first, second]),
            _ => {
                let dtypes: Vec<String> = dtypes.iter().map(DType::to_string).collect();
                Err(self.refuse(&format!("a matrix of {}", dtypes.join(" or "))))
            }
        }
    }

    pub(crate) fn refuse(&self, expected: &str) -> Refusal {
        let Part { leaf, tensor, .. } = self;
        (leaf, format!("is {}{}, expected {expected}", tensor.dtype(), tensor.shape()))
    }
}
