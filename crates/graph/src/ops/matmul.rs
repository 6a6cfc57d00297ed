//! `c_ij = Σ_k a_ik · b_kj`: matrix products, over batches that broadcast.

use super::broadcast::broadcast;
use super::prelude::*;

/// Matrix products: `a` [.., m, k], `b` [.., k, n], both f32, f16 or bf16 → `f32[.., m, n]`. Those of f64 and of
/// integers, which wrap around, keep the dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatMul;

impl Define for MatMul {
    declare!("matmul");

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [a, b] = operands(inputs, ["a", "b"])?;
        expect_number("a", a)?;
        expect_same_dtype(("a", a), ("b", b))?;
        let ([a_batch @ .., m, inner], [b_batch @ .., k, n]) = (&a.shape[..], &b.shape[..]) else {
            return Err(type_error!("expected at least 2 axes: a {a}, b {b}"));
        };
        refuse_if!(inner != k, "inner axes differ: a {a}, b {b}");
        let batch = broadcast(a_batch, b_batch)
            .ok_or_else(|| type_error!("batches do not broadcast: a {a}, b {b}"))?;
        let shape = batch.iter().chain([m, n]).cloned();
        let dtype = if [DType::F16, DType::BF16].contains(&a.dtype) { DType::F32 } else { a.dtype };
        Ok(vec![a.with_shape(shape).with_dtype(dtype)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (shape, dtype) = (outputs[0], inputs[0].dtype());
        let dtype = if [DType::F16, DType::BF16].contains(&dtype) { DType::F32 } else { dtype };
        Ok(vec![match (Numbers::of(inputs[0]), Numbers::of(inputs[1])) {
            (Numbers::Floats(a), Numbers::Floats(b)) => {
                let sums = products(inputs, &shape, 0.0, |sum, i, j| sum + a[i] * b[j]);
                from_f64(dtype, shape, &sums)
            }
            (Numbers::Integers(a), Numbers::Integers(b)) => {
                let add = |sum: i128, i, j| sum.wrapping_add(i128::wrapping_mul(a[i], b[j]));
                from_i128(dtype, shape, &products(inputs, &shape, 0, add))
            }
            _ => unreachable!("operands of one dtype"),
        }])
    }
}

/// The sums of products, where `add` adds that of two elements by their positions.
fn products<T: Copy>(
    inputs: &[&Tensor],
    output: &Shape,
    zero: T,
    add: impl Fn(T, usize, usize) -> T,
) -> Vec<T> {
    let split = |shape: &Shape| {
        (Shape::new(&shape[..shape.rank() - 2]), shape[shape.rank() - 2], shape[shape.rank() - 1])
    };
    let (a_batch, m, k) = split(inputs[0].shape());
    let (b_batch, _, n) = split(inputs[1].shape());
    let (batch, ..) = split(output);
    let mut c = Vec::with_capacity(output.elements());
    for (p, q) in broadcast_positions(&a_batch, &batch).zip(broadcast_positions(&b_batch, &batch)) {
        let (a, b) = (p * m * k, q * k * n);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            c.push((0..k).fold(zero, |sum, l| add(sum, a + i * k + l, b + l * n + j)));
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            MatMul,
            &[
                (&["f32[b, 1, 2, k]", "f32[3, k, n]"], "f32[b, 3, 2, n]"),
                (&["bf16[2, 3]", "bf16[3, 4]"], "f32[2, 4]"),
                (
                    &["f32[tokens, 8]", "f32[4, 9]"],
                    "matmul: inner axes differ: a f32[tokens, 8], b f32[4, 9]",
                ),
                (
                    &["f32[2, 2, 3]", "f32[4, 3, 2]"],
                    "matmul: batches do not broadcast: a f32[2, 2, 3], b f32[4, 3, 2]",
                ),
                (&["f32[3]", "f32[3, 2]"], "matmul: expected at least 2 axes: a f32[3], b f32[3, 2]"),
                (&["f64[2, 3]", "f64[3, 2]"], "f64[2, 2]"),
                (&["u8[2, 3]", "u8[3, 2]"], "u8[2, 2]"),
                (&["bool[2, 3]", "bool[3, 2]"], "matmul: a is bool[2, 3], expected a float or an integer"),
            ],
        );
        let a = Tensor::from_slice([2, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0, 0.0, 1.0, 1.0, 0.0]);
        let b = Tensor::from_slice([1, 2, 1], &[5.0f32, 6.0]);
        assert_eq!(numbers(MatMul, &[&a, &b]), [17.0, 39.0, 6.0, 5.0]);
        let bytes = Tensor::from_slice([1, 2], &[200u8, 3]);
        assert_eq!(numbers(MatMul, &[&bytes, &Tensor::from_slice([2, 1], &[2u8, 5])]), [159.0]);
        let (none, also) = (Tensor::zeros(DType::F32, [1, 0]), Tensor::zeros(DType::F32, [0, 2]));
        assert_eq!(numbers(MatMul, &[&none, &also]), [0.0, 0.0]);
    }
}
