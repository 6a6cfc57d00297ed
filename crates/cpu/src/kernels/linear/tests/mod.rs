//! Tests of the linear layer: every variant against a slow reference, and bit for bit against itself.

mod experts;

use half::{bf16, f16};
use tensor::blocks::random_blocks;
use tensor::{AlignedBytes, Bytes, Shape, Tensor};

use super::matrix::TOKENS_ONCE;
use super::*;
use crate::kernels::norm;
use crate::variant::Variant;

/// Every dtype that a linear layer has kernels for.
fn dtypes() -> impl Iterator<Item = DType> {
    let blocks = DType::ALL.iter().copied().filter(|dtype| dtype.is_block());
    [DType::F32, DType::F16, DType::BF16].into_iter().chain(blocks)
}

/// Those that give the same bits on every machine.
fn reproducible_variants() -> impl Iterator<Item = &'static Variant<Functions>> {
    VARIANTS.iter().filter(|variant| (variant.available)())
}

fn variants() -> impl Iterator<Item = &'static Variant<Functions>> {
    reproducible_variants().chain(ROUNDING_VARIANTS.iter().filter(|variant| (variant.available)()))
}

/// Numbers between -1 and 1 from a xorshift generator.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

fn weight(dtype: DType, rows: usize, columns: usize, seed: u64) -> Tensor {
    let values = random(rows * columns, seed);
    let shape = Shape::new(&[rows, columns]);
    match dtype {
        DType::F32 => Tensor::from_slice(shape, &values),
        DType::F16 => Tensor::from_slice(shape, &values.into_iter().map(f16::from_f32).collect::<Vec<_>>()),
        DType::BF16 => Tensor::from_slice(shape, &values.into_iter().map(bf16::from_f32).collect::<Vec<_>>()),
        _ => {
            let blocks = random_blocks(dtype, rows * columns / dtype.block().elements, seed);
            Tensor::from_bytes(dtype, shape, Bytes::new(blocks)).unwrap()
        }
    }
}

/// The input as the form rounds it.
fn rounded(form: InputFormat, input: &[f32], columns: usize) -> Vec<f64> {
    match form {
        InputFormat::F32 => input.iter().map(|&x| f64::from(x)).collect(),
        InputFormat::Bf16 => input.iter().map(|&x| bf16::from_f32(x).to_f64()).collect(),
        InputFormat::Int8 { .. } => {
            assert_eq!(columns % 32, 0);
            let block = |block: &[f32; 32]| {
                let largest = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                let scale = largest / 127.0;
                block.map(|x| {
                    let code = if largest == 0.0 { 0.0 } else { (x * (127.0 / largest)).round_ties_even() };
                    f64::from(scale) * f64::from(code)
                })
            };
            input.as_chunks().0.iter().flat_map(block).collect()
        }
    }
}

/// What to compute, with defaults that tests override.
struct Case<'a> {
    variant: &'a Variant<Functions>,
    pool: &'a Pool,
    tokens: usize,
    norm: Option<Norm<'a>>,
    biases: &'a [Option<&'a [f32]>],
    epilogue: Epilogue,
    residual: Option<&'a [f32]>,
    exact: bool,
}

impl<'a> Case<'a> {
    fn new(variant: &'a Variant<Functions>, pool: &'a Pool, tokens: usize) -> Case<'a> {
        let epilogue = Epilogue::Plain;
        Case { variant, pool, tokens, norm: None, biases: &[], epilogue, residual: None, exact: false }
    }

    fn run(&self, weights: &[&PackedMatrix], input: &[f32]) -> Vec<Vec<f32>> {
        let matrices = if matches!(self.epilogue, Epilogue::Gate(_)) { &weights[..1] } else { weights };
        // Neither zeros nor an aligned start may be counted on.
        let mut outputs: Vec<_> = matrices.iter().map(|m| vec![f32::NAN; self.tokens * m.rows()]).collect();
        let mut scratch = vec![0xff; scratch_bytes(self.tokens, weights, self.exact) + 1];
        let mut slices: Vec<_> = outputs.iter_mut().map(|output| &mut output[..]).collect();
        let call = Linear {
            input,
            tokens: self.tokens,
            norm: self.norm,
            weights,
            biases: self.biases,
            epilogue: self.epilogue,
            residual: self.residual,
            exact: self.exact,
            outputs: &mut slices,
            scratch: &mut scratch[1..],
        };
        linear_with(&self.variant.run, self.pool, call);
        outputs
    }
}

