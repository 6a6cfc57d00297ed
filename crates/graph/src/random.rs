//! Random graphs, for tests of properties that hold for all.

use proptest::prelude::*;
use tensor::{AlignedBytes, Bytes, DType, Tensor};

use crate::ops::*;
use crate::{Builder, DeviceRef, Dim, Graph, Type, Value, dims};

/// What [`graph`] makes a graph of.
#[derive(Debug, Clone)]
pub(crate) struct Picks {
    /// Of the graph, of two inputs.
    names: [String; 3],
    /// A dtype and the bytes of a constant.
    constant: (usize, Vec<u8>),
    /// An op, two operands, and a number for the attributes.
    ops: Vec<(usize, usize, usize, i64)>,
}

/// Random picks.
pub(crate) fn picks() -> impl Strategy<Value = Picks> {
    let names = [".{0,6}", ".{0,6}", ".{1,6}"];
    let constant = (0usize..64, proptest::collection::vec(any::<u8>(), 0..300));
    let op = (any::<usize>(), any::<usize>(), any::<usize>(), any::<i64>());
    let ops = proptest::collection::vec(op, 0..60);
    (names, constant, ops).prop_map(|(names, constant, ops)| Picks { names, constant, ops })
}

/// Applies ops picked by numbers to values picked by numbers, skipping what does not fit.
pub(crate) fn graph(picks: &Picks) -> Graph {
    let Picks { names, constant, ops } = picks;
    let mut b = Builder::new(names[0].clone());
    let n = Dim::symbol("n");
    let mut values: Vec<Value> = vec![
        b.input(format!("a{}", names[1]), Type::new(DType::F32, dims!["n", 4])),
        b.input(format!("b{}", names[2]), Type::new(DType::F32, [&n + &n, 4.into()])),
        b.input("i", Type::new(DType::I64, dims![&n])),
        b.input("c", Type::new(DType::Bool, dims![1])),
        b.input("far", Type { device: DeviceRef::Gpu(3), ..Type::new(DType::F16, dims![2, "m"]) }),
        b.input("k", Type::buffer(DType::F32, dims!["n", 4])),
    ];
    let dtype = DType::ALL[constant.0 % DType::ALL.len()];
    let block = dtype.block();
    let count = constant.1.len() / block.bytes;
    let bytes = Bytes::new(AlignedBytes::copy_of(&constant.1[..count * block.bytes]));
    let constant = Tensor::from_bytes(dtype, [1, count * block.elements], bytes).unwrap();
    values.push(b.constant(constant));
    values.push(b.weight(names[1].clone(), Type::new(DType::Q8_0, dims![3, 64])).unwrap());
    for &(op, x, y, number) in ops {
        let (x, y) = (values[x % values.len()], values[y % values.len()]);
        let (index, eps) = (number.unsigned_abs() as usize % 4, number as f32 / 1e6);
        let step = index + 1;
        let (op, inputs): (Op, Vec<Value>) = match op % 16 {
            0 => (Unary::ALL[number.unsigned_abs() as usize % Unary::ALL.len()].into(), vec![x]),
            1 => (Binary::ALL[number.unsigned_abs() as usize % Binary::ALL.len()].into(), vec![x, y]),
            2 => (Select.into(), vec![values[3], x, y]),
            3 => (Cast { to: DType::ALL[number.unsigned_abs() as usize % DType::ALL.len()] }.into(), vec![x]),
            4 => (Reduce { kind: ReduceKind::ALL[index], axis: index % 2 }.into(), vec![x]),
            5 => (Softmax { axis: index }.into(), vec![x]),
            6 => (Gather { axis: index }.into(), vec![x, y]),
            7 => (Concat { axis: index % 2 }.into(), vec![x, y, x]),
            8 => (Split { axis: 1, sizes: vec![index, 4 - index] }.into(), vec![x]),
            9 => (Slice { axis: index % 2, start: number % 5, stop: None, step }.into(), vec![x]),
            10 => (Reshape { shape: vec![b.ty(x).elements(), 1.into()] }.into(), vec![x]),
            11 => (Transpose { order: vec![1, 0] }.into(), vec![x]),
            12 => (TopK { k: index, axis: index % 2, smallest: index > 1 }.into(), vec![x]),
            13 => (RopeTable { scale: eps }.into(), vec![x, y]),
            14 => (Linear { norm: Some(eps.abs()), ..Linear::default() }.into(), vec![x, y, values[7]]),
            _ => (Load.into(), vec![x]),
        };
        if let Ok(results) = b.ops(op, &inputs) {
            values.extend(results);
        }
    }
    let tensors = values.iter().copied().filter(|&value| b.ty(value).kind == crate::Kind::Tensor);
    let outputs: Vec<Value> = tensors.skip(values.len() / 2).collect();
    b.finish(&outputs).unwrap()
}
