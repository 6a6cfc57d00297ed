//! What the tests of ops have in common: types given and printed as text, references run on shapes that fit.

use tensor::{Shape, Tensor};

use super::Op;
use crate::{Error, Type};

/// The types of the results for operands of these types, or the error, as text.
pub(super) fn infer(op: impl Into<Op>, operands: &[&str]) -> String {
    let operands: Vec<Type> = operands.iter().map(|text| text.parse().unwrap()).collect();
    match crate::graph::infer(&op.into(), &operands.iter().collect::<Vec<_>>()) {
        Ok(types) => types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", "),
        Err(error) => error.to_string(),
    }
}

/// Checks what [`infer`] gives for each list of operands.
pub(super) fn check_types(op: impl Into<Op>, cases: &[(&[&str], &str)]) {
    let op = op.into();
    for (operands, expected) in cases {
        assert_eq!(infer(op.clone(), operands), *expected, "{operands:?}");
    }
}

/// The results of the reference, and after them the new contents of buffers. The results have the types that
/// the type rule gives.
pub(super) fn run(op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
    let op = op.into();
    let types: Vec<Type> = inputs.iter().map(|x| Type::new(x.dtype(), x.shape().iter().copied())).collect();
    let types = op.infer(&types.iter().collect::<Vec<_>>()).unwrap();
    let shapes: Vec<Shape> = types.iter().map(|ty| ty.static_shape().unwrap()).collect();
    let results = op.reference(inputs, &shapes)?;
    for (ty, result) in types.iter().zip(&results) {
        assert_eq!((ty.dtype, ty.static_shape()), (result.dtype(), Some(*result.shape())));
    }
    Ok(results)
}

/// The one result of the reference, as f64.
pub(super) fn numbers(op: impl Into<Op>, inputs: &[&Tensor]) -> Vec<f64> {
    run(op, inputs).unwrap()[0].to_f64_vec()
}

/// Checks numbers to a relative and absolute error; NaN is met by NaN.
pub(super) fn assert_close(got: &[f64], expected: &[f64], error: f64) {
    let close = |(&got, &expected): (&f64, &f64)| {
        got == expected
            || (got.is_nan() && expected.is_nan())
            || (got - expected).abs() <= error * expected.abs().max(1.0)
    };
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(close),
        "{got:?} is not {expected:?}"
    );
}
