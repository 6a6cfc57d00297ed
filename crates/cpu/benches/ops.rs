//! What ops reach of the memory's speed: GB/s over what each reads and writes, the best of some runs; of products,
//! GFLOP/s.
//!
//! `cargo bench -p perihelion-cpu --bench ops -- [parts of names]... [threads]`; each instruction set that this machine
//! has, the fastest first, or the one that `PERIHELION_INSTRUCTION_SET` names.

use std::time::{Duration, Instant};

use engine::{
    Device, DeviceSettings, Kernel, KernelCall, NodeTypes, Operand, PackedWeight, TopKKernel, View, ViewMut,
};
use graph::ops::{
    ArgReduce, ArgReduceKind, Attention, Attribute, Attributes, Binary, Cast, CausalConv, GatedDeltaRule,
    GptqMatMul, LayerNorm, MatMul, Reduce, ReduceKind, RmsNorm, SelectiveScan, Softmax, TopK, Transpose,
    Unary,
};
use graph::{Kind, Op, Type};
use perihelion_cpu::Cpu;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};

mod instruction_sets;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|x| !x.starts_with("--")).collect();
    let threads = arguments.iter().find_map(|x| x.parse().ok()).unwrap_or(0);
    let filters: Vec<&String> = arguments.iter().filter(|x| x.parse::<usize>().is_err()).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let sets = instruction_sets::to_measure();
    let devices: Vec<Cpu> = sets.into_iter().map(|set| Cpu::with_instruction_set(threads, set)).collect();
    println!("{}, {} threads", devices[0].target(), devices[0].pool().threads());
    for (op, operands) in problems() {
        let mut seen = Vec::new();
        for cpu in &devices {
            for top_k in [TopKKernel::Select, TopKKernel::Bounded] {
                let settings = DeviceSettings { top_k, ..DeviceSettings::default() };
                let problem = Problem::new(cpu, op.clone(), &operands, settings);
                let name = problem.kernel.name();
                if wanted(&name) && !seen.contains(&name) {
                    problem.measure(&name);
                    if op == MatMul.into() {
                        Problem::new(cpu, op.clone(), &operands, settings)
                            .with_right_packed(cpu)
                            .measure("packed matmul[f32]");
                    }
                }
                seen.push(name);
            }
        }
    }
}

