//! Problems of ops on images and signals, and of weights that come as bytes.

use tensor::{DType, Tensor};

use crate::data::Random;
use crate::{Problem, Tolerance};
use graph::Op;
use graph::ops::*;

/// Every problem; the same each time.
pub(super) fn problems() -> Vec<Problem> {
    let mut list = List { problems: Vec::new(), random: Random::new(2026) };
    list.convolutions();
    list.transposed_convolutions();
    list.pooling();
    list.resizing();
    list.regions();
    list.norms();
    list.signals();
    list.quantized();
    list.gptq();
    list.problems
}

const LAYOUTS: [(ImageLayout, FilterLayout); 3] = [
    (ImageLayout::ChannelsLast, FilterLayout::Rscf),
    (ImageLayout::ChannelsFirst, FilterLayout::Fcrs),
    (ImageLayout::ChannelsLast, FilterLayout::Fcrs),
];

struct List {
    problems: Vec<Problem>,
    random: Random,
}

impl List {
    /// Adds a problem under a name that no other has: its number.
    fn add(&mut self, op: impl Into<Op>, inputs: Vec<Tensor>, tolerance: Tolerance) {
        self.add_op(op.into(), inputs, tolerance);
    }

    fn add_op(&mut self, op: Op, inputs: Vec<Tensor>, tolerance: Tolerance) {
        let name = format!("{} {}", op.name(), self.problems.len());
        let problem = Problem::new(name, op, inputs, tolerance).unwrap_or_else(|error| panic!("{error}"));
        self.problems.push(problem);
    }

    /// Images from [batch, channels, spatial..].
    fn images(&mut self, layout: ImageLayout, dtype: DType, sizes: &[usize]) -> Tensor {
        let mut shape = sizes.to_vec();
        if layout == ImageLayout::ChannelsLast {
            shape[1..].rotate_left(1);
        }
        self.random.tensor(dtype, &shape[..], 1.0)
    }

    /// A filter from [F, C, spatial..].
    fn filter(&mut self, layout: FilterLayout, dtype: DType, sizes: &[usize]) -> Tensor {
        let mut shape = sizes.to_vec();
        if layout == FilterLayout::Rscf {
            shape.rotate_left(2);
            let rank = shape.len();
            shape.swap(rank - 2, rank - 1);
        }
        self.random.tensor(dtype, &shape[..], 1.0)
    }

