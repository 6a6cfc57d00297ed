//! From a graph to a model that runs, over each way there: compiled, from the compile cache, from an artifact with
//! packed weights. The graph is a transformer encoder of 12 layers, hidden size 384.
//!
//! Bars, with files in the page cache: compile 50 ms, load from an artifact 10 ms.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use perihelion::driver::{Buffer, Cpu, DType, Device, Tensor};
use perihelion::engine::{Artifact, CompileCache, ExportOptions, InferenceSession};
use perihelion::graph::ops::Unary;
use perihelion::graph::{Builder, Error, Graph, Type, Value, dims};

const LAYERS: usize = 12;
const HIDDEN: usize = 384;
const HEADS: usize = 12;
const FEED_FORWARD: usize = 4 * HIDDEN;
/// Runs of each way, of which the median counts.
const RUNS: usize = 31;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("artifact-bench");
    std::fs::create_dir_all(&folder)?;
    let device: Arc<dyn Device> = Arc::new(Cpu::new(0));
    println!("{}", device.target());
    for weights_dtype in [DType::F32, DType::BF16] {
        let graph = encoder(weights_dtype)?;
        let weights = weights(&graph);
        measure(&folder, &device, &graph, &weights)?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn measure(
    folder: &Path,
    device: &Arc<dyn Device>,
    graph: &Graph,
    weights: &HashMap<String, Tensor>,
) -> Result<(), Box<dyn std::error::Error>> {
    let bytes: usize = weights.values().map(|tensor| tensor.bytes().len()).sum();
    println!("{}: {} nodes, {:.0} MB of weights", graph.name(), graph.len(), bytes as f64 / 1e6);
    let session = InferenceSession::new([Arc::clone(device)])?;
    let cached = InferenceSession::builder().device(Arc::clone(device));
    let cached = cached.compile_cache(CompileCache::at(folder.join("cache"))).build()?;
    let (plain, packed) = (folder.join("plain.mef"), folder.join("packed.mef"));
    let compiled = session.compile(graph)?;
    let expected = run(&session.init(&compiled, weights)?)?;

    row("compile", || session.compile(graph).map(drop));
    row("init: pack", || session.init(&compiled, weights).map(drop));
    row("export", || compiled.export_mef(&plain));
    let with_weights = || ExportOptions { weights: Some(weights), ..ExportOptions::default() };
    row("export with weights", || compiled.export_mef_with(&packed, with_weights()));
    cached.compile(graph)?;
    row("compile, from the cache", || cached.compile(graph).map(drop));
    row("read an artifact, lower", || session.compile(&plain).map(drop));
    row("verify an artifact with weights", || Artifact::open(&packed)?.verify());
    row("load an artifact with weights", || session.load(&packed, &()).map(drop));
    let (mapped, in_memory) = (session.load(&packed, &())?, session.init(&compiled, weights)?);
    assert_eq!(run(&mapped)?, expected, "what is loaded computes the same bits");
    // One token reads every weight once: the weights' memory is what counts.
    let token = [Buffer::zeros(DType::F32, [1, 1, HIDDEN])];
    row("execute, packed in memory, 1 token", || in_memory.execute(&token).map(drop));
    row("execute, mapped, 1 token", || mapped.execute(&token).map(drop));
    println!("  {:.1} MB packed", std::fs::metadata(&packed)?.len() as f64 / 1e6);
    Ok(())
}

/// Prints the median time of a way, and the shortest.
fn row<E: std::fmt::Debug>(name: &str, way: impl Fn() -> Result<(), E>) {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            way().expect("this worked before");
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("  {name:<36} {:>8.2} ms, at best {:>8.2} ms", times[RUNS / 2], times[0]);
}

fn run(model: &perihelion::engine::Model) -> Result<Vec<f32>, perihelion::engine::Error> {
    let values: Vec<f32> = (0..8 * HIDDEN).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
    Ok(model.execute(&[Buffer::from_slice([1, 8, HIDDEN], &values)])?[0].to_vec())
}

/// x: `f32[batch, tokens, HIDDEN]` → the same.
fn encoder(weights: DType) -> Result<Graph, Error> {
    let mut b = Builder::new(format!("encoder_{weights}"));
    let mut x = b.input("x", Type::new(DType::F32, dims!["batch", "tokens", HIDDEN]));
    for layer in 0..LAYERS {
        let mut layer = Layer { b: &mut b, name: format!("layer.{layer}"), weights };
        let attention = layer.attention(x)?;
        x = layer.add_and_norm("attention.norm", x, attention)?;
        let feed_forward = layer.feed_forward(x)?;
        x = layer.add_and_norm("output.norm", x, feed_forward)?;
    }
    b.finish(&[x])
}

struct Layer<'b> {
    b: &'b mut Builder,
    name: String,
    weights: DType,
}

