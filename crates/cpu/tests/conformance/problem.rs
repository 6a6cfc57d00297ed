//! A problem for a kernel, its solution by the op's reference, and how far the two may differ.

use std::sync::LazyLock;

use engine::{
    Device, DeviceSettings, Kernel, KernelCall, NodeTypes, Operand, PackedWeight, TopKKernel, View, ViewMut,
};
use graph::ops::Effect;
use graph::{Op, Type};
use perihelion_cpu::{Cpu, InstructionSet};
use tensor::{AlignedBytes, Bytes, DType, Element, Shape, Tensor, bf16, blocks, f16};

/// How far a result may be from the reference, which is rounded once from f64.
#[derive(Clone, Copy)]
pub(crate) enum Tolerance {
    /// The same number; NaN for NaN, and zeros of either sign are the same.
    Exact,
    /// `|got - want| <= relative · |want| + absolute`.
    Near { relative: f64, absolute: f64 },
    /// `|got - want| <= share · max |want|`, for sums whose terms cancel.
    OfLargest(f64),
}

/// A device for each instruction set, with 1 and with 4 threads.
static DEVICES: LazyLock<Vec<(InstructionSet, [Cpu; 2])>> = LazyLock::new(|| {
    let devices =
        |&set: &InstructionSet| (set, [1, 4].map(|threads| Cpu::with_instruction_set(threads, set)));
    InstructionSet::ALL.iter().map(devices).collect()
});

/// Solves a problem in every way there is, and compares with the reference.
///
/// # Panics
/// If a result is wrong, or differs between instruction sets or numbers of threads.
pub(crate) fn check(op: impl Into<Op>, inputs: &[Tensor], tolerance: Tolerance) {
    let problem = Problem::new(op.into(), inputs);
    let expected = problem.reference().unwrap_or_else(|error| panic!("{problem}: {error}"));
    problem.check_bits(&|got, context| compare(got, &expected, tolerance, context));
}

/// As [`check`], for data whose results the reference need not come near: inputs of quantized products that are
/// infinite, sums that overflow.
pub(crate) fn check_bits(op: impl Into<Op>, inputs: &[Tensor]) {
    Problem::new(op.into(), inputs).check_bits(&|_, _| ());
}

/// Checks that kernel and reference both refuse the data, and that the kernel's message holds some words.
///
/// # Panics
/// If one of them does not.
pub(crate) fn check_refused(op: impl Into<Op>, inputs: &[Tensor], words: &[&str]) {
    let problem = Problem::new(op.into(), inputs);
    assert!(problem.reference().is_err(), "{problem}: the reference computes it");
    let message =
        problem.solve(&DEVICES[0].1[0], Way::Plain).expect("always possible").expect_err("bad data");
    for word in words {
        assert!(message.contains(word), "{problem}: `{message}` does not say `{word}`");
    }
}

