//! What ops on images reach: GFLOP/s of convolutions, GB/s over what the others read and write; the best of some runs.
//!
//! `cargo bench -p perihelion-cpu --bench images -- [parts of names]... [threads]`; each instruction set that this machine
//! has, the fastest first, or the one that `PERIHELION_INSTRUCTION_SET` names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Device, DeviceSettings, Kernel, KernelCall, NodeTypes, Operand, PackedWeight, View, ViewMut};
use graph::ops::{
    Conv, ConvTranspose, Coordinates, FilterLayout, ImageLayout, Interpolation, Pool2d, PoolKind, Resize,
    Windows,
};
use graph::{Op, Type};
use perihelion_cpu::Cpu;
use tensor::{AlignedBytes, DType, Shape, Tensor};

mod instruction_sets;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|x| !x.starts_with("--")).collect();
    let threads = arguments.iter().find_map(|x| x.parse().ok()).unwrap_or(0);
    let filters: Vec<&String> = arguments.iter().filter(|x| x.parse::<usize>().is_err()).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    for set in instruction_sets::to_measure() {
        let cpu = Cpu::with_instruction_set(threads, set);
        println!("{}, {} threads", cpu.target(), cpu.pool().threads());
        for problem in problems().into_iter().filter(|problem| wanted(&problem.name)) {
            problem.measure(&cpu);
        }
    }
}

struct Problem {
    name: String,
    op: Op,
    operands: Vec<Tensor>,
    /// Multiplications and additions, where they are what counts.
    flops: Option<usize>,
}

/// A name, `[batch, channels, height, width]`, `[results, channels of a group, height, width]`, groups, stride, padding.
type Convolution = (&'static str, [usize; 4], [usize; 4], usize, usize, usize);

const CONVOLUTIONS: [Convolution; 15] = [
    ("stem 7x7", [1, 3, 224, 224], [64, 3, 7, 7], 1, 2, 3),
    ("stem 3x3", [1, 3, 224, 224], [32, 3, 3, 3], 1, 2, 1),
    ("3x3 at 56", [1, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1),
    ("3x3 at 28", [1, 128, 28, 28], [128, 128, 3, 3], 1, 1, 1),
    ("3x3 at 14", [1, 256, 14, 14], [256, 256, 3, 3], 1, 1, 1),
    ("3x3 at 7", [1, 512, 7, 7], [512, 512, 3, 3], 1, 1, 1),
    ("1x1 at 56", [1, 64, 56, 56], [256, 64, 1, 1], 1, 1, 0),
    ("1x1 at 112", [1, 32, 112, 112], [64, 32, 1, 1], 1, 1, 0),
    ("1x1 at 28", [1, 256, 28, 28], [256, 256, 1, 1], 1, 1, 0),
    ("1x1 at 14", [1, 512, 14, 14], [512, 512, 1, 1], 1, 1, 0),
    ("1x1 at 7", [1, 1024, 7, 7], [1024, 1024, 1, 1], 1, 1, 0),
    ("3x3 by 2", [1, 64, 56, 56], [128, 64, 3, 3], 1, 2, 1),
    ("depthwise at 112", [1, 32, 112, 112], [32, 1, 3, 3], 32, 1, 1),
    ("depthwise by 2", [1, 96, 112, 112], [96, 1, 3, 3], 96, 2, 1),
    ("depthwise at 14", [1, 384, 14, 14], [384, 1, 3, 3], 384, 1, 1),
];

fn problems() -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, x, filter, groups, stride, padding) in CONVOLUTIONS {
        let windows = Windows::new(2).with_strides([stride; 2]).with_padding(&[padding; 2]);
        let (layout, filter_layout) = (ImageLayout::ChannelsFirst, FilterLayout::Fcrs);
        let first = Conv { windows: windows.clone(), groups, layout, filter_layout, ..Conv::new(2) };
        problems.push(conv(format!("conv {name} nchw"), first, x, filter));
        let last = Conv { windows, groups, ..Conv::new(2) };
        let ([n, c, h, w], [f, k, r, s]) = (x, filter);
        problems.push(conv(format!("conv {name} nhwc"), last, [n, h, w, c], [r, s, k, f]));
    }
    let transposed = ConvTranspose {
        windows: Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]),
        layout: ImageLayout::ChannelsFirst,
        filter_layout: FilterLayout::Fcrs,
        ..ConvTranspose::new()
    };
    problems.push(Problem {
        name: "conv transposed 4x4 by 2 nchw".to_string(),
        op: transposed.into(),
        operands: vec![random(&[1, 128, 32, 32]), random(&[128, 64, 4, 4])],
        flops: Some(2 * 128 * 32 * 32 * 64 * 16),
    });
    for layout in [ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast] {
        let x = match layout {
            ImageLayout::ChannelsFirst => [8, 64, 112, 112],
            ImageLayout::ChannelsLast => [8, 112, 112, 64],
        };
        for kind in [PoolKind::Max, PoolKind::Average { count_padding: true }] {
            let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
            let op = Pool2d { windows, layout, ..Pool2d::new(kind, [3, 3]) };
            let name = format!("pool 3x3 by 2 {layout:?} {kind:?}");
            problems.push(Problem { name, op: op.into(), operands: vec![random(&x)], flops: None });
        }
    }
    for (name, interpolation) in [
        ("nearest", Interpolation::Nearest(Default::default())),
        ("linear", Interpolation::Linear),
        ("cubic", Interpolation::Cubic { a: -0.75 }),
    ] {
        let size = graph::dims![4, 3, 1024, 1024].to_vec();
        let op = Resize { size, interpolation, coordinates: Coordinates::HalfPixel, antialias: false };
        let (name, operands) = (format!("resize {name} by 2"), vec![random(&[4, 3, 512, 512])]);
        problems.push(Problem { name, op: op.into(), operands, flops: None });
    }
    problems
}

