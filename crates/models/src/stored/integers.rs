//! Matrices of 4- or 8-bit integers with scales and zero points, as weights of blocks that hold them exactly.
//!
//! | made by | codes | scales | zero points |
//! |---|---|---|---|
//! | AWQ | `qweight: i32[columns, rows / 8]`: eight rows to a word | `scales: f16[groups, rows]` | `qzeros: i32[groups, rows / 8]` |
//! | compressed-tensors | `weight_packed: i32[rows, columns / 8]` (of 8 bits, / 4) | `weight_scale: [rows, groups]` | `weight_zero_point: i32[rows / 8, groups]`, or none |
//! | compressed-tensors | `weight: i8[rows, columns]` | `weight_scale: [rows, groups]` | `weight_zero_point: i8[rows, groups]`, or none |
//! | LLM.int8 | `weight: i8[rows, columns]` | `SCB: f32[rows]`, in 127ths | none |
//!
//! `W[row, column] = scale · (code − zero)`. In words, fields go from the lowest bits on; those of AWQ hold rows in the order
//! 0, 2, 4, 6, 1, 3, 5, 7. Without zero points, the middle one is meant.

use std::sync::Arc;

use tensor::{DType, Shape, Tensor, f16};
use weights::Weights;

use super::repacked::{Part, ROWS, Refusal, Repack, RowWriter};

/// Columns that share a scale in blocks.
const BLOCK: usize = 32;
/// The field of a word of AWQ that has each of eight rows.
const AWQ_FIELDS: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// How codes lie in their tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// Words [columns / codes of a word, rows].
    Down,
    /// Words [columns, rows / 8], in AWQ's order.
    Awq,
    /// Words [rows, columns / codes of a word].
    Across,
    /// i8 [rows, columns].
    Bytes,
}

/// A matrix of integers in memory, which is written as blocks.
pub(super) struct Integers<'a> {
    /// 4 or 8.
    pub bits: usize,
    pub packing: Packing,
    pub codes: Tensor,
    pub rows: usize,
    pub columns: usize,
    /// The group of each 32 columns.
    pub groups: &'a [u32],
    /// [groups, rows]
    pub scales: Vec<f32>,
    /// [groups, rows]; without them, the middle is meant.
    pub zeros: Option<Vec<u8>>,
    /// The stored column at each place, unless they lie in order.
    pub order: Option<&'a [u32]>,
}

impl Integers<'_> {
    /// The dtype of blocks that hold such a matrix.
    pub(super) fn dtype(bits: usize, is_symmetric: bool, scales: DType) -> DType {
        match (bits, is_symmetric) {
            (4, true) => DType::Q4_0,
            (4, false) => DType::Gptq,
            (_, true) if scales != DType::F32 => DType::Q8_0,
            _ => DType::Gptq8,
        }
    }

    /// Writes the blocks of rows from a first one on.
    pub(super) fn write(&self, dtype: DType, first: usize, blocks: &mut [u8]) {
        let size = dtype.block().bytes;
        let row_bytes = self.columns / BLOCK * size;
        for (tile, blocks) in blocks.chunks_mut(ROWS * row_bytes).enumerate() {
            let first = first + tile * ROWS;
            let count = blocks.len() / row_bytes;
            for (index, &group) in self.groups.iter().enumerate() {
                let codes = self.tile(first, count, index);
                for ((row, codes), blocks) in
                    codes[..count].iter().enumerate().zip(blocks.chunks_exact_mut(row_bytes))
                {
                    let at = group as usize * self.rows + first + row;
                    let zero = self.zeros.as_ref().map_or(1 << (self.bits - 1), |zeros| zeros[at]);
                    put_block(dtype, self.scales[at], zero, codes, &mut blocks[index * size..][..size]);
                }
            }
        }
    }

    /// The codes of 32 columns of some rows.
    fn tile(&self, first: usize, count: usize, block: usize) -> [[u8; BLOCK]; ROWS] {
        let mut tile = [[0; BLOCK]; ROWS];
        let bytes = self.codes.bytes();
        let each = 32 / self.bits;
        let field = |word: usize, field: usize| {
            let word = bytes[4 * word..].first_chunk().expect("a word of the tensor");
            (u32::from_le_bytes(*word) >> (field * self.bits)) as u8 & (u8::MAX >> (8 - self.bits))
        };
        for place in 0..BLOCK {
            let column = BLOCK * block + place;
            let column = self.order.map_or(column, |order| order[column] as usize);
            for (row, codes) in tile[..count].iter_mut().enumerate() {
                let row = first + row;
                codes[place] = match self.packing {
                    Packing::Down => field(column / each * self.rows + row, column % each),
                    Packing::Awq => field(column * (self.rows / 8) + row / 8, AWQ_FIELDS[row % 8]),
                    Packing::Across => field(row * (self.columns / each) + column / each, column % each),
                    Packing::Bytes => bytes[row * self.columns + column] ^ 128,
                };
            }
        }
        tile
    }
}

