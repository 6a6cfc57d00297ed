//! The same bits from every instruction set where values are awkward: infinities, NaN, subnormal numbers and sums that
//! overflow. All other tests compare the bits of instruction sets too, for tamer values.

use graph::ops::{
    Attention, Cast, Conv, ExpertLinear, GroupNorm, LayerNorm, Linear, LogSoftmax, MatMul, RaggedAttention,
    Reduce, ReduceKind, RmsNorm, Softmax, Unary, Windows,
};
use tensor::{AlignedBytes, Bytes, DType, Tensor};

use crate::problem::{FLOATS, Random, check_bits, filled, tame, wild};

/// Values that kernels treat in ways of their own, each spoiling the sum that it is part of.
const SPOILERS: [f64; 12] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    3e38,
    -3e38,
    1e-40,
    -1e-45,
    -0.0,
    1.2e-38,
    65504.0,
    -1e-7,
    1e30,
];

/// Rows of tame values, each with one spoiler; every thirteenth row has none.
fn spoiled(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let columns = *shape.last().expect("rows");
    let mut random = Random(seed);
    let mut index = 0;
    filled(dtype, shape, &mut || {
        let (row, column) = (index / columns, index % columns);
        index += 1;
        let plain = random.unit() * 4.0;
        let is_spoiled = column == (row * 37 + 5) % columns;
        SPOILERS.get(row % 13).filter(|_| is_spoiled).copied().unwrap_or(plain)
    })
}

/// Rows whose values are all tiny, or all huge.
fn extreme(shape: &[usize], seed: u64) -> Tensor {
    let sizes = [1e-44, 1e-38, 1e-20, 1e20, 1e37];
    let (columns, mut random, mut index) = (*shape.last().expect("rows"), Random(seed), 0);
    filled(DType::F32, shape, &mut || {
        index += 1;
        random.unit() * sizes[(index - 1) / columns % sizes.len()]
    })
}

/// Blocks of any bytes, so scales of any kind.
fn any_blocks(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random(seed);
    let count = dtype.bytes_for(shape.iter().product()).expect("whole blocks");
    let bytes: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
    Tensor::from_bytes(dtype, shape, Bytes::new(AlignedBytes::copy_of(&bytes))).expect("as many as needed")
}

/// Awkward weights: blocks of any bytes, or floats of every kind.
fn weights(dtype: DType, shape: &[usize]) -> [Tensor; 2] {
    match dtype.is_block() || dtype.is_float8() {
        true => [any_blocks(dtype, shape, 11), tame(dtype, shape, 12)],
        false => [spoiled(dtype, shape, 11), tame(dtype, shape, 12)],
    }
}

#[test]
fn convolutions() {
    let windows = Windows::new(2).with_padding(&[1, 1]);
    for ([height, width], channels, results) in [([7, 9], 3, 17), ([7, 9], 32, 35), ([28, 29], 3, 17)] {
        let (x, filter) = ([1, height, width, channels], [3, 3, channels, results]);
        let bias = spoiled(DType::F32, &[results], 4);
        for x in [spoiled(DType::F32, &x, 1), extreme(&x, 2)] {
            for filter in weights(DType::F32, &filter) {
                for activation in [None, Some(Unary::Relu), Some(Unary::Silu)] {
                    let op = Conv { windows: windows.clone(), activation, ..Conv::new(2) };
                    check_bits(op, &[x.clone(), filter.clone(), bias.clone()]);
                }
            }
        }
    }
}

#[test]
fn linear_layers() {
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_float() || dtype.is_block()) {
        let columns = if dtype.is_block() { 256 } else { 70 };
        for tokens in [1, 13, 26] {
            let inputs = [spoiled(DType::F32, &[tokens, columns], 1), extreme(&[tokens, columns], 2)];
            for (x, weight) in inputs.iter().flat_map(|x| weights(dtype, &[18, columns]).map(|w| (x, w))) {
                let (norm, bias) = (spoiled(DType::F32, &[columns], 3), spoiled(DType::F32, &[18], 4));
                let residual = spoiled(DType::F32, &[tokens, 18], 5);
                check_bits(Linear::default(), &[x.clone(), weight.clone()]);
                let op = Linear { norm: Some(1e-6), bias: true, residual: true, ..Linear::default() };
                check_bits(op, &[x.clone(), norm, weight, bias, residual]);
            }
        }
    }
}

