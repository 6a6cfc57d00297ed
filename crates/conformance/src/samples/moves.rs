//! Problems of ops that look up, move, pick and sort elements, and of those that make them.

use tensor::{DType, Shape, Tensor};

use super::{FLOATS, INTEGERS, List, rounding, unary};
use crate::Tolerance;
use crate::data::{AWKWARD, cast};
use graph::ops::*;
use graph::{DeviceRef, Dim, dims};

/// One dtype of each width, and those that have a kernel of their own somewhere.
const DTYPES: [DType; 5] = [DType::F32, DType::Bool, DType::BF16, DType::I64, DType::U8];

impl List {
    pub(super) fn lookups(&mut self) {
        for dtype in [DType::F32, DType::I64, DType::Bool] {
            for axis in 0..3 {
                let table = self.random.tensor(dtype, [4, 5, 17], 1.0);
                let indices = self.random.indices([2, 3], 4);
                self.add(&format!("axis {axis}"), Gather { axis }, vec![table, indices], Tolerance::Exact);
            }
        }
        let table = self.random.floats([5, 2], 1.0);
        let from_end = Tensor::from_slice([4], &[-1i64, 0, -5, 4]);
        self.add("from the end", Gather { axis: 0 }, vec![table, from_end], Tolerance::Exact);
        for dtype in FLOATS.into_iter().chain(DType::ALL.iter().copied().filter(|dtype| dtype.is_block())) {
            let table = self.random.weight(dtype, 17, 256);
            let ids = self.random.indices([15], 17);
            self.add("", Embedding, vec![table, ids], Tolerance::Exact);
        }
        let table = self.random.weight(DType::F16, 3, 15);
        self.add(
            "",
            Embedding,
            vec![table.clone(), Tensor::from_slice([2, 2], &[2i64, 0, 1, 2])],
            Tolerance::Exact,
        );
        self.add("", Embedding, vec![table, Tensor::from_slice([0], &[0i32; 0])], Tolerance::Exact);
    }

