//! Ops on images: sizes around those of tiles and vectors, padding, strides, dilations, groups.

use graph::ops::{Conv, FilterLayout, ImageLayout, Windows};
use tensor::{DType, Tensor};

use crate::problem::{Tolerance, check, tame};

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
            let op = Conv { windows: windows.clone(), groups, layout, filter_layout };
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
