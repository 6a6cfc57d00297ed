//! Reductions, extremes, norms and softmax.

use graph::ops::{ArgReduce, ArgReduceKind, LayerNorm, Reduce, ReduceKind, RmsNorm, Softmax, TopK};
use tensor::{DType, Tensor};

use crate::problem::{FLOATS, Tolerance, check, check_refused, filled, integers, rounded, tame, wild};

/// Shapes and an axis, among them a run of several segments and columns of several bands.
const AXES: [(&[usize], usize); 12] = [
    (&[1], 0),
    (&[15], 0),
    (&[16], 0),
    (&[17], 0),
    (&[7, 1000], 1),
    (&[1000, 7], 0),
    (&[3, 17, 5], 1),
    (&[2, 9, 1030], 1),
    (&[2, 0, 3], 1),
    (&[0, 4], 1),
    (&[2, 70_000], 1),
    (&[70_000, 2], 0),
];

#[test]
fn reduce() {
    for &kind in ReduceKind::ALL {
        for (shape, axis) in AXES {
            for dtype in FLOATS {
                // Sums of numbers that cancel may lose digits even in f64.
                let tolerance = match (kind, dtype) {
                    (ReduceKind::Sum | ReduceKind::Mean, DType::F32 | DType::F64) => {
                        Tolerance::OfLargest(1e-7)
                    }
                    // One rounding for each of hundreds of factors, before the product is 0 or infinite.
                    (ReduceKind::Prod, DType::F64) => rounded(dtype, 1000.0),
                    _ => rounded(dtype, 4.0),
                };
                check(Reduce { kind, axis }, &[tame(dtype, shape, 1)], tolerance);
            }
            for dtype in integers().filter(|_| kind != ReduceKind::Mean) {
                check(Reduce { kind, axis }, &[wild(dtype, shape, 1)], Tolerance::Exact);
            }
        }
    }
}

#[test]
fn extremes_of_awkward_values() {
    for kind in [ReduceKind::Max, ReduceKind::Min] {
        for (seed, (shape, axis)) in AXES.into_iter().enumerate() {
            for dtype in FLOATS {
                check(Reduce { kind, axis }, &[wild(dtype, shape, seed as u64)], Tolerance::Exact);
                // Without NaN, which a wild tensor has many of.
                check(Reduce { kind, axis }, &[tame(dtype, shape, seed as u64)], Tolerance::Exact);
            }
        }
    }
}

#[test]
fn arg_reduce() {
    for kind in [ArgReduceKind::Max, ArgReduceKind::Min] {
        for (shape, axis) in AXES.into_iter().filter(|(shape, axis)| shape[*axis] > 0) {
            for dtype in FLOATS.into_iter().chain(integers()) {
                check(ArgReduce { kind, axis }, &[wild(dtype, shape, 1)], Tolerance::Exact);
                check(ArgReduce { kind, axis }, &[tame(dtype, shape, 2)], Tolerance::Exact);
                // Few values, so many ties.
                let mut i = 0;
                let ties = filled(dtype, shape, &mut || {
                    i += 1;
                    f64::from(i * 7919 % 3)
                });
                check(ArgReduce { kind, axis }, &[ties], Tolerance::Exact);
            }
        }
        let nothing = Tensor::from_slice([2, 3], &[f32::NAN; 6]);
        check(ArgReduce { kind, axis: 1 }, std::slice::from_ref(&nothing), Tolerance::Exact);
        check(ArgReduce { kind, axis: 0 }, &[nothing], Tolerance::Exact);
    }
}

#[test]
fn top_k() {
    for dtype in FLOATS.into_iter().chain(integers()) {
        for (shape, k) in [
            (&[1][..], 1),
            (&[17], 0),
            (&[17], 17),
            (&[4, 1000], 5),
            (&[3, 1000], 700),
            (&[2, 20_000], 40),
            (&[0, 9], 2),
        ] {
            let top = |smallest| TopK { k, axis: shape.len() - 1, smallest };
            check(top(false), &[wild(dtype, shape, 1)], Tolerance::Exact);
            check(top(true), &[wild(dtype, shape, 2)], Tolerance::Exact);
            check(
                TopK { k: k.min(shape[0]), axis: 0, smallest: false },
                &[tame(dtype, shape, 2)],
                Tolerance::Exact,
            );
            let mut i = 0;
            let ties = filled(dtype, shape, &mut || {
                i += 1;
                f64::from(i * 7919 % 5)
            });
            check(top(false), &[ties], Tolerance::Exact);
        }
    }
    let nothing = Tensor::from_slice([2, 100], &[f32::NAN; 200]);
    check(TopK { k: 3, axis: 1, smallest: false }, &[nothing], Tolerance::Exact);
}

#[test]
fn softmax() {
    for (shape, axis) in AXES {
        for dtype in FLOATS {
            // The distance from the largest, at most 104 where a result is left, is rounded (4e-6), and the sum is
            // one of up to 70 000 terms in f32.
            let tolerance = match dtype {
                DType::F32 => Tolerance::Near { relative: 1e-5, absolute: 1e-37 },
                DType::F64 => Tolerance::Near { relative: 1e-12, absolute: 0.0 },
                half => rounded(half, 1.0),
            };
            check(Softmax { axis }, &[tame(dtype, shape, 1)], tolerance);
            check(Softmax { axis }, &[wild(dtype, shape, 1)], tolerance);
        }
    }
    // More columns than a band has.
    let wide = tame(DType::F32, &[2, 3, 2500], 1);
    check(Softmax { axis: 1 }, &[wide], Tolerance::Near { relative: 1e-5, absolute: 1e-37 });
    let masked = Tensor::from_slice([4], &[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, -200.0]);
    check(Softmax { axis: 0 }, &[masked], Tolerance::Near { relative: 1e-6, absolute: 1e-37 });
}

#[test]
fn norms() {
    for (rows, n) in [(1, 1), (5, 15), (5, 16), (5, 17), (40, 1000), (0, 8)] {
        let (x, weight) = (tame(DType::F32, &[rows, n], 1), tame(DType::F32, &[n], 2));
        let bias = tame(DType::F32, &[n], 3);
        // A mean of 1000 terms in f32.
        let tolerance = Tolerance::Near { relative: 1e-5, absolute: 1e-5 };
        check(RmsNorm { eps: 1e-6 }, &[x.clone(), weight.clone()], tolerance);
        check(LayerNorm { eps: 1e-5 }, &[x, weight, bias], tolerance);
    }
}

#[test]
fn empty_axes_are_refused() {
    // The type rule refuses an axis that is known to be empty; one that turns out so is refused by the kernel.
    let k = TopK { k: 2, axis: 1, smallest: false };
    check(k, &[Tensor::from_slice([0, 2], &[0f32; 0])], Tolerance::Exact);
    let table = Tensor::from_slice([2, 1], &[1f32, 2.0]);
    check_refused(graph::ops::Embedding, &[table, Tensor::from_slice([1], &[2u32])], &["is 2", "2 rows"]);
}
