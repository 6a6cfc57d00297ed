//! Image classifiers built from ops, as their users write them: the convolutions of ResNet-18 and of MobileNet v1 for one
//! image of 224 × 224, each with channels first and last.
//!
//! `cargo bench -p perihelion-cpu --bench vision -- [parts of names]... [threads] [profile]`; each instruction set that
//! this machine has, the fastest first, or the one that `PERIHELION_INSTRUCTION_SET` names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Device, ExecuteOptions, InferenceSession};
use graph::ops::{Conv, FilterLayout, ImageLayout, Pool2d, PoolKind, ReduceKind, Unary, Windows};
use graph::{Builder, Error, Graph, Type, Value};
use perihelion_cpu::Cpu;
use tensor::{Buffer, DType, Tensor};

mod instruction_sets;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|x| !x.starts_with("--")).collect();
    let threads = arguments.iter().find_map(|x| x.parse().ok()).unwrap_or(0);
    let profile = arguments.iter().any(|x| x == "profile");
    let is_filter = |x: &&String| x.parse::<usize>().is_err() && *x != "profile";
    let filters: Vec<&String> = arguments.iter().filter(is_filter).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    for set in instruction_sets::to_measure() {
        let cpu = Cpu::with_instruction_set(threads, set);
        println!("{}, {} threads", cpu.target(), cpu.pool().threads());
        let session = InferenceSession::new([Arc::new(cpu) as Arc<dyn Device>])?;
        for layout in [ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast] {
            for (name, build) in
                [("resnet18", resnet as fn(&mut Network, Value) -> _), ("mobilenet", mobilenet)]
            {
                let name = format!("{name} {layout:?}");
                if wanted(&name) {
                    measure(&session, &name, &graph(layout, build)?, profile)?;
                }
            }
        }
    }
    Ok(())
}

fn measure(
    session: &InferenceSession,
    name: &str,
    graph: &Graph,
    profile: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let model = session.load(graph, &weight)?;
    let shape: Vec<usize> = graph
        .ty(graph.inputs()[0].value)
        .shape
        .iter()
        .map(|dim| dim.as_static().expect("a number"))
        .collect();
    let inputs = [Buffer::from_tensor(&random(&shape, 1.0, 1))];
    let (outputs, options) = (model.execute(&inputs)?, ExecuteOptions::default());
    let (mut times, begun) = (Vec::new(), Instant::now());
    while times.len() < 7 || begun.elapsed() < Duration::from_millis(1500) {
        let start = Instant::now();
        model.execute_into(&inputs, &outputs, &options)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!("{name:28} best {:>8.3} ms, median {:>8.3} ms", times[0], times[times.len() / 2]);
    if profile {
        println!("{}", model.profile(&inputs)?.1);
    }
    Ok(())
}

/// A network with its head.
fn graph(
    layout: ImageLayout,
    build: fn(&mut Network, Value) -> Result<Value, Error>,
) -> Result<Graph, Error> {
    let mut network = Network { b: Builder::new("vision"), layout, weights: 0 };
    let x = network.b.input("x", Type::new(DType::F32, network.shape(3, 224)));
    let y = build(&mut network, x)?;
    let y = network.head(y)?;
    network.b.finish(&[y])
}

/// A graph under construction.
struct Network {
    b: Builder,
    layout: ImageLayout,
    weights: usize,
}

/// A convolution: results, size of the window, stride, groups.
struct Layer(usize, usize, usize, usize);

impl Network {
    fn shape(&self, channels: usize, size: usize) -> [usize; 4] {
        match self.layout {
            ImageLayout::ChannelsFirst => [1, channels, size, size],
            ImageLayout::ChannelsLast => [1, size, size, channels],
        }
    }

    fn channels(&self, x: Value) -> usize {
        let shape = &self.b.ty(x).shape;
        shape[self.layout.channel_axis(4)].as_static().expect("a number")
    }

    fn conv(&mut self, x: Value, Layer(results, size, stride, groups): Layer) -> Result<Value, Error> {
        let channels = self.channels(x) / groups;
        let windows = Windows::new(2).with_strides([stride; 2]).with_padding(&[size / 2; 2]);
        let (filter_layout, filter) = match self.layout {
            ImageLayout::ChannelsFirst => (FilterLayout::Fcrs, [results, channels, size, size]),
            ImageLayout::ChannelsLast => (FilterLayout::Rscf, [size, size, channels, results]),
        };
        let (filter, bias) = (self.weight(&filter)?, self.weight(&[results])?);
        let conv = Conv { windows, groups, layout: self.layout, filter_layout, ..Conv::new(2) };
        self.b.conv2d(conv, x, filter, Some(bias.into()))
    }

    fn conv_relu(&mut self, x: Value, layer: Layer) -> Result<Value, Error> {
        let y = self.conv(x, layer)?;
        self.b.unary(Unary::Relu, y)
    }

    /// A weight whose name tells its shape.
    fn weight(&mut self, shape: &[usize]) -> Result<Value, Error> {
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        self.weights += 1;
        let name = format!("w{}:{}", self.weights, sizes.join("x"));
        self.b.weight(name, Type::new(DType::F32, shape.iter().copied()))
    }

    fn head(&mut self, x: Value) -> Result<Value, Error> {
        let channels = self.channels(x);
        let first = self.layout.first_spatial_axis();
        let x = self.b.reduce(ReduceKind::Mean, x, first as isize)?;
        let x = self.b.reduce(ReduceKind::Mean, x, first as isize + 1)?;
        let x = self.b.reshape(x, [1.into(), channels.into()])?;
        let (weight, bias) = (self.weight(&[1000, channels])?, self.weight(&[1000])?);
        let y = self.b.linear(x, weight)?;
        self.b.add(y, bias)
    }
}

fn resnet(network: &mut Network, x: Value) -> Result<Value, Error> {
    let x = network.conv_relu(x, Layer(64, 7, 2, 1))?;
    let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
    let pool = Pool2d { windows, layout: network.layout, ..Pool2d::new(PoolKind::Max, [3, 3]) };
    let mut x = network.b.pool2d(pool, x)?;
    for (stage, results) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let y = network.conv_relu(x, Layer(results, 3, stride, 1))?;
            let y = network.conv(y, Layer(results, 3, 1, 1))?;
            let same = network.channels(x) == results;
            let shortcut = if same { x } else { network.conv(x, Layer(results, 1, stride, 1))? };
            let sum = network.b.add(y, shortcut)?;
            x = network.b.unary(Unary::Relu, sum)?;
        }
    }
    Ok(x)
}

fn mobilenet(network: &mut Network, x: Value) -> Result<Value, Error> {
    let mut x = network.conv_relu(x, Layer(32, 3, 2, 1))?;
    let mut layers = vec![(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)];
    layers.extend([(512, 1); 5]);
    layers.extend([(1024, 2), (1024, 1)]);
    for (results, stride) in layers {
        let channels = network.channels(x);
        let y = network.conv_relu(x, Layer(channels, 3, stride, channels))?;
        x = network.conv_relu(y, Layer(results, 1, 1, 1))?;
    }
    Ok(x)
}

/// Small numbers that look random, of the shape in the name.
fn weight(name: &str) -> Option<Tensor> {
    let shape: Vec<usize> =
        name.split_once(':')?.1.split('x').map(|size| size.parse().ok()).collect::<Option<_>>()?;
    let seed = name.bytes().fold(1u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    Some(random(&shape, 1.0 / 16.0, seed))
}

fn random(shape: &[usize], size: f32, seed: u32) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * size
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(shape, &values)
}
