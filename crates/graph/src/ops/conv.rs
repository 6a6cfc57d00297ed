//! `y[n, f, o] = activation(Σ_{c, k} x[n, c, o·stride + k·dilation - padding] · w[f, c, k] + b_f)`: convolutions.

use super::field::words;
use super::prelude::*;
use super::unary::Unary;
use super::window::{ImageLayout, Images, Windows, expect_static, taps};

/// The order of a filter's axes: F counts the results' channels, C the operand's (of one group), the others are
/// spatial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FilterLayout {
    /// [spatial.., C, F]: RSCF, QRSCF.
    #[default]
    Rscf,
    /// [F, C, spatial..]: FCRS, FCQRS; that of PyTorch and ONNX.
    Fcrs,
}

words!(FilterLayout: Rscf = "rscf" | "qrscf", Fcrs = "fcrs" | "fcqrs");

/// A convolution over two or three spatial axes (as many as `windows` has).
///
/// Operands: `x`, images of `groups · C` channels; `filter` of `filter_layout`, whose sizes are numbers; optionally
/// `bias: [F]`. All are of one float dtype, which the result has too: as many images, of F channels, with one
/// element for each position of the window. Group `g` of the results' channels sees group `g` of the operand's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conv {
    /// How the filter slides.
    pub windows: Windows,
    /// Into how many groups both channels fall; divides F.
    pub groups: usize,
    /// Of `x` and of the result.
    pub layout: ImageLayout,
    /// Of `filter`.
    pub filter_layout: FilterLayout,
    /// The function that each sum passes through.
    pub activation: Option<Unary>,
}

impl FilterLayout {
    /// The axis of F.
    pub fn result_axis(self, rank: usize) -> usize {
        match self {
            FilterLayout::Rscf => rank - 1,
            FilterLayout::Fcrs => 0,
        }
    }

    /// The axis of C.
    pub fn channel_axis(self, rank: usize) -> usize {
        match self {
            FilterLayout::Rscf => rank - 2,
            FilterLayout::Fcrs => 1,
        }
    }

    /// The first of the spatial axes, which lie side by side.
    pub fn first_spatial_axis(self) -> usize {
        match self {
            FilterLayout::Rscf => 0,
            FilterLayout::Fcrs => 2,
        }
    }

    /// The spatial sizes among those of a filter.
    pub fn spatial(self, sizes: &[usize]) -> &[usize] {
        &sizes[self.first_spatial_axis()..][..sizes.len() - 2]
    }

    /// The position of an element of a filter of these sizes.
    pub(super) fn position(self, shape: &Shape, f: usize, c: usize, tap: &[usize]) -> usize {
        let strides = shape.row_major_strides();
        let spatial = tap.iter().zip(&strides[self.first_spatial_axis()..]);
        let at = |index: usize, axis: usize| index * strides[axis] as usize;
        let rank = shape.rank();
        at(f, self.result_axis(rank))
            + at(c, self.channel_axis(rank))
            + spatial.map(|(&index, &stride)| index * stride as usize).sum::<usize>()
    }
}

const NAMES: &[&str] = &["conv2d", "conv3d"];

impl Conv {
    /// A convolution over `axes` spatial axes, with channels and filters last, that moves by one element.
    pub fn new(axes: usize) -> Conv {
        Conv {
            windows: Windows::new(axes),
            groups: 1,
            layout: ImageLayout::default(),
            filter_layout: FilterLayout::default(),
            activation: None,
        }
    }
}

