//! Kinds of nodes on images and signals.

use graph::ops::*;
use graph::{Dim, Error, Value};
use tensor::{DType, Tensor};

use crate::growth::{Growth, Kindred, misfit};

pub(crate) const KINDS: &[Kindred] =
    &[conv, conv, conv3d, conv_transpose, fold, pool, pool, resize, resize, roi_align, suppress, irfft];

/// Images of floats with channels last: four axes, whose sizes but the first are known.
fn image(g: &Growth) -> Result<(Value, usize), Error> {
    let x = g.find(0, |ty| {
        let sizes: Option<Vec<usize>> = ty.shape.iter().skip(1).map(Dim::as_static).collect();
        ty.dtype.is_float() && ty.rank() == 4 && sizes.is_some_and(|sizes| sizes.iter().all(|&size| size > 0))
    })?;
    let channels = g.b.dim(x, 3)?.as_static().ok_or_else(|| misfit("unknown channels"))?;
    Ok((x, channels))
}

fn windows(g: &Growth) -> Windows {
    Windows {
        strides: vec![1 + g.number(0, 2), 1 + g.number(1, 3)],
        dilations: vec![1 + g.number(2, 2), 1],
        padding: vec![[g.number(3, 2), 1], [1, g.number(4, 2)]],
    }
}

fn conv(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let (x, channels) = image(g)?;
    let groups = g.choose(4, &[1, channels]);
    let dtype = g.b.ty(x).dtype;
    let filters = groups * g.choose(3, &[1, 17]);
    let filter = g.weight(dtype, [3, 2, channels / groups, filters])?;
    let activation = g.choose(1, &[None, None, Some(Unary::Relu), Some(Unary::Tanh)]);
    let op = Conv { windows: windows(g), groups, activation, ..Conv::new(2) };
    if g.number(2, 2) == 0 {
        return g.b.ops(op, &[x, filter]);
    }
    let bias = g.weight(dtype, [filters])?;
    g.b.ops(op, &[x, filter, bias])
}

/// The pictures of a batch as the slices of one body.
fn conv3d(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let (x, channels) = image(g)?;
    let dtype = g.b.ty(x).dtype;
    let mut shape = g.b.ty(x).shape.clone();
    shape.insert(0, Dim::from(1));
    let x = g.b.reshape(x, shape)?;
    let filter = g.weight(dtype, [1, 2, 2, channels, 5])?;
    g.b.ops(Conv::new(3), &[x, filter])
}

fn conv_transpose(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let (x, channels) = image(g)?;
    let dtype = g.b.ty(x).dtype;
    let filter = g.weight(dtype, [2, 3, 5, channels])?;
    let windows = Windows::new(2).with_strides([1 + g.number(0, 2), 2]);
    g.b.ops(ConvTranspose { windows, ..ConvTranspose::new() }, &[x, filter])
}

/// The columns of a picture of 4 by 5, with windows of 2 by 2.
fn fold(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| {
        let elements = ty.elements().as_static();
        ty.dtype.is_float() && elements.is_some_and(|elements| elements > 0 && elements % 4 == 0)
    })?;
    let columns = g.b.ty(x).elements().floor_div(&Dim::from(4)).as_static().expect("a number");
    let x = g.b.reshape(x, [1, 4, columns].map(Dim::from))?;
    let size = [Dim::from(2), Dim::from(columns + 1)].to_vec();
    g.b.ops(Fold { size, window: vec![2, 2], windows: Windows::new(2) }, &[x])
}

fn pool(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let (x, _) = image(g)?;
    let average = PoolKind::Average { count_padding: g.number(0, 2) == 0 };
    let kind = g.choose(1, &[PoolKind::Max, average]);
    let pool = Pool2d::new(kind, [3, 2]);
    g.b.ops(Pool2d { windows: windows(g), round_up: g.number(2, 2) == 0, ..pool }, &[x])
}

fn resize(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.dtype.is_float() && (1..=4).contains(&ty.rank()))?;
    let mut size = g.b.ty(x).shape.clone();
    let axis = g.axis(0, x);
    size[axis] = g.choose(1, &[1, 5, 8, 17]).into();
    let interpolations = [
        Interpolation::Nearest(Rounding::PreferFloor),
        Interpolation::Linear,
        Interpolation::Cubic { a: -0.75 },
    ];
    let interpolation = g.choose(2, &interpolations);
    let coordinates =
        g.choose(3, &[Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric]);
    let antialias = interpolation != interpolations[0] && g.number(4, 2) == 0;
    g.b.ops(Resize { size, interpolation, coordinates, antialias }, &[x])
}

fn roi_align(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let (x, _) = image(g)?;
    let rows = [[0.0f32, 0.5, 1.0, 4.0, 3.25], [0.0, -1.0, 2.0, 2.5, 9.0]];
    let regions = g.constant(Tensor::from_slice([2, 5], &rows.concat()))?;
    let regions = g.b.cast(regions, g.b.ty(x).dtype)?;
    let op = RoiAlign {
        size: vec![2, 3],
        scale: 0.75,
        samples: g.number(0, 3),
        aligned: g.number(1, 2) == 0,
        mode: g.choose(2, &[RoiMode::Average, RoiMode::Max]),
        layout: ImageLayout::ChannelsLast,
    };
    g.b.ops(op, &[x, regions])
}

fn suppress(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let boxes =
        g.find(0, |ty| ty.dtype == DType::F32 && ty.rank() >= 2 && ty.shape.last() == Some(&Dim::from(4)))?;
    let count = g.b.ty(boxes).shape.iter().rev().skip(1).fold(Dim::from(1), |product, dim| &product * dim);
    let boxes = g.b.reshape(boxes, [1.into(), count.clone(), Dim::from(4)])?;
    let scores = g.b.slice(boxes, 2, 0, Some(2))?;
    let scores = g.b.transpose(scores, &[0, 2, 1])?;
    let [overlap, least] = [0.3f32, -1.0].map(|number| g.constant(Tensor::scalar(number)));
    let most = g.constant(Tensor::scalar(3i64))?;
    let op = NonMaximumSuppression { count: g.name("kept"), centered: g.number(0, 2) == 0 };
    g.b.ops(op, &[boxes, scores, most, overlap?, least?])
}

fn irfft(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| {
        let is_even = ty.shape.last().and_then(Dim::as_static).is_some_and(|size| size > 0 && size % 2 == 0);
        ty.dtype == DType::F32 && ty.rank() > 0 && is_even
    })?;
    let x = g.b.as_interleaved_complex(x)?;
    let axis = g.number(0, g.b.ty(x).rank() - 1);
    let length = g.choose(1, &[1, 4, 7, 16]).into();
    let norm = g.choose(2, &[FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward]);
    g.b.ops(Irfft { axis, length, norm }, &[x])
}
