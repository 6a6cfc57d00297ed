//! Windows that slide over the spatial axes of images: what convolutions, pooling and `fold` share.

use tensor::Shape;

use super::attributes::Attributes;
use super::field::{Field, words};
use crate::{Dim, Type, TypeError};

/// Sizes, strides, dilations and paddings up to this keep every expression within 63 bits.
const MAX_EXTENT: usize = 1 << 30;

/// Where the channels of a batch of images lie. Spatial axes are depth (if any), height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ImageLayout {
    /// [batch, spatial.., channels]: NHWC, NDHWC.
    #[default]
    ChannelsLast,
    /// [batch, channels, spatial..]: NCHW, NCDHW.
    ChannelsFirst,
}

/// How a window slides, with one entry for each spatial axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Windows {
    /// From one position of the window to the next, at least 1.
    pub strides: Vec<usize>,
    /// From one element of the window to the next, at least 1.
    pub dilations: Vec<usize>,
    /// Elements added before the first and after the last.
    pub padding: Vec<[usize; 2]>,
}

impl ImageLayout {
    /// The axis of the channels in a tensor of `rank` axes.
    pub fn channel_axis(self, rank: usize) -> usize {
        match self {
            ImageLayout::ChannelsLast => rank - 1,
            ImageLayout::ChannelsFirst => 1,
        }
    }

    /// The first of the spatial axes, which lie side by side.
    pub fn first_spatial_axis(self) -> usize {
        match self {
            ImageLayout::ChannelsLast => 1,
            ImageLayout::ChannelsFirst => 2,
        }
    }

    /// The shape of images.
    pub(super) fn shape(self, batch: Dim, channels: Dim, spatial: Vec<Dim>) -> Vec<Dim> {
        match self {
            ImageLayout::ChannelsLast => [vec![batch], spatial, vec![channels]].concat(),
            ImageLayout::ChannelsFirst => [vec![batch, channels], spatial].concat(),
        }
    }
}

words!(ImageLayout: ChannelsLast = "nhwc", ChannelsFirst = "nchw");

impl Windows {
    /// Windows over `axes` spatial axes that move by one element, without holes or padding.
    pub fn new(axes: usize) -> Windows {
        Windows { strides: vec![1; axes], dilations: vec![1; axes], padding: vec![[0, 0]; axes] }
    }

    /// The same with other strides.
    pub fn with_strides(self, strides: impl Into<Vec<usize>>) -> Windows {
        Windows { strides: strides.into(), ..self }
    }

    /// The same with other dilations.
    pub fn with_dilations(self, dilations: impl Into<Vec<usize>>) -> Windows {
        Windows { dilations: dilations.into(), ..self }
    }

    /// The same with as much padding before as after.
    pub fn with_padding(self, padding: &[usize]) -> Windows {
        Windows { padding: padding.iter().map(|&size| [size, size]).collect(), ..self }
    }

    /// How many elements a window of `size` elements spans along an axis.
    pub fn reach(&self, axis: usize, size: usize) -> usize {
        self.dilations[axis] * size.saturating_sub(1) + usize::from(size > 0)
    }

    /// Where element `tap` of the window at `position` falls along an axis of `size` elements; `None` in the
    /// padding.
    pub fn element(&self, axis: usize, position: usize, tap: usize, size: usize) -> Option<usize> {
        let padded = position * self.strides[axis] + tap * self.dilations[axis];
        padded.checked_sub(self.padding[axis][0]).filter(|&element| element < size)
    }

    /// Refuses numbers that are not one for each of `axes`, or make no sense.
    pub(super) fn expect_axes(&self, axes: usize) -> Result<(), TypeError> {
        expect_extents("strides", &self.strides, axes, 1)?;
        expect_extents("dilations", &self.dilations, axes, 1)?;
        expect_extents("padding", self.padding.as_flattened(), 2 * axes, 0)
    }

    /// How many positions a window of `size` elements has along an axis; of those that reach beyond the end,
    /// `round_up` counts one that starts before it.
    pub(super) fn positions(
        &self,
        axis: usize,
        length: &Dim,
        size: usize,
        round_up: bool,
    ) -> Result<Dim, TypeError> {
        let ([before, after], stride) = (self.padding[axis], self.strides[axis]);
        let reach = self.reach(axis, size);
        refuse_if!(size == 0, "the window has no elements along spatial axis {axis}");
        refuse_if!(
            length.as_static().is_some_and(|length| length + before + after < reach),
            "a window of {size} elements spans {reach} along spatial axis {axis}, which has {length} and \
                 {} of padding",
            before + after
        );
        // The last window starts at most `spare` after the last element but for the padding before it.
        let mut spare = after as i64 - reach as i64;
        if round_up {
            spare = (spare + stride as i64 - 1).min(-1).max(spare);
        }
        let numerator = length + &Dim::integer(before as i64 + spare + stride as i64);
        Ok(numerator.floor_div(&Dim::from(stride)))
    }
}