/// Writes a block of 32 codes.
fn put_block(dtype: DType, scale: f32, zero: u8, codes: &[u8; BLOCK], block: &mut [u8]) {
    if dtype == DType::Gptq8 {
        block[..4].copy_from_slice(&scale.to_le_bytes());
        block[4] = zero;
        return block[5..].copy_from_slice(codes);
    }
    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    let rest = match dtype {
        DType::Q8_0 => return block[2..].iter_mut().zip(codes).for_each(|(to, code)| *to = code ^ 128),
        DType::Gptq => {
            block[2] = zero;
            &mut block[3..]
        }
        _ => &mut block[2..],
    };
    for (index, byte) in rest.iter_mut().enumerate() {
        *byte = codes[index] | codes[16 + index] << 4;
    }
}

/// The fields of words.
pub(super) fn fields(words: &Tensor, bits: usize) -> Vec<u8> {
    let each = |word: i32| {
        (0..32 / bits).map(move |field| (word as u32 >> (field * bits)) as u8 & (u8::MAX >> (8 - bits)))
    };
    words.to_vec::<i32>().into_iter().flat_map(each).collect()
}

/// Turns a matrix of `rows` rows on its side.
pub(super) fn transposed<T: Copy>(values: &[T], rows: usize) -> Vec<T> {
    let columns = values.len().checked_div(rows).unwrap_or(0);
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}

/// A matrix whose tensors agree.
#[derive(Debug)]
pub(crate) struct IntegerMatrix {
    /// The names of codes and scales, of zero points if there are any, and then of what is not used.
    stored: Vec<String>,
    has_zeros: bool,
    bits: usize,
    packing: Packing,
    dtype: DType,
    rows: usize,
    columns: usize,
    groups: Vec<u32>,
    /// Stored columns in the order of their groups, unless that is how they are stored.
    pub(crate) order: Option<Arc<[u32]>>,
    /// The name of the weight that holds this order.
    pub(crate) order_name: Option<String>,
    /// What scales are divided by.
    divisor: f32,
}

impl IntegerMatrix {
    /// That of AWQ.
    pub(crate) fn from_awq(
        codes: Part<'_>,
        scales: Option<Part<'_>>,
        zeros: Option<Part<'_>>,
        group_size: Option<usize>,
    ) -> Result<IntegerMatrix, Refusal> {
        let missing = |leaf| (leaf, "missing next to its qweight".to_string());
        let (scales, zeros) =
            (scales.ok_or_else(|| missing("scales"))?, zeros.ok_or_else(|| missing("qzeros"))?);
        let [columns, words] = codes.matrix(&[DType::I32])?;
        let Some(rows) = words.checked_mul(8).filter(|rows| columns > 0 && *rows > 0) else {
            return Err(codes.refuse("columns, and rows"));
        };
        let size = group_size.unwrap_or(columns);
        let groups = group_of_blocks(columns, columns / size.max(1))
            .ok_or_else(|| codes.refuse(&format!("columns in groups of {size}, a multiple of {BLOCK}")))?;
        let count = columns / size;
        if scales.matrix(&[DType::F16, DType::BF16])? != [count, rows] {
            return Err(scales.refuse(&format!("[{count}, {rows}], after qweight and groups of {size}")));
        }
        if zeros.matrix(&[DType::I32])? != [count, words] {
            return Err(zeros.refuse(&format!("[{count}, {rows} / 8], after scales")));
        }
        let is_symmetric = zeros.tensor.to_vec::<i32>().iter().all(|&word| word as u32 == 0x8888_8888);
        Ok(IntegerMatrix {
            stored: vec![codes.name, scales.name, zeros.name],
            has_zeros: true,
            bits: 4,
            packing: Packing::Awq,
            dtype: Integers::dtype(4, is_symmetric, DType::F16),
            rows,
            columns,
            groups,
            order: None,
            order_name: None,
            divisor: 1.0,
        })
    }