/// Compares one matrix with a sum in f64, for all variants.
fn check(dtype: DType, rows: usize, columns: usize, tokens: usize) {
    check_with(dtype, [rows, columns], tokens, false);
    if dtype.is_block() {
        check_with(dtype, [rows, columns], tokens, true);
    }
}

fn check_with(dtype: DType, [rows, columns]: [usize; 2], tokens: usize, exact: bool) {
    let pool = Pool::new(3);
    let weight = weight(dtype, rows, columns, 7);
    let packed = PackedMatrix::pack(&weight, &pool).unwrap();
    let input = random(tokens * columns, 3);
    let weights = weight.to_f64_vec();
    for variant in variants() {
        let x = rounded(variant.run.form(dtype, exact), &input, columns);
        let case = Case { exact, ..Case::new(variant, &pool, tokens) };
        let output = case.run(&[&packed], &input).remove(0);
        for (index, &got) in output.iter().enumerate() {
            let (token, row) = (index / rows, index % rows);
            let pairs = x[token * columns..][..columns].iter().zip(&weights[row * columns..][..columns]);
            let (sum, size) =
                pairs.fold((0.0, 0.0), |(sum, size), (x, w)| (sum + x * w, size + (x * w).abs()));
            let error = (f64::from(got) - sum).abs();
            assert!(
                error <= 3e-6 * size + 1e-9,
                "{} {dtype} [{rows}, {columns}] x {tokens}, exact {exact}: row {row} of token {token} is {got}, not {sum}",
                variant.name
            );
        }
    }
}

#[test]
fn products_match_the_reference() {
    for dtype in dtypes() {
        let quantized = dtype.is_block();
        let columns: &[usize] = match dtype.block().elements {
            256 => &[256, 512],
            32 => &[32, 64, 512],
            64 => &[64, 128, 512],
            _ => &[1, 7, 32, 172],
        };
        for &columns in columns {
            for rows in [1, 15, 16, 17, 100] {
                for tokens in [1, 2, 3, 11, 12, 13] {
                    check(dtype, rows, columns, tokens);
                }
            }
        }
        check(dtype, 33, if quantized { 2048 } else { 1000 }, 5);
        check(dtype, 17, 256, 64);
    }
}

#[test]
fn every_tile_size_is_exact() {
    for tokens in 1..=25 {
        check(DType::Q4_0, 16, 64, tokens);
        check(DType::Q6K, 16, 256, tokens);
        check(DType::BF16, 16, 65, tokens);
    }
}

#[test]
fn a_row_gives_the_same_bits_in_any_company() {
    let pools = [Pool::new(1), Pool::new(4)];
    for dtype in dtypes() {
        let (rows, columns) = (100, 512);
        let packed = PackedMatrix::pack(&weight(dtype, rows, columns, 5), &pools[1]).unwrap();
        let input = random(64 * columns, 9);
        let norm = random(columns, 4);
        let each = variants().flat_map(|variant| [(variant, false), (variant, true)]);
        for (variant, exact) in each.filter(|(_, exact)| !exact || dtype.is_block()) {
            let run = |pool, first: usize, tokens| {
                let mut case = Case { exact, ..Case::new(variant, pool, tokens) };
                case.norm = Some(Norm { weight: &norm, eps: 1e-5 });
                case.run(&[&packed], &input[first * columns..][..tokens * columns]).remove(0)
            };
            let all = run(&pools[1], 0, 64);
            for (first, tokens) in
                [(0, 1), (63, 1), (5, 2), (7, 3), (0, 11), (50, 12), (20, 13), (1, 27), (0, 64)]
            {
                for pool in &pools {
                    let some = run(pool, first, tokens);
                    let same = all[first * rows..].iter().zip(&some).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{} {dtype}: {tokens} tokens from {first}", variant.name);
                }
            }
        }
    }
}

/// A bf16 holds its f32 exactly, and inputs are not rounded: the same sums in the same order.
#[test]
fn bf16_weights_give_the_bits_of_f32_weights() {
    let pool = Pool::new(2);
    for columns in [1, 2, 7, 64, 333] {
        let narrow = weight(DType::BF16, 40, columns, 3);
        let wide = Tensor::from_slice(*narrow.shape(), &narrow.to_f32_vec());
        let [narrow, wide] = [narrow, wide].map(|weight| PackedMatrix::pack(&weight, &pool).unwrap());
        let input = random(13 * columns, 8);
        for variant in reproducible_variants() {
            let run = |matrix: &PackedMatrix| Case::new(variant, &pool, 13).run(&[matrix], &input).remove(0);
            assert_eq!(run(&narrow), run(&wide), "{}: {columns} columns", variant.name);
        }
    }
}

