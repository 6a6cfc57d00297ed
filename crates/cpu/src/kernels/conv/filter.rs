//! Filters as panels that the product's tile reads from first byte to last.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use engine::PackError;
use graph::ops::FilterLayout;
use tensor::{AlignedBytes, Bytes, Shape, Tensor};

use super::geometry::Geometry;
use crate::kernels::convert::to_f32;

/// Terms of the sums whose panels lie side by side.
const BLOCK_K: usize = 512;

/// Terms of the sums at a time: what of two panels stays in the nearest caches. Divides [`BLOCK_K`].
pub(super) const STEP_K: usize = 256;

/// What Winograd's algorithm makes of the 3 × 3 taps of a filter.
pub(super) const WINOGRAD_TERMS: usize = 16;

/// No tile is wider.
const MAX_WIDTH: usize = 64;

/// Which matrix of the product a filter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Rows are channels of the result; terms are ordered by channel, then tap.
    Left,
    /// Columns are channels of the result; terms are ordered by tap, then channel.
    Right,
    /// As [`Side::Right`], the filter being transformed by Winograd's algorithm: sixteen products in place of nine taps.
    Winograd,
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
    /// f32.
    data: Bytes,
}

impl Side {
    /// Terms of a sum for each channel, if the window has so many taps.
    fn taps(self, window: usize) -> usize {
        if self == Side::Winograd { WINOGRAD_TERMS } else { window }
    }
}

impl PackedFilter {
    /// Packs a filter of any float dtype and three to five axes.
    ///
    /// # Errors
    /// If its channels do not fall into the groups, or there is not enough memory.
    pub fn pack(form: FilterForm, filter: &Tensor) -> Result<PackedFilter, PackError> {
        let mut packed = PackedFilter::empty(form, filter.shape())?;
        let bytes = packed.len().ok_or_else(|| format!("{form} of shape {} is too large", filter.shape()))?;
        let mut data = AlignedBytes::try_zeroed(bytes)?;
        let filter = filter.try_contiguous()?;
        let mut values = AlignedBytes::try_zeroed(filter.elements() * size_of::<f32>())?;
        let values: &mut [f32] = bytemuck::cast_slice_mut(&mut values);
        to_f32(filter.dtype(), filter.bytes(), values);
        match form.side {
            Side::Winograd => {
                let mut transformed = AlignedBytes::try_zeroed(size_of_val(values) / 9 * WINOGRAD_TERMS)?;
                let transformed: &mut [f32] = bytemuck::cast_slice_mut(&mut transformed);
                packed.transform(values, transformed);
                packed.fill(transformed, FilterLayout::Rscf, bytemuck::cast_slice_mut(&mut data));
            }
            Side::Left | Side::Right => packed.fill(values, form.stored, bytemuck::cast_slice_mut(&mut data)),
        }
        packed.data = Bytes::new(data);
        Ok(packed)
    }

    /// The filter of a shape whose panels were saved.
    ///
    /// # Errors
    /// If the bytes are not as many as its panels take, or lie unaligned.
    pub fn from_panels(form: FilterForm, shape: &Shape, data: Bytes) -> Result<PackedFilter, String> {
        let packed = PackedFilter::empty(form, shape)?;
        match Some(data.len()) == packed.len() && bytemuck::try_cast_slice::<u8, f32>(&data).is_ok() {
            true => Ok(PackedFilter { data, ..packed }),
            false => Err(format!("{} bytes are no filter of shape {shape} as {form}", data.len())),
        }
    }

    fn empty(form: FilterForm, shape: &Shape) -> Result<PackedFilter, String> {
        let rank = shape.rank();
        let all = if rank > 2 { shape[form.stored.result_axis(rank)] } else { 0 };
        let sound =
            (1..=MAX_WIDTH).contains(&form.width) && form.groups > 0 && shape.checked_elements().is_some();
        if rank < 3 || !sound || !all.is_multiple_of(form.groups) {
            return Err(format!("a filter of shape {shape} does not pack as {form}"));
        }
        let window = form.stored.spatial(shape).to_vec();
        if form.side == Side::Winograd && window != [3, 3] {
            return Err(format!("a filter of shape {shape} does not pack as {form}"));
        }
        let terms = form.side.taps(window.iter().product()) * shape[form.stored.channel_axis(rank)];
        Ok(PackedFilter { form, window, results: all / form.groups, terms, data: Bytes::new([]) })
    }

