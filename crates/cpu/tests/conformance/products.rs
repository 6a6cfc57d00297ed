//! Matrix products and linear layers.

use graph::ops::{ExpertLinear, GptqMatMul, Linear, MatMul, SplitMatMul, Unary};
use tensor::{DType, Tensor};

use crate::problem::{Random, Tolerance, check, check_refused, reference, solve_each, tame};

/// A sum of `k` products in f32.
const SUM_OF_PRODUCTS: Tolerance = Tolerance::OfLargest(3e-6);

#[test]
fn matmul() {
    let shapes: [(&[usize], &[usize]); 10] = [
        (&[1, 1], &[1, 1]),
        (&[15, 17], &[17, 16]),
        (&[1, 1000], &[1000, 33]),
        (&[40, 64], &[64, 1]),
        (&[3, 5, 17], &[3, 17, 4]),
        (&[3, 5, 17], &[17, 4]),
        (&[2, 1, 5, 8], &[3, 8, 9]),
        (&[300, 300], &[300, 300]),
        (&[2, 3, 0], &[0, 4]),
        (&[0, 4], &[4, 3]),
    ];
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (a, b) in shapes {
            check(MatMul, &[tame(dtype, a, 1), tame(dtype, b, 2)], SUM_OF_PRODUCTS);
        }
    }
    for dtype in [DType::F64, DType::U8, DType::I8, DType::I32, DType::U64, DType::I64] {
        for (a, b) in shapes {
            check(MatMul, &[tame(dtype, a, 1), tame(dtype, b, 2)], Tolerance::Exact);
        }
    }
}

#[test]
fn matmul_of_rounded_partial_sums() {
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[1, 1], &[1, 1]),
        (&[2, 1, 5, 1000], &[3, 1000, 9]),
        (&[300, 300], &[300, 300]),
        (&[3, 15, 512], &[512, 40]),
        (&[2, 3, 0], &[0, 4]),
        (&[0, 600], &[600, 3]),
    ];
    // A partial sum near the middle of two halves may become either.
    for (dtype, share) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        for (a, b) in shapes {
            let inputs = [tame(dtype, a, 1), tame(dtype, b, 2)];
            for chunk in [1, 64, 512] {
                check(SplitMatMul { chunk }, &inputs, Tolerance::OfLargest(share));
            }
        }
    }
}

/// How far a linear layer may be off: int8 activations for block weights and bf16 ones for bf16 weights cost up
/// to half a step in 127 and 2⁻⁹ for each term, which partly cancel in sums.
fn tolerance(dtype: DType) -> Tolerance {
    match dtype {
        dtype if dtype.is_block() => Tolerance::OfLargest(2e-2),
        DType::BF16 => Tolerance::OfLargest(1e-2),
        dtype if dtype.is_float8() => Tolerance::OfLargest(1e-2),
        _ => Tolerance::OfLargest(1e-5),
    }
}

fn check_linear(op: Linear, dtype: DType, tokens: usize, columns: usize, rows: usize) {
    let mut inputs = vec![tame(DType::F32, &[tokens, columns], 1)];
    inputs.extend(op.norm.map(|_| tame(DType::F32, &[columns], 2)));
    inputs.extend((0..op.weights).map(|i| weight(dtype, rows, columns, 3 + i as u64)));
    let biases = if op.bias { op.weights } else { 0 };
    inputs.extend((0..biases).map(|i| tame(DType::F32, &[rows], 10 + i as u64)));
    inputs.extend(op.residual.then(|| tame(DType::F32, &[tokens, rows], 20)));
    let tolerance = match (op.gate.or(op.activation), tolerance(dtype)) {
        // Both factors of a gate are off, and an activation makes the largest result smaller.
        (Some(_), Tolerance::OfLargest(share)) => Tolerance::OfLargest(2.0 * share),
        (_, tolerance) => tolerance,
    };
    check(op, &inputs, tolerance);
}

/// Finite weights of any dtype.
fn weight(dtype: DType, rows: usize, columns: usize, seed: u64) -> Tensor {
    if !dtype.is_float8() {
        return tame(dtype, &[rows, columns], seed);
    }
    // Bytes from 0x30 to 0x3f: small positive numbers in every 8-bit format but the exponents-only one.
    let small: Vec<u8> = (0..rows * columns).map(|i| 0x30 + (i * 7919 % 16) as u8).collect();
    let bytes = tensor::Bytes::new(tensor::AlignedBytes::copy_of(&small));
    Tensor::from_bytes(dtype, [rows, columns], bytes).expect("a byte for each")
}

