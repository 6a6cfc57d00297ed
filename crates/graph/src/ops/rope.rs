//! Rotary position embedding: pairs of elements turn by an angle proportional to the token's position.
//!
//! `(a, b) → (a·cos φ - b·sin φ, a·sin φ + b·cos φ)` with `φ = position · inverse_frequency` (Su et al.,
//! "RoFormer", 2021).

use super::field::words;
use super::prelude::*;

/// The cosines and sines of each position, for every layer to use: `positions: u32[tokens]`,
/// `inverse_frequencies: f32[n]` → `f32[tokens, 2, n]`, the n cosines first. The angle is computed in f64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeTable {
    /// What the results are multiplied by; 1 but for scaled variants such as YaRN.
    pub scale: f32,
}

/// Turns the first `2n` elements of each head and keeps the others: `x: f32[tokens, heads, head_dim]`,
/// `table`
/// `f32[tokens, 2, n]` → the type of `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rope {
    /// Which elements are pairs.
    pub style: RopeStyle,
}

/// Which elements a [`Rope`] turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// `2i` and `2i + 1`.
    Interleaved,
    /// `i` and `i + n`.
    HalfSplit,
}

impl Default for RopeTable {
    fn default() -> RopeTable {
        RopeTable { scale: 1.0 }
    }
}

words!(RopeStyle: Interleaved = "interleaved", HalfSplit = "half_split");

impl RopeStyle {
    /// The two elements of pair `i` of `n`.
    pub fn pair(self, i: usize, n: usize) -> (usize, usize) {
        match self {
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            RopeStyle::HalfSplit => (i, i + n),
        }
    }
}

impl Define for RopeTable {
    declare!("rope_table" { scale = 1.0 });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [positions, frequencies] = operands(inputs, ["positions", "inverse_frequencies"])?;
        expect_dtype("positions", positions, &[DType::U32])?;
        expect_rank("positions", positions, 1)?;
        expect_dtype("inverse_frequencies", frequencies, &[DType::F32])?;
        expect_rank("inverse_frequencies", frequencies, 1)?;
        expect_finite("scale", self.scale)?;
        let shape = [positions.shape[0].clone(), Dim::from(2), frequencies.shape[0].clone()];
        Ok(vec![positions.with_shape(shape).with_dtype(DType::F32)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (positions, frequencies) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let mut table = Vec::with_capacity(outputs[0].elements());
        for position in positions {
            for function in [f64::cos, f64::sin] {
                table.extend(frequencies.iter().map(|f| function(position * f) * f64::from(self.scale)));
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &table)])
    }
}

impl Define for Rope {
    declare!("rope" { style });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, table] = operands(inputs, ["x", "table"])?;
        expect_dtype("x", x, &[DType::F32])?;
        expect_rank("x", x, 3)?;
        expect_rank("table", table, 3)?;
        let pairs = &table.shape[2];
        expect_type("table", table, DType::F32, &[&x.shape[0], &Dim::from(2), pairs])?;
        match (x.shape[2].as_static(), pairs.as_static()) {
            (Some(head), Some(pairs)) if pairs <= head / 2 => Ok(vec![x.clone()]),
            _ => Err(type_error!("table {table} turns more elements than heads have: x {x}")),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (mut x, table) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let (heads, size, n) = (outputs[0][1], outputs[0][2], inputs[1].shape()[2]);
        for (row, head) in x.chunks_exact_mut(size.max(1)).enumerate() {
            let (cos, sin) = table[row / heads * 2 * n..][..2 * n].split_at(n);
            for pair in 0..n {
                let (i, j) = self.style.pair(pair, n);
                let (a, b) = (head[i], head[j]);
                head[i] = a * cos[pair] - b * sin[pair];
                head[j] = a * sin[pair] + b * cos[pair];
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &x)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        check_types(
            RopeTable::default(),
            &[
                (&["u32[tokens]", "f32[8]"], "f32[tokens, 2, 8]"),
                (&["i64[tokens]", "f32[8]"], "rope_table: positions is i64[tokens], expected u32"),
            ],
        );
        check_types(
            Rope { style: RopeStyle::HalfSplit },
            &[
                (&["f32[tokens, 4, 20]", "f32[tokens, 2, 8]"], "f32[tokens, 4, 20]"),
                (
                    &["f32[tokens, 4, 20]", "f32[n, 2, 8]"],
                    "rope: table is f32[n, 2, 8], expected f32[tokens, 2, 8]",
                ),
                (
                    &["f32[n, 4, 8]", "f32[n, 2, 8]"],
                    "rope: table f32[n, 2, 8] turns more elements than heads have: x f32[n, 4, 8]",
                ),
                (&["f32[n, 32]", "f32[n, 2, 8]"], "rope: x is f32[n, 32], expected 3 axes"),
            ],
        );
    }

    #[test]
    fn values() {
        let positions = Tensor::from_slice([2], &[0u32, 100]);
        let frequencies = Tensor::from_slice([2], &[1.0f32, 0.5]);
        let table = numbers(RopeTable { scale: 2.0 }, &[&positions, &frequencies]);
        let angles = [
            0.862_318_872_287_684,
            0.964_966_028_492_113_3,
            -0.506_365_641_109_758_8,
            -0.262_374_853_703_928_8,
        ];
        assert_close(&table[..4], &[2.0, 2.0, 0.0, 0.0], 0.0);
        assert_close(&table[4..], &angles.map(|x| 2.0 * x), 1e-7);
        // A quarter turn of the first pair, none of the second, and an element beyond both.
        let turn = Tensor::from_slice([1, 2, 2], &[0.0f32, 1.0, 1.0, 0.0]);
        let x = Tensor::from_slice([1, 2, 5], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        let interleaved = numbers(Rope { style: RopeStyle::Interleaved }, &[&x, &turn]);
        assert_eq!(interleaved, [-2.0, 1.0, 3.0, 4.0, 5.0, -7.0, 6.0, 8.0, 9.0, 10.0]);
        let half_split = numbers(Rope { style: RopeStyle::HalfSplit }, &[&x, &turn]);
        assert_eq!(half_split, [-3.0, 2.0, 1.0, 4.0, 5.0, -8.0, 7.0, 6.0, 9.0, 10.0]);
    }
}
