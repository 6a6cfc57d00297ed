//! Tests of the experts' linear layer: bit for bit the dense layer of each row's expert.

use tensor::HUGE_PAGE;

use super::*;
use crate::kernels::linear::simd::ROWS;

/// The experts' matrices, one on the other and each by itself.
fn experts(dtype: DType, sizes: [usize; 3], seed: u64, pool: &Pool) -> (PackedMatrix, Vec<PackedMatrix>) {
    let [experts, rows, columns] = sizes;
    let each: Vec<Tensor> = (0..experts).map(|i| weight(dtype, rows, columns, seed + i as u64)).collect();
    let bytes: Vec<u8> = each.iter().flat_map(|matrix| matrix.bytes()).copied().collect();
    let all =
        Tensor::from_bytes(dtype, Shape::new(&sizes), Bytes::new(AlignedBytes::copy_of(&bytes))).unwrap();
    let pack = |matrix: &Tensor| PackedMatrix::pack(matrix, pool).unwrap();
    (pack(&all), each.iter().map(pack).collect())
}

/// The rows of `input` times the matrices of their experts, `per_row` each.
fn run(
    variant: &Variant<Functions>,
    pool: &Pool,
    (weights, epilogue, exact): (&[&PackedMatrix], Epilogue, bool),
    input: &[f32],
    (chosen, per_row): (&[usize], usize),
) -> Vec<f32> {
    let rows = chosen.len();
    let mut output = vec![f32::NAN; rows * weights[0].rows()];
    let dtypes = weights.iter().map(|matrix| matrix.dtype());
    let mut scratch = vec![0xff; expert_scratch_bytes_for(rows, weights[0].columns(), dtypes, exact) + 1];
    let call = ExpertLinear {
        input,
        rows,
        per_row,
        expert: &|row| chosen[row],
        weights,
        epilogue,
        exact,
        output: &mut output,
        scratch: &mut scratch[1..],
    };
    expert_linear_with(&variant.run, pool, call);
    output
}