#[test]
fn linear_of_every_dtype() {
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_float() || dtype.is_block()) {
        let columns = if dtype.is_block() { 512 } else { 70 };
        for tokens in [0, 1, 2, 13] {
            check_linear(Linear::default(), dtype, tokens, columns, 33);
        }
    }
}

#[test]
fn linear_with_all_that_fuses() {
    let plain = Linear::default();
    for dtype in [DType::F32, DType::BF16, DType::Q4K, DType::Q8_0] {
        for tokens in [1, 17] {
            let check = |op| check_linear(op, dtype, tokens, 256, 48);
            check(Linear { norm: Some(1e-6), ..plain });
            check(Linear { bias: true, ..plain });
            check(Linear { residual: true, ..plain });
            check(Linear { weights: 3, bias: true, norm: Some(1e-6), ..plain });
            for gate in [Unary::Silu, Unary::GeluTanh, Unary::Gelu, Unary::Relu] {
                check(Linear { weights: 2, gate: Some(gate), norm: Some(1e-6), ..plain });
            }
            for activation in [Unary::Gelu, Unary::GeluQuick] {
                check(Linear { activation: Some(activation), bias: true, residual: true, ..plain });
            }
            check(Linear { norm: Some(1e-5), bias: true, residual: true, ..plain });
        }
    }
}

#[test]
fn an_activation_within_a_layer_changes_no_bit() {
    use Unary::{Gelu, GeluQuick, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    let plain = Linear { bias: true, ..Linear::default() };
    let x = tame(DType::F32, &[13, 70], 1);
    let inputs = [x, weight(DType::F32, 33, 70, 2), tame(DType::F32, &[33], 3)];
    let products = solve_each(plain, &inputs);
    for activation in [Gelu, GeluQuick, GeluTanh, Relu, Sigmoid, Silu, Tanh] {
        let fused = solve_each(Linear { activation: Some(activation), ..plain }, &inputs);
        for (device, (fused, product)) in fused.iter().zip(&products).enumerate() {
            let apart = &solve_each(activation, product)[device];
            assert!(fused[0].bytes() == apart[0].bytes(), "{activation:?} on device {device}");
        }
    }
}

#[test]
fn linear_of_weights_of_several_dtypes() {
    let op = Linear { weights: 3, norm: Some(1e-6), ..Linear::default() };
    let x = tame(DType::F32, &[5, 256], 1);
    let norm = tame(DType::F32, &[256], 2);
    let weights = [(DType::Q4K, 32), (DType::Q6K, 17), (DType::F16, 16)];
    let weights = weights.map(|(dtype, rows)| tame(dtype, &[rows, 256], 3));
    let inputs: Vec<Tensor> = [x, norm].into_iter().chain(weights).collect();
    check(op, &inputs, tolerance(DType::Q4K));
}

/// Experts of rows, in an order without pattern.
fn chosen(shape: &[usize], experts: usize) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_slice(shape, &(0..count).map(|i| (i * 7919 % 101 % experts) as i64).collect::<Vec<_>>())
}

#[test]
fn expert_linear() {
    let gated = ExpertLinear { gate: Some(Unary::Silu) };
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_float() || dtype.is_block()) {
        let columns = if dtype.is_block() { 512 } else { 70 };
        let [gate, up] = [3, 4].map(|seed| weight(dtype, 6 * 33, columns, seed).reshape([6, 33, columns]));
        for (x, experts) in [
            (&[1, columns][..], &[1, 2][..]),
            (&[columns], &[]),
            (&[2, 3, columns], &[2, 3]),
            (&[17, columns], &[17, 3]),
            (&[0, columns], &[0, 2]),
            (&[2, columns], &[2, 0]),
        ] {
            let (x, experts) = (tame(DType::F32, x, 1), chosen(experts, 6));
            check(ExpertLinear::default(), &[x.clone(), experts.clone(), gate.clone()], tolerance(dtype));
            let Tolerance::OfLargest(share) = tolerance(dtype) else { panic!("sums cancel") };
            let tolerance = Tolerance::OfLargest(2.0 * share);
            check(gated, &[x, experts, gate.clone(), up.clone()], tolerance);
        }
    }
}

#[test]
fn experts_that_are_not_there_are_refused() {
    let (x, weight) = (tame(DType::F32, &[3, 8], 1), tame(DType::F32, &[4, 5, 8], 2));
    for wrong in [4i64, -1, i64::MAX, i64::MIN] {
        let experts = Tensor::from_slice([3], &[0, wrong, 1]);
        check_refused(ExpertLinear::default(), &[x.clone(), experts, weight.clone()], &[&wrong.to_string()]);
    }
}

