//! A linear layer that GPTQ quantized, which files store in four tensors, as a weight of blocks.
//!
//! | tensor | content |
//! |---|---|
//! | `qweight: i32[columns / 8, rows]` | code `i` of a word, from its lowest bits on, is that of column `8 · word + i`; of 8 bits, there are four |
//! | `scales: f16[groups, rows]` (or bf16) | what codes of a group count in |
//! | `qzeros: i32[groups, rows / 8]` | zero points, 8 rows to a word; in the format `gptq` each is less by 1 |
//! | `g_idx: i32[columns]` | the group of each column; without it, they follow each other |
//!
//! `W[row, j] = scale[g_idx[j], row] · (code[j, row] − zero[g_idx[j], row])`
//!
//! Blocks have one scale for 32 columns, so those of a group are brought together. The graph brings the columns of the
//! input into the same order.

use std::sync::Arc;

use tensor::blocks::GptqMatrix;
use tensor::{DType, Shape, Tensor, bf16, f16};
use weights::{GptqConfig, Weights};

use super::integers::{Integers, Packing, sort};
use super::repacked::{Part, Refusal, Repack, RowWriter};

/// Columns that share a scale.
const BLOCK: usize = DType::Gptq.block().elements;

/// A quantized layer whose tensors agree with each other.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The names of `qweight`, `scales` and `qzeros`.
    stored: [String; 3],
    rows: usize,
    pub(crate) columns: usize,
    /// Stored columns in the order of their groups, unless that is how they are stored.
    pub(crate) order: Option<Arc<[u32]>>,
    /// The name of the weight that holds this order.
    pub(crate) order_name: Option<String>,
    /// The group of each block of columns.
    pub(crate) groups: Arc<[u32]>,
    zeros_less_one: bool,
    /// Of a code: 4 or 8.
    bits: usize,
    /// `q4_0` or `q8_0` where all zero points are in the middle, else `gptq` or `gptq8`.
    dtype: DType,
}

impl Layer {
    /// The layer of `qweight`, `scales`, `qzeros` and `g_idx`.
    pub(crate) fn new(
        [qweight, scales, qzeros, g_idx]: [Option<Part<'_>>; 4],
        config: &GptqConfig,
    ) -> Result<Layer, Refusal> {
        let missing = |leaf| (leaf, "missing next to its qweight".to_string());
        let qweight = qweight.ok_or_else(|| missing("qweight"))?;
        let scales = scales.ok_or_else(|| missing("scales"))?;
        let qzeros = qzeros.ok_or_else(|| missing("qzeros"))?;
        let [words, rows] = qweight.matrix(&[DType::I32])?;
        let each = 32 / config.bits;
        let columns = words.checked_mul(each).filter(|columns| columns.is_multiple_of(BLOCK));
        let Some(columns) = columns.filter(|columns| rows > 0 && (1..=i32::MAX as usize).contains(columns))
        else {
            return Err(
                qweight.refuse(&format!("{each} · {words} columns in a multiple of {BLOCK}, and rows"))
            );
        };
        let [groups, scale_rows] = scales.matrix(&[DType::F16, DType::BF16])?;
        if scale_rows != rows {
            return Err(scales.refuse(&format!("the {rows} rows of qweight")));
        }
        if qzeros.matrix(&[DType::I32])? != [groups, rows / each] || !rows.is_multiple_of(each) {
            return Err(qzeros.refuse(&format!("[{groups}, {rows} / {each}], after scales and qweight")));
        }
        let size = config.group_size.unwrap_or(columns);
        let expected = columns.div_ceil(size);
        if !config.dynamic && groups != expected {
            return Err(scales.refuse(&format!("{expected} groups, of {size} columns each of {columns}")));
        }
        let group_of = group_of(g_idx, columns, groups, config)?;
        let (order, blocks) = sort(&group_of, groups).map_err(|message| ("g_idx", message))?;
        let symmetric = symmetric(qzeros.tensor, config);
        let dtype = Integers::dtype(config.bits, symmetric, scales.tensor.dtype());
        Ok(Layer {
            stored: [qweight.name, scales.name, qzeros.name],
            rows,
            columns,
            order: order.map(Arc::from),
            order_name: None,
            groups: blocks.into(),
            zeros_less_one: config.zeros_less_one,
            bits: config.bits,
            dtype,
        })
    }
}

impl Repack for Layer {
    fn describe(&self) -> (DType, Shape) {
        (self.dtype, Shape::new(&[self.rows, self.columns]))
    }

