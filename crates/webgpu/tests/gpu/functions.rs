//! Functions of f32 on an adapter, at floats of every size: how far results are from those of f64, and on a software adapter
//! that they are the CPU's to the bit.

use std::sync::Arc;

use engine::{CompileOptions, Device, InferenceSession, Placement};
use graph::Graph;
use graph::ops::Unary;
use tensor::{Buffer, Tensor};

use crate::adapter::{adapter, cpu, least_adapter};

/// Floats of each exponent and both signs, with mantissas from a Weyl sequence, and those around which functions change.
fn samples() -> Vec<f32> {
    let special =
        [0.0, -0.0, 88.7, 88.72, 88.73, 89.0, -87.3, 0.625, -0.625, 0.624_999_94, 0.25, -0.25, 14.36, -10.78];
    let more = [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::NAN];
    let mut weyl = 1u32;
    let mut sample = |exponent: u32| {
        weyl = weyl.wrapping_add(0x9e37_79b9);
        f32::from_bits((exponent << 23) | (weyl & 0x807f_ffff))
    };
    let count = |exponent: u32| if (110..136).contains(&exponent) { 4000 } else { 20 };
    let of_exponents = (1..255).flat_map(|exponent| std::iter::repeat_n(exponent, count(exponent)));
    special.into_iter().chain(more).chain(of_exponents.map(&mut sample)).collect()
}

/// What a device computes of each element.
fn on_device(function: Unary, x: &[f32], device: &Arc<dyn Device>) -> Vec<f32> {
    let mut graph = Graph::new("function");
    let input = graph.input("x", graph::Type::new(tensor::DType::F32, [x.len()]));
    let result = graph.push_one(function.into(), &[input]).unwrap();
    graph.set_outputs(&[result]);
    let session = match device.is_host() {
        true => InferenceSession::new([cpu()]).unwrap(),
        false => InferenceSession::new([Arc::clone(device), cpu()]).unwrap(),
    };
    let on = Placement::On(device.spec());
    let options = CompileOptions { placement: on, ..CompileOptions::default() };
    let compiled = session.compile_with(&graph, &options).unwrap();
    assert!(!compiled.to_string().contains("(host: "), "{compiled}");
    let model = session.init(&compiled, &|_: &str| None).unwrap();
    let outputs = model.execute(&[Buffer::from_tensor(&Tensor::from_slice([x.len()], x))]).unwrap();
    outputs[0].to_tensor().unwrap().to_vec()
}

/// Functions, and how far results may be, times the exact one: drivers need not fuse, nor round divisions as IEEE 754 does.
const FUNCTIONS: &[(Unary, f64)] = &[
    (Unary::Exp, 4e-7),
    (Unary::Sigmoid, 6e-7),
    (Unary::Tanh, 6e-7),
    (Unary::Silu, 6e-7),
    (Unary::Erf, 6e-7),
    (Unary::Log, 6e-7),
    (Unary::Log1p, 6e-7),
    (Unary::Rsqrt, 6e-7),
    (Unary::Reciprocal, 6e-7),
    (Unary::Sqrt, 6e-7),
    // Squares and cubes, rounded, are part of an exponent.
    (Unary::Gelu, 2e-5),
    (Unary::GeluTanh, 4e-5),
    (Unary::GeluQuick, 2e-5),
];

#[test]
fn functions_are_near_those_of_f64() {
    let x = samples();
    for device in [adapter(), least_adapter()].into_iter().flatten() {
        for &(function, relative) in FUNCTIONS {
            let there = on_device(function, &x, &device);
            // The CPU takes logarithms in f64.
            if testdata::is_gpu_software() && !matches!(function, Unary::Log | Unary::Log1p) {
                testdata::check_gpu_results(
                    &format!("{function:?}"),
                    &there,
                    &on_device(function, &x, &cpu()),
                    0.0,
                );
            }
            for (&x, got) in x.iter().zip(there) {
                let exact = exact(function, f64::from(x));
                // Subnormal numbers may be 0.
                let near = (f64::from(got) - exact).abs() <= relative * exact.abs() + 2e-38;
                assert!(
                    near || got == exact as f32 || got.is_nan() && exact.is_nan(),
                    "{function:?} {x:e} is {got:e}, not {exact:e}"
                );
            }
        }
    }
}

/// The function in f64, at its ends by its limits.
fn exact(function: Unary, x: f64) -> f64 {
    match function {
        // `1 + tanh` cancels.
        Unary::GeluTanh if x.is_finite() => {
            let twice = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            x / (1.0 + (-twice).exp())
        }
        // A product of infinity and 0.
        Unary::Silu | Unary::GeluQuick if x == f64::NEG_INFINITY => f64::NAN,
        function => function.evaluate(x),
    }
}
