//! Ops on images: sizes around those of tiles and vectors, padding, strides, dilations, groups.

use std::sync::Arc;

use engine::{Device, InferenceSession};
use graph::Graph;
use graph::ops::{
    Conv, ConvTranspose, Coordinates, FftNorm, FilterLayout, GroupNorm, ImageLayout, Interpolation, Irfft,
    Pool2d, PoolKind, Resize, RoiAlign, RoiMode, Windows,
};
use perihelion_cpu::Cpu;
use tensor::{Buffer, DType, Tensor};

use crate::problem::{Random, Tolerance, check, check_refused, filled, reference, solve_each, tame, wild};

/// A shape of images from [batch, channels, spatial..].
fn images(layout: ImageLayout, dtype: DType, sizes: &[usize], seed: u64) -> Tensor {
    let mut shape = sizes.to_vec();
    if layout == ImageLayout::ChannelsLast {
        shape[1..].rotate_left(1);
    }
    tame(dtype, &shape, seed)
}

/// A filter from [results, channels, spatial..].
fn filter(layout: FilterLayout, dtype: DType, sizes: &[usize], seed: u64) -> Tensor {
    let mut shape = sizes.to_vec();
    if layout == FilterLayout::Rscf {
        shape.rotate_left(2);
        let rank = shape.len();
        shape.swap(rank - 2, rank - 1);
    }
    tame(dtype, &shape, seed)
}

fn check_conv(dtype: DType, x: &[usize], weights: &[usize], groups: usize, windows: &Windows) {
    let tolerance = match dtype {
        DType::F32 => Tolerance::OfLargest(1e-5),
        _ => Tolerance::OfLargest(1e-2),
    };
    for layout in [ImageLayout::ChannelsLast, ImageLayout::ChannelsFirst] {
        for filter_layout in [FilterLayout::Rscf, FilterLayout::Fcrs] {
            let op = Conv { windows: windows.clone(), groups, layout, filter_layout, activation: None };
            let mut inputs = vec![images(layout, dtype, x, 1), filter(filter_layout, dtype, weights, 2)];
            check(op.clone(), &inputs, tolerance);
            inputs.push(tame(dtype, &[weights[0]], 3));
            check(op, &inputs, tolerance);
        }
    }
}

#[test]
fn convolutions_of_awkward_sizes() {
    let plain = Windows::new(2);
    for channels in [1, 3, 17] {
        for results in [1, 17, 33] {
            check_conv(DType::F32, &[2, channels, 7, 9], &[results, channels, 3, 3], 1, &plain);
        }
    }
    let same = plain.clone().with_padding(&[1, 1]);
    check_conv(DType::F32, &[1, 60, 5, 35], &[16, 60, 3, 3], 1, &same);
    check_conv(DType::F32, &[3, 40, 6, 6], &[100, 40, 1, 1], 1, &plain);
    check_conv(DType::F32, &[0, 3, 6, 6], &[4, 3, 1, 1], 1, &plain);
    check_conv(DType::F32, &[1, 0, 6, 6], &[4, 0, 3, 3], 1, &plain);
}

/// By Winograd's algorithm, if channels lie last.
#[test]
fn convolutions_of_many_channels_by_3_by_3() {
    let same = Windows::new(2).with_padding(&[1, 1]);
    for (x, results) in [
        ([1, 32, 1, 1], 32),
        ([2, 48, 2, 3], 33),
        ([1, 80, 5, 7], 50),
        ([3, 32, 8, 9], 64),
        ([1, 272, 3, 3], 35),
        ([1, 32, 33, 70], 32),
    ] {
        check_conv(DType::F32, &x, &[results, x[1], 3, 3], 1, &same);
    }
    for padding in [[[0, 0], [0, 0]], [[0, 3], [1, 0]], [[2, 1], [5, 4]]] {
        let windows = Windows { padding: padding.to_vec(), ..Windows::new(2) };
        check_conv(DType::F32, &[2, 32, 5, 6], &[34, 32, 3, 3], 1, &windows);
    }
    check_conv(DType::F32, &[0, 32, 5, 6], &[32, 32, 3, 3], 1, &same);
    for dtype in [DType::F16, DType::BF16] {
        check_conv(dtype, &[2, 32, 5, 8], &[33, 32, 3, 3], 1, &same);
    }
}