/// Ops and the types of their operands.
fn problems() -> Vec<(Op, Vec<Type>)> {
    let large = || Type::new(DType::F32, [64 << 20]);
    let matrix = || Type::new(DType::F32, [4096, 4096]);
    let row = || Type::new(DType::F32, [4096]);
    let scalar = || Type::new(DType::F32, [0usize; 0]);
    let logits = || Type::new(DType::F32, [16, 128_256]);
    let square = |n: usize| Type::new(DType::F32, [n, n]);
    let heads = || Type::new(DType::F32, [32, 128, 12, 32]);
    let gptq = |tokens: usize| {
        let zeros = Type::new(DType::I32, [32, 512]);
        vec![Type::new(DType::BF16, [tokens, 4096]), Type::new(DType::U8, [32 * 66, 4096]), zeros]
    };
    let mut cases: Vec<(Op, Vec<Type>)> = vec![
        (MatMul.into(), vec![Type::new(DType::F32, [1, 1024]), square(1024)]),
        (MatMul.into(), vec![square(1024), square(1024)]),
        (MatMul.into(), vec![square(2048), square(2048)]),
        (Attention { scale: 0.125 }.into(), vec![heads(), heads(), heads()]),
        (GptqMatMul { sym: false, ..GptqMatMul::default() }.into(), gptq(1)),
        (GptqMatMul { sym: false, ..GptqMatMul::default() }.into(), gptq(64)),
        (GptqMatMul { sym: false, ..GptqMatMul::default() }.into(), gptq(512)),
        (Softmax { axis: 1 }.into(), vec![matrix()]),
        (Softmax { axis: 0 }.into(), vec![matrix()]),
        (LayerNorm { eps: 1e-5 }.into(), vec![matrix(), row(), row()]),
        (RmsNorm { eps: 1e-5 }.into(), vec![matrix(), row()]),
        (Unary::Gelu.into(), vec![large()]),
        (Unary::GeluTanh.into(), vec![large()]),
        (Unary::Silu.into(), vec![large()]),
        (Unary::Exp.into(), vec![large()]),
        (Unary::Log.into(), vec![large()]),
        (Unary::Relu.into(), vec![large()]),
        (Binary::Add.into(), vec![large(), large()]),
        (Binary::Mul.into(), vec![matrix(), row()]),
        (Binary::Less.into(), vec![large(), large()]),
        (Binary::Add.into(), vec![large().with_dtype(DType::BF16), large().with_dtype(DType::BF16)]),
        (
            program("mul(x0, x1); add(t0, x2); gelu(t1); add(t2, x3)"),
            vec![large(), scalar(), scalar(), scalar()],
        ),
        (
            program("mul(x0, x1); add(t0, x2); gelu_tanh(t1); add(t2, x3)"),
            vec![large(), scalar(), scalar(), scalar()],
        ),
        (program("add(x0, x1); gelu(t0)"), vec![matrix(), row()]),
        (Cast { to: DType::F32 }.into(), vec![large().with_dtype(DType::BF16)]),
        (Cast { to: DType::BF16 }.into(), vec![large()]),
        (Transpose { order: vec![1, 0] }.into(), vec![matrix()]),
        (Transpose { order: vec![1, 0] }.into(), vec![matrix().with_dtype(DType::BF16)]),
        (Transpose { order: vec![0, 2, 3, 1] }.into(), vec![Type::new(DType::BF16, [8, 64, 112, 112])]),
        (Transpose { order: vec![0, 3, 1, 2] }.into(), vec![Type::new(DType::BF16, [8, 112, 112, 64])]),
        (Transpose { order: vec![0, 2, 3, 1] }.into(), vec![Type::new(DType::BF16, [8, 512, 32, 64])]),
        (Reduce { kind: ReduceKind::Sum, axis: 0 }.into(), vec![large()]),
        (Reduce { kind: ReduceKind::Max, axis: 1 }.into(), vec![matrix()]),
        (Reduce { kind: ReduceKind::Mean, axis: 0 }.into(), vec![matrix()]),
        (ArgReduce { kind: ArgReduceKind::Max, axis: 1 }.into(), vec![logits()]),
    ];
    for tokens in [1, 512] {
        cases.push((GatedDeltaRule { layer: 0, tiled: false }.into(), delta_net(tokens)));
    }
    // A token of each of many sequences, whose states no cache holds, and many tokens of one.
    for (sequences, tokens) in [(32, 1), (1, 512)] {
        for of_heads in [true, false] {
            cases.push((SelectiveScan { layer: 0 }.into(), state_space(sequences, tokens, of_heads)));
        }
        cases.push((CausalConv { layer: 0 }.into(), convolution(sequences, tokens)));
    }
    for (rows, n) in [(1, 32_768), (1, 128_256), (16, 128_256)] {
        for k in [1, 40, 50, 1000] {
            let op = TopK { k, axis: 1, smallest: false };
            cases.push((op.into(), vec![Type::new(DType::F32, [rows, n])]));
        }
    }
    cases
}

/// New tokens of one sequence, with the heads of Qwen3-Next.
fn delta_net(tokens: usize) -> Vec<Type> {
    let rows = |sizes: &[usize]| Type::new(DType::F32, [&[tokens], sizes].concat());
    let state = Type::buffer(DType::F32, [2, 1, 32, 128, 128]);
    let (keys, values, gates) = (rows(&[16, 128]), rows(&[32, 128]), rows(&[32]));
    [vec![keys.clone(), keys, values, gates.clone(), gates, state], lists(1)].concat()
}

