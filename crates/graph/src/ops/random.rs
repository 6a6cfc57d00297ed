//! Random numbers that depend on a seed and on their position alone, so that every device and every number of threads
//! gives the same bits.
//!
//! An element is made of the four words that Philox gives for its position. The logarithm and the cosine of normal
//! numbers are sums written out here, as those of two machines' libraries differ in the last bits.

use std::f64::consts::{FRAC_PI_4, LN_2, SQRT_2};

use tensor::philox;

use super::field::Field;
use super::prelude::*;

/// Random numbers of one of the four plain float dtypes: nothing, or a `seed: i64[]` → [d..]. The same each time the graph
/// runs, with the same seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Random {
    /// How the numbers are spread.
    pub distribution: Distribution,
    /// Of the result.
    pub dtype: DType,
    /// Of the result.
    pub shape: Vec<Dim>,
    /// Another seed gives other numbers. A seed that is an operand is added to it, and wraps around.
    pub seed: u64,
}

/// How random numbers are spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Evenly from `low` up to `high`, which only rounding reaches: with as many random bits as the dtype's precision.
    Uniform {
        /// The smallest.
        low: f32,
        /// At least `low`.
        high: f32,
    },
    /// Normally, by Box and Muller's transform of 53 random bits each (1958).
    Normal {
        /// The mean.
        mean: f32,
        /// The standard deviation, at least 0.
        std: f32,
    },
}

const NAMES: &[&str] = &["random_uniform", "random_normal"];

impl Random {
    /// This op with the seed that an operand makes of its own.
    pub fn with_seed(&self, operand: i64) -> Random {
        Random { seed: self.seed.wrapping_add(operand as u64), ..self.clone() }
    }

    /// The number at a row-major position, before it is rounded to the dtype.
    pub fn element(&self, position: u64) -> f64 {
        match self.distribution {
            Distribution::Uniform { low, high } => {
                let (low, high) = (f64::from(low), f64::from(high));
                let steps = match self.dtype {
                    DType::BF16 => 8,
                    DType::F16 => 11,
                    DType::F32 => 24,
                    _ => 53,
                };
                let steps = (1u64 << steps) as f64;
                low + (high - low) * ((philox::uniform(self.seed, position) * steps).floor() / steps)
            }
            Distribution::Normal { mean, std } => {
                f64::from(mean) + f64::from(std) * normal(self.seed, position)
            }
        }
    }
}

impl Field for Distribution {
    fn write(&self, _name: &str, attributes: Attributes) -> Attributes {
        match *self {
            Distribution::Uniform { low, high } => high.write("high", low.write("low", attributes)),
            Distribution::Normal { mean, std } => std.write("std", mean.write("mean", attributes)),
        }
    }

    fn read(op: &str, _name: &str, attributes: &mut Attributes) -> Result<Distribution, TypeError> {
        let mut number = |name| f32::read(op, name, attributes);
        Ok(if op == NAMES[0] {
            Distribution::Uniform { low: number("low")?, high: number("high")? }
        } else {
            Distribution::Normal { mean: number("mean")?, std: number("std")? }
        })
    }
}

impl Define for Random {
    declare!(NAMES[|op| usize::from(matches!(op.distribution, Distribution::Normal { .. }))] {
        dtype, shape, distribution, seed
    });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        if !inputs.is_empty() {
            let [seed] = operands(inputs, ["seed"])?;
            expect_type("seed", seed, DType::I64, &[])?;
        }
        refuse_if!(!FLOATS.contains(&self.dtype), "dtype is {}, expected f16, bf16, f32 or f64", self.dtype);
        match self.distribution {
            Distribution::Uniform { low, high } => {
                expect_finite("low", low)?;
                expect_finite("high", high)?;
                refuse_if!(high < low, "high is {high}, which is below low, {low}");
            }
            Distribution::Normal { mean, std } => {
                expect_finite("mean", mean)?;
                expect_finite("std", std)?;
                refuse_if!(std < 0.0, "std is {std}, expected at least 0");
            }
        }
        Ok(vec![Type::new(self.dtype, self.shape.iter().cloned())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let op = inputs.first().map_or_else(|| self.clone(), |seed| self.with_seed(seed.to_vec::<i64>()[0]));
        let values: Vec<f64> = (0..outputs[0].elements() as u64).map(|i| op.element(i)).collect();
        Ok(vec![from_f64(self.dtype, outputs[0], &values)])
    }
}

/// A number of the standard normal distribution.
fn normal(seed: u64, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, 0, 0];
    let [a, b, c, d] = philox::philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = |high: u32, low: u32| ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64;
    let unit = 1.0 / (1u64 << 53) as f64;
    // In (0, 1], as the logarithm needs, and in [0, 1).
    let (radius, turn) = ((bits(b, a) + 1.0) * unit, bits(d, c) * unit);
    (-2.0 * ln(radius)).sqrt() * cos_turn(turn)
}