/// The results of the reference.
pub(crate) fn reference(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<Tensor> {
    let problem = Problem::new(op.into(), inputs);
    problem.reference().unwrap_or_else(|error| panic!("{problem}: {error}"))
}

/// The results of each device.
pub(crate) fn solve_each(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<Vec<Tensor>> {
    let problem = Problem::new(op.into(), inputs);
    let solve = |cpu: &Cpu| problem.solve(cpu, Way::Plain).expect("always possible").expect("good data");
    DEVICES.iter().flat_map(|(_, devices)| devices).map(solve).collect()
}

/// Gives the results of an op.
pub(crate) type Solve<'a> = &'a dyn Fn(Op, &[Tensor]) -> Vec<Tensor>;

/// Calls `body` with each device's way to solve a problem.
pub(crate) fn on_each_device(body: &dyn Fn(Solve<'_>)) {
    for cpu in DEVICES.iter().flat_map(|(_, devices)| devices) {
        body(&|op, inputs| {
            let problem = Problem::new(op, inputs);
            problem.solve(cpu, Way::Plain).expect("always possible").expect("good data")
        });
    }
}

/// Says which way a problem was solved, for messages.
type Context<'a> = &'a dyn Fn() -> String;

/// How operands reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Plain,
    /// Off the alignment of their type, as in a mapped file.
    Unaligned,
    /// One in the result, if the kernel can.
    InPlace,
    /// Weights as they are stored, if the device would pack them.
    Unpacked,
    /// By another kernel for `top_k`.
    TopK(TopKKernel),
}

impl Way {
    const ALL: &[Way] = &[
        Way::Plain,
        Way::Unaligned,
        Way::InPlace,
        Way::Unpacked,
        Way::TopK(TopKKernel::Bounded),
        Way::TopK(TopKKernel::Sort),
    ];
}

struct Problem<'a> {
    op: Op,
    inputs: &'a [Tensor],
    types: Vec<Type>,
    results: Vec<Type>,
}

impl<'a> Problem<'a> {
    fn new(op: Op, inputs: &'a [Tensor]) -> Problem<'a> {
        let types: Vec<Type> = inputs
            .iter()
            .enumerate()
            .map(|(position, tensor)| match op.effect(position) {
                Effect::None => Type::new(tensor.dtype(), tensor.shape().iter().copied()),
                _ => Type::buffer(tensor.dtype(), tensor.shape().iter().copied()),
            })
            .collect();
        let results =
            op.infer(&types.iter().collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        Problem { op, inputs, types, results }
    }

    fn shapes(&self) -> Vec<Shape> {
        self.results.iter().map(|ty| ty.static_shape().expect("operands of known sizes")).collect()
    }

    fn reference(&self) -> Result<Vec<Tensor>, graph::Error> {
        self.op.reference(&self.inputs.iter().collect::<Vec<_>>(), &self.shapes())
    }

    /// Solves it in every way there is, each of which must give the same bits: instruction sets, threads and where memory
    /// lies change none. Which NaN a result is may differ.
    fn check_bits(&self, compare: &dyn Fn(&[Tensor], Context<'_>)) {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (set, cpu) in DEVICES.iter().flat_map(|(set, devices)| devices.iter().map(move |cpu| (set, cpu)))
        {
            for way in Way::ALL {
                let Some(got) = self.solve(cpu, *way) else { continue };
                let got = got.unwrap_or_else(|message| panic!("{self}, {set:?}: {message}"));
                let context = || format!("{self}, {set:?}, {way:?}");
                compare(&got, &context);
                let bits: Vec<Vec<u8>> = got.iter().map(bits).collect();
                assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{}: other bits", context());
            }
        }
    }

    /// The results, then the new contents of buffers that are written; `None` where the way is none for this op.
    fn solve(&self, cpu: &Cpu, way: Way) -> Option<Result<Vec<Tensor>, String>> {
        let (inputs, outputs): (Vec<&Type>, Vec<&Type>) =
            (self.types.iter().collect(), self.results.iter().collect());
        let mut settings = DeviceSettings::default();
        if let Way::TopK(top_k) = way {
            settings.top_k = top_k;
        }
        let node = NodeTypes { op: &self.op, inputs: &inputs, outputs: &outputs, settings };
        let kernel = cpu.kernel(&node).unwrap_or_else(|| panic!("{self}: no kernel"));
        let in_place = kernel.in_place().filter(|_| way == Way::InPlace);
        let layouts: Vec<Option<String>> = (0..inputs.len()).map(|i| cpu.packing(&node, i)).collect();
        let possible = match way {
            Way::Plain | Way::Unaligned => true,
            Way::InPlace => in_place.is_some(),
            Way::Unpacked => layouts.iter().any(Option::is_some),
            Way::TopK(_) => matches!(self.op, Op::TopK(_)),
        };
        possible.then(|| self.run(cpu, &*kernel, way, in_place, &layouts))
    }

    fn run(
        &self,
        cpu: &Cpu,
        kernel: &dyn Kernel,
        way: Way,
        in_place: Option<usize>,
        layouts: &[Option<String>],
    ) -> Result<Vec<Tensor>, String> {
        let shapes = self.shapes();
        let mut results: Vec<AlignedBytes> =
            shapes.iter().zip(&self.results).map(|(shape, ty)| poison(ty.dtype, shape)).collect();
        if let Some(position) = in_place {
            results[0].copy_from_slice(self.inputs[position].bytes());
        }
        let off = usize::from(way == Way::Unaligned);
        let mut memory: Vec<AlignedBytes> =
            self.inputs.iter().map(|tensor| shifted(tensor.bytes(), off)).collect();
        let mut buffers: Vec<AlignedBytes> =
            self.inputs.iter().map(|tensor| shifted(tensor.bytes(), 0)).collect();
        let packed: Vec<Option<PackedWeight>> = layouts
            .iter()
            .zip(self.inputs)
            .map(|(layout, weight)| {
                let layout = layout.as_ref().filter(|_| way != Way::Unpacked)?;
                Some(cpu.pack(layout, weight).unwrap_or_else(|message| panic!("{self}: {message}")))
            })
            .collect();
        let mut operands: Vec<Operand<'_>> = Vec::new();
        for (i, (bytes, buffer)) in memory.iter_mut().zip(&mut buffers).enumerate() {
            let (dtype, shape) = (self.inputs[i].dtype(), self.inputs[i].shape());
            operands.push(match &packed[i] {
                _ if in_place == Some(i) => Operand::InResult,
                Some(packed) => Operand::Packed(packed),
                None if self.op.effect(i) == Effect::Write => {
                    Operand::Buffer(ViewMut { dtype, shape, bytes: buffer })
                }
                None => Operand::View(View { dtype, shape, bytes: &bytes[off..] }),
            });
        }
        let mut views: Vec<ViewMut<'_>> = results
            .iter_mut()
            .zip(&shapes)
            .zip(&self.results)
            .map(|((bytes, shape), ty)| ViewMut { dtype: ty.dtype, shape, bytes })
            .collect();
        let input_shapes: Vec<Shape> = self.inputs.iter().map(|tensor| *tensor.shape()).collect();
        let mut scratch = AlignedBytes::zeroed(kernel.scratch(&input_shapes, &shapes));
        scratch.fill(0xa5);
        kernel.run(KernelCall { inputs: &mut operands, outputs: &mut views, scratch: &mut scratch })?;
        let made = results
            .into_iter()
            .zip(&self.results)
            .zip(&shapes)
            .map(|((bytes, ty), &shape)| (ty.dtype, shape, bytes));
        let made: Vec<_> = made.collect();
        let written = buffers.into_iter().enumerate().filter(|&(i, _)| self.op.effect(i) == Effect::Write);
        let written = written.map(|(i, bytes)| (self.inputs[i].dtype(), *self.inputs[i].shape(), bytes));
        let all = made.into_iter().chain(written);
        Ok(all
            .map(|(dtype, shape, bytes)| {
                Tensor::from_bytes(dtype, shape, Bytes::new(bytes)).expect("as made")
            })
            .collect())
    }
}

impl std::fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of", self.op)?;
        self.types.iter().try_for_each(|ty| write!(f, " {ty}"))
    }
}

/// Memory whose contents no result has by chance.
fn poison(dtype: DType, shape: &Shape) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(dtype.bytes_for(shape.elements()).expect("whole blocks"));
    bytes.fill(0xa5);
    bytes
}

/// A copy that starts `off` bytes into its memory.
fn shifted(bytes: &[u8], off: usize) -> AlignedBytes {
    let mut copy = AlignedBytes::zeroed(bytes.len() + off);
    copy[off..].copy_from_slice(bytes);
    copy
}

/// The bytes of a result, with one NaN in place of all others.
fn bits(tensor: &Tensor) -> Vec<u8> {
    fn with_one_nan<T: Element>(tensor: &Tensor, nan: T, is_nan: fn(T) -> bool) -> Vec<u8> {
        let one = |x: T| if is_nan(x) { nan } else { x };
        bytemuck::cast_slice(&tensor.to_vec::<T>().into_iter().map(one).collect::<Vec<T>>()).to_vec()
    }
    match tensor.dtype() {
        DType::F16 => with_one_nan(tensor, f16::NAN, f16::is_nan),
        DType::BF16 => with_one_nan(tensor, bf16::NAN, bf16::is_nan),
        DType::F32 => with_one_nan(tensor, f32::NAN, f32::is_nan),
        DType::F64 => with_one_nan(tensor, f64::NAN, f64::is_nan),
        _ => tensor.bytes().to_vec(),
    }
}

fn compare(got: &[Tensor], want: &[Tensor], tolerance: Tolerance, context: &dyn Fn() -> String) {
    assert_eq!(got.len(), want.len(), "{}: results", context());
    for (got, want) in got.iter().zip(want) {
        assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{}", context());
        if got.bytes() == want.bytes() {
            continue;
        }
        let (got, want) = (got.to_f64_vec(), want.to_f64_vec());
        let largest = want.iter().filter(|x| x.is_finite()).fold(0f64, |largest, x| largest.max(x.abs()));
        for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
            let allowed = match tolerance {
                Tolerance::Exact => 0.0,
                Tolerance::Near { relative, absolute } => relative * want.abs() + absolute,
                Tolerance::OfLargest(share) => share * largest,
            };
            let same = got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= allowed;
            assert!(same, "{}: element {i} is {got:e}, expected {want:e} (± {allowed:e})", context());
        }
    }
}