/// New tokens of sequences, with the heads of Mamba 2 2.7B, or with the channels of Mamba 2.8B.
fn state_space(sequences: usize, tokens: usize, of_heads: bool) -> Vec<Type> {
    let [heads, head_dim, state_dim] = if of_heads { [80, 64, 128] } else { [1, 5120, 16] };
    let rows = |sizes: &[usize]| Type::new(DType::F32, [&[sequences * tokens], sizes].concat());
    let (x, shared) = (rows(&[heads, head_dim]), rows(&[1, state_dim]));
    let (steps, rates) = if of_heads {
        (rows(&[heads]), Type::new(DType::F32, [heads]))
    } else {
        (x.clone(), Type::new(DType::F32, [heads, state_dim, head_dim]))
    };
    let states = Type::buffer(DType::F32, [2 * sequences, 1, heads, state_dim, head_dim]);
    [vec![x, steps, rates, shared.clone(), shared, states], lists(sequences)].concat()
}

/// New tokens of sequences, with the channels of Mamba 2 2.7B.
fn convolution(sequences: usize, tokens: usize) -> Vec<Type> {
    let (x, filters) =
        (Type::new(DType::F32, [sequences * tokens, 5376]), Type::new(DType::F32, [5376usize, 4]));
    let states = Type::buffer(DType::F32, [2 * sequences, 1, 5376, 3]);
    [vec![x, filters, states], lists(sequences)].concat()
}

/// Where the rows of sequences are, how much of each came before, and their slots.
fn lists(sequences: usize) -> Vec<Type> {
    let list = |shape: &[usize]| Type::new(DType::U32, shape.to_vec());
    vec![list(&[sequences + 1]), list(&[sequences]), list(&[sequences, 3])]
}

fn program(text: &str) -> Op {
    let text = Attribute::Text(text.to_string());
    Op::parse("elementwise", Attributes::default().with("program", text)).expect("a program")
}

struct Problem {
    op: Op,
    kernel: std::sync::Arc<dyn Kernel>,
    operands: Vec<Array>,
    results: Vec<Array>,
    scratch: AlignedBytes,
    /// The last operand, as the kernel wants it if it is a constant.
    packed: Option<PackedWeight>,
}

struct Array {
    kind: Kind,
    dtype: DType,
    shape: Shape,
    bytes: AlignedBytes,
}

impl Array {
    fn new(ty: &Type) -> Array {
        let shape = ty.static_shape().expect("a shape of numbers");
        let bytes = AlignedBytes::zeroed(ty.dtype.bytes_for(shape.elements()).expect("whole blocks"));
        Array { kind: ty.kind, dtype: ty.dtype, shape, bytes }
    }

    /// Finite numbers that look random; lists stay zeros.
    fn fill(&mut self, reach: f32) {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * reach
        };
        match self.dtype {
            DType::BF16 => {
                let values: &mut [tensor::bf16] = bytemuck::cast_slice_mut(&mut self.bytes);
                values.fill_with(|| tensor::bf16::from_f32(next()));
            }
            DType::U32 => {}
            _ => bytemuck::cast_slice_mut::<u8, f32>(&mut self.bytes).fill_with(next),
        }
    }

    /// The numbers of a list.
    fn set(&mut self, values: &[u32]) {
        self.bytes.copy_from_slice(bytemuck::cast_slice(values));
    }
}

impl Problem {
    fn new(cpu: &Cpu, op: Op, operands: &[Type], settings: DeviceSettings) -> Problem {
        let inputs: Vec<&Type> = operands.iter().collect();
        let results = op.infer(&inputs).expect("operands that fit");
        let outputs: Vec<&Type> = results.iter().collect();
        let node = NodeTypes { op: &op, inputs: &inputs, outputs: &outputs, settings };
        let kernel = cpu.kernel(&node).expect("a kernel");
        let operands: Vec<Array> = operands.iter().map(Array::new).collect();
        let results: Vec<Array> = results.iter().map(Array::new).collect();
        let shapes = |arrays: &[Array]| arrays.iter().map(|array| array.shape).collect::<Vec<_>>();
        let scratch = AlignedBytes::zeroed(kernel.scratch(&shapes(&operands), &shapes(&results)));
        Problem { op, kernel, operands, results, scratch, packed: None }
    }