/// The bound in the head of `winograd`, for elements of very different sizes.
#[test]
fn convolutions_by_winograd_err_within_their_bound() {
    for (channels, results, [height, width], seed) in
        [(32, 40, [5, 6], 1), (96, 32, [7, 7], 2), (288, 33, [2, 9], 3)]
    {
        let shapes = [vec![2, height, width, channels], vec![3, 3, channels, results], vec![results]];
        let inputs: Vec<Tensor> =
            shapes.iter().zip(seed..).map(|(shape, seed)| uneven(shape, seed)).collect();
        let exact: Vec<Tensor> =
            inputs.iter().map(|x| Tensor::from_slice(x.shape().dims(), &x.to_f64_vec())).collect();
        let op = Conv { windows: Windows::new(2).with_padding(&[1, 1]), ..Conv::new(2) };
        let expected = reference(op.clone(), &exact)[0].to_f64_vec();
        let magnitudes = winograd_of_magnitudes(&inputs);
        let factor = (channels as f64 + 9.0) * 2f64.powi(-24);
        for got in solve_each(op, &inputs) {
            for (i, got) in got[0].to_f64_vec().into_iter().enumerate() {
                let (error, bound) = ((got - expected[i]).abs(), factor * magnitudes[i]);
                assert!(error <= bound, "{:?}: element {i} errs by {error:e} > {bound:e}", shapes[0]);
            }
        }
    }
}

/// Values whose magnitudes go from 2⁻²⁰ to 2²⁰.
fn uneven(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random(seed);
    filled(DType::F32, shape, &mut || random.unit() * 2f64.powi(random.below(41) as i32 - 20))
}

/// Winograd's formula with the magnitudes of all elements and factors, in f64, for padding of one.
fn winograd_of_magnitudes(inputs: &[Tensor]) -> Vec<f64> {
    let [x, filter, bias] = inputs else { panic!("an image, a filter and a bias") };
    let &[batch, height, width, channels] = x.shape().dims() else { panic!("an image") };
    let results = bias.elements();
    let [x, filter, bias] =
        [x, filter, bias].map(|x| x.to_f64_vec().into_iter().map(f64::abs).collect::<Vec<_>>());
    let pixel = |n: usize, [i, j]: [usize; 2], c: usize| match (i.checked_sub(1), j.checked_sub(1)) {
        (Some(i), Some(j)) if i < height && j < width => x[((n * height + i) * width + j) * channels + c],
        _ => 0.0,
    };
    let mut all = vec![0.0; batch * height * width * results];
    for (at, result) in all.iter_mut().enumerate() {
        let (position, f) = (at / results, at % results);
        let (n, row, column) = (position / (height * width), position / width % height, position % width);
        let mut sums = [[0.0; 4]; 4];
        for c in 0..channels {
            let seen = std::array::from_fn(|i| {
                std::array::from_fn(|j| pixel(n, [row / 2 * 2 + i, column / 2 * 2 + j], c))
            });
            let taps: [[f64; 3]; 3] = std::array::from_fn(|i| {
                std::array::from_fn(|j| filter[((3 * i + j) * channels + c) * results + f])
            });
            let seen = both_sides(seen, |[a, b, c, d]: [f64; 4]| [a + c, b + c, b + c, b + d]);
            let taps = both_sides(taps, |[a, b, c]: [f64; 3]| {
                let half = (a + b + c) / 2.0;
                [a, half, half, c]
            });
            for (sum, (seen, tap)) in
                sums.as_flattened_mut().iter_mut().zip(seen.as_flattened().iter().zip(taps.as_flattened()))
            {
                *sum += seen * tap;
            }
        }
        let tile = both_sides(sums, |[a, b, c, d]: [f64; 4]| [a + b + c, b + c + d]);
        *result = tile[row % 2][column % 2] + bias[f];
    }
    all
}