#[test]
fn siblings_norm_bias_gate_and_residual_combine() {
    let pool = Pool::new(3);
    let columns = 512;
    let matrices =
        [(DType::Q4K, 40), (DType::Q6K, 24), (DType::BF16, 17), (DType::Q4_0, 33), (DType::F32, 40)].map(
            |(dtype, rows)| PackedMatrix::pack(&weight(dtype, rows, columns, rows as u64), &pool).unwrap(),
        );
    let weights: Vec<_> = matrices.iter().collect();
    for tokens in [1, 3, 30] {
        let input = random(tokens * columns, 1);
        let norm = Norm { weight: &random(columns, 2), eps: 1e-3 };
        let biases: Vec<_> = weights.iter().map(|matrix| random(matrix.rows(), 8)).collect();
        let biases: Vec<_> = biases.iter().map(|bias| Some(&bias[..])).collect();
        let residual = random(tokens * 40, 6);
        for variant in variants() {
            // The norm alone, which has the same bits whatever its instruction set.
            let mut normalized = vec![0.0; input.len()];
            let alone = fastest(norm::RMS_VARIANTS);
            let Norm { weight, eps } = norm;
            norm::norm_with(alone, &pool, &norm::Norm { eps, weight, bias: None }, &input, &mut normalized);
            let plain = Case::new(variant, &pool, tokens);
            let plain: Vec<_> =
                weights.iter().map(|matrix| plain.run(&[matrix], &normalized).remove(0)).collect();

            let mut case = Case::new(variant, &pool, tokens);
            (case.norm, case.biases, case.residual) = (Some(norm), &biases, Some(&residual[..]));
            for (index, output) in case.run(&weights, &input).iter().enumerate() {
                let rows = weights[index].rows();
                for (at, got) in output.iter().enumerate() {
                    let residual = if index == 0 { residual[at] } else { 0.0 };
                    let expected = plain[index][at] + biases[index].unwrap()[at % rows] + residual;
                    assert_eq!(*got, expected, "{} matrix {index}, {tokens} tokens", variant.name);
                }
            }

            let (case_weights, case_biases) = ([weights[0], weights[4]], [biases[0], biases[4]]);
            (case.biases, case.epilogue) = (&case_biases, Epilogue::Gate(Activation::Relu));
            let gated = case.run(&case_weights, &input).remove(0);
            for (at, got) in gated.iter().enumerate() {
                let [gate, up] = [0, 4].map(|index| plain[index][at] + biases[index].unwrap()[at % 40]);
                let expected = if gate < 0.0 { 0.0 } else { gate } * up + residual[at];
                assert_eq!(*got, expected, "{} gate, {tokens} tokens", variant.name);
            }

            (case.biases, case.residual, case.epilogue) = (&[], None, Epilogue::Activate(Activation::Relu));
            let activated = case.run(&[weights[2]], &input).remove(0);
            assert!(activated.iter().zip(&plain[2]).all(|(got, x)| *got == x.max(0.0)), "{}", variant.name);
        }
    }
}

#[test]
fn the_largest_codes_and_inputs_give_the_same_bits_on_every_instruction_set() {
    let (pool, columns) = (Pool::new(1), 256);
    for dtype in dtypes() {
        for byte in [0x7b, 0x80, 0xfb] {
            let mut bytes = AlignedBytes::zeroed(dtype.bytes_for(16 * columns).unwrap());
            bytes.fill(byte);
            let weight = Tensor::from_bytes(dtype, Shape::new(&[16, columns]), Bytes::new(bytes)).unwrap();
            let packed = PackedMatrix::pack(&weight, &pool).unwrap();
            for (tokens, x) in [(1, 1.0), (1, -1.0), (12, 1.0), (12, -1.0)] {
                let run =
                    |variant| Case::new(variant, &pool, tokens).run(&[&packed], &vec![x; tokens * columns]);
                let bits = |variant| run(variant)[0].iter().map(|y| y.to_bits()).collect::<Vec<_>>();
                let expected = bits(VARIANTS.last().expect("the portable one"));
                for variant in reproducible_variants() {
                    assert_eq!(bits(variant), expected, "{} {dtype} of {byte:#x}, inputs {x}", variant.name);
                }
            }
        }
    }
}