    fn tensors(&self) -> &[String] {
        &self.stored
    }

    fn order(&self) -> Option<&str> {
        self.order_name.as_deref()
    }

    fn scheme(&self) -> DType {
        if self.bits == 4 { DType::Gptq } else { DType::Gptq8 }
    }

    /// Columns are in order. Scales of bf16 are rounded to f16, which is exact but for subnormal ones.
    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let [Some(codes), Some(scales), Some(zeros)] = self.stored.each_ref().map(|name| weights.get(name))
        else {
            return Ok(None);
        };
        let (codes, scales) = (codes.try_contiguous()?, halves(scales));
        // Where a zero point is 0, taking 1 has borrowed from the next.
        let ones = if self.zeros_less_one { word_of(self.bits, 1) } else { 0 };
        let zeros: Vec<u32> =
            zeros.to_vec::<i32>().into_iter().map(|word| (word as u32).wrapping_add(ones)).collect();
        if self.bits == 8 {
            let integers = Integers {
                bits: self.bits,
                packing: Packing::Down,
                codes,
                rows: self.rows,
                columns: self.columns,
                groups: &self.groups,
                scales: scales.iter().map(|scale| scale.to_f32()).collect(),
                zeros: Some(zeros.iter().flat_map(|zeros| zeros.to_le_bytes()).collect()),
                order: self.order.as_deref(),
            };
            return Ok(Some(Box::new(move |first, blocks| integers.write(self.dtype, first, blocks))));
        }
        Ok(Some(Box::new(move |first, blocks| {
            let matrix = GptqMatrix {
                codes: codes.bytes(),
                scales: &scales,
                zeros: (self.dtype == DType::Gptq).then_some(&zeros[..]),
                rows: self.rows,
                groups: &self.groups,
                order: self.order.as_deref(),
            };
            matrix.repack(first, blocks);
        })))
    }
}

/// The group of each column. Some tools leave `g_idx` zero where columns are in the order of their groups.
fn group_of(
    g_idx: Option<Part<'_>>,
    columns: usize,
    groups: usize,
    config: &GptqConfig,
) -> Result<Vec<i32>, Refusal> {
    let stored = match g_idx {
        Some(part) if part.tensor.dtype() == DType::I32 && part.tensor.shape()[..] == [columns] => {
            part.tensor.to_vec::<i32>()
        }
        Some(part) => return Err(part.refuse(&format!("i32[{columns}], after qweight"))),
        None => Vec::new(),
    };
    let means_nothing = groups > 1 && stored.iter().all(|&group| group == 0);
    if !stored.is_empty() && !means_nothing {
        return Ok(stored);
    }
    if config.desc_act || config.dynamic {
        let found = if stored.is_empty() { "missing" } else { "all 0" };
        return Err(("g_idx", format!("is {found}, though columns may be permuted or in other groups")));
    }
    let size = config.group_size.unwrap_or(columns);
    Ok((0..columns).map(|column| (column / size) as i32).collect())
}

/// A word whose fields of some bits all are a number.
fn word_of(bits: usize, field: u32) -> u32 {
    (0..32 / bits).fold(0, |word, at| word | field << (at * bits))
}

/// Whether all zero points are in the middle.
fn symmetric(zeros: &Tensor, config: &GptqConfig) -> bool {
    let middle = 1 << (config.bits - 1);
    let expected = word_of(config.bits, if config.zeros_less_one { middle - 1 } else { middle });
    zeros.to_vec::<i32>().iter().all(|&word| word as u32 == expected)
}

fn halves(scales: &Tensor) -> Vec<f16> {
    match scales.dtype() {
        DType::BF16 => scales.to_vec::<bf16>().iter().map(|scale| f16::from_f32(scale.to_f32())).collect(),
        _ => scales.to_vec(),
    }
}
