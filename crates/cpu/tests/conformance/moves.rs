//! Ops that only move elements.

use graph::Dim;
use graph::ops::{Broadcast, Concat, Embedding, Gather, Load, Reshape, Slice, Split, Store, Transpose};
use tensor::{DType, Tensor};

use crate::problem::{Random, Tolerance, check, check_refused, tame, wild};

/// One dtype of each width.
const WIDTHS: [DType; 5] = [DType::Bool, DType::F8E4M3, DType::BF16, DType::F32, DType::I64];

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&dim| Dim::from(dim)).collect()
}

#[test]
fn concat() {
    for dtype in WIDTHS {
        let x = |shape: &[usize], seed| wild(dtype, shape, seed);
        check(Concat { axis: 0 }, &[x(&[3, 5], 1)], Tolerance::Exact);
        check(Concat { axis: 0 }, &[x(&[3, 5], 1), x(&[0, 5], 2), x(&[1, 5], 3)], Tolerance::Exact);
        check(Concat { axis: 1 }, &[x(&[3, 5, 2], 1), x(&[3, 1, 2], 2), x(&[3, 17, 2], 3)], Tolerance::Exact);
        check(
            Concat { axis: 2 },
            &[x(&[3, 2, 1], 1), x(&[3, 2, 0], 2), x(&[3, 2, 1000], 3)],
            Tolerance::Exact,
        );
        check(Concat { axis: 1 }, &[x(&[300, 90], 1), x(&[300, 167], 2)], Tolerance::Exact);
    }
}

#[test]
fn split() {
    for dtype in WIDTHS {
        check(Split { axis: 0, sizes: vec![1, 0, 4] }, &[wild(dtype, &[5, 7], 1)], Tolerance::Exact);
        check(Split { axis: 1, sizes: vec![15, 2] }, &[wild(dtype, &[5, 17, 3], 1)], Tolerance::Exact);
        check(Split { axis: 1, sizes: vec![16, 1000, 1] }, &[wild(dtype, &[20, 1017], 1)], Tolerance::Exact);
    }
}

#[test]
fn slice() {
    let slice = |axis, start, stop, step| Slice { axis, start, stop, step };
    for dtype in WIDTHS {
        for shape in [&[9, 17, 5][..], &[9, 17], &[9, 17, 1000]] {
            let x = wild(dtype, shape, 2);
            check(slice(0, 0, None, 1), std::slice::from_ref(&x), Tolerance::Exact);
            check(slice(0, 2, Some(-1), 3), std::slice::from_ref(&x), Tolerance::Exact);
            check(slice(1, -16, None, 2), std::slice::from_ref(&x), Tolerance::Exact);
            check(slice(1, 3, Some(3), 1), std::slice::from_ref(&x), Tolerance::Exact);
            check(slice(1, 1, Some(16), 15), std::slice::from_ref(&x), Tolerance::Exact);
        }
    }
}

#[test]
fn reshape() {
    let op = Reshape { shape: dims(&[17, 60]) };
    check(op, &[wild(DType::F32, &[3, 17, 20], 1)], Tolerance::Exact);
    check(Reshape { shape: dims(&[20_000, 2]) }, &[wild(DType::I64, &[40_000], 1)], Tolerance::Exact);
}

#[test]
fn transpose() {
    let orders: [(&[usize], &[usize]); 14] = [
        (&[1, 0], &[1, 1]),
        (&[1, 0], &[15, 17]),
        (&[1, 0], &[33, 100]),
        (&[1, 0], &[257, 130]),
        (&[0, 2, 1], &[3, 65, 31]),
        (&[2, 1, 0], &[16, 5, 40]),
        (&[1, 0, 2], &[7, 9, 16]),
        (&[0, 2, 1, 3], &[2, 40, 6, 8]),
        (&[3, 0, 2, 1], &[6, 5, 4, 33]),
        (&[1, 0], &[0, 4]),
        // Channels of images that move last.
        (&[1, 0], &[2, 4097]),
        (&[1, 0], &[3, 9001]),
        (&[0, 2, 3, 1], &[2, 3, 70, 61]),
        (&[0, 2, 1], &[5, 2, 2]),
    ];
    for dtype in WIDTHS {
        for (order, shape) in orders {
            check(Transpose { order: order.to_vec() }, &[wild(dtype, shape, 1)], Tolerance::Exact);
        }
    }
    check(Transpose { order: vec![] }, &[wild(DType::F32, &[], 1)], Tolerance::Exact);
}

