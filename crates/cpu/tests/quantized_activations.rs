//! How far the 8-bit codes of activations take products with quantized weights from exact ones: what
//! `docs/reference/ops.md` says.

use std::collections::HashMap;
use std::sync::Arc;

use engine::InferenceSession;
use graph::{Builder, Type, dims};
use perihelion_cpu::Cpu;
use tensor::{Buffer, DType, Tensor};

const COLUMNS: usize = 1024;

/// Normally distributed numbers.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut b = Builder::new("normal");
    b.set_seed(seed);
    let x = b.random_normal(DType::F32, dims![count], 0.0, 1.0).unwrap();
    b.finish(&[x]).unwrap().evaluate(&[], &|_| None).unwrap().outputs[0].to_vec()
}

#[test]
fn products_with_blocks_are_off_by_half_a_percent() {
    let weight = tensor::blocks::quantize(DType::Q8_0, &normal(64 * COLUMNS, 1));
    let weight = Tensor::from_bytes(DType::Q8_0, [64, COLUMNS], tensor::Bytes::new(weight)).unwrap();
    let mut b = Builder::new("product");
    let x = b.input("x", Type::new(DType::F32, dims!["n", COLUMNS]));
    let w = b.weight("w", Type::new(DType::Q8_0, [64, COLUMNS])).unwrap();
    let y = b.linear(x, w).unwrap();
    let graph = b.finish(&[y]).unwrap();
    let x = Tensor::from_slice([16, COLUMNS], &normal(16 * COLUMNS, 2));
    let exact = graph.evaluate(std::slice::from_ref(&x), &|_| Some(weight.clone())).unwrap().outputs[0]
        .to_vec::<f32>();
    let session = InferenceSession::new([Arc::new(Cpu::new(2)) as Arc<dyn engine::Device>]).unwrap();
    let weights = HashMap::from([("w".to_string(), weight)]);
    let model = session.load(&graph, &weights).unwrap();
    let got = model.execute(&[Buffer::from_tensor(&x)]).unwrap()[0].to_vec::<f32>();
    session.set_exact_activations(true);
    let model = session.load(&graph, &weights).unwrap();
    let unrounded = model.execute(&[Buffer::from_tensor(&x)]).unwrap()[0].to_vec::<f32>();
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let relative = |got: &[f32]| {
        let error = square(&mut got.iter().zip(&exact).map(|(got, exact)| got - exact));
        (error / square(&mut exact.iter().copied())).sqrt()
    };
    assert!((0.003..0.007).contains(&relative(&got)), "off by {}", relative(&got));
    assert!(relative(&unrounded) < 1e-6, "off by {}", relative(&unrounded));
}