/// Numbers that look random, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Evenly in -1..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Values between -4 and 4 of any dtype; small whole numbers of integer types.
pub(crate) fn tame(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random(seed);
    filled(dtype, shape, &mut || 4.0 * random.unit())
}

/// Values of every size, among them the special ones.
pub(crate) fn wild(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -3.5,
        1e-45,
        -1e-40,
        1e38,
        -3e38,
        6e-8,
        65504.0,
        65520.0,
        88.8,
        -104.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        255.5,
        -129.0,
        2147483648.0,
        -9.3e18,
        1.8e19,
    ];
    let mut random = Random(seed);
    filled(dtype, shape, &mut || match random.below(4) {
        0 => special[random.below(special.len())],
        1 => random.unit() * 2f64.powi(random.below(60) as i32 - 30),
        _ => 6.0 * random.unit(),
    })
}

/// A tensor of values given one by one.
pub(crate) fn filled(dtype: DType, shape: &[usize], next: &mut dyn FnMut() -> f64) -> Tensor {
    let count: usize = shape.iter().product();
    macro_rules! plain {
        ($($dtype:ident: $convert:expr),*) => {
            match dtype {
                $(DType::$dtype => Tensor::from_slice(shape, &(0..count).map(|_| $convert(next())).collect::<Vec<_>>()),)*
                DType::Bool => Tensor::from_bools(shape, &(0..count).map(|_| next() > 0.0).collect::<Vec<_>>()),
                dtype if dtype.is_float8() => bytes(dtype, shape, &(0..count).map(|_| next().to_bits() as u8 ^ 0x5b).collect::<Vec<_>>()),
                block => {
                    let blocks = blocks::random_blocks(block, count / block.block().elements, next().to_bits());
                    bytes(block, shape, &blocks)
                }
            }
        };
    }
    plain!(
        F16: |x: f64| f16::from_f32(x as f32), BF16: |x: f64| bf16::from_f32(x as f32), F32: |x: f64| x as f32,
        F64: |x: f64| x, U8: |x: f64| x as u8, I8: |x: f64| x as i8, U16: |x: f64| x as u16, I16: |x: f64| x as i16,
        U32: |x: f64| x as u32, I32: |x: f64| x as i32, U64: |x: f64| x as u64, I64: |x: f64| x as i64
    )
}

fn bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Tensor {
    Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::copy_of(bytes))).expect("as many as needed")
}

/// The integer types.
pub(crate) fn integers() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| dtype.is_integer())
}

/// The floats that ops compute with.
pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// The tolerance for results that are `steps` roundings of a dtype away, computed as f32 at best.
pub(crate) fn rounded(dtype: DType, steps: f64) -> Tolerance {
    let (relative, absolute) = match dtype {
        // The halves round an f32 that may have crossed the middle between two of them.
        DType::F16 => (1.01 * 2f64.powi(-10), 2f64.powi(-24)),
        DType::BF16 => (1.01 * 2f64.powi(-7), 2f64.powi(-133)),
        DType::F64 => (2f64.powi(-52), 0.0),
        _ => (2f64.powi(-23), 2f64.powi(-149)),
    };
    let steps = if matches!(dtype, DType::F16 | DType::BF16) { 1.0 } else { steps };
    Tolerance::Near { relative: steps * relative, absolute: steps * absolute }
}
