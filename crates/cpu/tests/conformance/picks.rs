//! Ops that pick, place, sort and sum elements: the sample problems in every way, and arrays that threads share.

use conformance::{Tolerance as Allowed, problems};
use graph::Op;
use graph::ops::*;
use tensor::{DType, Tensor};

use crate::problem::{Random, Tolerance, check, check_refused, tame, wild};

#[test]
fn sample_problems_in_every_way() {
    let mut solved = 0;
    for problem in problems() {
        let is_here = matches!(
            problem.op,
            Op::TopK(_)
                | Op::ArgSort(_)
                | Op::CumSum(_)
                | Op::Pad(_)
                | Op::Tile(_)
                | Op::RepeatInterleave(_)
                | Op::Flip(_)
                | Op::BandPart(_)
                | Op::GatherNd(_)
                | Op::Scatter(_)
                | Op::ScatterNd(_)
                | Op::MaskedScatter(_)
                | Op::NonZero(_)
                | Op::Range(_)
                | Op::Random(_)
                | Op::DynamicSlice(_)
                | Op::CreateBuffer(_)
                | Op::LoadSlice(_)
                | Op::StoreSlice(_)
        );
        // What defines symbols needs an engine: `every_device` runs it.
        if is_here && problem.op.defines().is_empty() {
            let tolerance = match problem.tolerance {
                Allowed::Exact => Tolerance::Exact,
                Allowed::Close { relative, absolute } => Tolerance::Near { relative, absolute },
            };
            check(problem.op, &problem.inputs, tolerance);
            solved += 1;
        }
    }
    assert!(solved > 500, "{solved} problems");
}

/// i64 indices below a limit.
fn indices(shape: &[usize], limit: usize, seed: u64) -> Tensor {
    let mut random = Random(seed);
    let count: usize = shape.iter().product();
    Tensor::from_slice(shape, &(0..count).map(|_| random.below(limit) as i64).collect::<Vec<_>>())
}

#[test]
fn threads_share_scatters() {
    // The kernel combines in the very order of the reference.
    for &kind in ScatterKind::ALL {
        for dtype in [DType::F32, DType::F16, DType::I64, DType::I8] {
            let x = tame(dtype, &[300, 50], 1);
            let updates = tame(dtype, &[900, 50], 2);
            let ids = indices(&[900, 50], 300, 3);
            check(Scatter { kind, axis: 0 }, &[x.clone(), updates.clone(), ids], Tolerance::Exact);
            check(ScatterNd { kind }, &[x, updates, indices(&[900, 1], 300, 4)], Tolerance::Exact);
            let wide = [tame(dtype, &[7, 3000], 5), tame(dtype, &[40, 3000], 6), indices(&[40, 1], 7, 7)];
            check(ScatterNd { kind }, &wide, Tolerance::Exact);
        }
    }
}

#[test]
fn threads_share_lanes() {
    for dtype in [DType::F32, DType::BF16, DType::U64] {
        for descending in [false, true] {
            check(ArgSort { axis: 0, descending }, &[wild(dtype, &[100_000], 1)], Tolerance::Exact);
            check(ArgSort { axis: 1, descending }, &[wild(dtype, &[3, 16_385], 2)], Tolerance::Exact);
        }
        let x = tame(dtype, &[70_000], 3);
        for (exclusive, reverse) in [(false, false), (true, true)] {
            let op = CumSum { axis: 0, exclusive, reverse };
            let tolerance = Tolerance::OfLargest(if dtype == DType::BF16 { 1.0 / 256.0 } else { 1e-6 });
            check(op, std::slice::from_ref(&x), tolerance);
            check(op, &[x.reshape([35_000, 2])], tolerance);
            check(CumSum { axis: 1, ..op }, &[x.reshape([700, 100])], tolerance);
        }
    }
}

#[test]
fn threads_share_lists() {
    for dtype in [DType::F32, DType::Bool, DType::I16] {
        let x = tame(dtype, &[90, 700], 1);
        let count = x.to_f64_vec().iter().filter(|&&x| x != 0.0).count();
        check(NonZero { out_dim: OutDim::Known(count.into()) }, std::slice::from_ref(&x), Tolerance::Exact);
        let mask = tame(DType::Bool, &[700], 2);
        let op = MaskedScatter { out_dim: None };
        check(op, &[x.clone(), mask, tame(dtype, &[63_000], 3)], Tolerance::Exact);
        let pad = Pad { mode: PadMode::Reflect, before: vec![1, 200], after: vec![100, 3] };
        check(pad, std::slice::from_ref(&x), Tolerance::Exact);
        check(Tile { repeats: vec![2.into(), 3.into()] }, &[x], Tolerance::Exact);
    }
}

#[test]
fn wrong_data_is_refused() {
    let (x, one) = (tame(DType::F32, &[4, 3], 1), tame(DType::F32, &[1, 3], 2));
    let far = Tensor::from_slice([1, 3], &[0i64, 4, -9]);
    let words = ["operand 2", "[0, 1]", "is 4", "the 4 elements of axis 0"];
    for &kind in ScatterKind::ALL {
        check_refused(Scatter { kind, axis: 0 }, &[x.clone(), one.clone(), far.clone()], &words);
    }
    let below = Tensor::from_slice([1, 1], &[-5i32]);
    check_refused(
        ScatterNd { kind: ScatterKind::Set },
        &[x.clone(), one, below.clone()],
        &["[0, 0]", "is -5"],
    );
    check_refused(GatherNd { batch_dims: 0 }, &[x.clone(), below], &["operand 1", "is -5"]);
    check_refused(
        NonZero { out_dim: OutDim::Known(1.into()) },
        std::slice::from_ref(&x),
        &["12", "expected 1"],
    );
    let mask = Tensor::from_bools([], &[true]);
    let few = tame(DType::F32, &[11], 1);
    check_refused(MaskedScatter { out_dim: None }, &[x.clone(), mask, few], &["12 places", "11 updates"]);
    let starts = Tensor::from_slice([2], &[3i64, 0]);
    let load = LoadSlice { shape: vec![2.into(), 3.into()], steps: vec![1, 1] };
    check_refused(load, &[x.clone(), starts.clone()], &["2 elements from 3", "axis 0"]);
    check_refused(StoreSlice { steps: vec![1, 1] }, &[x.clone(), x.clone(), starts], &["4 elements from 3"]);
    let repeats = Repeats::Counts(OutDim::Known(1.into()));
    let negative = Tensor::from_slice([4], &[1i64, 1, -1, 0]);
    check_refused(RepeatInterleave { axis: 0, repeats }, &[x, negative], &["-1", "position 2"]);
    let range = Range { out_dim: OutDim::Known(3.into()) };
    check_refused(range, &[0i32, 3, 0].map(Tensor::scalar), &["0 to 3 by 0"]);
}
