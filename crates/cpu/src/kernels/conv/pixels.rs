//! The elements under a block of positions of the window, copied into panels that the product's tile reads.
//!
//! Where channels come first, a row of a panel is one tap of one channel at neighbouring positions: runs of rows of
//! the image, which are found once for all channels. Where they lie last, it is gathered from as many pixels, or from rows
//! of the window where all of their elements lie side by side: pixels of few channels are short.

use std::ops::Range;

use super::Geometry;
use crate::kernels::every::join_every;

/// Elements transposed at a time.
const STEP: usize = 16;

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
    /// Runs by panel and tap, where channels come first.
    runs: Vec<Run>,
    /// Where the runs of a panel and tap end.
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

impl<'a> Pixels<'a> {
    /// Positions of an image, seen through a group of channels.
    pub(super) fn new(
        geometry: &'a Geometry,
        x: &'a [f32],
        image: usize,
        group: usize,
        positions: Range<usize>,
        width: usize,
    ) -> Pixels<'a> {
        let plane: usize = geometry.from.iter().product();
        let image_len = plane * geometry.groups * geometry.channels;
        let image = &x[image * image_len..][..image_len];
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

    /// Writes panels of some terms of the sums; lanes missing from the last are 0.
    pub(super) fn pack(&self, terms: Range<usize>, panels: &mut [f32]) {
        let starts = self.positions.clone().step_by(self.width);
        for (panel, (first, to)) in starts.zip(panels.chunks_exact_mut(self.width * terms.len())).enumerate()
        {
            match self.geometry.channels_last {
                true => self.gather_panel(first, terms.clone(), to),
                false => self.copy_panel(panel, terms.clone(), to),
            }
        }
    }

    fn find_runs(&mut self) {
        let geometry = self.geometry;
        let [_, _, across] = geometry.to;
        for first in self.positions.clone().step_by(self.width) {
            let end = self.positions.end.min(first + self.width);
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

    fn copy_panel(&self, panel: usize, terms: Range<usize>, to: &mut [f32]) {
        let (taps, stride) = (self.geometry.taps(), self.geometry.strides[2]);
        let plane: usize = self.geometry.from.iter().product();
        for (term, lanes) in terms.zip(to.chunks_exact_mut(self.width)) {
            let (channel, list) = (term / taps, panel * taps + term % taps);
            let x = &self.x[channel * plane..][..plane];
            let start = if list == 0 { 0 } else { self.ends[list - 1] };
            let runs = &self.runs[start..self.ends[list]];
            if runs.iter().map(|run| run.count).sum::<usize>() < lanes.len() {
                lanes.fill(0.0);
            }
            for run in runs {
                join_every(stride, &mut lanes[run.lane..][..run.count], &x[run.from..], |_, x| x);
            }
        }
    }

    fn gather_panel(&self, first: usize, terms: Range<usize>, to: &mut [f32]) {
        let geometry = self.geometry;
        let lanes = self.width.min(self.positions.end - first);
        if lanes < self.width {
            to.fill(0.0);
        }
        let corners: Vec<[isize; 3]> =
            (first..first + lanes).map(|position| corner(geometry, position)).collect();
        for (group, corners) in corners.chunks(4).enumerate() {
            let whole = corners.iter().all(|corner| self.has_row(*corner));
            let mut term = terms.start;
            while term < terms.end {
                let (tap, channel) = (term / geometry.channels, term % geometry.channels);
                // Terms that lie side by side in the image.
                let taps = if whole { geometry.window[2] - tap % geometry.window[2] } else { 1 };
                let count = (taps * geometry.channels - channel).min(terms.end - term);
                let runs: [Option<&[f32]>; 4] = std::array::from_fn(|lane| {
                    let pixel = self.pixel(*corners.get(lane)?, tap)?;
                    Some(&pixel[self.channel + channel..])
                });
                let rows = &mut to[(term - terms.start) * self.width..][..count * self.width];
                transpose(&runs[..corners.len()], &mut rows[4 * group..], self.width, count);
                term += count;
            }
        }
    }

    /// Whether a row of the window lies in the image side by side, seen from a corner, as far as columns go.
    fn has_row(&self, corner: [isize; 3]) -> bool {
        let geometry = self.geometry;
        let inside = |column: usize| column + geometry.window[2] <= geometry.from[2];
        geometry.groups == 1 && geometry.dilations[2] == 1 && usize::try_from(corner[2]).is_ok_and(inside)
    }

    /// The image from the pixel under a tap of a window on; `None` in the padding.
    fn pixel(&self, corner: [isize; 3], tap: usize) -> Option<&'a [f32]> {
        let (geometry, taps) = (self.geometry, self.geometry.tap(tap));
        let mut at = 0;
        for axis in 0..3 {
            let index = corner[axis] + (taps[axis] * geometry.dilations[axis]) as isize;
            at = at * geometry.from[axis]
                + usize::try_from(index).ok().filter(|&i| i < geometry.from[axis])?;
        }
        Some(&self.x[at * geometry.groups * geometry.channels..])
    }
}

/// Where the first tap of the window at a position falls.
fn corner(geometry: &Geometry, position: usize) -> [isize; 3] {
    let [_, down, across] = geometry.to;
    let index = [position / (down * across), position / across % down, position % across];
    std::array::from_fn(|axis| {
        (index[axis] * geometry.strides[axis]) as isize - geometry.before[axis] as isize
    })
}

/// The elements that a tap sees from neighbouring positions of one row, those in the image; lanes are counted from
/// the first position.
fn run(geometry: &Geometry, tap: usize, position: usize, count: usize) -> Option<Run> {
    let taps = geometry.tap(tap);
    let corner = corner(geometry, position);
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

/// Writes the first elements of up to four runs side by side into rows of `width`.
#[inline]
fn transpose(runs: &[Option<&[f32]>], to: &mut [f32], width: usize, count: usize) {
    match *runs {
        [a] => transpose_runs([a], to, width, count),
        [a, b] => transpose_runs([a, b], to, width, count),
        [a, b, c] => transpose_runs([a, b, c], to, width, count),
        [a, b, c, d] => transpose_runs([a, b, c, d], to, width, count),
        _ => unreachable!("one to four runs"),
    }
}

#[inline]
fn transpose_runs<const N: usize>(runs: [Option<&[f32]>; N], to: &mut [f32], width: usize, count: usize) {
    for start in (0..count).step_by(STEP) {
        let to = &mut to[start * width..];
        let take = STEP.min(count - start);
        if runs.iter().flatten().any(|run| run.len() < start + STEP) {
            for (lane, run) in runs.iter().enumerate() {
                (0..take).for_each(|i| to[i * width + lane] = run.map_or(0.0, |run| run[start + i]));
            }
            continue;
        }
        let lanes =
            runs.map(|run| run.map_or(&[0.0; STEP], |run| run[start..].first_chunk().expect("so long")));
        let write = |i: usize| to[i * width..][..N].copy_from_slice(&lanes.map(|lane| lane[i]));
        match take {
            // As many as the compiler knows.
            STEP => (0..STEP).for_each(write),
            _ => (0..take).for_each(write),
        }
    }
}
