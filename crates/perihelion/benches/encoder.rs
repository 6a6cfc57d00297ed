//! A transformer encoder built from ops, of the shape of all-MiniLM-L6-v2: hidden size 384, 12 heads, mean pooling.
//!
//! `cargo bench -p perihelion --bench encoder -- [threads] [profile] [forward] [embed]` prints the time of a forward pass
//! for 1, 8 and 32 sequences of 128 tokens (`forward`: these alone), of compiling and loading a graph of 12 layers, and of
//! calling a graph of one op; and texts per second of the real model, from text to vector, where its files are (`embed`:
//! these alone).

use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion::driver::{Buffer, Cpu, DType, Device, Tensor};
use perihelion::engine::{ExecuteOptions, InferenceSession, Model};
use perihelion::graph::ops::{ReduceKind, Unary};
use perihelion::graph::{Builder, Dim, Error, Graph, Type, Value};
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{Embedder, EmbeddingModel, EmbeddingParameters};

const HIDDEN: usize = 384;
const HEADS: usize = 12;
const INNER: usize = 1536;
const VOCABULARY: usize = 30_522;
const TOKENS: usize = 128;
/// The largest number of tokens of the position table.
const POSITIONS: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(0);
    let session = InferenceSession::new([Arc::new(Cpu::new(threads)) as Arc<dyn Device>])?;
    println!("{}", session.devices()[0].target());
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    if given("embed") {
        return embed(&session);
    }
    let model = session.load(&encoder(6)?, &weight)?;
    for batch in [1, 8, 32] {
        forward(&model, batch, given("profile"))?;
    }
    if given("forward") {
        return Ok(());
    }
    compile(&session)?;
    call(&session)?;
    embed(&session)
}

/// Texts per second of the real model, from text to vector, where it is there.
fn embed(session: &InferenceSession) -> Result<(), Box<dyn std::error::Error>> {
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return Ok(()) };
    let plan = PipelineConfig::new(folder.display().to_string()).plan(machine())?;
    let model = EmbeddingModel::from_plan(session, plan, &mut |_| ())?;
    let embedder = Embedder::new(Arc::new(model), &EmbeddingParameters::default())?;
    for tokens in [16, TOKENS, 256] {
        for batch in [1, 32] {
            let texts: Vec<String> = (0..batch).map(|index| text(&embedder, index, tokens)).collect();
            let (best, median) =
                times(Duration::from_secs(3), || drop(embedder.embed(&texts).expect("good texts")));
            println!(
                "all-MiniLM-L6-v2, {batch:>2} x {tokens:>3} tokens: {:>8.3} ms, median {:>8.3} ms, {:>7.1} texts/s",
                best.as_secs_f64() * 1e3,
                median.as_secs_f64() * 1e3,
                batch as f64 / best.as_secs_f64()
            );
        }
    }
    Ok(())
}

/// Words that are so many tokens, those around them included.
fn text(embedder: &Embedder, index: usize, tokens: usize) -> String {
    const WORDS: &[&str] = &["the", "river", "was", "quiet", "when", "two", "ships", "came", "home", "again"];
    let words: Vec<&str> = (0..tokens - 2).map(|word| WORDS[(index * 7 + word * 3) % WORDS.len()]).collect();
    let text = words.join(" ");
    let found = embedder.tokenize(&text, &EmbeddingParameters::default()).map(|found| found.len());
    assert_eq!(found.ok(), Some(tokens), "each word is a token");
    text
}