#[test]
fn strange_inputs_stay_in_their_row() {
    let pool = Pool::new(2);
    let columns = 256;
    let strange = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38, 1e-40, f32::MIN_POSITIVE, -0.0];
    for dtype in dtypes() {
        let packed = PackedMatrix::pack(&weight(dtype, 20, columns, 2), &pool).unwrap();
        for variant in variants() {
            let run = |input: &[f32]| Case::new(variant, &pool, 3).run(&[&packed], input).remove(0);
            let mut input = random(3 * columns, 5);
            let usual = run(&input);
            for value in strange {
                input[columns + 40] = value;
                let got = run(&input);
                assert!(
                    got[..20] == usual[..20] && got[40..] == usual[40..],
                    "{} {dtype} {value}",
                    variant.name
                );
                let finite = got[20..40].iter().all(|y| y.is_finite());
                assert_eq!(finite, value.is_finite(), "{} {dtype} {value}: {:?}", variant.name, &got[20..40]);
            }
            input[columns..2 * columns].fill(0.0);
            assert!(run(&input)[20..40].iter().all(|&y| y == 0.0), "{} {dtype}", variant.name);
            input[columns..2 * columns].fill(1e-41);
            assert!(run(&input)[20..40].iter().all(|&y| y.abs() < 1e-37), "{} {dtype}", variant.name);
        }
    }
}

#[test]
fn empty_calls_do_nothing() {
    let pool = Pool::new(2);
    for dtype in [DType::F32, DType::BF16, DType::Q4_0] {
        let packed = |rows, columns| PackedMatrix::pack(&weight(dtype, rows, columns, 1), &pool).unwrap();
        for variant in variants() {
            let run = |matrix: &PackedMatrix, tokens: usize| {
                let input = random(tokens * matrix.columns(), 1);
                Case::new(variant, &pool, tokens).run(&[matrix], &input).remove(0)
            };
            assert!(run(&packed(16, 32), 0).is_empty());
            assert!(run(&packed(0, 32), 3).is_empty());
            assert_eq!(run(&packed(3, 0), 2), [0.0; 6]);
        }
    }
}

#[test]
fn stored_matrices_come_back() {
    let pool = Pool::new(2);
    for dtype in dtypes() {
        let packed = PackedMatrix::pack(&weight(dtype, 18, 512, 3), &pool).unwrap();
        assert_eq!(weights::layout(packed.dtype()), format!("panel16.{dtype}"));
        let stored = packed.packed_bytes(&pool).unwrap();
        let loaded = PackedMatrix::from_panels(dtype, 18, 512, stored.clone()).unwrap();
        assert_eq!((loaded.rows(), loaded.columns(), loaded.dtype()), (18, 512, dtype));
        assert_eq!(&loaded.packed_bytes(&pool).unwrap()[..], &stored[..]);
        let short = PackedMatrix::from_panels(dtype, 18, 512, stored.slice(1..stored.len()).unwrap());
        assert!(short.unwrap_err().to_string().contains("takes"));
    }
}

#[test]
fn matrices_that_are_packed_late_give_the_same_bits() {
    let (pool, gate) = (Pool::new(2), Epilogue::Gate(Activation::Silu));
    for (dtype, variant) in dtypes().flat_map(|dtype| variants().map(move |variant| (dtype, variant))) {
        for (tokens, exact) in [(1, false), (1, true), (30, false), (TOKENS_ONCE + 1, false)] {
            let (rows, columns) = (50, 512);
            let tensors = [2, 3].map(|seed| weight(dtype, rows, columns, seed));
            let at_once = tensors.each_ref().map(|tensor| PackedMatrix::pack(tensor, &pool).unwrap());
            let late = tensors.each_ref().map(|tensor| PackedMatrix::pack_late(tensor).unwrap());
            let input = random(tokens * columns, 5);
            let case = Case { epilogue: gate, exact, ..Case::new(variant, &pool, tokens) };
            let run = |matrices: &[PackedMatrix; 2]| case.run(&matrices.each_ref(), &input);
            let (expected, got) = (run(&at_once), run(&late));
            let bits = |output: &[Vec<f32>]| output[0].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&expected), bits(&got), "{dtype} {} {tokens} {exact}", variant.name);
            assert_eq!(late[0].is_packed(), tokens > TOKENS_ONCE);
            assert_eq!(**late[0].packed_bytes(&pool).unwrap(), **at_once[0].packed_bytes(&pool).unwrap());
            assert!(late[0].is_packed());
            assert_eq!(bits(&run(&late)), bits(&expected));
        }
    }
}