/// A matrix between a matrix and its transpose, which `map` multiplies a column by.
fn both_sides<const N: usize, const M: usize>(
    matrix: [[f64; N]; N],
    map: impl Fn([f64; N]) -> [f64; M],
) -> [[f64; M]; M] {
    let columns: [[f64; M]; N] = std::array::from_fn(|j| map(std::array::from_fn(|i| matrix[i][j])));
    std::array::from_fn(|i| map(std::array::from_fn(|j| columns[j][i])))
}

/// The pass `move_channels_last` changes the layout of whole models; their results stay where they were.
#[test]
fn chains_with_channels_first_are_computed_with_channels_last() {
    let text = "graph g(%x: f32[n, 3, h, w]) {
      %a = weight \"32x3x3x3\" : f32[32, 3, 3, 3]
      %b = weight \"32x32x3x3\" : f32[32, 32, 3, 3]
      %d = weight \"32x1x3x3\" : f32[32, 1, 3, 3]
      %p = conv2d(%x, %a) {layout = nchw, filter = fcrs, padding = [1, 1, 1, 1]}
      %q = relu(%p)
      %r = conv2d(%q, %b) {layout = nchw, filter = fcrs, padding = [1, 1, 1, 1]}
      %s = add(%r, %q)
      %t = conv2d(%s, %d) {layout = nchw, filter = fcrs, padding = [1, 1, 1, 1], groups = 32}
      %y = max_pool2d(%t) {layout = nchw, window = [2, 2], strides = [2, 2]}
      return %y, %s
    }";
    let graph = Graph::parse(text).unwrap();
    let weight = |name: &str| {
        let shape: Vec<usize> = name.split('x').map(|size| size.parse().unwrap()).collect();
        Some(tame(DType::F32, &shape, 7))
    };
    let x = tame(DType::F32, &[2, 3, 9, 14], 1);
    let expected = graph.evaluate(std::slice::from_ref(&x), &weight).unwrap().outputs;
    for threads in [1, 4] {
        let device: Arc<dyn Device> = Arc::new(Cpu::new(threads));
        let session = InferenceSession::new([device]).unwrap();
        let plan = session.compile(&graph).unwrap().to_string();
        assert_eq!((plan.matches(" = transpose(").count(), plan.contains("nchw")), (3, false), "{plan}");
        let outputs = session.load(&graph, &weight).unwrap().execute(&[Buffer::from_tensor(&x)]).unwrap();
        for (got, expected) in outputs.iter().zip(&expected) {
            assert_eq!(got.shape(), expected.shape());
            let (got, expected) = (got.to_vec::<f32>(), expected.to_vec::<f32>());
            let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            assert!(got.iter().zip(&expected).all(|(got, x)| (got - x).abs() <= 1e-5 * largest));
        }
    }
}

#[test]
fn convolutions_that_stride_and_dilate() {
    for strides in [[1, 2], [3, 1], [2, 2]] {
        for dilations in [[1, 1], [2, 3]] {
            for padding in [[[0, 0], [0, 0]], [[1, 2], [4, 0]], [[9, 9], [0, 12]]] {
                let windows = Windows {
                    strides: strides.to_vec(),
                    dilations: dilations.to_vec(),
                    padding: padding.to_vec(),
                };
                check_conv(DType::F32, &[1, 3, 9, 11], &[5, 3, 3, 2], 1, &windows);
                check_conv(DType::F32, &[2, 17, 9, 11], &[17, 1, 3, 2], 17, &windows);
            }
        }
    }
}