    pub(super) fn rearrangements(&mut self) {
        for dtype in [DType::F32, DType::U8, DType::F16, DType::I64] {
            let x = self.random.tensor(dtype, [3, 17, 4], 1.0);
            for axis in 0..3 {
                let mut other = *x.shape();
                other = Shape::new(
                    &other
                        .iter()
                        .enumerate()
                        .map(|(i, &n)| if i == axis { 2 } else { n })
                        .collect::<Vec<_>>(),
                );
                let y = self.random.tensor(dtype, other, 1.0);
                let axis_name = format!("axis {axis}");
                self.add(&axis_name, Concat { axis }, vec![x.clone(), y, x.clone()], Tolerance::Exact);
                let sizes = vec![1, x.shape()[axis] - 1, 0];
                self.add(&axis_name, Split { axis, sizes }, vec![x.clone()], Tolerance::Exact);
                for (start, stop, step) in [(0, None, 2), (1, Some(-1), 1), (-2, None, 1), (2, Some(2), 1)] {
                    let what = format!("axis {axis} {start}..{stop:?} by {step}");
                    self.add(&what, Slice { axis, start, stop, step }, vec![x.clone()], Tolerance::Exact);
                }
            }
            for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0]] {
                let op = Transpose { order: order.to_vec() };
                self.add(&format!("{order:?}"), op, vec![x.clone()], Tolerance::Exact);
            }
            self.add("", Reshape { shape: dims![17, 12].to_vec() }, vec![x.clone()], Tolerance::Exact);
            self.many_axes(dtype);
            let row = self.random.tensor(dtype, [1, 17, 1], 1.0);
            self.add("", Broadcast { shape: dims![2, 3, 17, 4].to_vec() }, vec![row], Tolerance::Exact);
        }
    }

    /// More axes than models have.
    fn many_axes(&mut self, dtype: DType) {
        let shape = [2, 1, 3, 1, 2, 1, 2, 1, 2, 3, 1, 2];
        let x = self.random.tensor(dtype, shape, 1.0);
        let order = vec![11, 0, 9, 1, 2, 10, 3, 5, 4, 8, 7, 6];
        self.add("12 axes", Transpose { order }, vec![x.clone()], Tolerance::Exact);
        let slice = Slice { axis: 9, start: 1, stop: None, step: 1 };
        self.add("12 axes", slice, vec![x.clone()], Tolerance::Exact);
        self.add("12 axes", Concat { axis: 8 }, vec![x.clone(), x.clone()], Tolerance::Exact);
        let reshape = Reshape { shape: dims![4, 1, 3, 1, 1, 2, 1, 2, 3, 1, 2, 1, 1].to_vec() };
        self.add("to 13 axes", reshape, vec![x.clone()], Tolerance::Exact);
        let broadcast = Broadcast { shape: dims![2, 2, 3, 1, 2, 2, 2, 1, 2, 3, 1, 2].to_vec() };
        self.add("12 axes", broadcast, vec![x.clone()], Tolerance::Exact);
        self.add("12 axes", Reduce { kind: ReduceKind::Max, axis: 4 }, vec![x.clone()], Tolerance::Exact);
        let y = self.random.tensor(dtype, [1, 1, 1, 1, 1, 2, 1, 1, 1, 3, 2, 2], 1.0);
        self.add("12 axes", Binary::Max, vec![x, y], Tolerance::Exact);
    }

    pub(super) fn memory(&mut self) {
        for dtype in DTYPES {
            for shape in [&[][..], &[0, 4], &[3, 17], &[1000, 33]] {
                let dims = shape.iter().copied().map(Dim::from).collect();
                let what = format!("{dtype}{shape:?}");
                self.add(
                    &what,
                    CreateBuffer { dtype, shape: dims, device: DeviceRef::Cpu },
                    vec![],
                    Tolerance::Exact,
                );
            }
        }
        let (x, y) = (self.random.floats([3, 17], 1.0), self.random.floats([3, 17], 1.0));
        self.add("", Load, vec![x.clone()], Tolerance::Exact);
        self.add("", Store, vec![x, y], Tolerance::Exact);
    }

    pub(super) fn shapes(&mut self) {
        for shape in [&[][..], &[0], &[17, 1], &[2, 3, 4]] {
            let x = self.random.floats(shape, 1.0);
            let dims = shape.iter().copied().map(Dim::from).collect();
            let rebind = Rebind { shape: dims, symbols: vec![], message: None };
            self.add("", rebind, vec![x.clone()], Tolerance::Exact);
            let transfer = Transfer { device: DeviceRef::Cpu };
            self.add("", transfer, vec![x.clone()], Tolerance::Exact);
            self.add("", ShapeToTensor, vec![x], Tolerance::Exact);
        }
    }

    pub(super) fn moves(&mut self) {
        self.paddings();
        self.repetitions();
        self.masks();
        self.scatters();
        self.sorting();
        self.sums();
        self.sequences();
        self.boxes();
    }

    fn paddings(&mut self) {
        let cases: [(&[usize], &[usize], &[usize]); 6] = [
            (&[17], &[3], &[0]),
            (&[3, 1000], &[0, 15], &[2, 16]),
            (&[2, 3, 17], &[1, 0, 0], &[0, 2, 0]),
            (&[1, 5, 4, 3], &[0, 1, 2, 0], &[0, 1, 1, 0]),
            (&[4, 1], &[2, 3], &[9, 0]),
            (&[0, 3], &[1, 1], &[2, 0]),
        ];
        for dtype in DTYPES {
            for (shape, before, after) in cases {
                for &mode in PadMode::ALL {
                    let x = self.random.tensor(dtype, Shape::new(shape), 2.0);
                    let mut inputs = vec![x];
                    match mode {
                        PadMode::Constant => inputs.push(self.random.tensor(dtype, Shape::SCALAR, 2.0)),
                        _ if shape.contains(&0) => continue,
                        _ => {}
                    }
                    let op = Pad { mode, before: before.to_vec(), after: after.to_vec() };
                    let what = format!("{} {before:?} {after:?}", mode.name());
                    self.add(&what, op, inputs, Tolerance::Exact);
                }
            }
        }
    }

    fn repetitions(&mut self) {
        for dtype in DTYPES {
            for (shape, repeats) in
                [([3, 17], [2, 3]), ([1, 1000], [3, 1]), ([5, 1], [1, 16]), ([2, 3], [0, 2])]
            {
                let x = self.random.tensor(dtype, Shape::new(&shape), 1.0);
                let repeats: Vec<Dim> = repeats.iter().map(|&n: &usize| n.into()).collect();
                let what = format!("{repeats:?}");
                self.add(&what, Tile { repeats }, vec![x], Tolerance::Exact);
            }
            for axis in 0..3 {
                let x = self.random.tensor(dtype, [3, 4, 17], 1.0);
                for repeats in [0, 1, 3] {
                    let op = RepeatInterleave { axis, repeats: Repeats::Each(repeats) };
                    self.add(&format!("axis {axis} by {repeats}"), op, vec![x.clone()], Tolerance::Exact);
                }
                let counts: Vec<i64> = (0..x.shape()[axis] as i64).map(|i| i * 5 % 4).collect();
                let total = counts.iter().sum::<i64>() as usize;
                let counts = Tensor::from_slice([counts.len()], &counts);
                for out_dim in ways(total) {
                    let what = format!("axis {axis} by counts, {out_dim:?}");
                    let op = RepeatInterleave { axis, repeats: Repeats::Counts(out_dim) };
                    self.add(&what, op, vec![x.clone(), counts.clone()], Tolerance::Exact);
                }
            }
            for axes in [vec![], vec![0], vec![2], vec![1, 2], vec![0, 1, 2]] {
                let x = self.random.tensor(dtype, [3, 16, 17], 1.0);
                self.add(&format!("{axes:?}"), Flip { axes }, vec![x], Tolerance::Exact);
            }
            for (lower, upper) in [(None, Some(0)), (Some(0), None), (Some(2), Some(1)), (None, None)] {
                for exclude in [false, true] {
                    let x = self.random.tensor(dtype, [2, 15, 17], 1.0);
                    let what = format!("{lower:?} {upper:?} {exclude}");
                    self.add(&what, BandPart { lower, upper, exclude }, vec![x], Tolerance::Exact);
                }
            }
        }
    }

    fn masks(&mut self) {
        for dtype in DTYPES.into_iter().chain([DType::F64, DType::F16]) {
            for shape in [&[1000][..], &[3, 17], &[2, 1, 16], &[], &[0, 3]] {
                let shape = Shape::new(shape);
                let mask = self.random.tensor(DType::Bool, shape, 1.0);
                let zero = Tensor::zeros(dtype, shape);
                let values = self.random.tensor(dtype, shape, 3.0);
                let x = Select.reference(&[&mask, &values, &zero], &[shape]).expect("a mix").swap_remove(0);
                let count = x.to_f64_vec().into_iter().filter(|&x| x != 0.0).count();
                for out_dim in ways(count) {
                    let what = format!("{out_dim:?}");
                    self.add(&what, NonZero { out_dim }, vec![x.clone()], Tolerance::Exact);
                }
                let updates = self.random.tensor(dtype, [shape.elements() + 2], 3.0);
                for out_dim in [None, Some("places".to_string())] {
                    let what = format!("{out_dim:?}");
                    let inputs = vec![x.clone(), mask.clone(), updates.clone()];
                    self.add(&what, MaskedScatter { out_dim }, inputs, Tolerance::Exact);
                }
            }
            let (x, updates) =
                (self.random.tensor(dtype, [3, 17], 1.0), self.random.tensor(dtype, [3, 17], 1.0));
            let rows = Tensor::from_bools([3, 1], &[true, false, true]);
            let op = MaskedScatter { out_dim: None };
            self.add("rows", op, vec![x, rows, updates], Tolerance::Exact);
        }
        let x = Tensor::from_slice([AWKWARD.len()], &AWKWARD);
        let count = AWKWARD.iter().filter(|&&x| x != 0.0).count();
        self.add("awkward", NonZero { out_dim: OutDim::Known(count.into()) }, vec![x], Tolerance::Exact);
    }

    fn scatters(&mut self) {
        let cases: [(&[usize], &[usize], usize); 6] = [
            (&[17], &[40], 0),
            (&[3, 17], &[3, 1000], 1),
            (&[16, 5], &[33, 4], 0),
            (&[2, 7, 15], &[1, 9, 15], 1),
            (&[4, 3], &[0, 3], 0),
            (&[1, 1000], &[1, 15], 1),
        ];
        for &kind in ScatterKind::ALL {
            for dtype in FLOATS.into_iter().chain(INTEGERS).chain([DType::Bool]) {
                if dtype == DType::Bool && kind != ScatterKind::Set {
                    continue;
                }
                for (shape, counts, axis) in cases {
                    let x = self.random.tensor(dtype, Shape::new(shape), 1.5);
                    let updates = self.random.tensor(dtype, Shape::new(counts), 1.5);
                    let indices = self.random.indices(Shape::new(counts), shape[axis]);
                    let inputs = vec![x, updates, cast(&indices, DType::I64)];
                    self.add(&format!("axis {axis}"), Scatter { kind, axis }, inputs, combined(dtype));
                }
                for (depth, slab) in [(1, &[16usize, 3][..]), (2, &[300]), (2, &[])] {
                    let shape = [&[5, 6][..depth], slab].concat();
                    let x = self.random.tensor(dtype, Shape::new(&shape), 1.5);
                    let updates = self.random.tensor(dtype, Shape::new(&[&[9][..], slab].concat()), 1.5);
                    let indices = cast(&self.random.indices([9, depth], 5), DType::I32);
                    self.add("", ScatterNd { kind }, vec![x.clone(), updates, indices], combined(dtype));
                }
            }
        }
        for dtype in DTYPES {
            for (shape, indices, batch_dims) in [
                (&[5, 6, 17][..], &[4, 2][..], 0),
                (&[5, 6, 17], &[2, 3, 1], 0),
                (&[5, 6, 17], &[5, 3, 1], 1),
                (&[5, 6, 17], &[5, 6, 1], 2),
                (&[5, 5], &[1000, 2], 0),
                (&[5, 3], &[0, 1], 0),
                (&[2, 3], &[4, 0], 0),
            ] {
                let x = self.random.tensor(dtype, Shape::new(shape), 1.0);
                let indices = cast(&self.random.indices(Shape::new(indices), 5), DType::I64);
                self.add(
                    &format!("batch_dims {batch_dims}"),
                    GatherNd { batch_dims },
                    vec![x, indices],
                    Tolerance::Exact,
                );
            }
        }
    }

    fn sorting(&mut self) {
        for (columns, k) in [(1, 1), (15, 3), (17, 17), (1000, 40), (16, 0)] {
            for smallest in [false, true] {
                let op = TopK { k, axis: 1, smallest };
                let x = self.random.floats([3, columns], 1.0);
                self.add(&format!("k {k}"), op, vec![x], Tolerance::Exact);
                let ties = unary(Unary::Round, &self.random.floats([3, columns], 4.0));
                self.add(&format!("k {k} with ties"), op, vec![ties.clone()], Tolerance::Exact);
                let other = TopK { axis: 0, ..op };
                let across = ties.reshape([columns, 3]);
                self.add(&format!("k {k} axis 0"), other, vec![across], Tolerance::Exact);
            }
        }
        let x = Tensor::from_slice([1, AWKWARD.len()], &AWKWARD);
        for smallest in [false, true] {
            let op = TopK { k: AWKWARD.len(), axis: 1, smallest };
            self.add("awkward", op, vec![x.clone()], Tolerance::Exact);
            for dtype in FLOATS.into_iter().chain(INTEGERS) {
                let x = self.random.tensor(dtype, [2, 17, 3], 4.0);
                self.add("axis 1", TopK { k: 5, axis: 1, smallest }, vec![x], Tolerance::Exact);
            }
        }
        for descending in [false, true] {
            let sort = |axis| ArgSort { axis, descending };
            let direction = if descending { "down" } else { "up" };
            for dtype in FLOATS.into_iter().chain(INTEGERS) {
                let ties = cast(&unary(Unary::Round, &self.random.floats([1000], 50.0)), dtype);
                self.add(&format!("{direction} with ties"), sort(0), vec![ties], Tolerance::Exact);
                for axis in 0..2 {
                    let x = self.random.tensor(dtype, [15, 17], 4.0);
                    self.add(&format!("{direction} axis {axis}"), sort(axis), vec![x], Tolerance::Exact);
                }
            }
            let x = Tensor::from_slice([AWKWARD.len()], &AWKWARD);
            self.add(&format!("{direction} awkward"), sort(0), vec![x], Tolerance::Exact);
            self.add(direction, sort(1), vec![Tensor::zeros(DType::F32, [2, 0])], Tolerance::Exact);
        }
    }

    fn sums(&mut self) {
        for dtype in FLOATS.into_iter().chain(INTEGERS) {
            for (shape, axis) in
                [(&[1000][..], 0), (&[3, 17], 1), (&[15, 16], 0), (&[2, 5, 3], 1), (&[2, 0], 1)]
            {
                for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                    let x = self.random.tensor(dtype, Shape::new(shape), 1.5);
                    let what = format!("axis {axis} {exclusive} {reverse}");
                    self.add(&what, CumSum { axis, exclusive, reverse }, vec![x], combined(dtype));
                }
            }
        }
    }

    fn sequences(&mut self) {
        for dtype in FLOATS.into_iter().chain(INTEGERS) {
            for (start, stop, step, size) in [(0, 17, 1, 17), (3, 100, 7, 14), (5, 2, 1, 0)] {
                let [start, stop, step] = [start, stop, step].map(|n: u8| cast(&Tensor::scalar(n), dtype));
                for out_dim in ways(size) {
                    let inputs = vec![start.clone(), stop.clone(), step.clone()];
                    self.add(&format!("{size} {out_dim:?}"), Range { out_dim }, inputs, Tolerance::Exact);
                }
                let op = Range { out_dim: OutDim::Known(size.into()) };
                self.add(&format!("{size} without stop"), op, vec![start, step], Tolerance::Exact);
            }
        }
        for dtype in FLOATS {
            let uniform = Distribution::Uniform { low: -1.0, high: 3.0 };
            let normal = Distribution::Normal { mean: 0.5, std: 2.0 };
            for (number, distribution) in [uniform, normal].into_iter().enumerate() {
                for shape in [dims![17].to_vec(), dims![3, 1000].to_vec(), dims![0, 3].to_vec()] {
                    let what = format!("{number} {dtype}{shape:?}");
                    let op = Random { distribution, dtype, shape, seed: u64::MAX - 5 };
                    self.add(&what, op.clone(), vec![], Tolerance::Exact);
                    self.add(&what, op, vec![Tensor::scalar(-9i64)], Tolerance::Exact);
                }
            }
        }
    }

    fn boxes(&mut self) {
        for dtype in DTYPES {
            let whole = [5, 17, 4];
            for (shape, starts, steps) in [
                ([5, 17, 4], [0i64, 0, 0], [1, 1, 1]),
                ([2, 3, 4], [-2, 5, 0], [1, 1, 1]),
                ([1, 6, 2], [4, -16, 1], [1, 3, 2]),
                ([0, 17, 4], [5, 0, 0], [1, 1, 1]),
            ] {
                let buffer = self.random.tensor(dtype, whole, 1.0);
                let x = self.random.tensor(dtype, Shape::new(&shape), 1.0);
                let (from, steps) = (Tensor::from_slice([3], &starts), steps.to_vec());
                let what = format!("{starts:?} {steps:?} {shape:?}");
                let load = LoadSlice { shape: shape.map(Dim::from).to_vec(), steps: steps.clone() };
                self.add(&what, load, vec![buffer.clone(), from.clone()], Tolerance::Exact);
                self.add(&what, StoreSlice { steps }, vec![buffer, x, from], Tolerance::Exact);
            }
            for axis in 0..3 {
                let x = self.random.tensor(dtype, whole, 1.0);
                let scalars =
                    |values: &[i64]| values.iter().map(|&value| Tensor::scalar(value)).collect::<Vec<_>>();
                let size = whole[axis];
                for (ends, count) in
                    [(vec![1, -1, 1], size - 2), (vec![-99, 99, 2], size.div_ceil(2)), (vec![-2, 1], 2)]
                {
                    for out_dim in ways(count).into_iter().take(ends.len() - 1) {
                        let what = format!("axis {axis} {ends:?} {out_dim:?}");
                        let inputs = [vec![x.clone()], scalars(&ends)].concat();
                        self.add(&what, DynamicSlice { axis, out_dim }, inputs, Tolerance::Exact);
                    }
                }
            }
        }
    }
}

/// A size that data determines, known or not.
fn ways(size: usize) -> [OutDim; 2] {
    [OutDim::Known(size.into()), OutDim::New("found".to_string())]
}

/// Sums and products of some elements: exact in integers, rounded once or a few times in floats.
fn combined(dtype: DType) -> Tolerance {
    if dtype.is_float() {
        rounding(dtype, if dtype == DType::F64 { 1e-6 } else { 1e-5 })
    } else {
        Tolerance::Exact
    }
}
