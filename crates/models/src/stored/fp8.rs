//! Matrices of 8-bit floats (e4m3) with scales in a tensor of their own, as weights of `fp8` blocks.
//!
//! | tensor | content |
//! |---|---|
//! | `weight: f8e4m3[.., rows, columns]` | codes |
//! | `weight_scale_inv` or `weight_scale` | scales: one, one for each row, or one for each block of (often) 128 × 128 |
//!
//! `W[row, column] = scale · code`. Scales of activations change nothing: those stay f32.

use tensor::blocks::fp8::{BYTES, ELEMENTS};
use tensor::{DType, Shape};
use weights::Weights;

use super::repacked::{Part, Refusal, Repack, RowWriter};

/// What scales may be stored as.
const SCALES: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F8E8M0];
/// The block of most files.
const USUAL_BLOCK: [usize; 2] = [128, 128];

/// A matrix whose tensors agree.
#[derive(Debug)]
pub(crate) struct Fp8 {
    /// The names of codes and scales, and then of what is not used.
    stored: Vec<String>,
    shape: Shape,
    /// The rows and columns that share a scale.
    block: [usize; 2],
}

impl Fp8 {
    /// `block` is what the configuration says; `others` are the names of tensors that are not used.
    pub(crate) fn new(
        codes: Part<'_>,
        scales: Part<'_>,
        others: Vec<String>,
        block: Option<[usize; 2]>,
    ) -> Result<Fp8, Refusal> {
        let shape = *codes.tensor.shape();
        let (outer, rows, columns) = match shape[..] {
            [rows, columns] => (None, rows, columns),
            [experts, rows, columns] => (Some(experts), rows, columns),
            _ => return Err(codes.refuse("[rows, columns], or these of experts")),
        };
        if !columns.is_multiple_of(ELEMENTS) || shape.elements() == 0 {
            return Err(codes.refuse(&format!("rows, and columns in a multiple of {ELEMENTS}")));
        }
        let given = block.unwrap_or(USUAL_BLOCK);
        let of_blocks = [rows.div_ceil(given[0]), columns.div_ceil(given[1])];
        let own = match (outer, &scales.tensor.shape()[..]) {
            (None, own) => Some(own),
            (Some(experts), [first, own @ ..]) if *first == experts => Some(own),
            _ => None,
        };
        let block = match own.filter(|_| SCALES.contains(&scales.tensor.dtype())) {
            Some(&[] | &[1] | &[1, 1]) => [rows, columns],
            Some(own) if *own == [rows] || *own == [rows, 1] => [1, columns],
            Some(own) if *own == of_blocks => given,
            _ => {
                let [first, second] = of_blocks;
                let expected = format!("one scale, {rows}, or [{first}, {second}], after {}", codes.leaf);
                return Err(scales.refuse(&expected));
            }
        };
        if block[1] < columns && !block[1].is_multiple_of(ELEMENTS) {
            return Err(
                scales.refuse(&format!("blocks of columns in a multiple of {ELEMENTS}, not {}", block[1]))
            );
        }
        let stored = [codes.name, scales.name].into_iter().chain(others).collect();
        Ok(Fp8 { stored, shape, block })
    }
}

impl Repack for Fp8 {
    fn describe(&self) -> (DType, Shape) {
        (DType::Fp8, self.shape)
    }

    fn tensors(&self) -> &[String] {
        &self.stored
    }

    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let (Some(codes), Some(scales)) = (weights.get(&self.stored[0]), weights.get(&self.stored[1])) else {
            return Ok(None);
        };
        let (codes, scales) = (codes.try_contiguous()?, scales.to_f32_vec());
        let [.., rows, columns] = self.shape[..] else { unreachable!("a matrix has two axes") };
        let [high, wide] = self.block;
        let of_matrix = [rows.div_ceil(high), columns.div_ceil(wide)];
        Ok(Some(Box::new(move |first, blocks| {
            let codes = codes.bytes()[first * columns..].as_chunks::<ELEMENTS>().0;
            for (index, (block, codes)) in blocks.as_chunks_mut::<BYTES>().0.iter_mut().zip(codes).enumerate()
            {
                let row = first + index / (columns / ELEMENTS);
                let across = index % (columns / ELEMENTS) * ELEMENTS / wide;
                let down = row / rows * of_matrix[0] + row % rows / high;
                let (scale, values) = block.split_at_mut(4);
                // Blocks have no code for NaN.
                let is_number = codes.iter().all(|code| code & 0x7f != 0x7f);
                let stored = if is_number { scales[down * of_matrix[1] + across] } else { f32::NAN };
                scale.copy_from_slice(&stored.to_le_bytes());
                values.copy_from_slice(codes);
            }
        })))
    }
}
