//! The operands of convolutions.

use graph::ops::Unary;

use super::filter::PackedFilter;
use super::geometry::Geometry;
use crate::kernels::unary::MapF32;
use crate::variant::Variant;

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
    /// The function that each sum passes through.
    pub activation: Option<Activation>,
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
    /// The function that each sum passes through.
    pub activation: Option<Activation>,
}

/// The lower bound of results: 0 for `relu`, which costs almost nothing there, else minus infinity.
pub(super) fn least(activation: Option<Activation>) -> f32 {
    if activation.is_some_and(|activation| activation.function == Unary::Relu) {
        0.0
    } else {
        f32::NEG_INFINITY
    }
}

/// Applies an activation that [`least`] is not already.
pub(super) fn activate(activation: Option<Activation>, results: &mut [f32]) {
    if let Some(activation) = activation.filter(|activation| activation.function != Unary::Relu) {
        activation.apply(results);
    }
}

/// A function of the results, which are still in the nearest cache.
#[derive(Debug, Clone, Copy)]
pub struct Activation {
    /// The function.
    pub function: Unary,
    /// How it is computed.
    pub variant: &'static Variant<MapF32>,
}

impl Activation {
    /// Applies it to some results.
    fn apply(&self, results: &mut [f32]) {
        const PART: usize = 256;
        assert!((self.variant.available)(), "conv: this machine cannot run {}", self.variant.name);
        let mut stage = [0f32; PART];
        for results in results.chunks_mut(PART) {
            let stage = &mut stage[..results.len()];
            stage.copy_from_slice(results);
            // SAFETY: the variant is available.
            unsafe { (self.variant.run)(self.function, stage, results) };
        }
    }
}