/// Refuses numbers that are not `count`, or too small or large.
pub(super) fn expect_extents(
    name: &str,
    values: &[usize],
    count: usize,
    least: usize,
) -> Result<(), TypeError> {
    refuse_if!(values.len() != count, "{name} is {values:?}, expected {count} numbers");
    refuse_if!(
        !values.iter().all(|value| (least..=MAX_EXTENT).contains(value)),
        "{name} is {values:?}, expected numbers from {least} to {MAX_EXTENT}"
    );
    Ok(())
}

/// The sizes of an operand that must be numbers: a filter's.
pub(super) fn expect_static(name: &str, ty: &Type) -> Result<Vec<usize>, TypeError> {
    let sizes: Option<Vec<usize>> = ty.shape.iter().map(Dim::as_static).collect();
    let sizes = sizes.filter(|sizes| sizes.iter().all(|&size| size <= MAX_EXTENT));
    sizes.ok_or_else(|| type_error!("{name} is {ty}, expected sizes that are numbers"))
}

/// `strides`, `dilations` and `padding`, each left out where it changes nothing.
impl Field for Windows {
    fn write(&self, _name: &str, attributes: Attributes) -> Attributes {
        let axes = self.strides.len();
        attributes
            .with_unless("strides", &self.strides, vec![1; axes])
            .with_unless("dilations", &self.dilations, vec![1; axes])
            .with_unless("padding", &self.padding.as_flattened().to_vec(), vec![0; 2 * axes])
    }

    fn read(op: &str, _name: &str, attributes: &mut Attributes) -> Result<Windows, TypeError> {
        let axes = if op == "conv3d" { 3 } else { 2 };
        let padding = attributes.or("padding", vec![0; 2 * axes])?;
        refuse_if!(
            padding.len() != 2 * axes,
            "padding is {padding:?}, expected a number before and one after each of {axes} axes"
        );
        Ok(Windows {
            strides: attributes.or("strides", vec![1; axes])?,
            dilations: attributes.or("dilations", vec![1; axes])?,
            padding: padding.as_chunks().0.to_vec(),
        })
    }
}

/// Every index below some sizes, in row-major order.
pub(super) fn indices(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let count = sizes.iter().product();
    (0..count).map(move |position: usize| {
        let mut rest = position;
        let mut index = vec![0; sizes.len()];
        for (slot, &size) in index.iter_mut().zip(sizes).rev() {
            *slot = rest % size;
            rest /= size;
        }
        index
    })
}

/// A row-major array of images, addressed by what its axes mean.
#[derive(Debug, Clone)]
pub(super) struct Images {
    layout: ImageLayout,
    strides: Vec<usize>,
    /// How many images.
    pub(super) batch: usize,
    /// Channels of each.
    pub(super) channels: usize,
    /// Sizes of the spatial axes.
    pub(super) spatial: Vec<usize>,
}

impl Images {
    pub(super) fn new(layout: ImageLayout, shape: &Shape) -> Images {
        let first = layout.first_spatial_axis();
        Images {
            layout,
            strides: shape.row_major_strides()[..shape.rank()]
                .iter()
                .map(|&stride| stride as usize)
                .collect(),
            batch: shape[0],
            channels: shape[layout.channel_axis(shape.rank())],
            spatial: shape[first..first + shape.rank() - 2].to_vec(),
        }
    }

    /// The position of an element.
    pub(super) fn position(&self, image: usize, channel: usize, at: &[usize]) -> usize {
        let spatial = &self.strides[self.layout.first_spatial_axis()..];
        let channel_stride = self.strides[self.layout.channel_axis(self.strides.len())];
        let offset: usize = at.iter().zip(spatial).map(|(index, stride)| index * stride).sum();
        image * self.strides[0] + channel * channel_stride + offset
    }
}

/// The elements of the window at `position` that are not padding: index within the window and in the image.
pub(super) fn taps<'a>(
    windows: &'a Windows,
    size: &'a [usize],
    position: &'a [usize],
    spatial: &'a [usize],
) -> impl Iterator<Item = (Vec<usize>, Vec<usize>)> + 'a {
    indices(size).filter_map(move |tap| {
        let element = |axis: usize| windows.element(axis, position[axis], tap[axis], spatial[axis]);
        let at: Option<Vec<usize>> = (0..size.len()).map(element).collect();
        Some((tap, at?))
    })
}
