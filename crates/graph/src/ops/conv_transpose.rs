//! `y[n, c, i·stride + k·dilation - padding] += x[n, f, i] · w[f, c, k]`: transposed convolutions.

use super::conv::{FilterLayout, expect_bias, expect_channels, expect_groups, filter_operands};
use super::prelude::*;
use super::window::{ImageLayout, Images, Windows, expect_extents, expect_static, indices};

/// What a convolution with these windows and this filter does to gradients: each element of `x` adds a window to
/// the result.
///
/// Operands: `x`, images; `filter`, laid out as that of the convolution: its F is the channels of `x`, its C those of
/// one group of the result (so [height, width, result channels, channels] or, as PyTorch and ONNX have it, [channels,
/// result channels, height, width]); optionally `bias` [groups · C]. All of one float dtype, which the result
/// has too. Along each axis it has `(size - 1) · stride - padding + reach + extra` elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConvTranspose {
    /// How the filter slides over the result; padding is cut off.
    pub windows: Windows,
    /// Elements added after the last of each spatial axis; fewer than its stride or dilation.
    pub output_padding: Vec<usize>,
    /// Into how many groups both channels fall; divides F.
    pub groups: usize,
    /// Of `x` and of the result.
    pub layout: ImageLayout,
    /// Of `filter`.
    pub filter_layout: FilterLayout,
}

impl ConvTranspose {
    /// A transposed convolution over two spatial axes, with channels and filters last.
    pub fn new() -> ConvTranspose {
        ConvTranspose::default()
    }

    /// The size of the result along a spatial axis.
    fn length(&self, axis: usize, length: &Dim, size: usize) -> Result<Dim, TypeError> {
        let (stride, [before, after]) = (self.windows.strides[axis], self.windows.padding[axis]);
        let extra = self.output_padding[axis];
        refuse_if!(
            extra >= stride.max(self.windows.dilations[axis]),
            "output_padding is {:?}, expected less than the stride or dilation of each axis",
            self.output_padding
        );
        let added = self.windows.reach(axis, size) as i64 + extra as i64 - (stride + before + after) as i64;
        let result = &(length * &Dim::from(stride)) + &Dim::integer(added);
        match result.as_integer() {
            Some(negative) if negative < 0 => Err(type_error!(
                "{length} elements along spatial axis {axis} make {negative} after cutting off {before} and {after}"
            )),
            _ => Ok(result),
        }
    }
}

impl Default for ConvTranspose {
    fn default() -> ConvTranspose {
        ConvTranspose {
            windows: Windows::new(2),
            output_padding: vec![0; 2],
            groups: 1,
            layout: ImageLayout::default(),
            filter_layout: FilterLayout::default(),
        }
    }
}

