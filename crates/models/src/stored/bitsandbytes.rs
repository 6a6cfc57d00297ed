//! Matrices that bitsandbytes quantized to 4 bits, as weights of `nf4` or `fp4` blocks.
//!
//! | tensor | content |
//! |---|---|
//! | `weight: u8[rows · columns / 2, 1]` | codes of neighbours, two to a byte, the first in the high nibble |
//! | `weight.absmax` | a scale for each block of 64 codes or more: f32, or if these are quantized themselves, u8 |
//! | `weight.nested_quant_map: f32[256]`, `weight.nested_absmax: f32[..]` | what quantized scales mean, and a scale for each (often) 256 |
//! | `weight.quant_state.bitsandbytes__nf4` (or `fp4`) | JSON: the shape, the sizes of blocks, what is added to quantized scales |

use serde::Deserialize;
use tensor::blocks::nf4::{BYTES, ELEMENTS};
use tensor::{DType, Shape};
use weights::Weights;

use super::repacked::{Part, Refusal, Repack, RowWriter};

/// The tensors that are not in every file.
pub(crate) struct Nested<'a> {
    pub(crate) map: Part<'a>,
    pub(crate) absmax: Part<'a>,
}

impl Nested<'_> {
    /// Checks that they are for so many scales, in blocks of `each`.
    fn check(&self, scales: usize, each: usize) -> Result<(), Refusal> {
        let Nested { map, absmax } = self;
        if map.tensor.dtype() != DType::F32 || map.tensor.elements() != 256 {
            return Err(map.refuse("f32[256]"));
        }
        let count = scales.checked_div(each).map(|_| scales.div_ceil(each));
        if absmax.tensor.dtype() != DType::F32 || Some(absmax.tensor.elements()) != count {
            return Err(absmax.refuse(&format!("f32, for {scales} scales in blocks of {each}")));
        }
        Ok(())
    }
}

/// What the JSON says.
#[derive(Debug, Deserialize)]
struct State {
    quant_type: String,
    blocksize: usize,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_offset: Option<f32>,
}

/// A matrix whose tensors agree.
#[derive(Debug)]
pub(crate) struct FourBits {
    /// The names of codes, scales, the map and scales of these, and then of what is not used.
    stored: Vec<String>,
    dtype: DType,
    rows: usize,
    columns: usize,
    block: usize,
    /// Of scales that are quantized: how many share one, and what is added.
    nested: Option<(usize, f32)>,
}

impl FourBits {
    /// `others` are the names of tensors that are not used.
    pub(crate) fn new(
        codes: Part<'_>,
        absmax: Part<'_>,
        state: Option<Part<'_>>,
        nested: Option<Nested<'_>>,
        others: Vec<String>,
    ) -> Result<FourBits, Refusal> {
        let state = state.ok_or_else(|| (absmax.leaf, "has no quant_state next to it".to_string()))?;
        if state.tensor.dtype() != DType::U8 {
            return Err(state.refuse("u8, the bytes of JSON"));
        }
        let json: State = serde_json::from_slice(state.tensor.contiguous().bytes())
            .map_err(|error| (state.leaf, format!("is no JSON of a quantized matrix: {error}")))?;
        let dtype = match &json.quant_type[..] {
            "nf4" => DType::Nf4,
            "fp4" => DType::Fp4,
            other => {
                return Err((state.leaf, format!("has the quant_type {other}, supported are nf4 and fp4")));
            }
        };
        let [rows, columns] = json.shape[..] else {
            return Err((state.leaf, format!("has the shape {:?}, expected [rows, columns]", json.shape)));
        };
        let codes_stored = codes.tensor.elements().checked_mul(2);
        if codes.tensor.dtype() != DType::U8 || rows.checked_mul(columns) != codes_stored || rows == 0 {
            return Err(codes
                .refuse(&format!("u8 for [{rows}, {columns}] / 2 pairs of codes, after its quant_state")));
        }
        if !columns.is_multiple_of(ELEMENTS)
            || json.blocksize == 0
            || !json.blocksize.is_multiple_of(ELEMENTS)
        {
            let found = format!("{columns} columns and blocks of {}", json.blocksize);
            return Err((state.leaf, format!("has {found}, expected multiples of {ELEMENTS}")));
        }
        let scales = (rows * columns).div_ceil(json.blocksize);
        let expected = if nested.is_some() { DType::U8 } else { DType::F32 };
        if absmax.tensor.dtype() != expected || absmax.tensor.elements() != scales {
            return Err(absmax.refuse(&format!("{expected}[{scales}], for blocks of {}", json.blocksize)));
        }
        let each = json.nested_blocksize.unwrap_or(256);
        if let Some(nested) = &nested {
            nested.check(scales, each)?;
        }
        let of_scales = nested.as_ref().map(|_| (each, json.nested_offset.unwrap_or(0.0)));
        let nested = nested.into_iter().flat_map(|Nested { map, absmax }| [map.name, absmax.name]);
        let stored = [codes.name, absmax.name].into_iter().chain(nested).chain([state.name]);
        let stored = stored.chain(others).collect();
        Ok(FourBits { stored, dtype, rows, columns, block: json.blocksize, nested: of_scales })
    }

    /// The scales of all blocks; `None` if a tensor is missing.
    fn scales(&self, weights: &Weights) -> Option<Vec<f32>> {
        let absmax = weights.get(&self.stored[1])?;
        let Some((each, offset)) = self.nested else { return Some(absmax.to_f32_vec()) };
        let map = weights.get(&self.stored[2])?.to_f32_vec();
        let nested = weights.get(&self.stored[3])?.to_f32_vec();
        let codes = absmax.to_vec::<u8>().into_iter().enumerate();
        Some(codes.map(|(at, code)| map[usize::from(code)] * nested[at / each] + offset).collect())
    }
}

impl Repack for FourBits {
    fn describe(&self) -> (DType, Shape) {
        (self.dtype, Shape::new(&[self.rows, self.columns]))
    }

    fn tensors(&self) -> &[String] {
        &self.stored
    }

    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let (Some(codes), Some(scales)) = (weights.get(&self.stored[0]), self.scales(weights)) else {
            return Ok(None);
        };
        let codes = codes.try_contiguous()?;
        Ok(Some(Box::new(move |first, blocks| {
            let start = first * (self.columns / ELEMENTS);
            let codes = &codes.bytes().as_chunks::<{ ELEMENTS / 2 }>().0[start..];
            for (index, (block, codes)) in blocks.as_chunks_mut::<BYTES>().0.iter_mut().zip(codes).enumerate()
            {
                let (scale, nibbles) = block.split_at_mut(4);
                let stored = scales[(start + index) * ELEMENTS / self.block];
                scale.copy_from_slice(&stored.to_le_bytes());
                nibbles.iter_mut().zip(codes).for_each(|(to, from)| *to = from.rotate_left(4));
            }
        })))
    }
}
