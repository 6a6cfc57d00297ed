//! Tests of repacking: weights against the formula of each scheme, and facts that may disagree.

use std::path::Path;

use tensor::blocks::{fp4, mxfp4, nf4};
use tensor::{bf16, f16, float8};
use weights::GptqConfig;

use super::*;
use crate::architectures::Architecture;
use crate::checkpoint::contents::gather_repacked;
use crate::checkpoint::testing::safetensors;
use crate::names::CanonicalNames;
use crate::stored::read;

/// Tensors as files have them: leaf, dtype, shape, bytes.
type Tensors = Vec<(&'static str, &'static str, Vec<usize>, Vec<u8>)>;

fn file(tensors: &Tensors) -> Weights {
    let names: Vec<String> =
        tensors.iter().map(|(leaf, ..)| format!("model.layers.0.mlp.up_proj.{leaf}")).collect();
    let tensors: Vec<_> = tensors
        .iter()
        .zip(&names)
        .map(|((_, dtype, shape, bytes), name)| (&name[..], *dtype, &shape[..], bytes.clone()))
        .collect();
    safetensors(&tensors)
}

fn gathered(weights: &Weights, config: Option<&QuantizationConfig>) -> Result<Stored, String> {
    let llama = Architecture::from_hugging_face("LlamaForCausalLM").unwrap();
    let names = CanonicalNames::new(weights, llama.names).unwrap().stored.into_iter();
    let mut names = names.map(|(name, stored)| (name, Stored::Whole(stored))).collect();
    gather_repacked(&mut names, weights, config, Path::new("config.json"))
        .map_err(|error| error.to_string())?;
    assert_eq!(names.len(), 1, "all tensors belong to one weight: {names:?}");
    Ok(names.remove("blk.0.ffn_up.weight").expect("a weight"))
}

/// The weight is that of the formula, whole and in rows.
fn check(
    tensors: &Tensors,
    config: Option<&QuantizationConfig>,
    (dtype, rows, columns): (DType, usize, usize),
    weight: impl Fn(usize, usize) -> f32,
) {
    let weights = file(tensors);
    let stored = gathered(&weights, config).unwrap();
    let Stored::Repacked(whole) = &stored else { panic!("not repacked: {stored:?}") };
    assert_eq!(whole.tensors().count(), tensors.len(), "all tensors are known");
    for range in [0..rows, rows / 3..rows / 2 + 1] {
        let part = Stored::Repacked(whole.with_rows(vec![range.clone()]));
        let found = read((&weights).into(), &part).unwrap().unwrap();
        assert_eq!((found.dtype(), &found.shape()[..]), (dtype, &[range.len(), columns][..]));
        for (at, found) in found.to_f32_vec().into_iter().enumerate() {
            let (row, column) = (range.start + at / columns, at % columns);
            let expected = weight(row, column);
            let near = (found - expected).abs() <= 2.0 * f32::EPSILON * expected.abs();
            assert!(near, "{dtype} row {row}, column {column}: {found}, not {expected}");
        }
    }
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| (seed + i * 37 + i / 11 * 5 + i / 256 * 3) as u8).collect()
}

