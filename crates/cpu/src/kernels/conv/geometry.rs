//! The sizes of a convolution, once they are numbers.

use graph::ops::{self, ImageLayout, Windows};
use tensor::Shape;

/// The sizes of a convolution. Spatial axes are depth, height and width; an image has depth 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Whether images are [spatial.., channels] rather than [channels, spatial..].
    pub channels_last: bool,
    /// How many images.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Channels of the operand in one group.
    pub channels: usize,
    /// Channels of the result in one group.
    pub results: usize,
    /// Spatial sizes of the operand.
    pub from: [usize; 3],
    /// Spatial sizes of the result.
    pub to: [usize; 3],
    /// Spatial sizes of the window.
    pub window: [usize; 3],
    /// From one position of the window to the next.
    pub strides: [usize; 3],
    /// From one element of the window to the next.
    pub dilations: [usize; 3],
    /// Padding before the first element.
    pub before: [usize; 3],
}

impl Geometry {
    /// The sizes of a convolution with an operand and result of these shapes, and a window of these sizes.
    pub fn new(op: &ops::Conv, x: &Shape, window: &[usize], result: &Shape) -> Geometry {
        let rank = x.rank();
        let channel_axis = op.layout.channel_axis(rank);
        let Windows { strides, dilations, padding } = &op.windows;
        let before: Vec<usize> = padding.iter().map(|&[before, _]| before).collect();
        let first = op.layout.first_spatial_axis();
        let spatial = |shape: &Shape| three(&shape[first..][..rank - 2], 1);
        let geometry = Geometry {
            channels_last: op.layout == ImageLayout::ChannelsLast,
            batch: x[0],
            groups: op.groups,
            channels: x[channel_axis] / op.groups,
            results: result[channel_axis] / op.groups,
            from: spatial(x),
            to: spatial(result),
            window: three(window, 1),
            strides: three(strides, 1),
            dilations: three(dilations, 1),
            before: three(&before, 0),
        };
        geometry.flattened()
    }

    /// A window of one element that visits every element needs no rows.
    fn flattened(self) -> Geometry {
        match self.sees_each_once() {
            true => {
                let all = [1, 1, self.positions()];
                Geometry { from: all, to: all, ..self }
            }
            false => self,
        }
    }

    /// Whether the window has one element and visits every element.
    fn sees_each_once(&self) -> bool {
        let plain = self.window == [1; 3] && self.strides == [1; 3] && self.from == self.to;
        plain && self.before == [0; 3]
    }

    /// Whether it is the product of two matrices: the channels of all pixels, which lie last, and the filter.
    pub(super) fn is_product(&self) -> bool {
        self.channels_last && self.sees_each_once()
    }

    /// Whether each channel of the result sees one channel, another for each.
    pub fn is_depthwise(&self) -> bool {
        self.channels == 1 && self.results == 1 && self.groups > 1
    }

    /// Elements of the window.
    pub fn taps(&self) -> usize {
        self.window.iter().product()
    }

    /// Terms of each sum.
    pub fn terms(&self) -> usize {
        self.taps() * self.channels
    }

    /// Positions of the window in an image.
    pub fn positions(&self) -> usize {
        self.to.iter().product()
    }

    /// A position of the window along each axis.
    pub(super) fn index(&self, position: usize) -> [usize; 3] {
        let [_, height, width] = self.to;
        [position / (height * width), position / width % height, position % width]
    }

    /// Moves to the next position of the window.
    pub(super) fn advance(&self, [depth, height, width]: &mut [usize; 3]) {
        *width += 1;
        if *width == self.to[2] {
            (*height, *width) = (*height + 1, 0);
        }
        if *height == self.to[1] {
            (*depth, *height) = (*depth + 1, 0);
        }
    }

    /// Where the first tap of the window at a position falls.
    pub(super) fn corner(&self, index: [usize; 3]) -> [isize; 3] {
        std::array::from_fn(|axis| (index[axis] * self.strides[axis]) as isize - self.before[axis] as isize)
    }

    /// The first pixel of a window that sees no padding.
    pub(super) fn whole_window(&self, corner: [isize; 3]) -> Option<[usize; 3]> {
        let seen = |axis: usize| corner[axis] as usize + (self.window[axis] - 1) * self.dilations[axis];
        let inside = |axis: usize| corner[axis] >= 0 && seen(axis) < self.from[axis];
        (0..3).all(inside).then(|| corner.map(|index| index as usize))
    }

    /// Elements along an axis, padding included, that so many neighbouring positions see.
    pub(super) fn spanned(&self, axis: usize, positions: usize) -> usize {
        (positions - 1) * self.strides[axis] + (self.window[axis] - 1) * self.dilations[axis] + 1
    }

    /// Elements of all images.
    pub fn operand_len(&self) -> usize {
        self.batch * self.groups * self.channels * self.from.iter().product::<usize>()
    }

    /// Elements of the result.
    pub fn result_len(&self) -> usize {
        self.batch * self.groups * self.results * self.positions()
    }

    /// The tap with a number, along each axis.
    pub(super) fn tap(&self, number: usize) -> [usize; 3] {
        let [_, height, width] = self.window;
        [number / (height * width), number / width % height, number % width]
    }
}

/// Two or three numbers, the missing one first.
fn three(values: &[usize], missing: usize) -> [usize; 3] {
    match *values {
        [height, width] => [missing, height, width],
        [depth, height, width] => [depth, height, width],
        _ => unreachable!("convolutions have two or three spatial axes"),
    }
}
