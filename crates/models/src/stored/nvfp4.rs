//! Matrices of 4-bit floats with two levels of scales, as weights of `nvfp4` blocks. GGUF files have blocks of their own
//! (`ggml_nvfp4`), and a `scale` that multiplies.
//!
//! | tensor | of compressed-tensors | of ModelOpt |
//! |---|---|---|
//! | codes, u8[rows, columns / 2]: two neighbours to a byte, the first in the low nibble | `weight_packed` | `weight` |
//! | scales, f8e4m3[rows, columns / 16] | `weight_scale` | `weight_scale` |
//! | one f32 for the matrix | `weight_global_scale`, which divides | `weight_scale_2`, which multiplies |

use tensor::blocks::ggml_nvfp4;
use tensor::blocks::nvfp4::{BYTES, ELEMENTS};
use tensor::{DType, Shape};
use weights::Weights;

use super::repacked::{Part, Refusal, Repack, RowWriter};

/// A matrix whose tensors agree.
#[derive(Debug)]
pub(crate) struct Nvfp4 {
    /// The names of codes, scales and the scale of the matrix, and then of what is not used.
    stored: Vec<String>,
    rows: usize,
    columns: usize,
    /// Whether the scale of the matrix divides.
    divides: bool,
}

impl Nvfp4 {
    /// `others` are the names of tensors that are not used.
    pub(crate) fn new(
        codes: Part<'_>,
        scales: Option<Part<'_>>,
        of_matrix: Part<'_>,
        others: Vec<String>,
    ) -> Result<Nvfp4, Refusal> {
        let scales = scales.ok_or_else(|| ("weight_scale", format!("missing next to its {}", codes.leaf)))?;
        let [rows, bytes] = codes.matrix(&[DType::U8])?;
        let columns = 2 * bytes;
        if !columns.is_multiple_of(ELEMENTS) || rows * columns == 0 {
            return Err(codes.refuse(&format!("rows, and 2 · {bytes} columns in a multiple of {ELEMENTS}")));
        }
        if scales.matrix(&[DType::F8E4M3])? != [rows, columns / 16] {
            return Err(scales.refuse(&format!("[{rows}, {columns} / 16], after {}", codes.leaf)));
        }
        if of_matrix.tensor.dtype() != DType::F32 || of_matrix.tensor.elements() != 1 {
            return Err(of_matrix.refuse("one f32"));
        }
        let divides = of_matrix.leaf == "weight_global_scale";
        let stored = [codes.name, scales.name, of_matrix.name].into_iter().chain(others).collect();
        Ok(Nvfp4 { stored, rows, columns, divides })
    }
}

impl Repack for Nvfp4 {
    fn describe(&self) -> (DType, Shape) {
        (DType::Nvfp4, Shape::new(&[self.rows, self.columns]))
    }

    fn tensors(&self) -> &[String] {
        &self.stored
    }

    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let tensor = |index: usize| weights.get(&self.stored[index]);
        let (Some(codes), Some(scales), Some(of_matrix)) = (tensor(0), tensor(1), tensor(2)) else {
            return Ok(None);
        };
        let (codes, scales) = (codes.try_contiguous()?, scales.try_contiguous()?);
        let of_matrix = of_matrix.to_f32_vec()[0];
        // The levels of blocks are doubled.
        let of_matrix = if self.divides { 0.5 / of_matrix } else { 0.5 * of_matrix };
        Ok(Some(Box::new(move |first, blocks| {
            let start = first * (self.columns / ELEMENTS);
            let scales = &scales.bytes().as_chunks::<4>().0[start..];
            let codes = &codes.bytes().as_chunks::<32>().0[start..];
            for ((block, scales), codes) in
                blocks.as_chunks_mut::<BYTES>().0.iter_mut().zip(scales).zip(codes)
            {
                // Blocks have no code for NaN.
                let is_number = scales.iter().all(|scale| scale & 0x7f != 0x7f);
                let of_matrix = if is_number { of_matrix } else { f32::NAN };
                block[..4].copy_from_slice(&of_matrix.to_le_bytes());
                block[4..8].copy_from_slice(scales);
                for (half, pairs) in
                    block[8..].as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks::<16>().0)
                {
                    halves_of_pairs(pairs, half);
                }
            }
        })))
    }
}