fn singles(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn brains(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect()
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A scale that bf16 and f16 hold.
fn scale(at: usize) -> f32 {
    (1 + at % 7) as f32 / 128.0
}

fn e4m3(code: u8) -> f32 {
    float8::decode(DType::F8E4M3, code)
}

/// Codes without NaN.
fn numbers(count: usize) -> Vec<u8> {
    bytes(count, 9).into_iter().map(|byte| if byte & 0x7f == 0x7f { 0x38 } else { byte }).collect()
}

#[test]
fn fp8_scales_may_be_of_the_matrix_its_rows_or_blocks() {
    let (rows, columns) = (130, 192);
    let codes = numbers(rows * columns);
    let weight = |row: usize, column: usize| e4m3(codes[row * columns + column]);
    let with = |leaf, dtype, shape: &[usize], scales: Vec<u8>| -> Tensors {
        vec![("weight", "F8_E4M3", vec![rows, columns], codes.clone()), (leaf, dtype, shape.to_vec(), scales)]
    };
    let described = (DType::Fp8, rows, columns);
    let blocks = with("weight_scale_inv", "F32", &[2, 2], singles((0..4).map(|at| 0.3 + at as f32)));
    check(&blocks, None, described, |row, column| {
        (0.3 + (row / 128 * 2 + column / 128) as f32) * weight(row, column)
    });
    let small = QuantizationConfig::Fp8 { block: Some([50, 64]) };
    let blocks = with("weight_scale_inv", "F32", &[3, 3], singles((0..9).map(scale)));
    check(&blocks, Some(&small), described, |row, column| {
        scale(row / 50 * 3 + column / 64) * weight(row, column)
    });
    let mut of_rows = with("weight_scale", "BF16", &[rows, 1], brains((0..rows).map(scale)));
    of_rows.push(("input_scale", "F32", vec![], singles([1.0])));
    check(&of_rows, None, described, |row, column| scale(row) * weight(row, column));
    let whole = with("weight_scale", "F32", &[], singles([0.7]));
    check(&whole, None, described, |row, column| 0.7 * weight(row, column));
}

#[test]
fn nan_of_fp8_stays_nan() {
    let mut codes = numbers(2 * 128);
    codes[70] = 0x7f;
    let weights = file(&vec![
        ("weight", "F8_E4M3", vec![2, 128], codes),
        ("weight_scale", "F32", vec![1], singles([0.5])),
    ]);
    let tensor = read((&weights).into(), &gathered(&weights, None).unwrap()).unwrap().unwrap();
    let nans: Vec<bool> = tensor.to_f32_vec().iter().map(|weight| weight.is_nan()).collect();
    assert!(nans[70] && !nans[..64].contains(&true) && !nans[128..].contains(&true));
}

#[test]
fn awq_rows_lie_eight_to_a_word() {
    let (rows, columns, size) = (24, 96, 32);
    let order = [0, 2, 4, 6, 1, 3, 5, 7];
    let code = |row: usize, column: usize| (row * 7 + column * 5 + column / 16) as u32 % 16;
    let word = |code: &dyn Fn(usize) -> u32| (0..8).fold(0, |word, at| word | code(order[at]) << (4 * at));
    for symmetric in [false, true] {
        let zero = |group: usize, row: usize| if symmetric { 8 } else { (3 * group + row) as u32 % 16 };
        let (mut codes, mut zeros, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        for column in 0..columns {
            codes.extend((0..rows / 8).map(|eight| word(&|at| code(8 * eight + at, column))));
        }
        for group in 0..columns / size {
            zeros.extend((0..rows / 8).map(|eight| word(&|at| zero(group, 8 * eight + at))));
            scales.extend((0..rows).flat_map(|row| f16::from_f32(scale(group + row)).to_le_bytes()));
        }
        let tensors: Tensors = vec![
            ("qweight", "I32", vec![columns, rows / 8], words(codes)),
            ("qzeros", "I32", vec![columns / size, rows / 8], words(zeros)),
            ("scales", "F16", vec![columns / size, rows], scales),
        ];
        let config = QuantizationConfig::Awq { group_size: Some(size) };
        let dtype = if symmetric { DType::Q4_0 } else { DType::Gptq };
        check(&tensors, Some(&config), (dtype, rows, columns), |row, column| {
            let group = column / size;
            scale(group + row) * (code(row, column) as f32 - zero(group, row) as f32)
        });
    }
}

#[test]
fn gptq_codes_may_have_eight_bits() {
    let (rows, columns) = (12, 64);
    let code = |row: usize, column: usize| (row * 37 + column * 11) as u32 % 256;
    for symmetric in [false, true] {
        let zero = |row: usize| if symmetric { 128 } else { row as u32 * 21 };
        let codes = (0..columns / 4).flat_map(|four| {
            (0..rows).map(move |row| (0..4).fold(0, |word, at| word | code(row, 4 * four + at) << (8 * at)))
        });
        let zeros = (0..rows / 4).map(|four| {
            let word = (0..4).fold(0u32, |word, at| word | zero(4 * four + at) << (8 * at));
            word.wrapping_sub(0x0101_0101)
        });
        let tensors: Tensors = vec![
            ("qweight", "I32", vec![columns / 4, rows], words(codes)),
            ("qzeros", "I32", vec![1, rows / 4], words(zeros)),
            ("scales", "BF16", vec![1, rows], brains((0..rows).map(scale))),
        ];
        let config =
            GptqConfig { bits: 8, group_size: None, desc_act: false, zeros_less_one: true, dynamic: false };
        let dtype = if symmetric { DType::Q8_0 } else { DType::Gptq8 };
        check(&tensors, Some(&QuantizationConfig::Gptq(config)), (dtype, rows, columns), |row, column| {
            scale(row) * (code(row, column) as f32 - zero(row) as f32)
        });
    }
}

/// Words of `bits`, from codes in the order they follow.
fn packed(codes: &[u32], bits: usize) -> Vec<u8> {
    words(
        codes
            .chunks(32 / bits)
            .map(|codes| codes.iter().enumerate().fold(0, |word, (at, code)| word | code << (at * bits))),
    )
}

#[test]
fn compressed_tensors_pack_integers_along_rows() {
    let (rows, columns, size) = (10, 128, 64);
    let groups = columns / size;
    for (bits, symmetric, dtype) in
        [(4, true, DType::Q4_0), (4, false, DType::Gptq), (8, true, DType::Q8_0), (8, false, DType::Gptq8)]
    {
        let (each, top) = (32 / bits, 1u32 << bits);
        let code = |row: usize, column: usize| (row * 37 + column * 11 + column / 9) as u32 % top;
        let zero =
            |row: usize, group: usize| if symmetric { top / 2 } else { (row * 3 + group) as u32 % top };
        let codes: Vec<u32> = (0..rows * columns).map(|at| code(at / columns, at % columns)).collect();
        let mut tensors: Tensors = vec![
            ("weight_packed", "I32", vec![rows, columns / each], packed(&codes, bits)),
            ("weight_scale", "BF16", vec![rows, groups], brains((0..rows * groups).map(scale))),
            (
                "weight_shape",
                "I64",
                vec![2],
                [rows, columns].iter().flat_map(|n| (*n as i64).to_le_bytes()).collect(),
            ),
        ];
        if !symmetric {
            // Rows of a column of groups follow each other in words; beyond the last, zeros.
            let padded = rows.div_ceil(each);
            let zeros = (0..padded * groups).map(|at| {
                let (word, group) = (at / groups, at % groups);
                (0..each)
                    .filter(|field| word * each + field < rows)
                    .fold(0, |sum, field| sum | zero(word * each + field, group) << (field * bits))
            });
            tensors.push(("weight_zero_point", "I32", vec![padded, groups], words(zeros)));
        }
        check(&tensors, None, (dtype, rows, columns), |row, column| {
            let group = column / size;
            scale(row * groups + group) * (code(row, column) as f32 - zero(row, group) as f32)
        });
    }
}

#[test]
fn bytes_have_scales_of_rows() {
    let (rows, columns) = (9, 64);
    let codes = bytes(rows * columns, 1);
    let code = |row: usize, column: usize| f32::from(codes[row * columns + column] as i8);
    let weight = ("weight", "I8", vec![rows, columns], codes.clone());
    let scales: Vec<f32> = (0..rows).map(|row| 0.1 + row as f32).collect();
    let int8: Tensors = vec![
        weight.clone(),
        ("SCB", "F32", vec![rows], singles(scales.clone())),
        ("weight_format", "U8", vec![], vec![0]),
    ];
    check(&int8, None, (DType::Gptq8, rows, columns), |row, column| scales[row] / 127.0 * code(row, column));
    let half: Tensors =
        vec![weight.clone(), ("weight_scale", "BF16", vec![rows, 1], brains((0..rows).map(scale)))];
    check(&half, None, (DType::Q8_0, rows, columns), |row, column| scale(row) * code(row, column));
    let zeros: Vec<u8> = bytes(rows, 50);
    let uneven: Tensors = vec![
        weight,
        ("weight_scale", "F32", vec![rows, 1], singles((0..rows).map(scale))),
        ("weight_zero_point", "I8", vec![rows, 1], zeros.clone()),
    ];
    check(&uneven, None, (DType::Gptq8, rows, columns), |row, column| {
        scale(row) * (code(row, column) - f32::from(zeros[row] as i8))
    });
}

#[test]
fn nvfp4_has_two_levels_of_scales() {
    let (rows, columns) = (5, 128);
    let (codes, scales) = (bytes(rows * columns / 2, 3), numbers(rows * columns / 16));
    let weight = |row: usize, column: usize| {
        let at = row * columns + column;
        let nibble = codes[at / 2] >> (4 * (at % 2)) & 15;
        e4m3(scales[at / 16]) * f32::from(mxfp4::LEVELS[usize::from(nibble)]) / 2.0
    };
    let of = |codes_leaf, leaf, global: f32, shape: Vec<usize>| -> Tensors {
        vec![
            (codes_leaf, "U8", vec![rows, columns / 2], codes.clone()),
            ("weight_scale", "F8_E4M3", vec![rows, columns / 16], scales.clone()),
            (leaf, "F32", shape, singles([global])),
        ]
    };
    let described = (DType::Nvfp4, rows, columns);
    let divides = of("weight_packed", "weight_global_scale", 320.0, vec![1]);
    check(&divides, None, described, |row, column| weight(row, column) / 320.0);
    let multiplies = of("weight", "weight_scale_2", 0.0125, vec![]);
    check(&multiplies, None, described, |row, column| weight(row, column) * 0.0125);
}

#[test]
fn scales_of_bitsandbytes_may_be_quantized() {
    let (rows, columns, block) = (6, 192, 128);
    let codes = bytes(rows * columns / 2, 3);
    let scales = rows * columns / block;
    let state = |kind: &str| {
        format!(
            r#"{{"quant_type": "{kind}", "blocksize": {block}, "shape": [{rows}, {columns}], "dtype": "bfloat16",
                "nested_blocksize": 4, "nested_dtype": "float32", "nested_offset": 0.25}}"#
        )
        .into_bytes()
    };
    let weight = |levels: &[f32; 16], at: usize| {
        let nibble = codes[at / 2] >> (4 * (1 - at % 2)) & 15;
        levels[usize::from(nibble)]
    };
    let stored = ("weight", "U8", vec![rows * columns / 2, 1], codes.clone());
    let plain: Tensors = vec![
        stored.clone(),
        ("weight.absmax", "F32", vec![scales], singles((0..scales).map(|at| at as f32 + 0.3))),
        ("weight.quant_map", "F32", vec![16], singles(fp4::LEVELS)),
        ("weight.quant_state.bitsandbytes__fp4", "U8", vec![state("fp4").len()], state("fp4")),
    ];
    check(&plain, None, (DType::Fp4, rows, columns), |row, column| {
        let at = row * columns + column;
        ((at / block) as f32 + 0.3) * weight(&fp4::LEVELS, at)
    });
    let absmax = bytes(scales, 100);
    let nested: Tensors = vec![
        stored,
        ("weight.absmax", "U8", vec![scales], absmax.clone()),
        ("weight.nested_absmax", "F32", vec![scales.div_ceil(4)], singles([0.5, 2.0, 4.0])),
        ("weight.nested_quant_map", "F32", vec![256], singles((0..256).map(|at| at as f32 / 255.0))),
        ("weight.quant_state.bitsandbytes__nf4", "U8", vec![state("nf4").len()], state("nf4")),
    ];
    check(&nested, None, (DType::Nf4, rows, columns), |row, column| {
        let at = row * columns + column;
        let scale = f32::from(absmax[at / block]) / 255.0 * [0.5, 2.0, 4.0][at / block / 4] + 0.25;
        scale * weight(&nf4::LEVELS, at)
    });
}

#[test]
fn what_disagrees_is_named() {
    let fp8 = |shape: &[usize], scales: (&'static str, &[usize])| -> Tensors {
        let count = shape.iter().product();
        vec![
            ("weight", "F8_E4M3", shape.to_vec(), vec![0; count]),
            ("weight_scale", scales.0, scales.1.to_vec(), vec![0; 4]),
        ]
    };
    let integers = |scales: (&'static str, &[usize]), shape: [i64; 2]| -> Tensors {
        vec![
            ("weight_packed", "I32", vec![4, 16], vec![0; 4]),
            ("weight_scale", scales.0, scales.1.to_vec(), vec![0; 2]),
            ("weight_shape", "I64", vec![2], shape.iter().flat_map(|n| n.to_le_bytes()).collect()),
        ]
    };
    let bnb = |json: &'static str| -> Tensors {
        vec![
            ("weight", "U8", vec![64, 1], vec![0; 64]),
            ("weight.absmax", "F32", vec![2], vec![0; 8]),
            ("weight.quant_state.bitsandbytes__nf4", "U8", vec![json.len()], json.into()),
        ]
    };
    let cases: Vec<(Tensors, &str)> = vec![
        (
            fp8(&[4, 96], ("F32", &[1])),
            "weight`: is f8e4m3fn[4, 96], expected rows, and columns in a multiple of 64",
        ),
        (
            fp8(&[4, 64], ("F32", &[3])),
            "weight_scale`: is f32[3], expected one scale, 4, or [1, 1], after weight",
        ),
        (fp8(&[4, 64], ("I32", &[4])), "weight_scale`: is i32[4], expected one scale"),
        (fp8(&[0, 64], ("F32", &[1])), "weight`: is f8e4m3fn[0, 64], expected rows"),
        (
            integers(("BF16", &[4, 2]), [4, 99]),
            "weight_shape`: is [4, 99], expected [4, 8 · 16] or [4, 4 · 16]",
        ),
        (
            integers(("BF16", &[3, 2]), [4, 128]),
            "weight_scale`: is bf16[3, 2], expected [4, groups] of f16 or bf16",
        ),
        (integers(("BF16", &[4, 8]), [4, 128]), "weight_scale`: is bf16[4, 8], expected [4, groups]"),
        (
            integers(("F32", &[4, 2]), [4, 128]),
            "weight_scale`: is f32[4, 2], expected [4, groups] of f16 or bf16",
        ),
        (bnb("{}"), "is no JSON of a quantized matrix"),
        (
            bnb(r#"{"quant_type": "nf4", "blocksize": 64, "shape": [1, 64]}"#),
            "weight`: is u8[64, 1], expected u8 for [1, 64] / 2 pairs of codes, after its quant_state",
        ),
        (
            bnb(r#"{"quant_type": "nf4", "blocksize": 0, "shape": [2, 64]}"#),
            "has 64 columns and blocks of 0, expected multiples of 64",
        ),
        (bnb(r#"{"quant_type": "int2", "blocksize": 64, "shape": [2, 64]}"#), "has the quant_type int2"),
        (
            vec![("weight_packed", "I32", vec![4, 16], vec![0; 4])],
            "weight_shape`: missing next to its weight_packed",
        ),
    ];
    for (tensors, expected) in cases {
        let error = gathered(&file(&tensors), None).unwrap_err();
        assert!(
            error.starts_with("weight `blk.0.ffn_up.") && error.contains(expected),
            "{error} is not {expected}"
        );
    }
}