fn conv(name: String, op: Conv, x: [usize; 4], filter: [usize; 4]) -> Problem {
    let operands = vec![random(&x), random(&filter)];
    let types: Vec<Type> = operands.iter().map(ty).collect();
    let op = Op::from(op);
    let result = &op.infer(&types.iter().collect::<Vec<_>>()).expect("operands that fit")[0];
    let elements = result.static_shape().expect("a shape of numbers").elements();
    let channels = result.shape.iter().filter_map(|dim| dim.as_static());
    let results = if name.ends_with("nchw") { channels.clone().nth(1) } else { channels.clone().nth(3) };
    let terms = filter.iter().product::<usize>() / results.expect("channels");
    Problem { name, op, operands, flops: Some(2 * elements * terms) }
}

/// Finite numbers that look random.
fn random(shape: &[usize]) -> Tensor {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(shape, &values)
}

fn ty(tensor: &Tensor) -> Type {
    Type::new(tensor.dtype(), tensor.shape().iter().copied())
}

impl Problem {
    fn measure(&self, cpu: &Cpu) {
        let types: Vec<Type> = self.operands.iter().map(ty).collect();
        let inputs: Vec<&Type> = types.iter().collect();
        let results = self.op.infer(&inputs).expect("operands that fit");
        let outputs: Vec<&Type> = results.iter().collect();
        let settings = DeviceSettings::default();
        let node = NodeTypes { op: &self.op, inputs: &inputs, outputs: &outputs, settings };
        let kernel = cpu.kernel(&node).expect("a kernel");
        let packed: Vec<Option<PackedWeight>> = (0..inputs.len())
            .map(|i| Some(cpu.pack(&cpu.packing(&node, i)?, &self.operands[i]).expect("a weight that packs")))
            .collect();
        let shape = results[0].static_shape().expect("a shape of numbers");
        let mut result = vec![0f32; shape.elements()];
        let shapes: Vec<Shape> = self.operands.iter().map(|x| *x.shape()).collect();
        let mut scratch = AlignedBytes::zeroed(kernel.scratch(&shapes, &[shape]));
        let (mut best, mut runs, begun) = (Duration::MAX, 0, Instant::now());
        while runs < 5 || (begun.elapsed() < Duration::from_millis(400) && runs < 400) {
            let start = Instant::now();
            self.run(&kernel, &packed, bytemuck::cast_slice_mut(&mut result), shape, &mut scratch);
            best = best.min(start.elapsed());
            runs += 1;
        }
        let seconds = best.as_secs_f64();
        let bytes: usize = self.operands.iter().map(|x| 4 * x.elements()).sum::<usize>() + 4 * result.len();
        let rate = match self.flops {
            Some(flops) => format!("{:>7.1} GFLOP/s", flops as f64 / seconds / 1e9),
            None => format!("{:>7.1} GB/s   ", bytes as f64 / seconds / 1e9),
        };
        println!("{:44} {:>8.3} ms {rate}  {}", self.name, seconds * 1e3, kernel.name());
    }

    fn run(
        &self,
        kernel: &Arc<dyn Kernel>,
        packed: &[Option<PackedWeight>],
        bytes: &mut [u8],
        shape: Shape,
        scratch: &mut [u8],
    ) {
        let mut operands: Vec<Operand<'_>> = Vec::new();
        for (x, packed) in self.operands.iter().zip(packed) {
            operands.push(match packed {
                Some(packed) => Operand::Packed(packed),
                None => Operand::View(View { dtype: x.dtype(), shape: x.shape(), bytes: x.bytes() }),
            });
        }
        let mut results = [ViewMut { dtype: DType::F32, shape: &shape, bytes }];
        let call = KernelCall { inputs: &mut operands, outputs: &mut results, scratch };
        kernel.run(call).expect("good data");
    }
}
