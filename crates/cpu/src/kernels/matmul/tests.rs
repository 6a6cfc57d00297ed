//! The product against a naive f64 sum, against the `gemm` crate, and against itself.

use half::{bf16, f16};

use super::*;

fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn reference<A: Scalar, B: Scalar>(shape: MatmulShape, a: Matrix<A>, b: Matrix<B>) -> Vec<f64> {
    let MatmulShape { batch, m, k, n } = shape;
    let dims = batch.len();
    let mut out = Vec::new();
    for item in 0..batch.iter().product() {
        let (a_start, b_start) = (offset(batch, a.strides, item), offset(batch, b.strides, item));
        for i in 0..m {
            for j in 0..n {
                let term = |l: usize| {
                    let a = a.data[a_start + i * a.strides[dims] + l * a.strides[dims + 1]];
                    let b = b.data[b_start + l * b.strides[dims] + j * b.strides[dims + 1]];
                    f64::from(a.to_f32()) * f64::from(b.to_f32())
                };
                out.push((0..k).map(term).sum());
            }
        }
    }
    out
}

fn available() -> impl Iterator<Item = &'static Variant<TileKernel>> {
    VARIANTS.iter().filter(|variant| (variant.available)())
}

fn check<A: Scalar, B: Scalar>(shape: MatmulShape, a: Matrix<A>, b: Matrix<B>) {
    let want = reference(shape, a, b);
    let limit = 2e-7 * (shape.k as f64 + 8.0);
    for variant in available() {
        let mut first: Option<Vec<f32>> = None;
        for threads in [1, 4] {
            let mut out = vec![f32::NAN; want.len()];
            matmul_with(variant, &Pool::new(threads), shape, a, b, &mut out);
            for (i, (got, want)) in out.iter().zip(&want).enumerate() {
                let off = (f64::from(*got) - want).abs();
                assert!(
                    off <= limit * (1.0 + want.abs()),
                    "{} {shape:?}: {got} for {want} at {i}",
                    variant.name
                );
            }
            assert!(same_bits(first.get_or_insert_with(|| out.clone()), &out), "{} {shape:?}", variant.name);
        }
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

const SIZES: [(usize, usize, usize); 16] = [
    (1, 1, 1),
    (1, 1000, 1),
    (2, 3, 4),
    (5, 17, 33),
    (7, 16, 15),
    (14, 32, 32),
    (15, 33, 31),
    (29, 64, 65),
    (3, 513, 300),
    (13, 1030, 16),
    (100, 1, 100),
    (128, 64, 128),
    (1, 600, 700),
    (700, 40, 2),
    (61, 515, 540),
    (33, 20, 1000),
];

#[test]
fn agrees_with_the_reference() {
    for (m, k, n) in SIZES {
        let (a, b) = (noise(m * k, 1), noise(k * n, 2));
        let shape = MatmulShape { batch: &[], m, k, n };
        check(shape, Matrix { data: &a, strides: &[k, 1] }, Matrix { data: &b, strides: &[n, 1] });
    }
}

#[test]
fn agrees_with_the_reference_for_any_strides() {
    for (m, k, n) in [(5, 17, 33), (29, 64, 65), (31, 515, 40)] {
        let (a, b) = (noise(2 * m * k, 3), noise(3 * k * n, 4));
        let shape = MatmulShape { batch: &[], m, k, n };
        for left in [[k, 1], [1, m], [2 * k, 2], [0, 1], [1, 0]] {
            for right in [[n, 1], [1, k], [3 * n, 2], [0, 1], [1, 0]] {
                check(shape, Matrix { data: &a, strides: &left }, Matrix { data: &b, strides: &right });
            }
        }
    }
}

#[test]
fn batches_broadcast() {
    let (m, k, n) = (9, 20, 35);
    let (a, b) = (noise(6 * m * k, 5), noise(6 * k * n, 6));
    let shape = MatmulShape { batch: &[2, 3], m, k, n };
    for left in [[3 * m * k, m * k, k, 1], [0, m * k, k, 1], [m * k, 0, k, 1], [0, 0, k, 1]] {
        for right in [[3 * k * n, k * n, n, 1], [k * n, 0, 1, k]] {
            check(shape, Matrix { data: &a, strides: &left }, Matrix { data: &b, strides: &right });
        }
    }
    let empty = MatmulShape { batch: &[0], ..shape };
    check(empty, Matrix { data: &a, strides: &[] }, Matrix { data: &b, strides: &[] });
}

#[test]
fn an_empty_sum_is_zero() {
    let shape = MatmulShape { batch: &[2], m: 2, k: 0, n: 3 };
    let mut out = [f32::NAN; 12];
    let empty = Matrix { data: &[0f32; 0], strides: &[0, 0, 0] };
    matmul(&Pool::new(2), shape, empty, empty, &mut out);
    assert_eq!(out, [0.0; 12]);
}

#[test]
fn narrow_types_are_widened() {
    let (m, k, n) = (31, 100, 70);
    let (a, b) = (noise(m * k, 7), noise(k * n, 8));
    let shape = MatmulShape { batch: &[], m, k, n };
    let (a16, b16): (Vec<_>, Vec<_>) =
        (a.iter().map(|x| bf16::from_f32(*x)).collect(), b.iter().map(|x| bf16::from_f32(*x)).collect());
    let (ah, bh): (Vec<_>, Vec<_>) =
        (a.iter().map(|x| f16::from_f32(*x)).collect(), b.iter().map(|x| f16::from_f32(*x)).collect());
    for right in [[n, 1], [1, k]] {
        let left = &[k, 1];
        check(shape, Matrix { data: &a16, strides: left }, Matrix { data: &b16, strides: &right });
        check(shape, Matrix { data: &ah, strides: left }, Matrix { data: &bh, strides: &right });
        check(shape, Matrix { data: &a, strides: left }, Matrix { data: &bh, strides: &right });
    }
}

/// Large enough for threads to pack together, and more than one block of everything but columns.
#[test]
fn agrees_with_gemm_and_with_its_own_rows() {
    let (m, k, n) = (4100, 530, 40);
    let (a, b) = (noise(m * k, 9), noise(k * n, 10));
    let left = Matrix { data: &a, strides: &[k, 1] };
    let right = Matrix { data: &b, strides: &[n, 1] };
    let mut want = vec![0f32; m * n];
    // SAFETY: the strides are those of the slices.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            want.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            n as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
    for variant in available() {
        let mut out = vec![f32::NAN; m * n];
        matmul_with(variant, &Pool::new(4), MatmulShape { batch: &[], m, k, n }, left, right, &mut out);
        assert!(out.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "{}", variant.name);
        for row in [0, 13, 14, 4095, 4096, 4099] {
            let mut alone = vec![f32::NAN; n];
            let left = Matrix { data: &a[row * k..], ..left };
            let shape = MatmulShape { batch: &[], m: 1, k, n };
            matmul_with(variant, &Pool::new(2), shape, left, right, &mut alone);
            assert!(same_bits(&alone, &out[row * n..][..n]), "{}: row {row}", variant.name);
        }
    }
}

#[test]
#[should_panic(expected = "matmul: the right matrix reaches element Some(11) of 11")]
fn strides_beyond_the_data_panic() {
    let shape = MatmulShape { batch: &[], m: 1, k: 3, n: 4 };
    let (a, b) = ([0f32; 3], [0f32; 11]);
    matmul(
        &Pool::new(1),
        shape,
        Matrix { data: &a, strides: &[3, 1] },
        Matrix { data: &b, strides: &[4, 1] },
        &mut [0.0; 4],
    );
}
