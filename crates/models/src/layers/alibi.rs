//! Biases that grow with the positions of keys, in place of rotations.

use graph::{Builder, Value};
use tensor::{Tensor, bf16};

/// ALiBi (Press et al. 2022): scores have `slope · position` of their key added. Slopes, positions and biases are rounded to
/// bf16, as in Falcon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alibi {
    /// Query heads, each of which has its own slope.
    pub heads: usize,
    /// The number of positions.
    pub positions: usize,
    /// The factor on biases.
    pub scale: f32,
}

impl Alibi {
    /// f32[heads, positions]
    pub(crate) fn build(&self, graph: &mut Builder) -> Value {
        let rounded = |number: f32| bf16::from_f32(number).to_f32();
        let bias = |slope: f32, position: usize| self.scale * rounded(slope * rounded(position as f32));
        let slopes = (0..self.heads).map(|head| rounded(self.slope(head)));
        let biases: Vec<f32> =
            slopes.flat_map(|slope| (0..self.positions).map(move |position| bias(slope, position))).collect();
        graph.constant(Tensor::from_slice([self.heads, self.positions], &biases))
    }

    /// `2^(-8 / n)`, `2^(-16 / n)` and so on for as many heads as the largest power of two `n`; the others have every other
    /// slope of `2 · n` heads.
    fn slope(&self, head: usize) -> f32 {
        let power = 1 << self.heads.ilog2();
        let (heads, number) =
            if head < power { (power, head + 1) } else { (2 * power, 2 * (head - power) + 1) };
        let base = (-8.0 / heads as f64).exp2() as f32;
        f64::from(base).powi(number as i32) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_fall_by_powers_and_fill_gaps() {
        let slopes = |heads: usize| -> Vec<f32> {
            let alibi = Alibi { heads, positions: 1, scale: 1.0 };
            (0..heads).map(|head| alibi.slope(head)).collect()
        };
        assert_eq!(slopes(1), [1.0 / 256.0]);
        assert_eq!(slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
    }
}
