//! `y = x` in another dtype.

use super::prelude::*;

/// Converts elements: any dtype (blocks are dequantized) → a float, an integer or bool.
///
/// To a float: rounded to the nearest, halves to even; beyond the range of an 8-bit float without infinity to NaN, of a
/// smaller float, which has neither, to its end. Float to integer: rounded towards 0, beyond the range
/// to its end, NaN to 0. Integer to integer: wraps around. To bool: whether it is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cast {
    /// The dtype of the result.
    pub to: DType,
}

impl Define for Cast {
    declare!("cast" { to });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        let to = self.to;
        refuse_if!(!to.is_float() && !to.is_integer() && to != DType::Bool, "x {x} cannot become {to}");
        Ok(vec![x.with_dtype(to)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (to, shape) = (self.to, outputs[0]);
        let result = match Numbers::of(inputs[0]) {
            Numbers::Floats(x) if to == DType::Bool => {
                Tensor::from_bools(shape, &x.iter().map(|&x| x != 0.0).collect::<Vec<_>>())
            }
            Numbers::Floats(x) if to.is_integer() => {
                let (lowest, highest) = integer_range(to);
                let values = x.iter().map(|&x| (x as i128).clamp(lowest, highest));
                from_i128(to, shape, &values.collect::<Vec<_>>())
            }
            Numbers::Floats(x) => from_f64(to, shape, &x),
            Numbers::Integers(x) if to.is_float() => from_integers_as_floats(to, shape, &x),
            Numbers::Integers(x) => from_i128(to, shape, &x),
        };
        Ok(vec![result])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        check_types(Cast { to: DType::F32 }, &[(&["q4_k[2, 256]"], "f32[2, 256]"), (&["bool[n]"], "f32[n]")]);
        check_types(Cast { to: DType::Q8_0 }, &[(&["f32[32]"], "cast: x f32[32] cannot become q8_0")]);
    }

    #[test]
    fn values() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        let x = Tensor::from_slice([6], &[-1.9f32, 2.5, nan, infinity, -infinity, 300.0]);
        let table: [(DType, [f64; 6]); 4] = [
            (DType::U8, [0.0, 2.0, 0.0, 255.0, 0.0, 255.0]),
            (DType::I8, [-1.0, 2.0, 0.0, 127.0, -128.0, 127.0]),
            (DType::Bool, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            (DType::I64, [-1.0, 2.0, 0.0, i64::MAX as f64, i64::MIN as f64, 300.0]),
        ];
        for (to, expected) in table {
            assert_eq!(numbers(Cast { to }, &[&x]), expected, "{to}");
        }
        let integers = Tensor::from_slice([2], &[-1i32, 511]);
        assert_eq!(numbers(Cast { to: DType::U8 }, &[&integers]), [255.0, 255.0]);
        // 2^24 + 1 is half way to the next f32; one more in the last place of an i64 decides it.
        let halves = Tensor::from_slice([2], &[(1i64 << 54) + (1 << 30), (1i64 << 54) + (1 << 30) + 1]);
        let rounded = run(Cast { to: DType::F32 }, &[&halves]).unwrap()[0].to_vec::<f32>();
        assert_eq!(rounded, [2f32.powi(54), 2f32.powi(54) + 2f32.powi(31)]);
        let bf16 =
            run(Cast { to: DType::BF16 }, &[&Tensor::from_slice([1], &[(1i64 << 62) + (1 << 54) + 1])])
                .unwrap();
        assert_eq!(bf16[0].to_f64_vec(), [2f64.powi(62) + 2f64.powi(55)]);
    }
}