#[test]
fn convolutions_of_few_channels() {
    let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[3, 3]);
    for (width, channels) in [(5, 3), (35, 3), (70, 1)] {
        check_conv(DType::F32, &[2, channels, 9, width], &[17, channels, 7, 7], 1, &windows);
        check_conv(DType::F32, &[1, channels, 9, width], &[5, channels, 3, 3], 1, &windows);
    }
}

#[test]
fn convolutions_of_few_channels_over_large_images() {
    let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
    check_conv(DType::F32, &[2, 3, 58, 57], &[17, 3, 3, 3], 1, &windows);
    let windows = Windows { strides: vec![2, 1], dilations: vec![3, 1], padding: vec![[1, 2], [4, 0]] };
    check_conv(DType::F32, &[1, 5, 62, 30], &[34, 5, 3, 3], 1, &windows);
    let windows = Windows::new(2).with_padding(&[0, 40]);
    check_conv(DType::F32, &[1, 2, 29, 1], &[3, 2, 1, 3], 1, &windows);
}

#[test]
fn convolutions_by_windows_of_one_element() {
    for (channels, results, groups) in [(3, 5, 1), (300, 40, 1), (1024, 33, 1), (6, 4, 2), (12, 70, 1)] {
        let (x, filter) = ([2, channels, 5, 7], [results, channels / groups, 1, 1]);
        check_conv(DType::F32, &x, &filter, groups, &Windows::new(2));
    }
}

#[test]
fn convolutions_of_single_channels() {
    for (strides, padding) in [([1, 1], [1, 1]), ([2, 2], [1, 1]), ([1, 3], [0, 2])] {
        let windows = Windows::new(2).with_strides(strides).with_padding(&padding);
        for channels in [2, 15, 16, 33] {
            for width in [3, 17, 40] {
                check_conv(DType::F32, &[2, channels, 5, width], &[channels, 1, 3, 3], channels, &windows);
            }
        }
    }
}

#[test]
fn convolutions_in_groups() {
    let windows = Windows::new(2).with_padding(&[1, 1]);
    for (channels, results, groups) in
        [(4, 6, 2), (3, 3, 3), (3, 6, 3), (64, 64, 64), (34, 17, 17), (8, 8, 1)]
    {
        check_conv(DType::F32, &[2, channels, 5, 18], &[results, channels / groups, 3, 3], groups, &windows);
    }
}

#[test]
fn convolutions_of_halves() {
    let windows = Windows::new(2).with_padding(&[1, 1]);
    for dtype in [DType::F16, DType::BF16] {
        check_conv(dtype, &[2, 6, 5, 8], &[7, 6, 3, 3], 1, &windows);
        check_conv(dtype, &[2, 6, 5, 8], &[6, 1, 3, 3], 6, &windows);
    }
}

#[test]
fn convolutions_of_volumes() {
    let windows =
        Windows { strides: vec![1, 2, 1], dilations: vec![2, 1, 1], padding: vec![[1, 0], [1, 1], [0, 2]] };
    check_conv(DType::F32, &[2, 3, 5, 6, 7], &[4, 3, 2, 3, 2], 1, &windows);
    check_conv(DType::F32, &[1, 17, 5, 6, 7], &[17, 1, 2, 3, 2], 17, &windows);
    check_conv(DType::F32, &[2, 5, 3, 4, 5], &[6, 5, 1, 1, 1], 1, &Windows::new(3));
}

fn small(dtype: DType) -> Tolerance {
    if dtype == DType::F32 { Tolerance::OfLargest(1e-5) } else { Tolerance::OfLargest(1e-2) }
}