impl Define for ConvTranspose {
    declare!("conv2d_transpose" {
        windows, output_padding = vec![0; 2], groups = 1, layout = ImageLayout::default(),
        filter_layout as "filter" = FilterLayout::default()
    });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        self.windows.expect_axes(2)?;
        expect_extents("output_padding", &self.output_padding, 2, 0)?;
        let [x, filter, ..] = *filter_operands(inputs, 2)? else { unreachable!("at least 2 operands") };
        let sizes = expect_static("filter", filter)?;
        let channels = sizes[self.filter_layout.result_axis(4)];
        expect_groups(self.groups, channels, "operand's", filter)?;
        expect_channels(self.layout, x, channels, self.groups, filter)?;
        let results = sizes[self.filter_layout.channel_axis(4)].saturating_mul(self.groups);
        expect_bias(inputs, results)?;
        let first = self.layout.first_spatial_axis();
        let window = self.filter_layout.spatial(&sizes);
        refuse_if!(window.contains(&0), "filter {filter} has no elements");
        let length = |(axis, &size): (usize, &usize)| self.length(axis, &x.shape[first + axis], size);
        let spatial = window.iter().enumerate().map(length).collect::<Result<Vec<Dim>, _>>()?;
        Ok(vec![x.with_shape(self.layout.shape(x.shape[0].clone(), results.into(), spatial))])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        if outputs[0].contains(&0) {
            return Ok(vec![Tensor::zeros(inputs[0].dtype(), outputs[0])]);
        }
        let (x, filter) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let from = Images::new(self.layout, inputs[0].shape());
        let to = Images::new(self.layout, &outputs[0]);
        let (layout, sizes) = (self.filter_layout, inputs[1].shape());
        let channels = sizes[layout.channel_axis(4)];
        let per_group = from.channels / self.groups;
        let mut y = vec![0.0; outputs[0].elements()];
        for (at, tap) in indices(&from.spatial)
            .flat_map(|at| indices(layout.spatial(sizes)).map(move |tap| (at.clone(), tap)))
        {
            let element = |axis: usize| self.windows.element(axis, at[axis], tap[axis], to.spatial[axis]);
            let (Some(row), Some(column)) = (element(0), element(1)) else { continue };
            for (n, f) in (0..from.batch).flat_map(|n| (0..from.channels).map(move |f| (n, f))) {
                let x = x[from.position(n, f, &at)];
                for c in 0..channels {
                    let to = to.position(n, f / per_group * channels + c, &[row, column]);
                    y[to] += x * filter[layout.position(sizes, f, c, &tap)];
                }
            }
        }
        if let Some(bias) = inputs.get(2).map(|bias| bias.to_f64_vec()) {
            for at in indices(&to.spatial) {
                for (n, c) in (0..to.batch).flat_map(|n| (0..to.channels).map(move |c| (n, c))) {
                    y[to.position(n, c, &at)] += bias[c];
                }
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &y)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        let double = ConvTranspose {
            windows: Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]),
            output_padding: vec![1, 1],
            ..ConvTranspose::new()
        };
        check_types(
            double.clone(),
            &[
                (&["f32[n, h, w, 16]", "f32[3, 3, 4, 16]"], "f32[n, 2*h, 2*w, 4]"),
                (&["f32[n, 5, 1, 16]", "f32[3, 3, 4, 16]", "f32[4]"], "f32[n, 10, 2, 4]"),
                (
                    &["f32[n, 5, 1, 4]", "f32[3, 3, 4, 16]"],
                    "conv2d_transpose: channels differ: x f32[n, 5, 1, 4] has 4, filter f32[3, 3, 4, 16] in 1 \
                     groups takes 16",
                ),
            ],
        );
        check_types(
            ConvTranspose { output_padding: vec![2, 0], ..double },
            &[(
                &["f32[n, h, w, 16]", "f32[3, 3, 4, 16]"],
                "conv2d_transpose: output_padding is [2, 0], expected less than the stride or dilation of each axis",
            )],
        );
        let cut = ConvTranspose { windows: Windows::new(2).with_padding(&[1, 2]), ..ConvTranspose::new() };
        check_types(
            cut,
            &[(
                &["f32[n, 2, 1, 1]", "f32[1, 1, 1, 1]"],
                "conv2d_transpose: 1 elements along spatial axis 1 make -3 after cutting off 2 and 2",
            )],
        );
    }

    /// Of `torch.nn.functional.conv_transpose2d`, f64, on `x_i = sin(i)` and `w_i = cos(i)`.
    #[test]
    fn values_of_pytorch() {
        let wave = |shape: [usize; 4], f: fn(f64) -> f64| {
            let count = shape.iter().product::<usize>();
            Tensor::from_slice(shape, &(0..count).map(|i| f(i as f64)).collect::<Vec<_>>())
        };
        let op = ConvTranspose {
            windows: Windows { strides: vec![2, 3], dilations: vec![1, 2], padding: vec![[1, 1], [0, 0]] },
            output_padding: vec![1, 2],
            groups: 2,
            layout: ImageLayout::ChannelsFirst,
            filter_layout: FilterLayout::Fcrs,
        };
        let (x, filter) = (wave([2, 4, 3, 4], f64::sin), wave([4, 3, 3, 2], f64::cos));
        let y = numbers(op, &[&x, &filter]);
        assert_eq!(y.len(), 2 * 6 * 6 * 14);
        let expected =
            [-0.2189657826908456, -1.4427822638429875, 1.3759138715258443, 0.0, -0.011166907525768807];
        assert_close(&[y[0], y[8], y[44], y[169], y[988]], &expected, 1e-12);
    }
}
