//! `c_ij = Σ_s round(Σ_{k in chunk s} a_ik · b_kj)`: matrix products whose partial sums are kept in halves.

use super::matmul::MatMul;
use super::prelude::*;

/// A [`MatMul`] of halves that gives halves: `a` [.., m, k], `b` [.., k, n], both f16 or both bf16 → [.., m, n] of that
/// dtype. Sums over `chunk` of `k` at a time are rounded to it; what they add up to is rounded once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SplitMatMul {
    /// How many of `k` a partial sum takes; at least 1.
    pub chunk: usize,
}

impl Define for SplitMatMul {
    declare!("split_matmul" { chunk });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        if self.chunk == 0 {
            return Err(TypeError::new("chunk is 0, expected at least 1"));
        }
        let product = MatMul.infer(inputs)?.swap_remove(0);
        match inputs[0].dtype {
            dtype @ (DType::F16 | DType::BF16) => Ok(vec![product.with_dtype(dtype)]),
            _ => Err(type_error!("a is {}, expected f16 or bf16", inputs[0])),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (shape, dtype) = (outputs[0], inputs[0].dtype());
        let k = inputs[0].shape()[inputs[0].shape().rank() - 1];
        let mut sums = vec![0.0; shape.elements()];
        for start in (0..k).step_by(self.chunk) {
            let len = self.chunk.min(k - start);
            let part = |x: &Tensor, axis: usize| x.narrow(axis, start..start + len);
            let (a, b) = (inputs[0], inputs[1]);
            let (a, b) = (part(a, a.shape().rank() - 1), part(b, b.shape().rank() - 2));
            let partial = MatMul.reference(&[&a, &b], outputs)?;
            let rounded = from_f64(dtype, shape, &partial[0].to_f64_vec());
            sums.iter_mut().zip(rounded.to_f64_vec()).for_each(|(sum, partial)| *sum += partial);
        }
        Ok(vec![from_f64(dtype, shape, &sums)])
    }
}

#[cfg(test)]
mod tests {
    use tensor::bf16;

    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            SplitMatMul { chunk: 2 },
            &[
                (&["bf16[b, 2, 3]", "bf16[3, 4]"], "bf16[b, 2, 4]"),
                (&["f16[2, 3]", "f16[3, 4]"], "f16[2, 4]"),
                (&["f32[2, 3]", "f32[3, 4]"], "split_matmul: a is f32[2, 3], expected f16 or bf16"),
                (&["f16[2, 3]", "f16[4, 3]"], "split_matmul: inner axes differ: a f16[2, 3], b f16[4, 3]"),
            ],
        );
        let none = SplitMatMul { chunk: 0 };
        check_types(none, &[(&["f16[1, 1]", "f16[1, 1]"], "split_matmul: chunk is 0, expected at least 1")]);
        // 257 is halfway between two bf16, of which 256 is the even one.
        let ones = Tensor::from_slice([1, 4], &[256.0, 1.0, 1.0, 1.0].map(bf16::from_f32));
        let column = Tensor::from_slice([4, 1], &[bf16::ONE; 4]);
        let product = |chunk| numbers(SplitMatMul { chunk }, &[&ones, &column]);
        assert_eq!([1, 2, 3, 4].map(|chunk| product(chunk)[0]), [260.0, 258.0, 260.0, 260.0]);
    }
}
