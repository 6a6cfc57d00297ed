//! Matrices of `mxfp4` blocks, of which files store codes and scales apart, as those of GPT-OSS and compressed-tensors do.
//!
//! | tensor | of compressed-tensors | content |
//! |---|---|---|
//! | `blocks: u8[.., rows, columns / 32, 16]` | `weight_packed: u8[rows, columns / 2]` | codes of neighbouring columns, two to a byte, the first in the low nibble |
//! | `scales: u8[.., rows, columns / 32]` | `weight_scale: u8[rows, columns / 32]` | exponents, biased by 127 |

use tensor::blocks::mxfp4::{BYTES, ELEMENTS, from_pairs};
use tensor::{DType, Shape};
use weights::Weights;

use super::repacked::{Part, Refusal, Repack, RowWriter};

/// A weight whose two tensors agree.
#[derive(Debug)]
pub(crate) struct Mxfp4 {
    /// The names of codes and scales, and then of what is not used.
    stored: Vec<String>,
    shape: Shape,
}

impl Mxfp4 {
    pub(crate) fn new(blocks: Part<'_>, scales: Option<Part<'_>>) -> Result<Mxfp4, Refusal> {
        let scales = scales.ok_or_else(|| ("scales", "missing next to its blocks".to_string()))?;
        let exponents = matches!(scales.tensor.dtype(), DType::U8 | DType::F8E8M0);
        let (outer, columns) = match &blocks.tensor.shape()[..] {
            [outer @ .., groups, 16] if (1..=2).contains(&outer.len()) => (outer, groups * ELEMENTS),
            _ => return Err(blocks.refuse("u8[experts, rows, columns / 32, 16]")),
        };
        if blocks.tensor.dtype() != DType::U8 || blocks.tensor.elements() == 0 {
            return Err(blocks.refuse("codes of u8"));
        }
        let expected = &blocks.tensor.shape()[..=outer.len()];
        if !exponents || scales.tensor.shape()[..] != *expected {
            return Err(scales.refuse(&format!("u8{}, after blocks", Shape::new(expected))));
        }
        let shape = Shape::new(&[outer, &[columns]].concat());
        Ok(Mxfp4 { stored: vec![blocks.name, scales.name], shape })
    }

    /// A matrix of compressed-tensors; `others` are the names of tensors that are not used.
    pub(crate) fn from_rows(
        codes: Part<'_>,
        scales: Option<Part<'_>>,
        others: Vec<String>,
    ) -> Result<Mxfp4, Refusal> {
        let scales = scales.ok_or_else(|| ("weight_scale", format!("missing next to its {}", codes.leaf)))?;
        let [rows, bytes] = codes.matrix(&[DType::U8])?;
        let columns = 2 * bytes;
        if !columns.is_multiple_of(ELEMENTS) || rows * columns == 0 {
            return Err(codes.refuse(&format!("rows, and 2 · {bytes} columns in a multiple of {ELEMENTS}")));
        }
        if scales.matrix(&[DType::U8, DType::F8E8M0])? != [rows, columns / ELEMENTS] {
            return Err(scales.refuse(&format!("[{rows}, {columns} / {ELEMENTS}], after {}", codes.leaf)));
        }
        let stored = [codes.name, scales.name].into_iter().chain(others).collect();
        Ok(Mxfp4 { stored, shape: Shape::new(&[rows, columns]) })
    }
}

impl Repack for Mxfp4 {
    fn describe(&self) -> (DType, Shape) {
        (DType::Mxfp4, self.shape)
    }

    fn tensors(&self) -> &[String] {
        &self.stored
    }