#[test]
fn a_matrix_whose_file_changed_is_not_packed() {
    let path = std::env::temp_dir().join(format!("perihelion-late-{}", std::process::id()));
    let (rows, columns) = (40, 64);
    std::fs::write(&path, vec![0; 4 * rows * columns]).unwrap();
    let tensor = Tensor::from_bytes(DType::F32, [rows, columns], Bytes::map(&path).unwrap()).unwrap();
    let (matrix, pool) = (PackedMatrix::pack_late(&tensor).unwrap(), Pool::new(1));
    assert!(matrix.file().is_some());
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(1 << 16).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = matrix.packed_bytes(&pool).unwrap_err().to_string();
    assert!(error.contains("it had 10240 bytes and has 65536"), "{error}");
    assert!(!matrix.is_packed() && matrix.file().is_some());
}

#[test]
fn hostile_sizes_are_refused() {
    let pool = Pool::new(1);
    let packed = PackedMatrix::pack(&weight(DType::Q4K, 16, 256, 3), &pool).unwrap();
    let load = |dtype, rows, columns| {
        PackedMatrix::from_panels(dtype, rows, columns, packed.packed_bytes(&pool).unwrap().clone())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(load(DType::I32, 16, 256), "no packed layout holds i32 weights");
    assert_eq!(
        load(DType::Q4K, usize::MAX, 256),
        format!("a packed q4_k matrix of [{}, 256] is too large", usize::MAX)
    );
    assert_eq!(load(DType::Q4K, 16, 255), "a packed q4_k matrix of [16, 255] is too large");
    assert!(load(DType::Q4K, 16, 512).contains("takes 4736 bytes, got 2368"));
    assert!(load(DType::Q4K, 17, 256).contains("takes 4736 bytes, got 2368"));
    assert!(load(DType::Q8_0, 16, 256).contains("bytes, got 2368"));
}

#[test]
fn packed_weights_stay_small() {
    let pool = Pool::new(1);
    let bits = |dtype| {
        let packed = PackedMatrix::pack(&weight(dtype, 16, 512, 3), &pool).unwrap();
        packed.bytes() as f64 * 8.0 / (16.0 * 512.0)
    };
    assert_eq!([DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::Iq4Nl].map(bits), [4.5, 5.5, 8.5, 4.5]);
    assert_eq!([DType::Gptq, DType::Mxfp4, DType::Nvfp4, DType::Gptq8].map(bits), [4.75, 4.25, 5.0, 9.25]);
    assert_eq!([DType::Fp8, DType::Nf4].map(bits), [8.5, 4.5 + 1.0 / 16.0]);
    assert_eq!([DType::Iq1S, DType::Iq3S, DType::Tq2_0].map(bits), [4.5625; 3]);
    assert_eq!([DType::Q4K, DType::Q5K, DType::Q6K, DType::Iq4Xs].map(bits), [4.625, 5.625, 6.5625, 4.3125]);
    assert_eq!([DType::F32, DType::F16, DType::BF16].map(bits), [32.0, 16.0, 16.0]);
}

#[test]
fn odd_tensors_are_refused() {
    let pool = Pool::new(1);
    let error = |tensor: Tensor| PackedMatrix::pack(&tensor, &pool).unwrap_err().to_string();
    assert_eq!(
        error(Tensor::zeros(DType::F32, [3])),
        "a weight is [rows, columns] or [experts, rows, columns], got f32[3]"
    );
    assert_eq!(error(Tensor::zeros(DType::I8, [3, 4])), "no packed layout holds i8 weights");
    // A transposed view is packed as what it shows.
    let tensor = weight(DType::F32, 5, 9, 1);
    let turned = PackedMatrix::pack(&tensor.permute(&[1, 0]), &pool).unwrap();
    let copied = PackedMatrix::pack(&tensor.permute(&[1, 0]).contiguous(), &pool).unwrap();
    assert_eq!(&turned.packed_bytes(&pool).unwrap()[..], &copied.packed_bytes(&pool).unwrap()[..]);
}
