//! Filters as panels that the product's tile reads from first byte to last.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use graph::ops::FilterLayout;
use tensor::Tensor;

use super::{BLOCK_K, Geometry};

/// Which matrix of the product a filter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Rows are channels of the result; terms are ordered by channel, then tap.
    Left,
    /// Columns are channels of the result; terms are ordered by tap, then channel.
    Right,
}

/// How a filter is packed; prints and parses as the name of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterForm {
    /// Which matrix.
    pub side: Side,
    /// Channels in a panel.
    pub width: usize,
    /// How the filter lies in the weights.
    pub stored: FilterLayout,
    /// Groups of channels.
    pub groups: usize,
}

/// A filter in panels: for each group, for each block of terms, panels `[terms, width]`; channels missing from the last
/// are 0.
#[derive(Debug, Clone)]
pub struct PackedFilter {
    form: FilterForm,
    /// Spatial sizes.
    window: Vec<usize>,
    /// Channels of the result of one group.
    results: usize,
    terms: usize,
    data: Vec<f32>,
}

impl PackedFilter {
    /// Packs a filter of any float dtype and three to five axes.
    ///
    /// # Errors
    /// If its channels do not fall into the groups.
    pub fn pack(form: FilterForm, filter: &Tensor) -> Result<PackedFilter, String> {
        let (shape, rank) = (filter.shape(), filter.shape().rank());
        let all = if rank > 2 { shape[form.stored.result_axis(rank)] } else { 0 };
        if rank < 3 || form.groups == 0 || !all.is_multiple_of(form.groups) || form.width == 0 {
            return Err(format!("{}{shape} does not pack as {form}", filter.dtype()));
        }
        let (channels, results) = (shape[form.stored.channel_axis(rank)], all / form.groups);
        let window = form.stored.spatial(shape).to_vec();
        let taps: usize = window.iter().product();
        let (terms, lanes) = (taps * channels, results.next_multiple_of(form.width));
        let values = filter.to_f32_vec();
        let mut data = vec![0f32; form.groups * terms * lanes];
        let mut panels = data.chunks_exact_mut(form.width);
        for group in 0..form.groups {
            for start in (0..terms).step_by(BLOCK_K) {
                for first in (0..lanes).step_by(form.width) {
                    for term in start..terms.min(start + BLOCK_K) {
                        let (tap, channel) = match form.side {
                            Side::Left => (term % taps, term / taps),
                            Side::Right => (term / channels, term % channels),
                        };
                        let lanes = panels.next().expect("a panel for each");
                        for (slot, f) in lanes.iter_mut().zip(first..results) {
                            let f = group * results + f;
                            *slot = values[match form.stored {
                                FilterLayout::Rscf => (tap * channels + channel) * all + f,
                                FilterLayout::Fcrs => (f * channels + channel) * taps + tap,
                            }];
                        }
                    }
                }
            }
        }
        Ok(PackedFilter { form, window, results, terms, data })
    }

    /// Spatial sizes.
    pub fn window(&self) -> &[usize] {
        &self.window
    }

    /// Channels in a panel.
    pub fn width(&self) -> usize {
        self.form.width
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.data[..])
    }

    /// The panels of some channels, whole ones but for the end, of a block of terms.
    pub(super) fn panels(&self, group: usize, terms: &Range<usize>, channels: &Range<usize>) -> &[f32] {
        let lanes = self.results.next_multiple_of(self.form.width);
        let start = (group * self.terms + terms.start) * lanes + channels.start * terms.len();
        &self.data[start..][..channels.len().next_multiple_of(self.form.width) * terms.len()]
    }

    /// # Panics
    /// If this is no filter for that side of a product of these sizes.
    pub(super) fn expect(&self, side: Side, width: usize, geometry: &Geometry) {
        let fits = self.form.side == side
            && self.form.width == width
            && self.form.groups == geometry.groups
            && self.results == geometry.results
            && self.terms == geometry.terms();
        assert!(fits, "conv: a filter packed as {} for {geometry:?}", self.form);
    }
}

impl fmt::Display for FilterForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.side == Side::Left { "left" } else { "right" };
        let stored = if self.stored == FilterLayout::Fcrs { "fcrs" } else { "rscf" };
        write!(f, "filter.{side}.{}.{stored}.{}", self.width, self.groups)
    }
}

impl FromStr for FilterForm {
    type Err = String;

    fn from_str(text: &str) -> Result<FilterForm, String> {
        let unknown = || format!("{text} is no layout of filters");
        let ["filter", side, width, stored, groups] = *text.split('.').collect::<Vec<_>>() else {
            return Err(unknown());
        };
        Ok(FilterForm {
            side: match side {
                "left" => Side::Left,
                "right" => Side::Right,
                _ => return Err(unknown()),
            },
            width: width.parse().map_err(|_| unknown())?,
            stored: match stored {
                "fcrs" => FilterLayout::Fcrs,
                "rscf" => FilterLayout::Rscf,
                _ => return Err(unknown()),
            },
            groups: groups.parse().map_err(|_| unknown())?,
        })
    }
}