    /// That of compressed-tensors, whose codes are words of `bits` or bytes, or of LLM.int8, whose scales are 127 times as
    /// large. `group_of` has the group of each column, if they are permuted. `others` are the names of tensors that are not used.
    pub(crate) fn from_rows(
        codes: Part<'_>,
        scales: Option<Part<'_>>,
        zeros: Option<Part<'_>>,
        bits: usize,
        group_of: Option<Part<'_>>,
        mut others: Vec<String>,
    ) -> Result<IntegerMatrix, Refusal> {
        let scales = scales.ok_or_else(|| ("weight_scale", format!("missing next to its {}", codes.leaf)))?;
        let is_words = codes.tensor.dtype() == DType::I32;
        let [rows, stored] = codes.matrix(&[DType::I32, DType::I8])?;
        let each = if is_words { 32 / bits } else { 1 };
        let columns = stored.checked_mul(each).filter(|columns| rows > 0 && *columns > 0);
        let columns = columns.ok_or_else(|| codes.refuse("rows, and columns"))?;
        let (count, blocks) = groups_of_scales(&scales, bits, [rows, columns])?;
        if let Some(zeros) = &zeros {
            let packed = zeros.tensor.dtype() == DType::I32;
            let expected = if packed { [rows.div_ceil(32 / bits), count] } else { [rows, count] };
            if zeros.matrix(&[DType::I32, DType::I8])? != expected {
                return Err(
                    zeros.refuse(&format!("[{}, {}], after {}", expected[0], expected[1], codes.leaf))
                );
            }
        }
        let (order, blocks) = match group_of {
            Some(group_of) => {
                let sorted = in_order_of_groups(&group_of, columns, count)?;
                others.push(group_of.name);
                sorted.unwrap_or((None, blocks))
            }
            None => (None, blocks),
        };
        let divisor = if scales.leaf == "SCB" { 127.0 } else { 1.0 };
        let dtype = Integers::dtype(bits, zeros.is_none(), scales.tensor.dtype());
        let has_zeros = zeros.is_some();
        let names = [codes.name, scales.name].into_iter().chain(zeros.map(|zeros| zeros.name));
        Ok(IntegerMatrix {
            stored: names.chain(others).collect(),
            has_zeros,
            bits,
            packing: if is_words { Packing::Across } else { Packing::Bytes },
            dtype,
            rows,
            columns,
            groups: blocks,
            order: order.map(Arc::from),
            order_name: None,
            divisor,
        })
    }

    /// Scales [groups, rows].
    fn scales(&self, stored: &Tensor) -> Vec<f32> {
        let scales: Vec<f32> = stored.to_f32_vec().into_iter().map(|scale| scale / self.divisor).collect();
        match self.packing {
            Packing::Awq | Packing::Down => scales,
            _ if scales.len() == 1 => vec![scales[0]; self.rows],
            _ => transposed(&scales, self.rows),
        }
    }

    /// Zero points [groups, rows].
    fn zeros(&self, stored: &Tensor) -> Vec<u8> {
        let middle = 1 << (self.bits - 1);
        match (self.packing, stored.dtype()) {
            (Packing::Awq, _) => {
                let fields = fields(stored, self.bits);
                (0..fields.len()).map(|at| fields[at / 8 * 8 + AWQ_FIELDS[at % 8]]).collect()
            }
            (_, DType::I8) => {
                let zeros = stored.to_vec::<i8>().into_iter().map(|zero| (zero as u8).wrapping_add(middle));
                transposed(&zeros.collect::<Vec<u8>>(), self.rows)
            }
            _ => {
                // Words [rows / codes of a word, groups]: fields of a word are neighbours in a column.
                let count = stored.shape()[1];
                let (fields, each) = (fields(stored, self.bits), 32 / self.bits);
                let zero =
                    |group: usize, row: usize| fields[(row / each * count + group) * each + row % each];
                (0..count).flat_map(|group| (0..self.rows).map(move |row| zero(group, row))).collect()
            }
        }
    }
}

impl Repack for IntegerMatrix {
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