    fn convolutions(&mut self) {
        let plain = Windows::new(2);
        let same = plain.clone().with_padding(&[1, 1]);
        let awkward = Windows { strides: vec![2, 3], dilations: vec![2, 1], padding: vec![[0, 3], [2, 1]] };
        for (x, filter, groups, windows) in [
            ([2, 3, 5, 17], [17, 3, 3, 3], 1, &same),
            ([1, 17, 6, 7], [3, 17, 1, 1], 1, &plain),
            ([1, 64, 4, 4], [33, 64, 3, 3], 1, &same),
            ([1, 3, 9, 20], [5, 3, 3, 2], 1, &awkward),
            ([2, 6, 9, 20], [4, 3, 3, 2], 2, &awkward),
            ([2, 17, 9, 20], [17, 1, 3, 2], 17, &awkward),
            ([1, 3, 5, 5], [6, 1, 3, 3], 3, &same),
            ([0, 3, 5, 5], [6, 3, 3, 3], 1, &same),
        ] {
            for (layout, filter_layout) in LAYOUTS {
                let op = Conv { windows: windows.clone(), groups, layout, filter_layout, ..Conv::new(2) };
                self.conv(op, DType::F32, &x, &filter);
            }
        }
        let (layout, filter_layout) = LAYOUTS[0];
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            let op = Conv { windows: same.clone(), layout, filter_layout, ..Conv::new(2) };
            self.conv(op, dtype, &[1, 3, 5, 5], &[17, 3, 3, 3]);
        }
        let deep = Windows { strides: vec![1, 2, 1], dilations: vec![2, 1, 1], padding: vec![[1, 0]; 3] };
        for (layout, filter_layout) in LAYOUTS {
            let op = Conv { windows: deep.clone(), layout, filter_layout, ..Conv::new(3) };
            self.conv(op, DType::F32, &[1, 3, 5, 6, 7], &[4, 3, 2, 3, 2]);
        }
    }

    fn conv(&mut self, op: Conv, dtype: DType, x: &[usize], filter: &[usize]) {
        let terms: usize = filter[1..].iter().product();
        let mut inputs = vec![self.images(op.layout, dtype, x), self.filter(op.filter_layout, dtype, filter)];
        self.add(op.clone(), inputs.clone(), sums_of(dtype, terms));
        inputs.push(self.random.tensor(dtype, [filter[0]], 1.0));
        self.add(op.clone(), inputs.clone(), sums_of(dtype, terms));
        for function in [Unary::Relu, Unary::Silu] {
            let op = Conv { activation: Some(function), ..op.clone() };
            self.add(op, inputs.clone(), sums_of(dtype, terms));
        }
    }

    fn transposed_convolutions(&mut self) {
        let windows = Windows { strides: vec![2, 3], dilations: vec![1, 2], padding: vec![[1, 0], [0, 2]] };
        for (x, filter, groups) in [
            ([2, 3, 4, 5], [3, 17, 3, 2], 1),
            ([1, 6, 3, 1], [6, 2, 2, 3], 2),
            ([1, 17, 3, 17], [17, 1, 3, 3], 17),
        ] {
            for (layout, filter_layout) in LAYOUTS {
                for (dtype, windows) in [
                    (DType::F32, windows.clone()),
                    (DType::F32, Windows::new(2)),
                    (DType::BF16, windows.clone()),
                ] {
                    let output_padding = vec![windows.strides[0] - 1, 0];
                    let op = ConvTranspose { windows, output_padding, groups, layout, filter_layout };
                    let terms = filter.iter().product::<usize>() / groups;
                    let inputs = vec![
                        self.images(layout, dtype, &x),
                        self.filter(filter_layout, dtype, &filter),
                        self.random.tensor(dtype, [filter[1] * groups], 1.0),
                    ];
                    self.add(op, inputs, sums_of(dtype, terms));
                }
            }
        }
        for (channels, dtype) in [(1, DType::F32), (17, DType::F32), (3, DType::F16)] {
            let windows = Windows::new(2).with_strides([2, 1]).with_padding(&[1, 0]);
            let size = graph::dims![7, 18].to_vec();
            let op = Fold { size, window: vec![3, 2], windows };
            let x = self.random.tensor(dtype, [2, channels * 6, 4 * 17], 1.0);
            self.add(op, vec![x], sums_of(dtype, 6));
        }
    }

    fn pooling(&mut self) {
        let kinds = [
            PoolKind::Max,
            PoolKind::Average { count_padding: true },
            PoolKind::Average { count_padding: false },
        ];
        let awkward = Windows { strides: vec![2, 1], dilations: vec![1, 2], padding: vec![[1, 2], [0, 1]] };
        for kind in kinds {
            for layout in [ImageLayout::ChannelsLast, ImageLayout::ChannelsFirst] {
                for channels in [1, 3, 17] {
                    for (windows, round_up) in [
                        (awkward.clone(), false),
                        (awkward.clone(), true),
                        (Windows::new(2).with_strides([3, 2]), true),
                    ] {
                        let op = Pool2d { kind, window: vec![3, 2], windows, round_up, layout };
                        let x = self.images(layout, DType::F32, &[2, channels, 8, 19]);
                        self.add(op, vec![x], sums_of(DType::F32, 6));
                    }
                }
            }
            let half = self.images(ImageLayout::ChannelsLast, DType::BF16, &[1, 3, 4, 4]);
            self.add(Pool2d::new(kind, [2, 2]), vec![half], sums_of(DType::BF16, 4));
        }
        let mut values = [1.0f32; 16];
        (values[5], values[10]) = (f32::NAN, f32::NEG_INFINITY);
        let x = Tensor::from_slice([1, 4, 4, 1], &values);
        self.add(Pool2d::new(PoolKind::Max, [2, 2]), vec![x], Tolerance::Exact);
    }

    fn resizing(&mut self) {
        let coordinates = [
            Coordinates::HalfPixel,
            Coordinates::PytorchHalfPixel,
            Coordinates::AlignCorners,
            Coordinates::Asymmetric,
            Coordinates::TfHalfPixelForNn,
        ];
        let interpolations = [
            Interpolation::Nearest(Rounding::PreferFloor),
            Interpolation::Nearest(Rounding::PreferCeil),
            Interpolation::Nearest(Rounding::Floor),
            Interpolation::Nearest(Rounding::Ceil),
            Interpolation::Linear,
            Interpolation::Cubic { a: -0.75 },
        ];
        let x = self.random.floats([2, 3, 7, 17], 1.0);
        for interpolation in interpolations {
            for coordinates in coordinates {
                for (height, width) in [(3, 40), (16, 1), (1, 17)] {
                    for antialias in [false, true] {
                        if antialias && matches!(interpolation, Interpolation::Nearest(_)) {
                            continue;
                        }
                        let size = graph::dims![2, 3, height, width].to_vec();
                        let op = Resize { size, interpolation, coordinates, antialias };
                        self.add(op, vec![x.clone()], sums_of(DType::F32, 100));
                    }
                }
            }
        }
        let op = Resize {
            size: graph::dims![5, 4].to_vec(),
            interpolation: Interpolation::Linear,
            coordinates: Coordinates::HalfPixel,
            antialias: false,
        };
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            let x = self.random.tensor(dtype, [2, 9], 1.0);
            self.add(op.clone(), vec![x], sums_of(dtype, 4));
        }
    }

    fn regions(&mut self) {
        let rows: [[f32; 5]; 5] = [
            [0.0, 1.5, 2.0, 9.0, 7.25],
            [1.0, -4.0, -3.0, 6.0, 20.0],
            [1.0, 5.0, 5.0, 5.0, 5.0],
            [0.0, 8.0, 6.0, 2.0, 1.0],
            [0.0, 100.0, 100.0, 120.0, 130.0],
        ];
        let regions = Tensor::from_slice([rows.len(), 5], &rows.concat());
        for layout in [ImageLayout::ChannelsLast, ImageLayout::ChannelsFirst] {
            for (mode, aligned, samples) in [
                (RoiMode::Average, true, 2),
                (RoiMode::Average, false, 0),
                (RoiMode::Max, true, 0),
                (RoiMode::Max, false, 3),
            ] {
                let x = self.images(layout, DType::F32, &[2, 17, 8, 11]);
                let op = RoiAlign { size: vec![3, 2], scale: 0.75, samples, aligned, mode, layout };
                self.add(op, vec![x, regions.clone()], sums_of(DType::F32, 100));
            }
        }
        let boxes = self.random.floats([2, 17, 4], 1.0);
        let scores = self.random.floats([2, 3, 17], 1.0);
        for centered in [false, true] {
            let op = NonMaximumSuppression { count: "kept".to_string(), centered };
            let settings = [Tensor::scalar(5i64), Tensor::scalar(0.2f32), Tensor::scalar(0.0f32)];
            let inputs = [boxes.clone(), scores.clone()].into_iter().chain(settings).collect();
            self.add(op, inputs, Tolerance::Exact);
        }
    }

    fn norms(&mut self) {
        for (shape, groups) in [
            (&[2, 6, 5, 17][..], 3),
            (&[1, 32, 16, 16][..], 32),
            (&[3, 17][..], 1),
            (&[1, 4, 1000][..], 2),
            (&[0, 4, 2][..], 2),
        ] {
            let x = self.random.floats(shape, 3.0);
            let (weight, bias) = (self.random.floats([shape[1]], 2.0), self.random.floats([shape[1]], 1.0));
            let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
            self.add(GroupNorm { groups, eps: 1e-5 }, vec![x, weight, bias], tolerance);
        }
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            for (shape, axis) in [
                (&[3, 1][..], 1),
                (&[3, 17][..], 1),
                (&[2, 1000][..], 1),
                (&[3, 16, 5][..], 1),
                (&[17, 2][..], 0),
            ] {
                let x = self.random.tensor(dtype, shape, 30.0);
                let tolerance = match dtype {
                    DType::F64 => Tolerance::Close { relative: 1e-12, absolute: 1e-12 },
                    DType::F32 => Tolerance::Close { relative: 1e-6, absolute: 4e-6 },
                    _ => Tolerance::Close { relative: 1.0 / 120.0, absolute: 1e-3 },
                };
                self.add(LogSoftmax { axis }, vec![x], tolerance);
            }
        }
    }

    fn signals(&mut self) {
        for (bins, length) in [(1, 1), (2, 2), (9, 16), (9, 17), (4, 17), (20, 15), (101, 200), (51, 101)] {
            for norm in [FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward] {
                let x = self.random.floats([3, bins, 2, 2], 1.0);
                let tolerance = Tolerance::Close { relative: 1e-5, absolute: 2e-6 * length as f64 };
                self.add(Irfft { axis: 1, length: length.into(), norm }, vec![x], tolerance);
            }
        }
        let x = self.random.floats([0, 9, 2], 1.0);
        self.add(Irfft { axis: 1, length: 16.into(), norm: FftNorm::Ortho }, vec![x], Tolerance::Exact);
    }

    fn quantized(&mut self) {
        for &encoding in DType::ALL.iter().filter(|dtype| dtype.is_block()) {
            let block = encoding.block();
            for (rows, tokens) in [(17, 1), (16, 5)] {
                let weight = self.random.weight(encoding, rows, 2 * block.elements);
                let bytes = Tensor::from_slice([rows, 2 * block.bytes], weight.bytes());
                self.add(Dequantize { encoding }, vec![bytes.clone()], Tolerance::Exact);
                let x = self.random.floats([tokens, 2 * block.elements], 1.0);
                let squares: f64 = weight.to_f64_vec().iter().map(|w| w * w).sum::<f64>() / rows as f64;
                // As for a linear layer: six deviations of a sum of inputs rounded to 8 bits.
                let absolute = 6.0 * squares.sqrt() / 254.0 + 1e-6;
                let tolerance = Tolerance::Close { relative: 1e-5, absolute };
                self.add(QMatMul { encoding }, vec![x, bytes], tolerance);
            }
        }
    }

    fn gptq(&mut self) {
        let sizes = [(1, 1, 32), (3, 16, 64), (16, 17, 64), (5, 40, 128), (17, 72, 256), (9, 200, 1024)];
        for (index, (tokens, rows, columns)) in sizes.into_iter().enumerate() {
            let dtype = [DType::BF16, DType::F32, DType::F16][index % 3];
            for (desc_act, sym) in [(false, true), (true, true), (false, false), (true, false)] {
                for group_size in [Some(32), Some(128), None] {
                    let groups = group_size.map_or(1, |size| columns / size);
                    if groups > 0 && (sym || rows % 8 == 0) {
                        let op = GptqMatMul { bits: 4, group_size, desc_act, sym };
                        self.gptq_of(op, dtype, (tokens, rows, columns), groups);
                    }
                }
            }
        }
    }

    fn gptq_of(&mut self, op: GptqMatMul, dtype: DType, sizes: (usize, usize, usize), groups: usize) {
        let (tokens, rows, columns) = sizes;
        let codes = self.random.tensor(DType::U8, [columns / 2, rows], 1.0);
        let scales = self.random.tensor(DType::F16, [groups, rows], 0.1);
        let bytes = [codes.bytes(), scales.bytes()].concat();
        let mut inputs = vec![
            self.random.tensor(dtype, [tokens, columns], 1.0),
            Tensor::from_slice([columns / 2 + 2 * groups, rows], &bytes),
        ];
        if op.desc_act {
            let order: Vec<i32> =
                self.random.shuffled(columns).into_iter().map(|column| column as i32).collect();
            inputs.push(Tensor::from_slice([columns], &order));
        }
        if !op.sym {
            inputs.push(self.random.tensor(DType::I32, [groups, rows / 8], 1.0));
        }
        let weight = op.dequantize(op.operands(&inputs.iter().collect::<Vec<_>>())).expect("a permutation");
        let squares: f64 = weight.to_f64_vec().iter().map(|w| w * w).sum::<f64>() / rows as f64;
        // As for a linear layer: six deviations of a sum of inputs rounded to 8 bits.
        let absolute = 6.0 * squares.sqrt() / 254.0 + 1e-6;
        let relative = if dtype == DType::F32 { 1e-5 } else { 1.0 / 128.0 };
        self.add(op, inputs, Tolerance::Close { relative, absolute });
    }
}

/// Sums of products of numbers below 1.
fn sums_of(dtype: DType, terms: usize) -> Tolerance {
    let unit = match dtype {
        DType::F64 => 1e-15,
        DType::F32 => 1e-6,
        DType::F16 => 1.0 / 1024.0,
        _ => 1.0 / 128.0,
    };
    let absolute = match dtype {
        DType::F64 | DType::F32 => unit * (terms as f64).sqrt().max(1.0),
        _ => unit,
    };
    Tolerance::Close { relative: unit, absolute }
}