#[test]
fn transposed_convolutions() {
    let windows = Windows { strides: vec![2, 3], dilations: vec![1, 2], padding: vec![[1, 0], [0, 2]] };
    for (channels, results, groups) in [(3, 17, 1), (17, 3, 1), (6, 4, 2), (17, 17, 17), (0, 2, 1)] {
        for (layout, filter_layout) in [
            (ImageLayout::ChannelsLast, FilterLayout::Rscf),
            (ImageLayout::ChannelsFirst, FilterLayout::Fcrs),
            (ImageLayout::ChannelsLast, FilterLayout::Fcrs),
            (ImageLayout::ChannelsFirst, FilterLayout::Rscf),
        ] {
            for dtype in [DType::F32, DType::F16] {
                let op = ConvTranspose {
                    windows: windows.clone(),
                    output_padding: vec![1, 2],
                    groups,
                    layout,
                    filter_layout,
                };
                let inputs = [
                    images(layout, dtype, &[2, channels, 4, 7], 1),
                    filter(filter_layout, dtype, &[channels, results / groups, 3, 2], 2),
                    tame(dtype, &[results], 3),
                ];
                check(op, &inputs, small(dtype));
            }
        }
    }
}

#[test]
fn pooling_of_wild_values() {
    for kind in [PoolKind::Max, PoolKind::Average { count_padding: true }] {
        for layout in [ImageLayout::ChannelsLast, ImageLayout::ChannelsFirst] {
            for strides in [[1, 1], [2, 2], [1, 3], [2, 4], [1, 5]] {
                let op = Pool2d {
                    windows: Windows::new(2).with_strides(strides).with_padding(&[1, 2]),
                    round_up: true,
                    layout,
                    ..Pool2d::new(kind, [2, 3])
                };
                let x = match kind {
                    PoolKind::Max => wild(DType::F32, &[2, 17, 18, 19], 1),
                    PoolKind::Average { .. } => tame(DType::F32, &[2, 17, 18, 19], 1),
                };
                let tolerance = if kind == PoolKind::Max { Tolerance::Exact } else { small(DType::F32) };
                check(op, &[x], tolerance);
            }
        }
    }
}

#[test]
fn large_images_are_resized_in_chunks() {
    for interpolation in [Interpolation::Linear, Interpolation::Cubic { a: -0.75 }] {
        for (height, width) in [(300, 77), (31, 400)] {
            let op = Resize {
                size: graph::dims![1, 3, height, width].to_vec(),
                interpolation,
                coordinates: Coordinates::HalfPixel,
                antialias: height < width,
            };
            check(op, &[tame(DType::F32, &[1, 3, 100, 133], 1)], small(DType::F32));
        }
    }
}

#[test]
fn nearest_elements_are_copied() {
    let sizes = [
        [2, 3, 20, 34],
        [2, 3, 30, 51],
        [2, 3, 10, 34],
        [2, 3, 25, 40],
        [2, 3, 7, 5],
        [2, 6, 20, 68],
        [4, 3, 10, 34],
    ];
    for size in sizes {
        for coordinates in [Coordinates::HalfPixel, Coordinates::Asymmetric, Coordinates::AlignCorners] {
            let size = size.map(graph::Dim::from).to_vec();
            let interpolation = Interpolation::Nearest(Default::default());
            let op = Resize { size, interpolation, coordinates, antialias: false };
            check(op, &[wild(DType::F32, &[2, 3, 10, 17], 1)], Tolerance::Exact);
        }
    }
}

#[test]
fn axes_before_others_are_resized() {
    for size in [[1, 20, 34, 17], [1, 13, 40, 17], [3, 10, 34, 17], [1, 20, 17, 30]] {
        for interpolation in [Interpolation::Nearest(Default::default()), Interpolation::Linear] {
            let (size, coordinates) = (size.map(graph::Dim::from).to_vec(), Coordinates::HalfPixel);
            let op = Resize { size, interpolation, coordinates, antialias: false };
            check(op, &[tame(DType::F32, &[1, 10, 17, 17], 1)], small(DType::F32));
        }
    }
}

