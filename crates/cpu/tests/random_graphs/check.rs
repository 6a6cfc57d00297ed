//! What must hold for a graph.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{CompileOptions, Device, ExportOptions, InferenceSession, Model, Passes, Placement};
use far::FarDevice;
use graph::{DeviceRef, Graph, Kind, Op, Value};
use perihelion_cpu::Cpu;
use tensor::{Allocator, Buffer, DType, HostAllocator, Tensor};

use crate::data::Noise;
use crate::growth::Sample;
use crate::tolerance::{Slack, largest_of, slack, unit};
use crate::walk::{disturb, walk};

/// The CPU with 1 and with 4 threads.
pub(crate) struct Devices {
    one: InferenceSession,
    four: InferenceSession,
    artifact: PathBuf,
}

impl Devices {
    pub(crate) fn new() -> Devices {
        let session = |threads| {
            let device: Arc<dyn Device> = Arc::new(Cpu::new(threads));
            InferenceSession::new([device]).expect("a device")
        };
        let name = format!("perihelion-{}-random-graphs.mef", std::process::id());
        Devices { one: session(1), four: session(4), artifact: std::env::temp_dir().join(name) }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.artifact);
    }
}

/// How much was compared.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Claims {
    /// Graphs that compute something.
    pub(crate) graphs: usize,
    /// Outputs of graphs.
    pub(crate) outputs: usize,
    /// Those that small changes on the way change by less than a hundredth.
    pub(crate) steady: usize,
    /// Those that small changes on the way leave as they are.
    pub(crate) exact: usize,
}

impl Claims {
    pub(crate) fn add(&mut self, other: Claims) {
        self.graphs += other.graphs;
        self.outputs += other.outputs;
        self.steady += other.steady;
        self.exact += other.exact;
    }
}

/// Runs a graph in every way, and gives the names of the ops that ran, before passes and after.
pub(crate) fn check(devices: &Devices, sample: &Sample) -> Result<(Vec<&'static str>, Claims), String> {
    let Sample { graph, inputs } = sample;
    let types = graph.weights();
    let weights = |name: &str| {
        let ty = types.get(name)?;
        Some(Noise::named(name).tensor(ty.dtype, ty.static_shape()?))
    };
    let load = |session: &InferenceSession, graph: &Graph, passes: Passes| {
        let options = CompileOptions { passes, ..CompileOptions::default() };
        session.load_with(graph, &weights, &options).map_err(|error| format!("it does not load: {error}"))
    };
    let plain = load(&devices.one, graph, Passes::None)?;
    let expected = match graph.evaluate(inputs, &weights) {
        Ok(evaluation) => [evaluation.outputs, evaluation.buffers].concat(),
        Err(error) => {
            let refused = run(&plain, graph, inputs).is_err();
            let message = format!("the references fail ({error}), but not the model");
            return if refused { Ok((Vec::new(), Claims::default())) } else { Err(message) };
        }
    };
    each_node(&load(&devices.four, &exposed(graph), Passes::None)?, graph, inputs, &weights)?;
    let computed = run(&plain, graph, inputs)?;
    same_bits("a second run", &computed, &run(&plain, graph, inputs)?)?;
    same_bits("4 threads", &computed, &run(&load(&devices.four, graph, Passes::None)?, graph, inputs)?)?;
    let spread = Spread::of(graph, inputs, &weights, &expected);
    spread.accept("without passes", &computed, &expected)?;

    let fused = load(&devices.one, graph, Passes::All)?;
    let computed = run(&fused, graph, inputs)?;
    spread.accept("with passes", &computed, &expected)?;
    same_bits("passes and a second run", &computed, &run(&fused, graph, inputs)?)?;
    let four = load(&devices.four, graph, Passes::All)?;
    same_bits("passes and 4 threads", &computed, &run(&four, graph, inputs)?)?;

    let text = graph.to_string();
    let parsed = Graph::parse(&text).map_err(|error| format!("its text does not parse: {error}"))?;
    if parsed.to_string() != text {
        return Err(format!("its text prints as another:\n{parsed}"));
    }
    let parsed = run(&load(&devices.four, &parsed, Passes::All)?, graph, inputs)?;
    same_bits("the graph of its text", &computed, &parsed)?;

    let failed = |error: engine::Error| format!("its artifact: {error}");
    let compiled = devices.four.compile(graph).map_err(failed)?;
    let options = ExportOptions { weights: Some(&weights), ..ExportOptions::default() };
    compiled.export_mef_with(&devices.artifact, options).map_err(failed)?;
    let stored = devices.four.load(&devices.artifact, &()).map_err(failed)?;
    same_bits("an artifact", &computed, &run(&stored, graph, inputs)?)?;

    let placed = |device: FarDevice| {
        let device: Arc<dyn Device> = Arc::new(device);
        let session = InferenceSession::new([Arc::clone(&device), Arc::new(Cpu::new(1))]).expect("devices");
        let options = CompileOptions { placement: Placement::On(device.spec()), ..CompileOptions::default() };
        let model = session
            .load_with(graph, &weights, &options)
            .map_err(|error| format!("it does not load for a device: {error}"))?;
        let there = device.far().expect("its memory is its own").allocator();
        run_on(&model, graph, inputs, there)
    };
    let seed = Noise(text.len() as u64).bits();
    let device = || FarDevice::new(0, Arc::new(Cpu::new(1)), seed).expect("a number");
    same_bits("a device with memory of its own", &computed, &placed(device())?)?;
    let some = Op::names().enumerate().filter(|(i, _)| seed >> (i % 64) & 1 == 1).map(|(_, name)| name);
    same_bits("a device with some kernels", &computed, &placed(device().only(some))?)?;

    let buffers: Vec<Buffer> = inputs.iter().map(Buffer::from_tensor).collect();
    let (_, profile) = four.profile(&buffers).map_err(failed)?;
    let written = graph.nodes().map(|(_, node)| node.op.name());
    Ok((written.chain(profile.steps.iter().map(|step| step.op)).collect(), spread.claims(&expected)))
}