fn choices(rows: usize, experts: usize) -> Vec<usize> {
    random(rows, 11).iter().map(|x| ((x + 1.0) * 0.5 * experts as f32) as usize).collect()
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn rows_are_those_of_the_dense_layer() {
    let pools = [Pool::new(1), Pool::new(4)];
    for dtype in dtypes() {
        let (count, rows, columns) = (5, 40, 512);
        let (all, each) = experts(dtype, [count, rows, columns], 1, &pools[1]);
        for (tokens, per_row) in [(1, 1), (1, 3), (3, 2), (13, 1), (70, 2)] {
            let input = random(tokens * columns, 9);
            let chosen = choices(tokens * per_row, count);
            for (variant, exact) in variants().flat_map(|variant| [(variant, false), (variant, true)]) {
                let layer: (&[&PackedMatrix], _, _) = (&[&all], Epilogue::Plain, exact);
                let got = pools.each_ref().map(|pool| run(variant, pool, layer, &input, (&chosen, per_row)));
                assert!(same_bits(&got[0], &got[1]), "{} {dtype}: threads", variant.name);
                for (i, expert) in chosen.iter().enumerate() {
                    let row = &input[i / per_row * columns..][..columns];
                    let case = Case { exact, ..Case::new(variant, &pools[0], 1) };
                    let dense = case.run(&[&each[*expert]], row).remove(0);
                    let what =
                        format!("{} {dtype}: row {i} of {tokens} x {per_row}, exact {exact}", variant.name);
                    assert!(same_bits(&got[0][i * rows..][..rows], &dense), "{what}");
                }
            }
        }
    }
}

#[test]
fn gates_are_those_of_the_dense_layer() {
    let pool = Pool::new(3);
    let (count, rows, columns) = (3, 17, 256);
    let (gates, each_gate) = experts(DType::Q4K, [count, rows, columns], 1, &pool);
    let (ups, each_up) = experts(DType::F32, [count, rows, columns], 7, &pool);
    let epilogue = Epilogue::Gate(Activation::Silu);
    let input = random(30 * columns, 2);
    let chosen = choices(30, count);
    for variant in variants() {
        let got = run(variant, &pool, (&[&gates, &ups], epilogue, false), &input, (&chosen, 1));
        for (i, &expert) in chosen.iter().enumerate() {
            let mut case = Case::new(variant, &pool, 1);
            case.epilogue = epilogue;
            let row = &input[i * columns..][..columns];
            let dense = case.run(&[&each_gate[expert], &each_up[expert]], row).remove(0);
            assert!(same_bits(&got[i * rows..][..rows], &dense), "{}: row {i}", variant.name);
        }
    }
}

#[test]
fn nothing_is_done_for_nobody() {
    let pool = Pool::new(2);
    let (all, _) = experts(DType::BF16, [4, 3, 32], 1, &pool);
    let (flat, _) = experts(DType::F32, [4, 3, 0], 1, &pool);
    for variant in variants() {
        assert!(run(variant, &pool, (&[&all], Epilogue::Plain, false), &[], (&[], 2)).is_empty());
        // A row that no expert gets.
        assert!(run(variant, &pool, (&[&all], Epilogue::Plain, false), &[0.5; 32], (&[], 0)).is_empty());
        assert_eq!(run(variant, &pool, (&[&flat], Epilogue::Plain, false), &[], (&[3, 0], 1)), [0.0; 6]);
    }
}

/// Threads pack the panels of a huge page at a time, those of two experts among them, or fewer of smaller matrices.
#[test]
fn experts_of_several_huge_pages_are_packed_like_each_expert_alone() {
    let sizes = [3, 101 * ROWS - 5, 448];
    let (all, each) = experts(DType::BF16, sizes, 1, &Pool::new(2));
    assert!(all.bytes() > 2 * HUGE_PAGE && !HUGE_PAGE.is_multiple_of(all.panel_bytes()));
    for (expert, matrix) in each.iter().enumerate() {
        assert!(matrix.bytes() < HUGE_PAGE);
        let panels = 0..matrix.panels();
        assert!(
            all.panels_of(expert, panels.clone(), &mut []) == matrix.panels_of(0, panels, &mut []),
            "panels of expert {expert}"
        );
    }
}

#[test]
fn panels_of_experts_that_are_packed_late_are_the_same() {
    let pool = Pool::new(2);
    let (all, each) = experts(DType::Q4K, [3, 40, 256], 1, &pool);
    let bytes: Vec<u8> =
        (1..=3).flat_map(|seed| weight(DType::Q4K, 40, 256, seed).bytes().to_vec()).collect();
    let bytes = Bytes::new(AlignedBytes::copy_of(&bytes));
    let late =
        PackedMatrix::pack_late(&Tensor::from_bytes(DType::Q4K, [3, 40, 256], bytes).unwrap()).unwrap();
    let mut room = vec![0xff; 3 * late.panel_bytes()];
    for (expert, matrix) in each.iter().enumerate() {
        assert_eq!(late.panels_of(expert, 0..3, &mut room), matrix.panels_of(0, 0..3, &mut []));
        assert_eq!(late.panels_of(expert, 2..3, &mut room), matrix.panels_of(0, 2..3, &mut []));
    }
    assert!(!late.is_packed());
    assert_eq!(**late.packed_bytes(&pool).unwrap(), **all.packed_bytes(&pool).unwrap());
}

#[test]
fn stored_experts_come_back() {
    let pool = Pool::new(2);
    let (all, each) = experts(DType::Q6K, [3, 18, 256], 1, &pool);
    assert_eq!((all.experts(), all.rows(), all.columns()), (3, 18, 256));
    for (expert, matrix) in each.iter().enumerate() {
        assert_eq!(all.panels_of(expert, 0..2, &mut []), matrix.panels_of(0, 0..2, &mut []));
    }
    let stored = all.packed_bytes(&pool).unwrap().clone();
    let loaded = PackedMatrix::experts_from_panels(DType::Q6K, [3, 18, 256], stored.clone()).unwrap();
    assert_eq!(loaded.panels_of(2, 1..2, &mut []), all.panels_of(2, 1..2, &mut []));
    assert_eq!(format!("{loaded:?}"), "PackedMatrix(panel16.q6_k [3, 18, 256])");
    let short = PackedMatrix::experts_from_panels(DType::Q6K, [4, 18, 256], stored.clone());
    assert!(short.unwrap_err().to_string().contains("takes"));
    let huge = PackedMatrix::experts_from_panels(DType::Q6K, [usize::MAX, 18, 256], stored);
    assert_eq!(huge.unwrap_err().to_string(), "a packed q6_k matrix of [18, 256] is too large");
}