/// The time of a forward pass.
fn forward(model: &Model, batch: usize, profile: bool) -> Result<(), Box<dyn std::error::Error>> {
    let ids: Vec<i64> = (0..batch * TOKENS).map(|i| (i * 7919 % VOCABULARY) as i64).collect();
    let inputs = [Buffer::from_slice([batch, TOKENS], &ids)];
    let (outputs, options) = (model.execute(&inputs)?, ExecuteOptions::default());
    let best = best_of(Duration::from_secs(3), || {
        model.execute_into(&inputs, &outputs, &options).expect("good data")
    });
    let products = 2 * TOKENS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER) + 4 * TOKENS * TOKENS * HIDDEN;
    let flops = (6 * batch * products) as f64;
    println!(
        "encoder of 6 layers, {batch:>2} x {TOKENS} tokens: {:>8.3} ms, {:>6.1} GFLOP/s",
        best.as_secs_f64() * 1e3,
        flops / best.as_secs_f64() / 1e9
    );
    if profile {
        println!("{}", model.profile(&inputs)?.1);
    }
    Ok(())
}

/// The time to compile a graph of 12 layers, and to load it (compile, bind and pack) with weights in memory.
fn compile(session: &InferenceSession) -> Result<(), Box<dyn std::error::Error>> {
    let graph = encoder(12)?;
    let compiled = session.compile(&graph)?;
    let compile = best_of(Duration::from_secs(1), || drop(session.compile(&graph).expect("compiles")));
    let kept: std::collections::HashMap<String, Tensor> = names(&graph)
        .map(|name| {
            let tensor = weight(&name).expect("every name is a weight's");
            (name, tensor)
        })
        .collect();
    let find = |name: &str| kept.get(name).cloned();
    let init = best_of(Duration::from_secs(2), || drop(session.init(&compiled, &find).expect("binds")));
    println!("compile 12 layers: {:>8.3} ms", compile.as_secs_f64() * 1e3);
    println!("bind and pack 12 layers' weights: {:>8.3} ms", init.as_secs_f64() * 1e3);
    Ok(())
}

/// What a call costs in addition to its one op.
fn call(session: &InferenceSession) -> Result<(), Box<dyn std::error::Error>> {
    let graph = Graph::parse("graph negate(%x: f32[n]) { %y = neg(%x) return %y }")?;
    let model = session.load(&graph, &())?;
    let inputs = [Buffer::from_slice([4], &[1f32, 2.0, 3.0, 4.0])];
    let (outputs, options) = (model.execute(&inputs)?, ExecuteOptions::default());
    let calls = 1000;
    let best = best_of(Duration::from_secs(1), || {
        for _ in 0..calls {
            model.execute_into(&inputs, &outputs, &options).expect("good data");
        }
    });
    println!("call of a graph of one op: {:>8.3} us", best.as_secs_f64() * 1e6 / f64::from(calls));
    Ok(())
}

/// The encoder as its users write it, op by op: `ids: i64[batch, 128]` → a unit vector `f32[batch, 384]` for each
/// sequence.
fn encoder(layers: usize) -> Result<Graph, Error> {
    let mut b = Builder::new("encoder");
    let ids = b.input("ids", Type::new(DType::I64, [Dim::symbol("batch"), TOKENS.into()]));
    let words = weight_of(&mut b, "word", &[VOCABULARY, HIDDEN])?;
    let positions = weight_of(&mut b, "position", &[POSITIONS, HIDDEN])?;
    let kind = weight_of(&mut b, "kind", &[HIDDEN])?;
    let x = b.embedding(words, ids)?;
    let positions = b.slice(positions, 0, 0, Some(TOKENS as i64))?;
    let x = b.add(x, positions)?;
    let x = b.add(x, kind)?;
    let mut x = layer_norm(&mut b, "norm", x)?;
    for layer in 0..layers {
        x = block(&mut b, &format!("layer{layer}"), x)?;
    }
    let mean = b.reduce(ReduceKind::Mean, x, 1)?;
    let mean = b.reshape(mean, [Dim::symbol("batch"), HIDDEN.into()])?;
    let squares = b.mul(mean, mean)?;
    let square = b.reduce(ReduceKind::Sum, squares, -1)?;
    let length = b.unary(Unary::Sqrt, square)?;
    let y = b.div(mean, length)?;
    b.finish(&[y])
}