/// The outputs of a model, then what buffers hold.
fn run(model: &Model, graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_on(model, graph, inputs, &HostAllocator)
}

/// The same of a model that wants some inputs on a device.
fn run_on(
    model: &Model,
    graph: &Graph,
    inputs: &[Tensor],
    there: &dyn Allocator,
) -> Result<Vec<Tensor>, String> {
    let buffers = inputs.iter().zip(model.input_devices()).map(|(input, device)| match device {
        DeviceRef::Cpu => Buffer::from_tensor(input),
        DeviceRef::Gpu(_) => Buffer::from_tensor(input).to(there).expect("memory of the device"),
    });
    let buffers: Vec<Buffer> = buffers.collect();
    let outputs = model.execute(&buffers).map_err(|error| format!("it does not run: {error}"))?;
    let kinds = graph.inputs().iter().map(|input| graph.ty(input.value).kind);
    let written = buffers.into_iter().zip(kinds).filter(|(_, kind)| *kind == Kind::Buffer);
    let all = outputs.into_iter().chain(written.map(|(buffer, _)| buffer));
    Ok(all.map(|buffer| buffer.to_tensor().expect("the call is over")).collect())
}

/// A NaN is a NaN: whose payload an instruction passes on depends on the order of its operands, which is the
/// compiler's choice.
fn same_bits(what: &str, one: &[Tensor], other: &[Tensor]) -> Result<(), String> {
    for (i, (one, other)) in one.iter().zip(other).enumerate() {
        if one.shape() == other.shape() && one.bytes() == other.bytes() {
            continue;
        }
        let floats = one.dtype().is_float();
        let (one, other) = (one.to_f64_vec(), other.to_f64_vec());
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        if !floats || one.len() != other.len() || !one.iter().zip(&other).all(same) {
            return Err(format!("{what} gives other bits in output {i}: {one:?}, {other:?}"));
        }
    }
    Ok(())
}

/// The tensors that nodes make.
fn made(graph: &Graph) -> Vec<Value> {
    let values = graph.nodes().flat_map(|(_, node)| node.outputs.iter().copied());
    values.filter(|&value| graph.ty(value).kind == Kind::Tensor).collect()
}

/// The graph with every tensor as an output, then its own outputs.
fn exposed(graph: &Graph) -> Graph {
    let mut exposed = graph.clone();
    exposed.set_outputs(&[&made(graph)[..], graph.outputs()].concat());
    exposed
}

