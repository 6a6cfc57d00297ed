//! The settings of ops on images, as they cross from Python.

use perihelion::graph::Dim;
use perihelion::graph::ops::{
    Conv, ConvTranspose, Coordinates, FftNorm, FilterLayout, ImageLayout, Interpolation, Pool2d, PoolKind,
    Resize, RoiAlign, RoiMode, Rounding, Windows,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::value::{Count, counts};

/// Strides, dilations, and the padding before and after each axis.
pub(super) type WindowsArgument = (Vec<Count>, Vec<Count>, Vec<[Count; 2]>);

pub(super) fn windows((strides, dilations, padding): WindowsArgument) -> Windows {
    let padding = padding.into_iter().map(|sides| sides.map(|count| count.0)).collect();
    Windows { strides: counts(strides), dilations: counts(dilations), padding }
}

fn choose<T: Copy>(parameter: &str, given: &str, choices: &[(&str, T)]) -> PyResult<T> {
    choices.iter().find(|(name, _)| *name == given).map(|&(_, choice)| choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!("{parameter}: got {given:?}, expected one of {}", names.join(", ")))
    })
}

fn image_layout(name: &str) -> PyResult<ImageLayout> {
    let choices = [("NHWC", ImageLayout::ChannelsLast), ("NCHW", ImageLayout::ChannelsFirst)];
    choose("input_layout", name, &choices)
}

fn filter_layout(name: &str) -> PyResult<FilterLayout> {
    use FilterLayout::{Fcrs, Rscf};
    choose("filter_layout", name, &[("RSCF", Rscf), ("QRSCF", Rscf), ("FCRS", Fcrs), ("FCQRS", Fcrs)])
}

/// How a convolution slides, its groups, and the layouts of images and filter.
pub(super) fn conv(
    (window, groups, layout, filter): (WindowsArgument, Count, String, String),
) -> PyResult<Conv> {
    let (layout, filter_layout) = (image_layout(&layout)?, filter_layout(&filter)?);
    Ok(Conv { windows: windows(window), groups: groups.0, layout, filter_layout, activation: None })
}

/// How a convolution slides, what is added to its result, and the layouts of images and filter.
pub(super) fn conv_transpose(
    (window, output_padding, layout, filter): (WindowsArgument, Vec<Count>, String, String),
) -> PyResult<ConvTranspose> {
    let (layout, filter_layout) = (image_layout(&layout)?, filter_layout(&filter)?);
    let output_padding = counts(output_padding);
    Ok(ConvTranspose { windows: windows(window), output_padding, groups: 1, layout, filter_layout })
}

/// `count_padding` is of means; without it, the largest element is taken.
pub(super) fn pool(
    size: [Count; 2],
    window: WindowsArgument,
    round_up: bool,
    count_padding: Option<bool>,
) -> Pool2d {
    let kind = count_padding.map_or(PoolKind::Max, |count_padding| PoolKind::Average { count_padding });
    Pool2d { windows: windows(window), round_up, ..Pool2d::new(kind, size.map(|count| count.0)) }
}

pub(super) fn resize(
    size: Vec<Dim>,
    interpolation: &str,
    coordinates: &str,
    rounding: &str,
    antialias: bool,
) -> PyResult<Resize> {
    let roundings = [
        ("half_down", Rounding::PreferFloor),
        ("half_up", Rounding::PreferCeil),
        ("floor", Rounding::Floor),
        ("ceil", Rounding::Ceil),
    ];
    let rounding = choose("round_mode", rounding, &roundings)?;
    let interpolations = [
        ("nearest", Interpolation::Nearest(rounding)),
        ("bilinear", Interpolation::Linear),
        ("bicubic", Interpolation::Cubic { a: -0.75 }),
    ];
    let modes = [
        ("half_pixel", Coordinates::HalfPixel),
        ("align_corners", Coordinates::AlignCorners),
        ("asymmetric", Coordinates::Asymmetric),
        ("half_pixel_1d", Coordinates::PytorchHalfPixel),
    ];
    let interpolation = choose("interpolation", interpolation, &interpolations)?;
    let coordinates = choose("coordinate_transform_mode", coordinates, &modes)?;
    Ok(Resize { size, interpolation, coordinates, antialias })
}

pub(super) fn roi_align(
    (size, scale, samples, aligned, mode): ([Count; 2], f32, Count, bool, String),
) -> PyResult<RoiAlign> {
    let mode = choose("mode", &mode, &[("AVG", RoiMode::Average), ("MAX", RoiMode::Max)])?;
    Ok(RoiAlign {
        size: counts(size.to_vec()),
        scale,
        samples: samples.0,
        aligned,
        mode,
        layout: ImageLayout::ChannelsLast,
    })
}

pub(super) fn fft_norm(name: &str) -> PyResult<FftNorm> {
    let choices = [("backward", FftNorm::Backward), ("ortho", FftNorm::Ortho), ("forward", FftNorm::Forward)];
    choose("normalization", name, &choices)
}