/// A weight of GPTQ with its permutation and zero points, as `op` takes them.
fn gptq_weights(op: GptqMatMul, rows: usize, columns: usize) -> Vec<Tensor> {
    let mut random = Random(7);
    let groups = op.group_size.map_or(1, |size| columns / size);
    let codes = (0..columns / 2 * rows).map(|_| random.next() as u8).collect::<Vec<u8>>();
    let scales = tame(DType::F16, &[groups, rows], 8);
    let bytes = [&codes, scales.bytes()].concat();
    let mut weights = vec![Tensor::from_slice([columns / 2 + 2 * groups, rows], &bytes)];
    if op.desc_act {
        let mut order: Vec<i32> = (0..columns as i32).collect();
        (1..columns).for_each(|i| order.swap(i, random.below(i + 1)));
        weights.push(Tensor::from_slice([columns], &order));
    }
    if !op.sym {
        let zeros: Vec<i32> = (0..groups * rows / 8).map(|_| random.next() as i32).collect();
        weights.push(Tensor::from_slice([groups, rows / 8], &zeros));
    }
    weights
}

#[test]
fn gptq_matmul() {
    for (tokens, rows, columns) in [(1, 8, 32), (1, 64, 96), (2, 72, 64), (15, 136, 160), (70, 200, 32)] {
        for (desc_act, sym) in [(false, true), (true, true), (false, false), (true, false)] {
            for group_size in [Some(32), None] {
                let op = GptqMatMul { bits: 4, group_size, desc_act, sym };
                let weights = gptq_weights(op, rows, columns);
                for dtype in [DType::F32, DType::BF16, DType::F16] {
                    let inputs = [&[tame(dtype, &[tokens, columns], 9)], &weights[..]].concat();
                    // Blocks take inputs of 8 bits; all else is rounded to the dtype of the results alone.
                    let share = match dtype {
                        _ if sym && !desc_act => 2e-2,
                        DType::F32 => 3e-6,
                        DType::F16 => 1e-3,
                        _ => 8e-3,
                    };
                    check(op, &inputs, Tolerance::OfLargest(share));
                }
            }
        }
    }
    let op = GptqMatMul { desc_act: true, ..GptqMatMul::default() };
    let mut inputs = [&[tame(DType::F32, &[0, 3, 128], 9)], &gptq_weights(op, 5, 128)[..]].concat();
    check(op, &inputs, Tolerance::Exact);
    inputs[0] = tame(DType::F32, &[3, 128], 9);
    inputs[2] = Tensor::from_slice([128], &[127i32; 128]);
    check_refused(op, &inputs, &["permutation[1] is 127", "below 128"]);
}

/// A row alone, or among any others, and any other rows of the weight: the same bits.
#[test]
fn gptq_rows_are_their_own() {
    let op = GptqMatMul { group_size: Some(32), desc_act: true, ..GptqMatMul::default() };
    let (weights, x) = (gptq_weights(op, 70, 256), tame(DType::F32, &[19, 256], 3));
    let all = [std::slice::from_ref(&x), &weights[..]].concat();
    for (together, threads) in solve_each(op, &all).into_iter().zip(0..) {
        for row in [0, 7, 8, 18] {
            let alone = Tensor::from_slice([1, 256], &x.to_f32_vec()[256 * row..][..256]);
            let alone = &solve_each(op, &[&[alone], &weights[..]].concat())[threads][0];
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            let expected = &together[0].to_f32_vec()[70 * row..][..70];
            assert_eq!(bits(&alone.to_f32_vec()), bits(expected), "row {row}");
        }
    }
}

/// Columns that lie as they were, under a permutation that says so, are those without one.
#[test]
fn gptq_in_order_needs_no_permutation() {
    let plain = GptqMatMul { group_size: Some(64), ..GptqMatMul::default() };
    let ordered = GptqMatMul { desc_act: true, ..plain };
    let weights = gptq_weights(plain, 40, 192);
    let (x, order) =
        (tame(DType::F32, &[3, 192], 4), Tensor::from_slice([192], &(0..192).collect::<Vec<i32>>()));
    let inputs = [x, weights[0].clone(), order];
    let [plain, ordered] = [reference(plain, &inputs[..2]), reference(ordered, &inputs)];
    assert_eq!(plain[0].bytes(), ordered[0].bytes());
}