impl Define for Conv {
    declare!(NAMES[|op| usize::from(op.windows.strides.len() == 3)] {
        windows, groups = 1, layout = ImageLayout::default(), filter_layout as "filter" = FilterLayout::default(),
        activation
    });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let axes = if self.name() == "conv3d" { 3 } else { 2 };
        self.windows.expect_axes(axes)?;
        refuse_if!(
            self.activation == Some(Unary::Not),
            "activation `not` takes truth values, expected a function of floats"
        );
        let [x, filter, ..] = *filter_operands(inputs, axes)? else { unreachable!("at least 2 operands") };
        let sizes = expect_static("filter", filter)?;
        let channels = sizes[self.filter_layout.channel_axis(sizes.len())];
        let results = sizes[self.filter_layout.result_axis(sizes.len())];
        expect_groups(self.groups, results, "results'", filter)?;
        expect_channels(self.layout, x, channels.saturating_mul(self.groups), self.groups, filter)?;
        expect_bias(inputs, results)?;
        let first = self.layout.first_spatial_axis();
        let window = self.filter_layout.spatial(&sizes);
        let positions = |(axis, &size): (usize, &usize)| {
            self.windows.positions(axis, &x.shape[first + axis], size, false)
        };
        let spatial = window.iter().enumerate().map(positions).collect::<Result<Vec<Dim>, _>>()?;
        Ok(vec![x.with_shape(self.layout.shape(x.shape[0].clone(), results.into(), spatial))])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        if outputs[0].contains(&0) {
            return Ok(vec![Tensor::zeros(inputs[0].dtype(), outputs[0])]);
        }
        let (x, filter) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let bias = inputs.get(2).map(|bias| bias.to_f64_vec());
        let from = Images::new(self.layout, inputs[0].shape());
        let to = Images::new(self.layout, &outputs[0]);
        let (layout, sizes) = (self.filter_layout, inputs[1].shape());
        let channels = sizes[layout.channel_axis(sizes.rank())];
        let per_group = to.channels / self.groups;
        let mut y = vec![0.0; outputs[0].elements()];
        for at in super::window::indices(&to.spatial) {
            for (n, f) in (0..to.batch).flat_map(|n| (0..to.channels).map(move |f| (n, f))) {
                let mut sum = bias.as_ref().map_or(0.0, |bias| bias[f]);
                let first = f / per_group * channels;
                for (tap, element) in taps(&self.windows, layout.spatial(sizes), &at, &from.spatial) {
                    for c in 0..channels {
                        let x = x[from.position(n, first + c, &element)];
                        sum += x * filter[layout.position(sizes, f, c, &tap)];
                    }
                }
                y[to.position(n, f, &at)] = self.activation.map_or(sum, |function| function.evaluate(sum));
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &y)])
    }
}

/// `x` and `filter`, both with `axes` spatial axes and of one float dtype, and perhaps a bias.
pub(super) fn filter_operands<'i, 'a>(
    inputs: &'i [&'a Type],
    axes: usize,
) -> Result<&'i [&'a Type], TypeError> {
    let ([x, filter] | [x, filter, _]) = inputs else {
        return Err(type_error!("takes 2 or 3 operands (x, filter, bias), got {}", inputs.len()));
    };
    expect_dtype("x", x, FLOATS)?;
    expect_same_dtype(("x", x), ("filter", filter))?;
    expect_rank("x", x, axes + 2)?;
    expect_rank("filter", filter, axes + 2)?;
    Ok(inputs)
}

/// Refuses a number of groups that does not divide the channels of a filter.
pub(super) fn expect_groups(
    groups: usize,
    channels: usize,
    whose: &str,
    filter: &Type,
) -> Result<(), TypeError> {
    refuse_if!(
        !(groups > 0 && channels.is_multiple_of(groups)),
        "the {whose} {channels} channels of filter {filter} do not fall into {groups} groups"
    );
    Ok(())
}

/// Refuses images with other channels than a filter takes.
pub(super) fn expect_channels(
    layout: ImageLayout,
    x: &Type,
    expected: usize,
    groups: usize,
    filter: &Type,
) -> Result<(), TypeError> {
    let found = &x.shape[layout.channel_axis(x.rank())];
    refuse_if!(
        found.as_static() != Some(expected),
        "channels differ: x {x} has {found}, filter {filter} in {groups} groups takes {expected}"
    );
    Ok(())
}

