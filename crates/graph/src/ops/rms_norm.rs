//! `y = x / sqrt(mean(x²) + eps) · weight`, over the last axis.

use tensor::{DType, Shape, Tensor};

use super::attributes::required;
use super::{Attribute, Attributes, Define};
use crate::{Error, Type, TypeError};

/// Root-mean-square normalization: `x` f32[.., n], `weight` f32[n] → f32[.., n].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
}

impl Define for RmsNorm {
    const NAMES: &[&str] = &["rms_norm"];

    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn attributes(&self) -> Attributes {
        Attributes::default().with("eps", Attribute::Float(self.eps.into()))
    }

    fn parse(_name: &str, attributes: &mut Attributes) -> Result<RmsNorm, TypeError> {
        Ok(RmsNorm { eps: required("eps", attributes.float("eps")?)? as f32 })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, weight] = super::operands(inputs, ["x", "weight"])?;
        for (name, ty) in [("x", x), ("weight", weight)] {
            super::expect_dtype(name, ty, &[DType::F32])?;
        }
        let last = super::last_axis("x", x)?;
        if weight.shape[..] != [last.clone()] {
            return Err(TypeError::new(format!("weight {weight} does not match the last axis of x {x}")));
        }
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, weight) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let rows = x.chunks_exact(weight.len().max(1)).flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + f64::from(self.eps)).sqrt();
            row.iter().zip(&weight).map(move |(x, w)| (x * scale * w) as f32)
        });
        Ok(vec![Tensor::from_slice(outputs[0], &rows.collect::<Vec<f32>>())])
    }
}