#[test]
fn broadcast() {
    let pairs: [(&[usize], &[usize]); 6] = [
        (&[], &[1000]),
        (&[17], &[5, 17]),
        (&[5, 1], &[5, 17]),
        (&[3, 1, 4], &[2, 3, 9, 4]),
        (&[1, 16], &[2000, 16]),
        (&[1], &[0, 3]),
    ];
    for dtype in WIDTHS {
        for (from, to) in pairs {
            check(Broadcast { shape: dims(to) }, &[wild(dtype, from, 1)], Tolerance::Exact);
        }
    }
}

/// Indices below `limit`, some counted from the end.
fn indices(dtype: DType, shape: &[usize], limit: usize, from_end: bool) -> Tensor {
    let mut random = Random(7);
    let count: usize = shape.iter().product();
    let values: Vec<i64> = (0..count)
        .map(|_| {
            let index = random.below(limit) as i64;
            if from_end && random.below(3) == 0 { index - limit as i64 } else { index }
        })
        .collect();
    match dtype {
        DType::U32 => Tensor::from_slice(shape, &values.iter().map(|&i| i as u32).collect::<Vec<_>>()),
        DType::I32 => Tensor::from_slice(shape, &values.iter().map(|&i| i as i32).collect::<Vec<_>>()),
        _ => Tensor::from_slice(shape, &values),
    }
}

#[test]
fn gather() {
    for dtype in WIDTHS {
        for ids in [DType::U32, DType::I32, DType::I64] {
            for (axis, table) in
                [(0, &[17, 5][..]), (1, &[3, 16, 7]), (2, &[3, 2, 1000]), (0, &[15]), (1, &[9, 4, 3000])]
            {
                for shape in [&[][..], &[1], &[2, 15], &[0]] {
                    let ids = indices(ids, shape, table[axis], ids != DType::U32);
                    check(Gather { axis }, &[wild(dtype, table, 1), ids], Tolerance::Exact);
                }
            }
        }
    }
    let table = tame(DType::F32, &[4, 2], 1);
    let words = ["operand 1", "[1, 0]", "is 4", "4 rows"];
    check_refused(Gather { axis: 0 }, &[table.clone(), Tensor::from_slice([2, 1], &[-4i32, 4])], &words);
    check_refused(Gather { axis: 0 }, &[table, Tensor::from_slice([1], &[i64::MIN])], &["out of range"]);
    let empty = tame(DType::F32, &[0, 2], 1);
    check_refused(Gather { axis: 0 }, &[empty, Tensor::from_slice([1], &[0u32])], &["is 0", "0 rows"]);
}

#[test]
fn embedding() {
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_float() || dtype.is_block()) {
        let columns = if dtype.is_block() { 512 } else { 33 };
        for ids in [DType::U32, DType::I32, DType::I64] {
            let table = tame(dtype, &[19, columns], 3);
            check(Embedding, &[table.clone(), indices(ids, &[3, 40], 19, false)], Tolerance::Exact);
            check(Embedding, &[table, indices(ids, &[0], 19, false)], Tolerance::Exact);
        }
    }
    let table = tame(DType::Q8_0, &[4, 32], 1);
    let words = ["operand 1", "[2]", "is -1", "4 rows"];
    check_refused(Embedding, &[table, Tensor::from_slice([3], &[3i64, 0, -1])], &words);
}

#[test]
fn buffers() {
    for dtype in [DType::F32, DType::U8, DType::Q4_0] {
        let x = tame(dtype, &[40, 1024], 1);
        check(Load, std::slice::from_ref(&x), Tolerance::Exact);
        check(Store, &[tame(dtype, &[40, 1024], 2), x], Tolerance::Exact);
    }
}
