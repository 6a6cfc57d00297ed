//! The operands of convolutions.

use super::filter::PackedFilter;
use super::geometry::Geometry;

/// The operands of a convolution.
pub struct Conv<'a> {
    /// The sizes.
    pub geometry: &'a Geometry,
    /// The images.
    pub x: &'a [f32],
    /// The filter, packed for the side that the layout of the images asks for.
    pub filter: &'a PackedFilter,
    /// One number for each channel of the result.
    pub bias: Option<&'a [f32]>,
}

/// The operands of a convolution of single channels.
pub struct Depthwise<'a> {
    /// The sizes.
    pub geometry: &'a Geometry,
    /// The images.
    pub x: &'a [f32],
    /// [taps, channels] where channels lie last, [channels, taps] where they come first.
    pub filter: &'a [f32],
    /// One number for each channel.
    pub bias: Option<&'a [f32]>,
}