impl Layer<'_> {
    fn attention(&mut self, x: Value) -> Result<Value, Error> {
        let [q, k, v] = ["query", "key", "value"].map(|name| self.heads(name, x));
        let (q, k, v) = (q?, k?, v?); // [batch, HEADS, tokens, HIDDEN / HEADS]
        let keys = self.b.transpose(k, &[0, 1, 3, 2])?;
        let scores = self.b.matmul(q, keys)?;
        let scale = self.b.constant(Tensor::scalar(((HIDDEN / HEADS) as f32).sqrt().recip()));
        let scores = self.b.mul(scores, scale)?;
        let probabilities = self.b.softmax(scores, -1)?;
        let mixed = self.b.matmul(probabilities, v)?;
        let mixed = self.b.transpose(mixed, &[0, 2, 1, 3])?;
        let mixed = self.b.reshape(mixed, dims!["batch", "tokens", HIDDEN])?;
        self.linear("attention.output", mixed, HIDDEN, HIDDEN)
    }

    fn heads(&mut self, name: &str, x: Value) -> Result<Value, Error> {
        let y = self.linear(name, x, HIDDEN, HIDDEN)?;
        let y = self.b.reshape(y, dims!["batch", "tokens", HEADS, HIDDEN / HEADS])?;
        self.b.transpose(y, &[0, 2, 1, 3])
    }

    fn feed_forward(&mut self, x: Value) -> Result<Value, Error> {
        let y = self.linear("intermediate", x, FEED_FORWARD, HIDDEN)?;
        let y = self.b.unary(Unary::Gelu, y)?;
        self.linear("output", y, HIDDEN, FEED_FORWARD)
    }

    fn linear(&mut self, name: &str, x: Value, rows: usize, columns: usize) -> Result<Value, Error> {
        let weight = self
            .b
            .weight(format!("{}.{name}.weight", self.name), Type::new(self.weights, [rows, columns]))?;
        let bias = self.b.weight(format!("{}.{name}.bias", self.name), Type::new(DType::F32, [rows]))?;
        self.b.linear_with_bias(x, weight, bias)
    }

    fn add_and_norm(&mut self, name: &str, x: Value, y: Value) -> Result<Value, Error> {
        let sum = self.b.add(x, y)?;
        let ty = Type::new(DType::F32, [HIDDEN]);
        let weight = self.b.weight(format!("{}.{name}.weight", self.name), ty.clone())?;
        let bias = self.b.weight(format!("{}.{name}.bias", self.name), ty)?;
        self.b.layer_norm(sum, weight, bias, 1e-12)
    }
}

/// Numbers for every weight of a graph: small, and no two matrices alike.
fn weights(graph: &Graph) -> HashMap<String, Tensor> {
    let named = graph.nodes().filter_map(|(_, node)| match &node.op {
        perihelion::graph::Op::Weight(weight) => Some((&weight.name, &weight.ty)),
        _ => None,
    });
    let tensors = named.enumerate().map(|(seed, (name, ty))| {
        let shape = ty.static_shape().expect("weights have sizes in numbers");
        let mut state = seed as u32;
        let values: Vec<f32> = (0..shape.elements())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) / 16.0
            })
            .collect();
        let tensor = match ty.dtype {
            DType::BF16 => {
                let values: Vec<_> = values.into_iter().map(tensor::bf16::from_f32).collect();
                Tensor::from_slice(shape, &values)
            }
            _ => Tensor::from_slice(shape, &values),
        };
        (name.clone(), tensor)
    });
    tensors.collect()
}
