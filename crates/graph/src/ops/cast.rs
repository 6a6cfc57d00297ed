//! `y = x` in another dtype.

use tensor::{DType, Shape, Tensor};

use super::attributes::required;
use super::check::{FLOATS, operands};
use super::elements::{Numbers, from_f64, from_i128, from_integers_as_floats, integer_range};
use super::{Attribute, Attributes, Define};
use crate::{Error, Type, TypeError};

/// Converts elements: any dtype (blocks are dequantized) → f16, bf16, f32, f64, an integer or bool.
///
/// To a float: rounded to the nearest, halves to even. Float to integer: rounded towards 0, beyond the range
/// to its end, NaN to 0. Integer to integer: wraps around. To bool: whether it is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cast {
    /// The dtype of the result.
    pub to: DType,
}

impl Define for Cast {
    const NAMES: &[&str] = &["cast"];

    fn name(&self) -> &'static str {
        "cast"
    }

    fn attributes(&self) -> Attributes {
        Attributes::default().with("to", Attribute::DType(self.to))
    }

    fn parse(_name: &str, attributes: &mut Attributes) -> Result<Cast, TypeError> {
        Ok(Cast { to: required("to", attributes.dtype("to")?)? })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        let to = self.to;
        if !FLOATS.contains(&to) && !to.is_integer() && to != DType::Bool {
            return Err(TypeError::new(format!("x {x} cannot become {to}")));
        }
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
            Numbers::Integers(x) if FLOATS.contains(&to) => from_integers_as_floats(to, shape, &x),
            Numbers::Integers(x) => from_i128(to, shape, &x),
        };
        Ok(vec![result])
    }
}
