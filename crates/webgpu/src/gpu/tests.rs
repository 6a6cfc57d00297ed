//! Memory, dispatches and the functions of every shader, on an adapter.

use std::sync::Arc;

use engine::devices::Accelerators;
use engine::{FarBytes, Segment};
use half::{bf16, f16};
use tensor::{DType, FarMemory};

use super::Gpu;
use crate::ADAPTERS;
use crate::memory::{WebGpuAllocator, WebGpuMemory};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Opens the first adapter, if there is one.
fn gpu() -> Option<Arc<Gpu>> {
    let absence = (ADAPTERS.count() == 0).then(|| ADAPTERS.absence());
    testdata::has_gpu(absence).then(|| ADAPTERS.open_new(0, |adapter| adapter.limits()).unwrap())
}

fn memory(gpu: &Arc<Gpu>, bytes: &[u8]) -> Arc<WebGpuMemory> {
    let memory = WebGpuAllocator(Arc::clone(gpu)).memory(bytes.len()).unwrap();
    memory.write(&[(0, bytes)]).unwrap();
    Arc::new(memory)
}

fn contents(memory: &WebGpuMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn copies_of_any_bytes_change_no_others() {
    let Some(gpu) = gpu() else { return };
    let numbers = |count: u8, first: u8| (0..count).map(|i| first.wrapping_add(i)).collect::<Vec<u8>>();
    let (one, other) = (memory(&gpu, &numbers(37, 1)), memory(&gpu, &numbers(41, 101)));
    let (mut one_here, mut other_here) = (contents(&one), contents(&other));
    assert_eq!((&one_here, &other_here), (&numbers(37, 1), &numbers(41, 101)));
    for [start, to, len] in [[0, 4, 8], [3, 8, 5], [4, 9, 6], [8, 12, 7], [36, 40, 1], [0, 0, 37], [5, 5, 0]]
    {
        other.copy(&*one, &[[start, to, len]]).unwrap();
        other_here[to..to + len].copy_from_slice(&one_here[start..start + len]);
        assert_eq!(contents(&other), other_here, "{len} bytes from {start} to {to}");
    }
    one.copy(&*one, &[[0, 16, 12], [16, 29, 5]]).unwrap();
    one_here.copy_within(0..12, 16);
    one_here.copy_within(16..21, 29);
    assert_eq!(contents(&one), one_here);
    one.write(&[(1, &[201, 202]), (7, &[203; 9]), (36, &[204])]).unwrap();
    one_here[1..3].copy_from_slice(&[201, 202]);
    one_here[7..16].fill(203);
    one_here[36] = 204;
    assert_eq!(contents(&one), one_here);
    let mut part = [0; 6];
    one.read(5, &mut part).unwrap();
    assert_eq!(part, one_here[5..11]);
}

/// Runs a shader on words, which are followed by as many zeros that it writes.
fn compute(gpu: &Arc<Gpu>, shader: &Shader, dtypes: [DType; 2], input: &[u8], output: usize) -> Vec<u8> {
    let (from, to) = (memory(gpu, input), memory(gpu, &vec![0; output]));
    let place = |memory: &Arc<WebGpuMemory>| {
        let (memory, len) = (Arc::clone(memory) as Arc<dyn FarMemory>, memory.len());
        FarBytes { memory, start: 0, len }
    };
    let (x, y) = (place(&from), place(&to));
    let elements = input.len() / dtypes[0].size_in_bytes();
    let mut recorder = Recorder::new(gpu);
    let places = [Place::Memory(&x), Place::Memory(&y)];
    recorder.dispatch(shader, &places, &[elements as u32], elements.div_ceil(64), 1).unwrap();
    recorder.finish().unwrap().launch().unwrap();
    contents(&to)
}

fn conversion(from: DType, to: DType, source: &str) -> Shader {
    let bindings = [("x", from, Access::Memory), ("y", to, Access::Memory)];
    let main = "@compute @workgroup_size(64) fn main(@builtin(workgroup_id) id: vec3<u32>, \
                @builtin(local_invocation_index) lane: u32) { let group = group_of(id); \
                if group >= p.groups { return; } let i = group * 64u + lane; ";
    Shader::new("conversion", &bindings, &["n"], &[], &format!("{main}{source} }}"))
}

#[test]
fn halves_are_read_and_rounded_as_on_the_host() {
    let Some(gpu) = gpu() else { return };
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    // Beside each f16, and between it and the next, and what is a little more and less.
    let floats = halves.chunks(2).flat_map(|bytes| {
        let value = f16::from_le_bytes([bytes[0], bytes[1]]).to_f32().to_bits();
        [0, 1, 0xfff, 0x1000, 0x1001].map(|more| f32::from_bits(value.wrapping_add(more)))
    });
    let small = (0..4096).map(|i| i as f32 * 1.5e-11);
    let floats: Vec<f32> = floats.chain(small).collect();
    let float_bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    type Convert = (fn(f32) -> u16, fn(u16) -> f32);
    let cases: [(DType, Convert); 2] = [
        (DType::F16, (|float| f16::from_f32(float).to_bits(), |bits| f16::from_bits(bits).to_f32())),
        (DType::BF16, (|float| bf16::from_f32(float).to_bits(), |bits| bf16::from_bits(bits).to_f32())),
    ];
    for (dtype, (narrow, widen)) in cases {
        let widening = conversion(dtype, DType::F32, "set_y(i, x(i));");
        let got = compute(&gpu, &widening, [dtype, DType::F32], &halves, 2 * halves.len());
        for (bits, got) in (0..=u16::MAX).zip(got.chunks(4)) {
            let (expected, got) = (widen(bits), f32::from_le_bytes(got.try_into().unwrap()));
            assert!(is_same(expected, got), "{dtype} {bits:#x}: {expected}, got {got}");
        }
        let narrowing = conversion(DType::F32, dtype, "set_y_word(i, x(2u * i), x(2u * i + 1u));");
        let got = compute(&gpu, &narrowing, [DType::F32, dtype], &float_bytes, float_bytes.len() / 2);
        for (float, got) in floats.iter().zip(got.chunks(2)) {
            let (expected, got) = (narrow(*float), u16::from_le_bytes(got.try_into().unwrap()));
            assert!(
                is_same(widen(expected), widen(got)),
                "{float:e} as {dtype}: {expected:#x}, got {got:#x}"
            );
        }
    }
}

/// Whether floats have the same bits, or are both NaN.
fn is_same(one: f32, other: f32) -> bool {
    one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
}

#[test]
fn a_shader_that_does_not_parse_is_an_error_with_its_name() {
    let Some(gpu) = gpu() else { return };
    let shader = conversion(DType::F32, DType::F32, "set_y(i, nothing);");
    let error = gpu.pipeline(&shader).err().unwrap().to_string();
    assert!(error.contains("gpu:0: shader conversion: ") && error.contains("nothing"), "{error}");
    gpu.check().unwrap();
}

#[test]
fn memory_that_no_buffer_has_is_refused() {
    let Some(gpu) = gpu() else { return };
    let bytes = usize::try_from(gpu.limits.max_buffer_size).unwrap() + 1;
    let error = WebGpuAllocator(Arc::clone(&gpu)).memory(bytes).err().unwrap();
    assert!(matches!(error, tensor::Error::OutOfMemory { .. }), "{error}");
    gpu.check().unwrap();
}

/// Floats of every exponent, some with few bits set, so that sums of products come near the middle of two floats.
fn operand(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let bits = (*state >> 32) as u32;
    match *state >> 29 & 7 {
        0 => f32::from_bits(bits & 0xff80_0001),
        1 => f32::from_bits(bits & 0xfff0_0000),
        2 => f32::from_bits((bits & 0x80ff_ffff) | 0x3f00_0000),
        3 => f32::from_bits((bits & 0x807f_ffff) | 0x3f80_0000),
        4 => [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-45, f32::MIN_POSITIVE]
            [(bits & 7) as usize],
        5 => f32::from_bits(bits & 0x81ff_ffff),
        _ => f32::from_bits(bits),
    }
}

#[test]
fn sums_of_products_are_rounded_once() {
    const SUMS: usize = 1 << 20;
    let Some(gpu) = gpu() else { return };
    let mut state = 1;
    let triples: Vec<[f32; 3]> = (0..SUMS)
        .map(|_| {
            let [a, b, mut c] = [(); 3].map(|()| operand(&mut state));
            // Often next to the product, where its lower bits count.
            if state >> 60 < 8 {
                c = -(a * b) * [1.0, 2.0, 0.5, 1.0 + f32::EPSILON][(state >> 50 & 3) as usize];
            }
            [a, b, c]
        })
        .collect();
    let bytes: Vec<u8> = triples.as_flattened().iter().flat_map(|float| float.to_le_bytes()).collect();
    let sum = "let j = 3u * i; if i < p.n / 3u { set_y(i, fused(x(j), x(j + 1u), x(j + 2u))); }";
    let got = compute(&gpu, &conversion(DType::F32, DType::F32, sum), [DType::F32; 2], &bytes, 4 * SUMS);
    for ([a, b, c], got) in triples.into_iter().zip(got.as_chunks().0) {
        let (expected, got) = (a.mul_add(b, c), f32::from_le_bytes(*got));
        assert!(is_same(expected, got), "{a:e} * {b:e} + {c:e} is {got:e}, expected {expected:e}");
    }
}
