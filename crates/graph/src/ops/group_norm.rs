//! `y = (x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`, over groups of channels.

use super::prelude::*;

/// Group normalization, as PyTorch's: `x: f32[batch, channels, ..]`, `weight: f32[channels]`, `bias: f32[channels]` → the
/// type of `x`. Each of `groups` runs of channels of an example gets mean 0 and variance 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupNorm {
    /// Divides the channels.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
}

impl Define for GroupNorm {
    declare!("group_norm" { groups, eps });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, weight, bias] = operands(inputs, ["x", "weight", "bias"])?;
        expect_dtype("x", x, &[DType::F32])?;
        let [_, channels, ..] = &x.shape[..] else {
            return Err(type_error!("x is {x}, expected at least 2 axes"));
        };
        refuse_if!(
            self.groups == 0 || channels.as_static().is_none_or(|count| !count.is_multiple_of(self.groups)),
            "the {channels} channels of x {x} do not fall into {} groups",
            self.groups
        );
        expect_type("weight", weight, DType::F32, &[channels])?;
        expect_type("bias", bias, DType::F32, &[channels])?;
        expect_eps(self.eps)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [mut x, weight, bias] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let plane: usize = outputs[0][2..].iter().product();
        let len = outputs[0][1] / self.groups * plane;
        for (group, x) in x.chunks_exact_mut(len.max(1)).enumerate() {
            let mean = x.iter().sum::<f64>() / len as f64;
            let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / len as f64;
            let scale = 1.0 / (variance + f64::from(self.eps)).sqrt();
            for (i, x) in x.iter_mut().enumerate() {
                let channel = (group * len + i) / plane % outputs[0][1];
                *x = (*x - mean) * scale * weight[channel] + bias[channel];
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
        let op = GroupNorm { groups: 2, eps: 1e-5 };
        check_types(
            op,
            &[
                (&["f32[n, 4, h, w]", "f32[4]", "f32[4]"], "f32[n, 4, h, w]"),
                (
                    &["f32[n, 5]", "f32[5]", "f32[5]"],
                    "group_norm: the 5 channels of x f32[n, 5] do not fall into 2 groups",
                ),
                (&["f32[n, 4]", "f32[4]", "f32[2]"], "group_norm: bias is f32[2], expected f32[4]"),
                (&["f32[4]", "f32[4]", "f32[4]"], "group_norm: x is f32[4], expected at least 2 axes"),
            ],
        );
    }

    /// Of `torch.nn.functional.group_norm`, f64, on `x_i = sin(i)`.
    #[test]
    fn values_of_pytorch() {
        let x: Vec<f32> = (0..24).map(|i| (i as f64).sin() as f32).collect();
        let x = Tensor::from_slice([2, 4, 3], &x);
        let weight = Tensor::from_slice([4], &[1.0f32, 2.0, 3.0, 4.0]);
        let bias = Tensor::from_slice([4], &[0.5f32, 0.0, -1.0, 2.0]);
        let y = numbers(GroupNorm { groups: 2, eps: 1e-5 }, &[&x, &weight, &bias]);
        let expected = [0.45876582579859027, 1.6405449892322324, 1.7358018398588262, 0.31391533702351065];
        assert_close(&y[..4], &expected, 1e-6);
        assert_close(&y[22..], &[1.6631322114355913, -3.2210357709497717], 1e-6);
    }
}