/// The blocks of GGUF files, of a matrix or of several experts.
#[derive(Debug)]
pub(crate) struct GgmlNvfp4 {
    /// The names of blocks and, if there is one, of the scale of each matrix, and then of what is not used.
    stored: Vec<String>,
    shape: Shape,
    is_scaled: bool,
}

impl GgmlNvfp4 {
    /// `others` are the names of tensors that are not used.
    pub(crate) fn new(
        blocks: Part<'_>,
        scales: Option<Part<'_>>,
        others: Vec<String>,
    ) -> Result<GgmlNvfp4, Refusal> {
        let shape = *blocks.tensor.shape();
        let [experts, ..] = shape[..] else { unreachable!("matrices have two axes") };
        let matrices = if shape.rank() == 2 { 1 } else { experts };
        if let Some(scales) = &scales
            && (scales.tensor.dtype() != DType::F32 || scales.tensor.elements() != matrices)
        {
            return Err(scales.refuse(&format!("one f32 for each of {matrices} matrices")));
        }
        let is_scaled = scales.is_some();
        let stored = [Some(blocks.name), scales.map(|scales| scales.name)].into_iter().flatten();
        Ok(GgmlNvfp4 { stored: stored.chain(others).collect(), shape, is_scaled })
    }
}

impl Repack for GgmlNvfp4 {
    fn describe(&self) -> (DType, Shape) {
        (DType::Nvfp4, self.shape)
    }

    fn tensors(&self) -> &[String] {
        &self.stored
    }

    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let Some(stored) = weights.get(&self.stored[0]) else { return Ok(None) };
        let stored = stored.try_contiguous()?;
        let scales = match self.is_scaled.then(|| weights.get(&self.stored[1])) {
            Some(None) => return Ok(None),
            Some(Some(scales)) => scales.to_f32_vec(),
            None => Vec::new(),
        };
        let [.., rows, columns] = self.shape[..] else { unreachable!("matrices have two axes") };
        let of_row = columns / ELEMENTS;
        Ok(Some(Box::new(move |first, blocks| {
            let stored = &stored.bytes().as_chunks::<{ ggml_nvfp4::BYTES }>().0[first * of_row..];
            let blocks = blocks.as_chunks_mut::<BYTES>().0.iter_mut().zip(stored).enumerate();
            for (index, (block, stored)) in blocks {
                let matrix = (first + index / of_row) / rows;
                // The levels of blocks are doubled.
                let scale = 0.5 * scales.get(matrix).copied().unwrap_or(1.0);
                block[..4].copy_from_slice(&scale.to_le_bytes());
                block[4..8].copy_from_slice(&ggml_nvfp4::scales(stored));
                let nibbles = ggml_nvfp4::nibbles(stored);
                for (half, nibbles) in
                    block[8..].as_chunks_mut::<16>().0.iter_mut().zip(nibbles.as_chunks::<32>().0)
                {
                    let (low, high) = nibbles.split_at(16);
                    let pairs = low.iter().zip(high);
                    half.iter_mut()
                        .zip(pairs)
                        .for_each(|(byte, (low, high))| *byte = (low | high << 4) as u8);
                }
            }
        })))
    }
}

/// Nibbles of neighbours, two to a byte, as those of weights that are 16 apart.
fn halves_of_pairs(pairs: &[u8; 16], halves: &mut [u8; 16]) {
    for (index, byte) in halves.iter_mut().enumerate() {
        let nibble = |pair: u8| if index % 2 == 0 { pair & 15 } else { pair >> 4 };
        *byte = nibble(pairs[index / 2]) | nibble(pairs[8 + index / 2]) << 4;
    }
}