fn block(b: &mut Builder, name: &str, x: Value) -> Result<Value, Error> {
    let heads = |b: &mut Builder, name: String, order: &[usize]| {
        let y = linear(b, &name, x, HIDDEN, HIDDEN)?;
        let y = b.reshape(y, [Dim::symbol("batch"), TOKENS.into(), HEADS.into(), (HIDDEN / HEADS).into()])?;
        b.transpose(y, order)
    };
    let q = heads(b, format!("{name}.q"), &[0, 2, 1, 3])?;
    let k = heads(b, format!("{name}.k"), &[0, 2, 3, 1])?;
    let v = heads(b, format!("{name}.v"), &[0, 2, 1, 3])?;
    let scores = b.matmul(q, k)?;
    let scale = b.constant(Tensor::scalar(((HIDDEN / HEADS) as f32).sqrt().recip()));
    let scores = b.mul(scores, scale)?;
    let shares = b.softmax(scores, -1)?;
    let mixed = b.matmul(shares, v)?;
    let mixed = b.transpose(mixed, &[0, 2, 1, 3])?;
    let mixed = b.reshape(mixed, [Dim::symbol("batch"), TOKENS.into(), HIDDEN.into()])?;
    let y = linear(b, &format!("{name}.o"), mixed, HIDDEN, HIDDEN)?;
    let x = b.add(x, y)?;
    let x = layer_norm(b, &format!("{name}.norm1"), x)?;
    let y = linear(b, &format!("{name}.up"), x, INNER, HIDDEN)?;
    let y = b.unary(Unary::Gelu, y)?;
    let y = linear(b, &format!("{name}.down"), y, HIDDEN, INNER)?;
    let x = b.add(x, y)?;
    layer_norm(b, &format!("{name}.norm2"), x)
}

fn linear(b: &mut Builder, name: &str, x: Value, rows: usize, columns: usize) -> Result<Value, Error> {
    let weight = weight_of(b, &format!("{name}.weight"), &[rows, columns])?;
    let bias = weight_of(b, &format!("{name}.bias"), &[rows])?;
    let y = b.linear(x, weight)?;
    b.add(y, bias)
}

fn layer_norm(b: &mut Builder, name: &str, x: Value) -> Result<Value, Error> {
    let weight = weight_of(b, &format!("{name}.scale"), &[HIDDEN])?;
    let bias = weight_of(b, &format!("{name}.bias"), &[HIDDEN])?;
    b.layer_norm(x, weight, bias, 1e-12)
}

/// A weight whose name tells its shape.
fn weight_of(b: &mut Builder, name: &str, shape: &[usize]) -> Result<Value, Error> {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    b.weight(format!("{name}:{}", sizes.join("x")), Type::new(DType::F32, shape.iter().copied()))
}

fn names(graph: &Graph) -> impl Iterator<Item = String> + '_ {
    graph.nodes().filter_map(|(_, node)| match &node.op {
        perihelion::graph::Op::Weight(weight) => Some(weight.name.clone()),
        _ => None,
    })
}

/// Small numbers that look random, of the shape in the name.
fn weight(name: &str) -> Option<Tensor> {
    let shape: Vec<usize> =
        name.split_once(':')?.1.split('x').map(|size| size.parse().ok()).collect::<Option<_>>()?;
    let mut state = name.bytes().fold(1u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let values: Vec<f32> = (0..shape.iter().product::<usize>())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 27) as f32 - 1.0 / 16.0
        })
        .collect();
    Some(Tensor::from_slice(&shape[..], &values))
}

/// The shortest of the runs that fit in a time.
fn best_of(time: Duration, body: impl FnMut()) -> Duration {
    times(time, body).0
}

/// The shortest and the median of the runs that fit in a time; at least five, after one that is not counted.
fn times(time: Duration, mut body: impl FnMut()) -> (Duration, Duration) {
    body();
    let (begun, mut runs) = (Instant::now(), Vec::new());
    while runs.len() < 5 || begun.elapsed() < time {
        let start = Instant::now();
        body();
        runs.push(start.elapsed());
    }
    runs.sort_unstable();
    (runs[0], runs[runs.len() / 2])
}
