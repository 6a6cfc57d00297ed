//! What the engine itself costs: a call, a step, a new size, a compile, a compile of a large graph. The kernels here do
//! nothing.

use std::sync::Arc;
use std::time::Instant;

use graph::{Builder, Dim, Error, Graph, Type};
use perihelion_engine::{Device, ExecuteOptions, InferenceSession, Kernel, KernelCall, NodeTypes};
use tensor::{Buffer, DType, Tensor};

struct Idle;

impl Device for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        Some(Arc::new(Idle))
    }
}

impl Kernel for Idle {
    fn name(&self) -> String {
        "idle".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        std::hint::black_box(call.outputs);
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let session = InferenceSession::builder().device(Arc::new(Idle)).build().expect("one device");
    let weights = |name: &str| {
        let vector = name.ends_with("norm") || name.starts_with('w');
        let shape = if vector { vec![64] } else { vec![64, 64] };
        Some(Tensor::zeros(DType::F32, &shape[..]))
    };
    for layers in [0, 12, 30] {
        let graph = network(layers)?;
        let compile = microseconds(20, || drop(session.compile(&graph).expect("compiles")));
        let model = session.load(&graph, &weights).expect("loads");
        let steps = model.program().kernels().count();
        let x = [Buffer::zeros(DType::F32, [1, 64])];
        let (y, options) = (model.execute(&x).expect("runs"), ExecuteOptions::default());
        let call = microseconds(2000, || model.execute_into(&x, &y, &options).expect("runs"));
        let mut size = 1;
        let new_size = microseconds(50, || {
            size += 1;
            drop(model.execute(&[Buffer::zeros(DType::F32, [size, 64])]).expect("runs"));
        });
        println!(
            "{layers:>3} layers, {steps:>4} steps: compile {compile:>8.1} us, call {call:>7.2} us, {:>6.1} ns a step, \
             new size {new_size:>7.1} us",
            call * 1e3 / steps as f64
        );
    }
    for nodes in [2_000, 20_000, 40_000] {
        let kinds = [("layers", network(nodes / 23)?), ("weights and constants", leaves(nodes / 4)?)];
        for (kind, graph) in kinds {
            let compile = microseconds(1, || drop(session.compile(&graph).expect("compiles")));
            let model = session.load(&graph, &weights).expect("loads");
            let x = [Buffer::zeros(DType::F32, [1, 64])];
            let start = Instant::now();
            drop(model.execute(&x).expect("runs"));
            let first = start.elapsed().as_secs_f64() * 1e3;
            println!(
                "{:>6} nodes, {kind}: compile {:>8.1} ms, first call {first:>8.1} ms",
                graph.len(),
                compile / 1e3
            );
        }
    }
    Ok(())
}

/// `x · c₀ + w₀ · c₁ + w₁ …`: every other node is a weight or a constant.
fn leaves(pairs: usize) -> Result<Graph, Error> {
    let mut b = Builder::new("leaves");
    let mut x = b.input("x", Type::new(DType::F32, [Dim::symbol("tokens"), 64.into()]));
    for i in 0..pairs {
        let weight = b.weight(format!("w{i}"), Type::new(DType::F32, [64]))?;
        let constant = b.constant(Tensor::scalar(i as f32));
        let scaled = b.mul(x, constant)?;
        x = b.add(scaled, weight)?;
    }
    b.finish(&[x])
}

/// Layers like a decoder's, without attention.
fn network(layers: usize) -> Result<Graph, Error> {
    let mut b = Builder::new("network");
    let mut x = b.input("x", Type::new(DType::F32, [Dim::symbol("tokens"), 64.into()]));
    for layer in 0..layers {
        let weight = |b: &mut Builder, name: &str| {
            let shape = if name.ends_with("norm") { vec![64usize] } else { vec![64, 64] };
            b.weight(format!("{layer}.{name}"), Type::new(DType::F32, shape))
        };
        let norm = weight(&mut b, "norm")?;
        let normed = b.rms_norm(x, norm, 1e-5)?;
        let mut heads = Vec::new();
        for name in ["q", "k", "v"] {
            let w = weight(&mut b, name)?;
            let projected = b.linear(normed, w)?;
            let heads_of = b.reshape(projected, [Dim::symbol("tokens"), 4.into(), 16.into()])?;
            heads.push(b.silu(heads_of)?);
        }
        let mixed = b.mul(heads[0], heads[1])?;
        let mixed = b.sub(mixed, heads[2])?;
        let mixed = b.reshape(mixed, [Dim::symbol("tokens"), 64.into()])?;
        let w = weight(&mut b, "o")?;
        let y = b.linear(mixed, w)?;
        x = b.add(x, y)?;
        let norm = weight(&mut b, "mlp.norm")?;
        let normed = b.rms_norm(x, norm, 1e-5)?;
        let (gate, up, down) = (weight(&mut b, "gate")?, weight(&mut b, "up")?, weight(&mut b, "down")?);
        let (gate, up) = (b.linear(normed, gate)?, b.linear(normed, up)?);
        let gate = b.silu(gate)?;
        let gated = b.mul(gate, up)?;
        let y = b.linear(gated, down)?;
        x = b.add(x, y)?;
    }
    let y = b.silu(x)?;
    b.finish(&[y])
}

fn microseconds(times: usize, mut body: impl FnMut()) -> f64 {
    body();
    let start = Instant::now();
    for _ in 0..times {
        body();
    }
    start.elapsed().as_secs_f64() * 1e6 / times as f64
}
