//! The elements under a block of positions of the window, copied for the product's tile.
//!
//! Where channels come first, a row of a panel is one tap of one channel at neighbouring positions: runs of rows of
//! the image, which are found once for all channels and joined to whole vectors. Where they lie last, each position has a
//! row of terms: runs of channels, or rows of the window if all of their elements lie side by side.

use std::ops::Range;

use super::Geometry;
use crate::kernels::every::{even_lanes, join_every};
use crate::kernels::matmul::ROW;
use crate::variant::variants;
use crate::vec::{LANES, Simd};

/// Writes some terms of the sums, a step's, to panels or rows.
pub(super) type Pack = unsafe fn(&Pixels<'_>, Range<usize>, &mut [f32]);

variants! {
    pub(super) static PACK = pack, (pixels: &Pixels<'_>, terms: Range<usize>, to: &mut [f32])
}

#[inline(always)]
fn pack<S: Simd>(s: S, pixels: &Pixels<'_>, terms: Range<usize>, to: &mut [f32]) {
    if pixels.geometry.channels_last {
        pixels.copy_rows(s, terms, to);
    } else {
        pixels.copy_panels(s, terms, to);
    }
}

/// Some positions of one group of channels of one image.
pub(super) struct Pixels<'a> {
    geometry: &'a Geometry,
    /// The image, or the channels of the group where they come first.
    x: &'a [f32],
    /// First channel of the group where channels lie last.
    channel: usize,
    positions: Range<usize>,
    /// Of a panel.
    width: usize,
    /// Runs by vector and tap, where channels come first.
    runs: Vec<Run>,
    /// Where the runs of a vector and tap end.
    ends: Vec<usize>,
}

/// Elements of a row of the image that go to neighbouring lanes.
#[derive(Clone, Copy)]
struct Run {
    lane: usize,
    count: usize,
    /// Of the first, in its channel.
    from: usize,
}

/// Terms that lie side by side in the image.
struct TermRun {
    /// The first, in its row.
    to: usize,
    count: usize,
    /// Of the first, from the first pixel of the window on.
    from: usize,
    /// Of its pixel from the first of the window, along each axis.
    offset: [usize; 3],
    /// Of the first, in its pixel.
    channel: usize,
}

impl<'a> Pixels<'a> {
    /// Positions of an image, seen through a group of channels.
    pub(super) fn new(
        geometry: &'a Geometry,
        image: &'a [f32],
        group: usize,
        positions: Range<usize>,
        width: usize,
    ) -> Pixels<'a> {
        let plane: usize = geometry.from.iter().product();
        let channel = group * geometry.channels;
        let (x, channel) = match geometry.channels_last {
            true => (image, channel),
            false => (&image[channel * plane..][..geometry.channels * plane], 0),
        };
        let (runs, ends) = (Vec::new(), Vec::new());
        let mut pixels = Pixels { geometry, x, channel, positions, width, runs, ends };
        if !geometry.channels_last {
            pixels.find_runs();
        }
        pixels
    }

    /// Where channels come first: the runs of each vector of each panel, by tap.
    fn find_runs(&mut self) {
        let geometry = self.geometry;
        let [_, _, across] = geometry.to;
        let padded = self.positions.start + self.positions.len().next_multiple_of(self.width);
        for first in (self.positions.start..padded).step_by(LANES) {
            let end = self.positions.end.min(first + LANES);
            for tap in 0..geometry.taps() {
                let mut position = first;
                while position < end {
                    let count = (across - position % across).min(end - position);
                    self.runs.extend(
                        run(geometry, tap, position, count)
                            .map(|run| Run { lane: run.lane + position - first, ..run }),
                    );
                    position += count;
                }
                self.ends.push(self.runs.len());
            }
        }
    }

    /// The runs of a vector seen by a tap.
    fn runs(&self, vector: usize, tap: usize) -> &[Run] {
        let list = vector * self.geometry.taps() + tap;
        let start = if list == 0 { 0 } else { self.ends[list - 1] };
        &self.runs[start..self.ends[list]]
    }

    /// Writes panels `[terms, width]`; lanes missing from the last are 0.
    #[inline(always)]
    fn copy_panels<S: Simd>(&self, s: S, terms: Range<usize>, panels: &mut [f32]) {
        let (taps, vectors) = (self.geometry.taps(), self.width / LANES);
        let plane: usize = self.geometry.from.iter().product();
        let count = self.positions.len().div_ceil(self.width) * vectors;
        let mut lanes = [0f32; LANES];
        (0..LANES).for_each(|lane| lanes[lane] = lane as f32);
        // SAFETY: the array has sixteen values.
        let lanes = unsafe { s.load(lanes.as_ptr()) };
        for vector in 0..count {
            let panel = &mut panels[vector / vectors * self.width * terms.len()..];
            for tap in 0..taps {
                let runs = self.runs(vector, tap);
                let first = terms.start.saturating_sub(tap).div_ceil(taps);
                let mut to = (first * taps + tap - terms.start) * self.width + vector % vectors * LANES;
                let mut from = first * plane;
                while to < terms.len() * self.width {
                    let to_lanes = &mut panel[to..][..LANES];
                    match runs {
                        [run] if self.is_every_second(run, from) => {
                            // SAFETY: as many as sliced, and as asked for.
                            unsafe {
                                let x = self.x.as_ptr().add(from + run.from);
                                let x = even_lanes(s, s.load(x), s.load(x.add(LANES)));
                                s.store(to_lanes.as_mut_ptr(), x);
                            }
                        }
                        _ if self.geometry.strides[2] > 1 => {
                            to_lanes.fill(0.0);
                            for run in runs {
                                let (to, x) =
                                    (&mut to_lanes[run.lane..][..run.count], &self.x[from + run.from..]);
                                join_every(
                                    self.geometry.strides[2],
                                    to,
                                    x,
                                    #[inline(always)]
                                    |_, x| x,
                                );
                            }
                        }
                        [run] if run.count == LANES => {
                            to_lanes.copy_from_slice(&self.x[from + run.from..][..LANES]);
                        }
                        _ => {
                            let joined = self.join(s, lanes, runs, from);
                            // SAFETY: as many as sliced.
                            unsafe { s.store(to_lanes.as_mut_ptr(), joined) };
                        }
                    }
                    to += taps * self.width;
                    from += plane;
                }
            }
        }
    }

    /// Whether a run of a channel that starts at an element is every second one of two vectors.
    #[inline(always)]
    fn is_every_second(&self, run: &Run, from: usize) -> bool {
        self.geometry.strides[2] == 2 && run.count == LANES && from + run.from + 2 * LANES <= self.x.len()
    }

    /// A vector of some runs of a channel that starts at an element, and zeros elsewhere.
    #[inline(always)]
    fn join<S: Simd>(&self, s: S, lanes: S::F32, runs: &[Run], from: usize) -> S::F32 {
        let mut joined = s.splat(0.0);
        for run in runs {
            let from = from + run.from;
            // Whole vectors, if they are in the image, whose other lanes are left out.
            let whole = from.checked_sub(run.lane).and_then(|start| self.x.get(start..start + LANES));
            let mut stage = [0f32; LANES];
            let source = match whole {
                Some(whole) => whole,
                None => {
                    stage[run.lane..][..run.count].copy_from_slice(&self.x[from..][..run.count]);
                    &stage
                }
            };
            let before = s.less(lanes, s.splat(run.lane as f32));
            let inside = s.less(lanes, s.splat((run.lane + run.count) as f32));
            // SAFETY: the slice has sixteen values.
            let x = unsafe { s.load(source.as_ptr()) };
            joined = s.select(before, joined, s.select(inside, x, joined));
        }
        joined
    }

    /// Writes a row of terms for each position, [`ROW`] apart.
    #[inline(always)]
    fn copy_rows<S: Simd>(&self, s: S, terms: Range<usize>, rows: &mut [f32]) {
        let geometry = self.geometry;
        let [_, height, width] = geometry.from;
        let joined = geometry.groups == 1 && geometry.dilations[2] == 1;
        let (runs, taps) = (self.runs_of_terms(&terms, joined), self.runs_of_terms(&terms, false));
        let mut index = geometry.index(self.positions.start);
        for row in rows.chunks_exact_mut(ROW).take(self.positions.len()) {
            let corner = geometry.corner(index);
            if let Some([plane, line, column]) = geometry.whole_window(corner) {
                let pixel = (plane * height + line) * width + column;
                let x = &self.x[pixel * geometry.groups * geometry.channels..];
                for run in &runs {
                    copy_run(s, &x[run.from..], &mut row[run.to..], run.count);
                }
            } else {
                self.copy_padded_row(s, corner, &taps, row);
            }
            geometry.advance(&mut index);
        }
    }

    /// The runs of a step's terms that lie side by side in windows without padding: each tap, or each row of taps.
    fn runs_of_terms(&self, terms: &Range<usize>, joined: bool) -> Vec<TermRun> {
        let geometry = self.geometry;
        let [_, height, width] = geometry.from;
        let mut runs = Vec::new();
        let mut term = terms.start;
        while term < terms.end {
            let (tap, channel) = (term / geometry.channels, term % geometry.channels);
            let taps = if joined { geometry.window[2] - tap % geometry.window[2] } else { 1 };
            let count = (taps * geometry.channels - channel).min(terms.end - term);
            let tap = geometry.tap(tap);
            let offset: [usize; 3] = std::array::from_fn(|axis| tap[axis] * geometry.dilations[axis]);
            let pixel = (offset[0] * height + offset[1]) * width + offset[2];
            let channel = self.channel + channel;
            let from = pixel * geometry.groups * geometry.channels + channel;
            runs.push(TermRun { to: term - terms.start, count, from, offset, channel });
            term += count;
        }
        runs
    }

    /// Writes the terms of a window that sees padding, tap by tap.
    #[inline(always)]
    fn copy_padded_row<S: Simd>(&self, s: S, corner: [isize; 3], taps: &[TermRun], row: &mut [f32]) {
        for tap in taps {
            let to = &mut row[tap.to..];
            match self.pixel(corner, tap.offset) {
                Some(pixel) => copy_run(s, &pixel[tap.channel..], to, tap.count),
                None => to[..tap.count].fill(0.0),
            }
        }
    }

    /// The image from the pixel at an offset from a corner on; `None` in the padding.
    fn pixel(&self, corner: [isize; 3], offset: [usize; 3]) -> Option<&'a [f32]> {
        let geometry = self.geometry;
        let mut at = 0;
        for axis in 0..3 {
            let index = corner[axis] + offset[axis] as isize;
            at = at * geometry.from[axis]
                + usize::try_from(index).ok().filter(|&i| i < geometry.from[axis])?;
        }
        Some(&self.x[at * geometry.groups * geometry.channels..])
    }
}