/// Holds each node to its reference, given the operands that the device itself computed.
fn each_node(
    model: &Model,
    graph: &Graph,
    inputs: &[Tensor],
    weights: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<(), String> {
    let computed = run(model, graph, inputs)?;
    let mut values: Vec<Option<Tensor>> = vec![None; graph.value_count()];
    for (value, tensor) in made(graph).into_iter().zip(computed) {
        values[value.index()] = Some(tensor);
    }
    let mut compare = |node: &graph::Node, operands: &[&Tensor], expected: Vec<Tensor>| {
        // Created buffers are no outputs; what is loaded from them is.
        if let Op::CreateBuffer(_) = node.op {
            return Ok(expected);
        }
        for (value, expected) in node.outputs.iter().zip(&expected) {
            let got = values[value.index()].as_ref().expect("every tensor is an output");
            let slack = slack(&node.op, operands, expected.dtype());
            near(got, expected, &|_| slack).map_err(|error| format!("{}{error}", node.op.name()))?;
        }
        let got = |value: &Value| values[value.index()].clone().expect("every tensor is an output");
        Ok(node.outputs.iter().map(got).collect())
    };
    walk(graph, inputs, weights, &mut compare).map(|_| ())
}

fn near(got: &Tensor, expected: &Tensor, slack: &dyn Fn(usize) -> Slack) -> Result<(), String> {
    let dtype = expected.dtype();
    if got.dtype() != dtype || got.shape() != expected.shape() {
        return Err(format!(" is {got:?}, expected {expected:?}"));
    }
    if !dtype.is_float() && got.bytes() == expected.contiguous().bytes() {
        return Ok(());
    }
    let (numbers, wanted) = (got.to_f64_vec(), expected.to_f64_vec());
    let wrong = (0..wanted.len()).find(|&i| !slack(i).accepts(dtype, numbers[i], wanted[i]));
    match wrong {
        None => Ok(()),
        Some(i) => Err(format!("[{i}] is {:e}, expected {:e} ({:?})", numbers[i], wanted[i], slack(i))),
    }
}

/// How far results move when each node's move a little.
struct Spread {
    /// For each output and each of its elements; `None` where sizes changed.
    reaches: Vec<Option<Vec<f64>>>,
}

impl Spread {
    /// The largest of some disturbed runs.
    fn of(
        graph: &Graph,
        inputs: &[Tensor],
        weights: &dyn Fn(&str) -> Option<Tensor>,
        expected: &[Tensor],
    ) -> Spread {
        let mut reaches: Vec<Option<Vec<f64>>> =
            expected.iter().map(|tensor| Some(vec![0.0; tensor.elements()])).collect();
        for seed in 0..8 {
            let mut noise = Noise(seed);
            let moved = walk(graph, inputs, weights, &mut |node, operands, results| {
                Ok(disturb(node, operands, results, &mut noise))
            });
            let Ok(moved) = moved else {
                reaches.fill(None);
                break;
            };
            for ((reach, moved), expected) in reaches.iter_mut().zip(&moved).zip(expected) {
                widen(reach, moved, expected);
            }
        }
        for (reach, expected) in reaches.iter_mut().zip(expected) {
            reach.iter_mut().for_each(|reach| level(reach, expected));
        }
        Spread { reaches }
    }

    fn claims(&self, expected: &[Tensor]) -> Claims {
        let reaches = self.reaches.iter().zip(expected);
        let widest = reaches.filter_map(|(reach, expected)| {
            let reach = reach.as_ref()?.iter().copied().fold(0.0, f64::max);
            Some((reach, largest_of(expected)))
        });
        let widest: Vec<(f64, f64)> = widest.collect();
        Claims {
            graphs: 1,
            outputs: expected.len(),
            steady: widest.iter().filter(|(reach, largest)| *reach <= 0.01 * largest).count(),
            exact: widest.iter().filter(|(reach, _)| *reach == 0.0).count(),
        }
    }

    fn accept(&self, what: &str, computed: &[Tensor], expected: &[Tensor]) -> Result<(), String> {
        for (i, ((got, expected), reach)) in computed.iter().zip(expected).zip(&self.reaches).enumerate() {
            let Some(reach) = reach else { continue };
            let relative = if expected.dtype().is_float() { 2.0 * unit(expected.dtype()) } else { 0.0 };
            let slack = |i: usize| match reach[i] {
                0.0 => Slack::EXACT,
                reach => Slack { relative, absolute: 4.0 * reach },
            };
            near(got, expected, &slack).map_err(|error| format!("{what}, output {i}{error}"))?;
        }
        Ok(())
    }
}

fn widen(reach: &mut Option<Vec<f64>>, moved: &Tensor, expected: &Tensor) {
    if moved.shape() != expected.shape() {
        *reach = None;
    }
    let pairs = moved.to_f64_vec().into_iter().zip(expected.to_f64_vec());
    for (reach, (moved, expected)) in reach.iter_mut().flatten().zip(pairs) {
        *reach = match moved == expected || moved.is_nan() && expected.is_nan() {
            true => *reach,
            false if (moved - expected).is_finite() => reach.max((moved - expected).abs()),
            false => f64::INFINITY,
        };
    }
}

/// Where an order or a comparison turned in one place, it may turn in another.
fn level(reach: &mut [f64], expected: &Tensor) {
    let widest = reach.iter().copied().fold(0.0, f64::max);
    let largest = largest_of(expected);
    if widest > 0.01 * largest || expected.dtype() == DType::Bool && widest > 0.0 {
        reach.fill(widest);
    }
}