    /// With a constant right side.
    fn with_right_packed(mut self, cpu: &Cpu) -> Problem {
        let right = self.operands.last_mut().expect("two sides");
        right.fill(4.0);
        let bytes = Bytes::new(AlignedBytes::copy_of(&right.bytes));
        let right = Tensor::from_bytes(right.dtype, right.shape, bytes).expect("as many bytes");
        self.packed = Some(cpu.pack("columns16.f32", &right).expect("a matrix of f32"));
        self
    }

    fn measure(mut self, name: &str) {
        // Small, so that states do not grow.
        let has_states = matches!(self.op, Op::GatedDeltaRule(_) | Op::SelectiveScan(_) | Op::CausalConv(_));
        let reach = if has_states { 0.1 } else { 4.0 };
        self.operands.iter_mut().for_each(|array| array.fill(reach));
        if let (true, [rows, .., offsets, cached, table]) = (has_states, &mut self.operands[..]) {
            let sequences = cached.shape[0] as u32;
            let tokens = rows.shape[0] as u32 / sequences;
            offsets.set(&(0..=sequences).map(|index| index * tokens).collect::<Vec<u32>>());
            cached.set(&vec![1; sequences as usize]);
            table.set(
                &(0..sequences).flat_map(|index| [index, sequences + index, tokens]).collect::<Vec<u32>>(),
            );
        }
        self.run();
        let (mut best, mut runs, begun) = (Duration::MAX, 0, Instant::now());
        while runs < 5 || (begun.elapsed() < Duration::from_millis(500) && runs < 100) {
            let start = Instant::now();
            self.run();
            best = best.min(start.elapsed());
            runs += 1;
        }
        let bytes: usize = self.operands.iter().chain(&self.results).map(|array| array.bytes.len()).sum();
        let shapes: Vec<String> = self.operands.iter().map(|array| array.shape.to_string()).collect();
        let attributes: Vec<String> =
            self.op.attributes().iter().map(|(key, value)| format!("{key} {value:?}")).collect();
        let (work, unit) = match self.flops() {
            0 => (bytes, "GB/s"),
            flops => (flops, "GFLOP/s"),
        };
        println!(
            "{name:28} {:>8.3} ms {:>7.1} {unit}  {} {}",
            best.as_secs_f64() * 1e3,
            work as f64 / best.as_secs_f64() / 1e9,
            shapes.join(" "),
            attributes.join(" "),
        );
    }

    /// Of matrix products; 0 for ops that memory bounds.
    fn flops(&self) -> usize {
        let shapes: Vec<&Shape> = self.operands.iter().map(|array| &array.shape).collect();
        match self.op {
            Op::MatMul(_) => 2 * shapes[0].elements() * shapes[1][1],
            Op::Attention(_) => 4 * shapes[0].elements() * shapes[1][1],
            Op::SelectiveScan(_) if shapes[7][0] < shapes[0][0] => 5 * shapes[0].elements() * shapes[3][2],
            Op::GatedDeltaRule(_) if shapes[0][0] > 1 => 7 * shapes[2].elements() * shapes[0][2],
            Op::GptqMatMul(_) if shapes[0][0] > 1 => 2 * shapes[0].elements() * shapes[1][1],
            _ => 0,
        }
    }

    fn run(&mut self) {
        let mut operands: Vec<Operand<'_>> = Vec::new();
        for array in &mut self.operands {
            let Array { kind, dtype, ref shape, ref mut bytes } = *array;
            operands.push(match kind {
                Kind::Buffer => Operand::Buffer(ViewMut { dtype, shape, bytes }),
                Kind::Tensor => Operand::View(View { dtype, shape, bytes }),
            });
        }
        if let (Some(packed), Some(right)) = (&self.packed, operands.last_mut()) {
            *right = Operand::Packed(packed);
        }
        let mut results: Vec<ViewMut<'_>> = Vec::new();
        for array in &mut self.results {
            results.push(ViewMut { dtype: array.dtype, shape: &array.shape, bytes: &mut array.bytes });
        }
        let call = KernelCall { inputs: &mut operands, outputs: &mut results, scratch: &mut self.scratch };
        self.kernel.run(call).expect("good data");
    }
}