/// The elements that a tap sees from neighbouring positions of one row, those in the image; lanes are counted from
/// the first position.
fn run(geometry: &Geometry, tap: usize, position: usize, count: usize) -> Option<Run> {
    let taps = geometry.tap(tap);
    let corner = geometry.corner(geometry.index(position));
    let at = |axis: usize| corner[axis] + (taps[axis] * geometry.dilations[axis]) as isize;
    let inside = |axis: usize| usize::try_from(at(axis)).ok().filter(|&index| index < geometry.from[axis]);
    let (plane, row) = (inside(0)?, inside(1)?);
    let (first, stride) = (at(2), geometry.strides[2]);
    let lane = if first < 0 { first.unsigned_abs().div_ceil(stride) } else { 0 };
    let column = usize::try_from(first + (lane * stride) as isize).expect("moved into the image");
    let room = geometry.from[2].checked_sub(column)?.div_ceil(stride);
    let count = count.checked_sub(lane)?.min(room);
    let from = (plane * geometry.from[1] + row) * geometry.from[2] + column;
    (count > 0).then_some(Run { lane, count, from })
}

/// Copies some elements, in whole vectors if there are so many: the row goes on, or has room for one more.
#[inline(always)]
fn copy_run<S: Simd>(s: S, from: &[f32], to: &mut [f32], count: usize) {
    let (Some(from), Some(to)) =
        (from.get(..count.next_multiple_of(LANES)), to.get_mut(..count.next_multiple_of(LANES)))
    else {
        return to[..count].copy_from_slice(&from[..count]);
    };
    for start in (0..count).step_by(LANES) {
        // SAFETY: both have whole vectors.
        unsafe { s.store(to.as_mut_ptr().add(start), s.load(from.as_ptr().add(start))) };
    }
}