#[test]
fn activations_of_linear_layers() {
    use Unary::{Gelu, GeluQuick, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    for function in [Gelu, GeluQuick, GeluTanh, Relu, Sigmoid, Silu, Tanh] {
        for x in [wild(DType::F32, &[60, 32], 1), extreme(&[60, 32], 2)] {
            let weight = tame(DType::F32, &[17, 32], 3);
            let op = Linear { activation: Some(function), ..Linear::default() };
            check_bits(op, &[x.clone(), weight.clone()]);
            let op = Linear { gate: Some(function), weights: 2, ..Linear::default() };
            check_bits(op, &[x, weight.clone(), weight]);
        }
    }
}

#[test]
fn experts() {
    let chosen = Tensor::from_slice([13, 2], &(0..26).map(|i| i * 5 % 3).collect::<Vec<i64>>());
    for dtype in [DType::F32, DType::BF16, DType::Q4K, DType::Mxfp4, DType::Iq3S] {
        for weight in weights(dtype, &[3, 18, 256]) {
            let x = spoiled(DType::F32, &[13, 256], 1);
            let op = ExpertLinear { gate: Some(Unary::Silu) };
            check_bits(op, &[x.clone(), chosen.clone(), weight.clone(), weight.clone()]);
            check_bits(ExpertLinear::default(), &[x, chosen.clone(), weight]);
        }
    }
}

#[test]
fn matrix_products() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (m, k, n) in [(1, 100, 33), (13, 40, 16), (30, 300, 70)] {
            check_bits(MatMul, &[spoiled(dtype, &[m, k], 1), tame(dtype, &[k, n], 2)]);
            check_bits(MatMul, &[tame(dtype, &[m, k], 1), spoiled(dtype, &[k, n], 2)]);
        }
    }
    check_bits(MatMul, &[extreme(&[20, 64], 1), extreme(&[64, 30], 2)]);
}

#[test]
fn norms_and_softmaxes() {
    for (rows, columns) in [(13, 1), (26, 17), (26, 64), (13, 1000)] {
        for x in [
            spoiled(DType::F32, &[rows, columns], 1),
            extreme(&[rows, columns], 2),
            wild(DType::F32, &[rows, columns], 3),
        ] {
            let [weight, bias] = [4, 5].map(|seed| tame(DType::F32, &[columns], seed));
            check_bits(RmsNorm { eps: 1e-6 }, &[x.clone(), weight.clone()]);
            check_bits(LayerNorm { eps: 1e-6 }, &[x.clone(), weight, bias]);
            for axis in [0, 1] {
                check_bits(Softmax { axis }, std::slice::from_ref(&x));
                check_bits(LogSoftmax { axis }, std::slice::from_ref(&x));
                for kind in [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max] {
                    check_bits(Reduce { kind, axis }, std::slice::from_ref(&x));
                }
            }
        }
    }
    let x = spoiled(DType::F32, &[2, 26, 5, 7], 1);
    let [weight, bias] = [4, 5].map(|seed| tame(DType::F32, &[26], seed));
    check_bits(GroupNorm { groups: 13, eps: 1e-5 }, &[x, weight, bias]);
}

#[test]
fn attention() {
    let rows = |seed| spoiled(DType::F32, &[1, 2, 39, 24], seed);
    let plain = |seed| tame(DType::F32, &[1, 2, 39, 24], seed);
    for inputs in
        [[rows(1), plain(2), plain(3)], [plain(1), rows(2), plain(3)], [plain(1), plain(2), rows(3)]]
    {
        check_bits(Attention { scale: 0.2 }, &inputs);
    }
    let offsets = Tensor::from_slice([3], &[0u32, 13, 39]);
    let inputs = [1, 2, 3].map(|seed| spoiled(DType::F32, &[39, 3, 24], seed));
    check_bits(RaggedAttention { scale: 0.2 }, &[&inputs[..], &[offsets]].concat());
}

#[test]
fn functions_of_every_float() {
    // All f16 and bf16, and f32 with every sign, exponent and some mantissas.
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let floats =
        (0..1 << 16).flat_map(|i: u32| ((i << 16) | (i.wrapping_mul(0x9e37_79b9) >> 16)).to_le_bytes());
    let floats: Vec<u8> = floats.collect();
    let tensor = |dtype, bytes: &[u8]| {
        Tensor::from_bytes(dtype, [1 << 16], Bytes::new(AlignedBytes::copy_of(bytes)))
            .expect("as many as needed")
    };
    let inputs = [tensor(DType::F16, &halves), tensor(DType::BF16, &halves), tensor(DType::F32, &floats)];
    for x in inputs {
        Unary::ALL.iter().filter(|&&function| function != Unary::Not).for_each(|&function| {
            check_bits(function, std::slice::from_ref(&x));
        });
        FLOATS.into_iter().for_each(|to| check_bits(Cast { to }, std::slice::from_ref(&x)));
    }
}
