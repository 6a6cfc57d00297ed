//! The elements near the diagonal of matrices; others become 0.

use super::prelude::*;

/// Keeps a band: `x` [.., rows, columns] of any plain dtype → its type. Row `i`, column `j` is in the band if
/// `i - j <= lower` and `j - i <= upper`: `lower: None, upper: Some(0)` is the lower triangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BandPart {
    /// How many diagonals below the main one; `None` is all.
    pub lower: Option<usize>,
    /// How many diagonals above the main one; `None` is all.
    pub upper: Option<usize>,
    /// Whether to keep what is outside the band instead.
    pub exclude: bool,
}

impl BandPart {
    /// The columns of the band in a row of `columns`.
    pub fn band(&self, row: usize, columns: usize) -> std::ops::Range<usize> {
        let start = self.lower.map_or(0, |lower| row.saturating_sub(lower)).min(columns);
        let end =
            self.upper.map_or(columns, |upper| row.saturating_add(upper).saturating_add(1).min(columns));
        start..end.max(start)
    }
}

impl Define for BandPart {
    declare!("band_part" { lower, upper, exclude });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        refuse_if!(x.rank() < 2, "x is {x}, expected at least 2 axes");
        Ok(vec![x.with_shape(x.shape.clone())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let x = inputs[0].contiguous();
        let [.., rows, columns] = outputs[0].dims() else { unreachable!("the type rule asks for matrices") };
        let size = x.dtype().block().bytes;
        let mut bytes = x.bytes().to_vec();
        for (element, slot) in bytes.chunks_exact_mut(size).enumerate() {
            let (row, column) = (element / columns % rows, element % columns);
            if self.band(row, *columns).contains(&column) == self.exclude {
                slot.fill(0);
            }
        }
        Ok(vec![from_bytes(x.dtype(), outputs[0], &bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        let band = |lower, upper, exclude| BandPart { lower, upper, exclude };
        check_types(
            band(None, None, false),
            &[
                (&["bool[n, 2, m]"], "bool[n, 2, m]"),
                (&["f32[2]"], "band_part: x is f32[2], expected at least 2 axes"),
            ],
        );
        let x = Tensor::from_slice([3, 3], &[1i8, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(numbers(band(None, Some(0), false), &[&x]), [1., 0., 0., 4., 5., 0., 7., 8., 9.]);
        assert_eq!(numbers(band(Some(0), None, false), &[&x]), [1., 2., 3., 0., 5., 6., 0., 0., 9.]);
        assert_eq!(numbers(band(Some(1), Some(0), false), &[&x]), [1., 0., 0., 4., 5., 0., 0., 8., 9.]);
        assert_eq!(numbers(band(Some(0), Some(0), true), &[&x]), [0., 2., 3., 4., 0., 6., 7., 8., 0.]);
        assert_eq!(numbers(band(None, None, false), &[&x])[8], 9.0);
    }
}