    /// Bytes of all panels.
    fn len(&self) -> Option<usize> {
        let lanes = self.results.checked_next_multiple_of(self.form.width)?;
        self.form.groups.checked_mul(self.terms)?.checked_mul(lanes)?.checked_mul(size_of::<f32>())
    }

    /// Writes `G g Gᵀ` for each channel and result of a filter of 3 × 3, [16, channels, results].
    fn transform(&self, values: &[f32], transformed: &mut [f32]) {
        let channels = self.terms / WINOGRAD_TERMS;
        let row = |[a, b, c]: [f64; 3]| [a, (a + b + c) / 2.0, (a - b + c) / 2.0, c];
        for (c, f) in (0..channels).flat_map(|c| (0..self.results).map(move |f| (c, f))) {
            let tap = |tap: usize| {
                f64::from(
                    values[match self.form.stored {
                        FilterLayout::Rscf => (tap * channels + c) * self.results + f,
                        FilterLayout::Fcrs => (f * channels + c) * 9 + tap,
                    }],
                )
            };
            let lines: [[f64; 4]; 3] = std::array::from_fn(|i| row(std::array::from_fn(|j| tap(3 * i + j))));
            for j in 0..4 {
                let column = row(std::array::from_fn(|i| lines[i][j]));
                for (i, value) in column.into_iter().enumerate() {
                    transformed[((4 * i + j) * channels + c) * self.results + f] = value as f32;
                }
            }
        }
    }

    /// Writes the panels of a filter.
    fn fill(&self, values: &[f32], stored: FilterLayout, data: &mut [f32]) {
        let PackedFilter { form, results, terms, .. } = *self;
        let (taps, all) = (form.side.taps(self.window.iter().product()), results * form.groups);
        let (channels, lanes) = (terms / taps.max(1), results.next_multiple_of(form.width));
        let mut panels = data.chunks_exact_mut(form.width);
        for group in 0..form.groups {
            for start in (0..terms).step_by(BLOCK_K) {
                for first in (0..lanes).step_by(form.width) {
                    for term in start..terms.min(start + BLOCK_K) {
                        let (tap, channel) = match form.side {
                            Side::Left => (term % taps, term / taps),
                            Side::Right | Side::Winograd => (term / channels, term % channels),
                        };
                        let lanes = panels.next().expect("a panel for each");
                        for (slot, f) in lanes.iter_mut().zip(first..results) {
                            let f = group * results + f;
                            *slot = values[match stored {
                                FilterLayout::Rscf => (tap * channels + channel) * all + f,
                                FilterLayout::Fcrs => (f * channels + channel) * taps + tap,
                            }];
                        }
                    }
                }
            }
        }
    }

    /// Spatial sizes.
    pub fn window(&self) -> &[usize] {
        &self.window
    }

    /// Which matrix of the product it is.
    pub fn side(&self) -> Side {
        self.form.side
    }

    /// Channels in a panel.
    pub fn width(&self) -> usize {
        self.form.width
    }

    /// The panels.
    pub fn saved(&self) -> &Bytes {
        &self.data
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// A part of the panel that starts with a channel: some terms, of at most one step.
    pub(super) fn panel(&self, group: usize, terms: &Range<usize>, channel: usize) -> &[f32] {
        let FilterForm { width, .. } = self.form;
        let lanes = self.results.next_multiple_of(width);
        let block = terms.start / BLOCK_K * BLOCK_K;
        let block_len = BLOCK_K.min(self.terms - block);
        let start =
            (group * self.terms + block) * lanes + channel * block_len + (terms.start - block) * width;
        let data: &[f32] = bytemuck::cast_slice(&self.data);
        &data[start..][..terms.len() * width]
    }

    /// # Panics
    /// If this is no filter for that side of a product of these sizes.
    pub(super) fn expect(&self, side: Side, width: usize, geometry: &Geometry) {
        let fits = self.form.side == side
            && self.form.width == width
            && self.form.groups == geometry.groups
            && self.results == geometry.results
            && self.terms == side.taps(geometry.taps()) * geometry.channels;
        assert!(fits, "conv: a filter packed as {} for {geometry:?}", self.form);
    }
}

impl fmt::Display for FilterForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Left => "left",
            Side::Right => "right",
            Side::Winograd => "winograd",
        };
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
                "winograd" => Side::Winograd,
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