    /// Scales of bf16 are rounded to f16 in blocks that have one, which is exact but for subnormal and huge ones.
    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let tensor = |index: usize| weights.get(&self.stored[index]);
        let (Some(codes), Some(scales)) = (tensor(0), tensor(1)) else { return Ok(None) };
        let zeros = if self.has_zeros { tensor(2).map(|zeros| self.zeros(zeros)) } else { None };
        let integers = Integers {
            bits: self.bits,
            packing: self.packing,
            codes: codes.try_contiguous()?,
            rows: self.rows,
            columns: self.columns,
            groups: &self.groups,
            scales: self.scales(scales),
            zeros,
            order: self.order.as_deref(),
        };
        Ok(Some(Box::new(move |first, blocks| integers.write(self.dtype, first, blocks))))
    }
}

/// An order of columns, unless they are stored in it, and the group of each 32 columns.
type Sorted = (Option<Vec<u32>>, Vec<u32>);

/// Brings columns into the order of their groups. Some tools write -1 for all if they are in it.
fn in_order_of_groups(group_of: &Part<'_>, columns: usize, groups: usize) -> Result<Option<Sorted>, Refusal> {
    if group_of.tensor.dtype() != DType::I32 || group_of.tensor.shape()[..] != [columns] {
        return Err(group_of.refuse(&format!("i32[{columns}]")));
    }
    let listed = group_of.tensor.to_vec::<i32>();
    if listed.iter().all(|&group| group == -1) {
        return Ok(None);
    }
    sort(&listed, groups).map(Some).map_err(|message| (group_of.leaf, message))
}

/// How many groups of columns share scales, and the group of each 32 columns.
fn groups_of_scales(
    scales: &Part<'_>,
    bits: usize,
    [rows, columns]: [usize; 2],
) -> Result<(usize, Vec<u32>), Refusal> {
    let dtypes: &[DType] =
        if bits == 4 { &[DType::F16, DType::BF16] } else { &[DType::F16, DType::BF16, DType::F32] };
    let count = match scales.tensor.shape()[..] {
        _ if !dtypes.contains(&scales.tensor.dtype()) => None,
        [] | [1] => Some(1),
        [of_rows] => (of_rows == rows).then_some(1),
        [of_rows, count] => (of_rows == rows && count > 0).then_some(count),
        _ => None,
    };
    let groups = count.and_then(|count| Some((count, group_of_blocks(columns, count)?)));
    groups.ok_or_else(|| {
        let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        let names = names.join(" or ");
        scales.refuse(&format!(
            "[{rows}, groups] of {names}, groups of a multiple of {BLOCK} of {columns} columns"
        ))
    })
}

/// The group of each 32 columns, if groups have a multiple of 32 columns each.
fn group_of_blocks(columns: usize, groups: usize) -> Option<Vec<u32>> {
    let size =
        columns.checked_div(groups).filter(|size| size * groups == columns && size.is_multiple_of(BLOCK))?;
    u32::try_from(columns).ok()?;
    Some((0..columns / BLOCK).map(|block| (BLOCK * block / size) as u32).collect())
}

/// The columns in the order of their groups, where that is not as it goes; and the group of each block of them.
pub(super) fn sort(group_of: &[i32], groups: usize) -> Result<(Option<Vec<u32>>, Vec<u32>), String> {
    let known = |&group: &i32| usize::try_from(group).is_ok_and(|group| group < groups);
    if let Some(column) = group_of.iter().position(|group| !known(group)) {
        return Err(format!(
            "has the group {} for column {column}, but there are {groups}",
            group_of[column]
        ));
    }
    let mut order: Vec<u32> = (0..group_of.len() as u32).collect();
    order.sort_by_key(|&column| group_of[column as usize]);
    let sorted = |at: usize| group_of[order[at] as usize];
    let blocks = (0..group_of.len()).step_by(BLOCK).map(|start| {
        let group = sorted(start);
        match (start..start + BLOCK).all(|at| sorted(at) == group) {
            true => Ok(group as u32),
            false => {
                let count = group_of.iter().filter(|&&other| other == group).count();
                Err(format!("has {count} columns for group {group}, expected a multiple of {BLOCK}"))
            }
        }
    });
    let blocks = blocks.collect::<Result<_, _>>()?;
    let as_stored = order.iter().enumerate().all(|(place, &column)| place == column as usize);
    Ok(((!as_stored).then_some(order), blocks))
}