/// Refuses a bias that is not one number for each channel.
pub(super) fn expect_bias(inputs: &[&Type], channels: usize) -> Result<(), TypeError> {
    match inputs {
        [x, _, bias] => expect_type("bias", bias, x.dtype, &[&Dim::from(channels)]),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    fn nchw(windows: Windows, groups: usize) -> Conv {
        let (layout, filter_layout) = (ImageLayout::ChannelsFirst, FilterLayout::Fcrs);
        Conv { windows, groups, layout, filter_layout, activation: None }
    }

    #[test]
    fn types() {
        let same = Conv { windows: Windows::new(2).with_padding(&[1, 1]), ..Conv::new(2) };
        check_types(
            same.clone(),
            &[
                (&["f32[n, h, w, 3]", "f32[3, 3, 3, 16]"], "f32[n, h, w, 16]"),
                (&["bf16[1, 5, 5, 3]", "bf16[3, 3, 3, 16]", "bf16[16]"], "bf16[1, 5, 5, 16]"),
                (
                    &["f32[n, h, w, 4]", "f32[3, 3, 3, 16]"],
                    "conv2d: channels differ: x f32[n, h, w, 4] has 4, filter f32[3, 3, 3, 16] in 1 groups takes 3",
                ),
                (
                    &["f32[1, 5, 5, 3]", "f32[3, 3, 3, 16]", "f32[3]"],
                    "conv2d: bias is f32[3], expected f32[16]",
                ),
                (&["f32[1, 5, 3]", "f32[3, 3, 3, 16]"], "conv2d: x is f32[1, 5, 3], expected 4 axes"),
                (
                    &["f32[1, 5, 5, 3]", "f32[k, 3, 3, 16]"],
                    "conv2d: filter is f32[k, 3, 3, 16], expected sizes that are numbers",
                ),
                (&["f32[1, 5, 5, 3]"], "conv2d: takes 2 or 3 operands (x, filter, bias), got 1"),
            ],
        );
        let wide = Windows::new(2).with_strides([2, 1]).with_dilations([1, 3]);
        check_types(
            nchw(wide, 2),
            &[
                (&["f32[n, 4, 8, w]", "f32[6, 2, 2, 2]"], "f32[n, 6, 4, w - 3]"),
                (&["f32[n, 4, h, 9]", "f32[6, 2, 2, 2]"], "f32[n, 6, ((h)//(2)), 6]"),
                (
                    &["f32[n, 4, 8, 3]", "f32[6, 2, 2, 2]"],
                    "conv2d: a window of 2 elements spans 4 along spatial axis 1, which has 3 and 0 of padding",
                ),
                (
                    &["f32[n, 4, 8, 9]", "f32[5, 2, 2, 2]"],
                    "conv2d: the results' 5 channels of filter f32[5, 2, 2, 2] do not fall into 2 groups",
                ),
            ],
        );
        check_types(
            Conv { windows: Windows::new(2).with_strides([1]), ..same.clone() },
            &[(&["f32[1, 5, 5, 3]", "f32[3, 3, 3, 16]"], "conv2d: strides is [1], expected 2 numbers")],
        );
        check_types(
            Conv { activation: Some(Unary::Not), ..same },
            &[(
                &["f32[1, 5, 5, 3]", "f32[3, 3, 3, 16]"],
                "conv2d: activation `not` takes truth values, expected a function of floats",
            )],
        );
        check_types(Conv::new(3), &[(&["f32[n, 4, h, w, 1]", "f32[2, 1, 1, 1, 5]"], "f32[n, 3, h, w, 5]")]);
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice([1, 3, 3, 1], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let filter = Tensor::from_slice([2, 2, 1, 1], &[1.0f32, 10.0, 100.0, 1000.0]);
        assert_eq!(numbers(Conv::new(2), &[&x, &filter]), [5421.0, 6532.0, 8754.0, 9865.0]);
        let padded =
            Conv { windows: Windows::new(2).with_padding(&[1, 1]).with_strides([3, 2]), ..Conv::new(2) };
        let bias = Tensor::from_slice([1], &[0.5f32]);
        assert_eq!(numbers(padded, &[&x, &filter, &bias]), [1000.5, 3200.5, 70.5, 98.5]);
        let negated = Conv { activation: Some(Unary::Neg), ..Conv::new(2) };
        assert_eq!(numbers(negated, &[&x, &filter]), [-5421.0, -6532.0, -8754.0, -9865.0]);
        // Depthwise: each channel has a filter of its own.
        let x = Tensor::from_slice([1, 2, 1, 2], &[1.0f32, 2.0, 3.0, 4.0]);
        let filter = Tensor::from_slice([2, 1, 1, 2], &[1.0f32, 1.0, 10.0, -1.0]);
        assert_eq!(numbers(nchw(Windows::new(2), 2), &[&x, &filter]), [3.0, 26.0]);
    }

    /// Of `torch.nn.functional.conv2d`, f64, on `x_i = sin(i)` and `w_i = cos(i)`.
    #[test]
    fn values_of_pytorch() {
        let wave = |shape: [usize; 4], f: fn(f64) -> f64| {
            let count = shape.iter().product::<usize>();
            Tensor::from_slice(shape, &(0..count).map(|i| f(i as f64)).collect::<Vec<_>>())
        };
        let windows = Windows { strides: vec![2, 1], dilations: vec![1, 2], padding: vec![[1, 1], [2, 2]] };
        let (x, filter) = (wave([1, 4, 5, 4], f64::sin), wave([6, 2, 3, 2], f64::cos));
        let y = numbers(nchw(windows, 2), &[&x, &filter]);
        assert_eq!(y.len(), 6 * 3 * 6);
        let expected = [
            -1.0504961114996603,
            -0.04333856553839977,
            -0.17261623268331394,
            0.5919579428213485,
            1.5731992456496127,
        ];
        assert_close(&[y[0], y[8], y[44], y[69], y[107]], &expected, 1e-12);
    }
}
