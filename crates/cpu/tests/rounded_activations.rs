//! How far rounded activations take products from exact ones: what `docs/reference/ops.md` says of the 8-bit codes that
//! quantized weights meet, and of bf16.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Device, InferenceSession, Reproducible};
use graph::{Builder, Graph, Type, dims};
use perihelion_cpu::Cpu;
use tensor::{Buffer, Bytes, DType, Tensor, bf16, blocks};

const ROWS: usize = 64;
const COLUMNS: usize = 1024;
const TOKENS: usize = 16;

/// Normally distributed numbers.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut b = Builder::new("normal");
    b.set_seed(seed);
    let x = b.random_normal(DType::F32, dims![count], 0.0, 1.0).unwrap();
    b.finish(&[x]).unwrap().evaluate(&[], &|_| None).unwrap().outputs[0].to_vec()
}

/// A linear layer of one weight, and its input.
struct Layer {
    graph: Graph,
    weight: Tensor,
    x: Tensor,
}

impl Layer {
    fn new(weight: Tensor) -> Layer {
        let mut b = Builder::new("product");
        let x = b.input("x", Type::new(DType::F32, dims!["n", COLUMNS]));
        let w = b.weight("w", Type::new(weight.dtype(), [ROWS, COLUMNS])).unwrap();
        let y = b.linear(x, w).unwrap();
        let graph = b.finish(&[y]).unwrap();
        Layer { graph, weight, x: Tensor::from_slice([TOKENS, COLUMNS], &normal(TOKENS * COLUMNS, 2)) }
    }

    fn run(&self, session: &InferenceSession) -> Vec<f32> {
        let weights = HashMap::from([("w".to_string(), self.weight.clone())]);
        let model = session.load(&self.graph, &weights).unwrap();
        model.execute(&[Buffer::from_tensor(&self.x)]).unwrap()[0].to_vec()
    }

    /// How far results are from exact ones, relative to their root mean square.
    fn error(&self, got: &[f32]) -> f64 {
        let weight = |_: &_| Some(self.weight.clone());
        let exact =
            self.graph.evaluate(std::slice::from_ref(&self.x), &weight).unwrap().outputs[0].to_vec::<f32>();
        let square =
            |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
        let error = square(&mut got.iter().zip(&exact).map(|(got, exact)| got - exact));
        (error / square(&mut exact.iter().copied())).sqrt()
    }
}

fn session() -> InferenceSession {
    InferenceSession::new([Arc::new(Cpu::new(2)) as Arc<dyn Device>]).unwrap()
}

#[test]
fn products_with_blocks_are_off_by_half_a_percent() {
    let weight = Bytes::new(blocks::quantize(DType::Q8_0, &normal(ROWS * COLUMNS, 1)));
    let layer = Layer::new(Tensor::from_bytes(DType::Q8_0, [ROWS, COLUMNS], weight).unwrap());
    let session = session();
    let off = layer.error(&layer.run(&session));
    assert!((0.003..0.007).contains(&off), "off by {off}");
    session.set_exact_activations(true);
    let off = layer.error(&layer.run(&session));
    assert!(off < 1e-6, "off by {off}");
}

#[test]
fn bf16_products_of_the_machine_are_off_by_a_sixth_of_a_percent() {
    let weight: Vec<bf16> = normal(ROWS * COLUMNS, 1).into_iter().map(bf16::from_f32).collect();
    let layer = Layer::new(Tensor::from_slice([ROWS, COLUMNS], &weight));
    let session = session();
    let anywhere = layer.run(&session);
    assert!(layer.error(&anywhere) < 1e-6, "off by {}", layer.error(&anywhere));
    session.set_reproducible(Reproducible::Machine).unwrap();
    let here = layer.run(&session);
    let off = layer.error(&here);
    match session.devices()[0].own_products() {
        Some(products) => assert!((0.001..0.003).contains(&off), "{products}: off by {off}"),
        None => assert_eq!(here, anywhere),
    }
    session.set_exact_activations(true);
    assert_eq!(layer.run(&session), anywhere);
}