/// `ln x` of a normal, positive number: `x = m · 2^e`, `ln m = 2 (s + s³/3 + s⁵/5 + …)`, `s = (m - 1) / (m + 1)`.
fn ln(x: f64) -> f64 {
    let mut exponent = ((x.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((x.to_bits() & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        (mantissa, exponent) = (mantissa / 2.0, exponent + 1);
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let sum = (0..12).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    exponent as f64 * LN_2 + 2.0 * s * sum
}

/// `cos 2πx` for `x` in [0, 1), by way of an angle of at most π/4.
fn cos_turn(x: f64) -> f64 {
    let eighths = x * 8.0;
    let octant = eighths as u32;
    let within = eighths - f64::from(octant);
    let angle = FRAC_PI_4 * if octant.is_multiple_of(2) { within } else { 1.0 - within };
    let square = angle * angle;
    // Taylor: each term is the one before times -x² / ((n - 1) n).
    let series = |last: u32| {
        (1..=9).rev().fold(1.0, |sum, k| {
            let n = f64::from(2 * k + last);
            1.0 - sum * square / ((n - 1.0) * n)
        })
    };
    match octant {
        0 | 7 => series(0),
        3 | 4 => -series(0),
        1 | 6 => angle * series(1),
        _ => -angle * series(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;
    use crate::{Graph, dims};

    fn uniform(dtype: DType, size: usize, seed: u64) -> Random {
        let distribution = Distribution::Uniform { low: 0.0, high: 1.0 };
        Random { distribution, dtype, shape: dims![size].to_vec(), seed }
    }

    #[test]
    fn types() {
        let op = |distribution, dtype| Random { distribution, dtype, shape: dims!["n", 2].to_vec(), seed: 0 };
        let normal = |mean, std| Distribution::Normal { mean, std };
        let wrong = "random_normal: seed is i64[1], expected i64[]";
        let table = [(&[][..], "bf16[n, 2]"), (&["i64[]"], "bf16[n, 2]"), (&["i64[1]"], wrong)];
        check_types(op(normal(0.0, 1.0), DType::BF16), &table);
        let wrong = "random_normal: dtype is i8, expected f16, bf16, f32 or f64";
        check_types(op(normal(0.0, 1.0), DType::I8), &[(&[], wrong)]);
        check_types(
            op(normal(0.0, -1.0), DType::F32),
            &[(&[], "random_normal: std is -1, expected at least 0")],
        );
        let down = Distribution::Uniform { low: 1.0, high: 0.0 };
        check_types(op(down, DType::F32), &[(&[], "random_uniform: high is 0, which is below low, 1")]);
        let text = "graph g(%x: f32[n]) {\n  %0 = random_uniform() {dtype = f32, shape = [n], low = -1.0, \
                    high = 1.0, seed = -1} : f32[n]\n  return %0\n}\n";
        assert_eq!(Graph::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn sums_are_the_functions() {
        for i in 1..2000 {
            let x = f64::from(i) / 2000.0;
            assert!((ln(x) - x.ln()).abs() <= 1e-15 * x.ln().abs().max(1e-2), "ln {x}");
            assert!((ln(x * 1e-12) - (x * 1e-12).ln()).abs() < 1e-14, "ln {x}e-12");
            assert!((cos_turn(x) - (std::f64::consts::TAU * x).cos()).abs() < 1e-15, "cos {x}");
        }
        assert_eq!((ln(1.0), cos_turn(0.0), cos_turn(0.25), cos_turn(0.5)), (0.0, 1.0, 0.0, -1.0));
    }

    #[test]
    fn numbers_are_spread_as_they_should() {
        let count = 100_000;
        for dtype in FLOATS {
            let draws = numbers(uniform(*dtype, count, 3), &[]);
            assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)), "{dtype}");
            let mean = draws.iter().sum::<f64>() / count as f64;
            // Bits that are cut off lower the mean by half of their unit.
            assert!((mean - 0.5).abs() < 6e-3, "{dtype}: {mean}");
        }
        let op = Random {
            distribution: Distribution::Normal { mean: 3.0, std: 2.0 },
            ..uniform(DType::F64, count, 3)
        };
        let draws = numbers(op.clone(), &[]);
        let moment =
            |power| draws.iter().map(|x| ((x - 3.0) / 2.0f64).powi(power)).sum::<f64>() / count as f64;
        for (power, expected) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)] {
            assert!((moment(power) - expected).abs() < 0.05, "moment {power}: {}", moment(power));
        }
        let other = numbers(Random { seed: 4, ..op.clone() }, &[]);
        assert!(draws.iter().zip(&other).all(|(a, b)| a != b));
        assert_eq!(numbers(Random { seed: 9, ..op }, &[&Tensor::scalar(-5i64)]), other);
        // Philox's published answer for a key and a counter of zeros.
        let first = numbers(uniform(DType::F64, 1, 0), &[]);
        assert_eq!(first, [(0xe169_c58d_6627_e8d5_u64 >> 11) as f64 / (1u64 << 53) as f64]);
    }
}