#[test]
fn bad_data_is_refused() {
    let op = RoiAlign {
        size: vec![2, 2],
        scale: 1.0,
        samples: 0,
        aligned: true,
        mode: RoiMode::Average,
        layout: ImageLayout::ChannelsLast,
    };
    let x = tame(DType::F32, &[2, 4, 4, 3], 1);
    for row in [[2.0f32, 0.0, 0.0, 1.0, 1.0], [0.5, 0.0, 0.0, 1.0, 1.0], [f32::NAN, 0.0, 0.0, 1.0, 1.0]] {
        let regions = Tensor::from_slice([1, 5], &row);
        check_refused(op.clone(), &[x.clone(), regions], &["row 0 of operand 1", "a region of image"]);
    }
    let huge = Tensor::from_slice([1, 5], &[0.0f32, 0.0, 0.0, 1e30, 1e30]);
    check_refused(op, &[x, huge], &["makes bins of"]);
}

#[test]
fn groups_are_normalized() {
    for (shape, groups) in [(&[2, 6, 5, 17][..], 2), (&[1, 3, 4000], 3), (&[2, 64], 8)] {
        let weights = [2, 3].map(|seed| tame(DType::F32, &[shape[1]], seed));
        let inputs = [tame(DType::F32, shape, 1)].into_iter().chain(weights).collect::<Vec<_>>();
        check(GroupNorm { groups, eps: 1e-5 }, &inputs, small(DType::F32));
    }
}

#[test]
fn signals_of_any_length() {
    for length in [1, 2, 3, 15, 16, 17, 97, 210, 1000, 1009] {
        let x = tame(DType::F32, &[2, length / 2 + 1, 3, 2], 1);
        check(Irfft { axis: 1, length: length.into(), norm: FftNorm::Ortho }, &[x], small(DType::F32));
    }
}

#[test]
fn the_best_boxes() {
    let (batch, classes) = (2, 3);
    for count in [0, 1, 17, 300] {
        let boxes = tame(DType::F32, &[batch, count, 4], 1);
        // Scores that tie, and some that are no numbers.
        let scores = tame(DType::F32, &[batch, classes, count], 2).to_vec::<f32>();
        let odd = |(i, score): (usize, f32)| match i % 23 {
            0 => f32::NAN,
            1 => f32::INFINITY,
            _ => (score * 8.0).round(),
        };
        let scores: Vec<f32> = scores.into_iter().enumerate().map(odd).collect();
        let scores = Tensor::from_slice([batch, classes, count], &scores);
        for (most, overlap, least) in
            [(1000i64, 0.3f32, f32::NEG_INFINITY), (7, 0.0, 0.5), (1000, -1.0, 0.0), (-1, 0.5, 0.0)]
        {
            let limits = [Tensor::scalar(most), Tensor::scalar(overlap), Tensor::scalar(least)];
            let inputs: Vec<Tensor> = [boxes.clone(), scores.clone()].into_iter().chain(limits).collect();
            ["false", "true"].iter().for_each(|centered| check_boxes(centered, &inputs));
        }
    }
}

/// The size of the result is found in the data, so whole models are compared.
fn check_boxes(centered: &str, inputs: &[Tensor]) {
    let text = format!(
        "graph g(%b: f32[i, n, 4], %s: f32[i, c, n], %most: i64[], %overlap: f32[], %least: f32[]) {{
           %y = non_maximum_suppression(%b, %s, %most, %overlap, %least) {{count = kept, centered = {centered}}}
           return %y
         }}"
    );
    let graph = Graph::parse(&text).unwrap();
    let expected = graph.evaluate(inputs, &|_| None).unwrap().outputs[0].to_vec::<i64>();
    for threads in [1, 4] {
        let device: Arc<dyn Device> = Arc::new(Cpu::new(threads));
        let session = InferenceSession::new([device]).unwrap();
        let compiled = session.compile(&graph).unwrap();
        assert!(!compiled.to_string().contains("reference"), "{compiled}");
        let buffers: Vec<Buffer> = inputs.iter().map(Buffer::from_tensor).collect();
        let outputs = session.init(&compiled, &()).unwrap().execute(&buffers).unwrap();
        assert_eq!(outputs[0].to_vec::<i64>(), expected, "{} boxes", inputs[0].shape()[1]);
    }
}
