//! The sizes of a tensor's axes as data.

use super::prelude::*;

/// `x` of any type → `i64[rank]` on the host: the size of each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShapeToTensor;

impl Define for ShapeToTensor {
    declare!("shape_to_tensor");

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        Ok(vec![Type::new(DType::I64, [x.rank()])])
    }

    fn places_results(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let sizes: Vec<i64> = inputs[0].shape().iter().map(|&size| size as i64).collect();
        Ok(vec![Tensor::from_slice([sizes.len()], &sizes)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(ShapeToTensor, &[(&["q8_0[n, 64]"], "i64[2]"), (&["f32[] @gpu:0"], "i64[0]")]);
        let x = Tensor::zeros(DType::F32, [3, 0, 2]);
        assert_eq!(run(ShapeToTensor, &[&x]).unwrap()[0].to_vec::<i64>(), [3, 0, 2]);
    }
}