    fn writer<'a>(&'a self, weights: &'a Weights) -> Result<Option<RowWriter<'a>>, tensor::Error> {
        let (Some(pairs), Some(exponents)) = (weights.get(&self.stored[0]), weights.get(&self.stored[1]))
        else {
            return Ok(None);
        };
        let (pairs, exponents) = (pairs.try_contiguous()?, exponents.try_contiguous()?);
        let groups = self.shape[self.shape.rank() - 1] / ELEMENTS;
        Ok(Some(Box::new(move |first, blocks| {
            let (start, count) = (first * groups, blocks.len() / BYTES);
            let pairs = &pairs.bytes()[16 * start..][..16 * count];
            from_pairs(&exponents.bytes()[start..][..count], pairs, blocks);
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use tensor::Tensor;
    use tensor::blocks::mxfp4::LEVELS;

    use super::*;
    use crate::checkpoint::testing::safetensors;
    use crate::stored::repacked::Repacked;

    const EXPERTS: usize = 2;
    const ROWS: usize = 6;
    const GROUPS: usize = 2;

    /// The tensors of experts: their shapes, and bytes that differ.
    fn file(blocks: (&str, &[usize]), scales: (&str, &[usize])) -> Weights {
        let bytes = |(_, shape): (&str, &[usize]), first: usize, step: usize| {
            let count = shape.iter().product();
            (0..count).map(|i| (first + step * i) as u8).collect::<Vec<u8>>()
        };
        safetensors(&[
            ("w_blocks", blocks.0, blocks.1, bytes(blocks, 3, 37)),
            ("w_scales", scales.0, scales.1, bytes(scales, 120, 1)),
        ])
    }

    fn usual() -> Weights {
        file(("U8", &[EXPERTS, ROWS, GROUPS, 16]), ("U8", &[EXPERTS, ROWS, GROUPS]))
    }

    fn read(weights: &Weights) -> Result<Mxfp4, Refusal> {
        let part =
            |leaf, name: &str| weights.get(name).map(|tensor| Part { leaf, name: name.to_string(), tensor });
        Mxfp4::new(part("blocks", "w_blocks").unwrap(), part("scales", "w_scales"))
    }

    /// As the format's description has it, from the tensors of `usual`.
    fn weight(expert: usize, row: usize, column: usize) -> f32 {
        let block = (expert * ROWS + row) * GROUPS + column / 32;
        let byte = (3 + 37 * (16 * block + column % 32 / 2)) as u8;
        let nibble = if column.is_multiple_of(2) { byte & 15 } else { byte >> 4 };
        f32::from(LEVELS[usize::from(nibble)]) / 2.0 * 2f32.powi(block as i32 + 120 - 127)
    }

    #[test]
    fn weights_are_those_of_the_two_tensors() {
        let weights = usual();
        let whole = Repacked::new(read(&weights).unwrap());
        let interleaved = |first: usize| (first..ROWS).step_by(2).map(|row| row..row + 1).collect::<Vec<_>>();
        let some = |rows: Range<usize>| std::iter::once(rows).collect::<Vec<_>>();
        for rows in [some(0..ROWS), some(1..4), interleaved(0), interleaved(1)] {
            let tensor: Tensor = whole.with_rows(rows.clone()).read(&weights).unwrap().unwrap();
            let rows: Vec<usize> = rows.into_iter().flatten().collect();
            assert_eq!((tensor.dtype(), &tensor.shape()[..]), (DType::Mxfp4, &[EXPERTS, rows.len(), 64][..]));
            let places = (0..EXPERTS).flat_map(|expert| rows.iter().map(move |&row| (expert, row)));
            let expected = places.flat_map(|(expert, row)| (0..64).map(move |j| weight(expert, row, j)));
            assert_eq!(tensor.to_f32_vec(), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_of_compressed_tensors_are_the_same() {
        let rows = EXPERTS * ROWS;
        let file = |bytes: usize| file(("U8", &[rows, bytes]), ("U8", &[rows, GROUPS]));
        let read = |weights: &Weights| {
            let part =
                |leaf, name: &str| Part { leaf, name: name.to_string(), tensor: weights.get(name).unwrap() };
            let scales = Some(part("weight_scale", "w_scales"));
            Mxfp4::from_rows(part("weight_packed", "w_blocks"), scales, Vec::new())
        };
        let weights = file(32);
        let tensor = Repacked::new(read(&weights).unwrap()).read(&weights).unwrap().unwrap();
        assert_eq!((tensor.dtype(), &tensor.shape()[..]), (DType::Mxfp4, &[rows, 64][..]));
        let places =
            (0..rows).flat_map(|row| (0..64).map(move |column| weight(row / ROWS, row % ROWS, column)));
        assert_eq!(tensor.to_f32_vec(), places.collect::<Vec<_>>());
        let (leaf, message) = read(&file(24)).unwrap_err();
        assert!(
            leaf == "weight_packed" && message.contains("2 · 24 columns in a multiple of 32"),
            "{message}"
        );
        let (leaf, message) = read(&file(16)).unwrap_err();
        assert!(
            leaf == "weight_scale" && message.contains("[12, 32 / 32], after weight_packed"),
            "{message}"
        );
    }

    #[test]
    fn tensors_that_disagree_are_refused() {
        type Described = (&'static str, &'static [usize]);
        let cases: [(Described, Described, &str, &str); 5] = [
            (
                ("U8", &[2, 6, 2, 16]),
                ("U8", &[2, 6, 3]),
                "scales",
                "is u8[2, 6, 3], expected u8[2, 6, 2], after blocks",
            ),
            (("U8", &[2, 6, 2, 16]), ("F32", &[2, 6, 2]), "scales", "is f32[2, 6, 2], expected u8[2, 6, 2]"),
            (("U8", &[2, 6, 2, 8]), ("U8", &[2, 6, 2]), "blocks", "is u8[2, 6, 2, 8], expected u8[experts,"),
            (("U8", &[2, 0, 2, 16]), ("U8", &[2, 0, 2]), "blocks", "is u8[2, 0, 2, 16], expected codes"),
            (("I16", &[6, 2, 16]), ("U8", &[6, 2]), "blocks", "is i16[6, 2, 16], expected codes of u8"),
        ];
        for (blocks, scales, leaf, expected) in cases {
            let (found, message) = read(&file(blocks, scales)).unwrap_err();
            assert!(found == leaf && message.starts_with(expected), "{found} {message}");
        }
    }
}
