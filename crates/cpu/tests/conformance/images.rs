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

use crate::problem::{Tolerance, check, check_refused, tame, wild};

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
