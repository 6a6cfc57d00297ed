//! Copies a part of a matrix, of any strides and type, into panels that the tile reads from first byte to last.
//!
//! A panel is `[k, width]` f32: `width` rows of the left matrix, or columns of the right one, side by side.

use std::ops::Range;

use crate::vec::{Scalar, interleave};

/// Elements transposed at once: a cache line of each of a few lanes.
const STEP: usize = 16;
const GROUP: usize = 4;

/// A part of a matrix seen as lanes: rows of the left matrix, columns of the right one.
#[derive(Clone, Copy)]
pub(super) struct LaneSlice<'a, T> {
    pub(super) data: &'a [T],
    /// The first element of the first lane.
    pub(super) start: usize,
    pub(super) lanes: usize,
    /// Elements of each lane.
    pub(super) k: usize,
    /// From a lane to the next.
    pub(super) lane_stride: usize,
    /// From an element of a lane to the next.
    pub(super) k_stride: usize,
}

impl<T: Scalar> LaneSlice<'_, T> {
    /// Writes panels of `width` lanes, one after the other; lanes missing from the last are 0.
    pub(super) fn pack(&self, width: usize, panels: &mut [f32]) {
        let starts = (0..self.lanes).step_by(width);
        for (start, panel) in starts.zip(panels.chunks_exact_mut(self.k * width)) {
            self.pack_panel(start..self.lanes.min(start + width), width, panel);
        }
    }

    fn pack_panel(&self, lanes: Range<usize>, width: usize, panel: &mut [f32]) {
        if lanes.len() < width {
            panel.fill(0.0);
        }
        if self.lane_stride == 1 {
            for (i, to) in panel.chunks_exact_mut(width).enumerate() {
                let from = self.start + i * self.k_stride;
                T::widen(&self.data[from + lanes.start..from + lanes.end], &mut to[..lanes.len()]);
            }
        } else if self.k_stride == 1 {
            for start in (0..self.k).step_by(STEP) {
                let count = STEP.min(self.k - start);
                for first in lanes.clone().step_by(GROUP) {
                    // The last four take the place of fewer.
                    let first = first.min(lanes.end.saturating_sub(GROUP)).max(lanes.start);
                    let group = first..lanes.end.min(first + GROUP);
                    let to = &mut panel[start * width + first - lanes.start..];
                    self.transpose(group, start..start + count, width, to);
                }
            }
        } else {
            for (i, to) in panel.chunks_exact_mut(width).enumerate() {
                for (to, lane) in to.iter_mut().zip(lanes.clone()) {
                    *to = self.data[self.start + i * self.k_stride + lane * self.lane_stride].to_f32();
                }
            }
        }
    }

    /// Writes up to [`GROUP`] contiguous lanes side by side, up to [`STEP`] elements of each, in rows of `width`.
    #[inline]
    fn transpose(&self, lanes: Range<usize>, ks: Range<usize>, width: usize, to: &mut [f32]) {
        let mut widened = [[0f32; STEP]; GROUP];
        let mut group: [&[f32]; GROUP] = [&[]; GROUP];
        for ((group, widened), index) in group.iter_mut().zip(&mut widened).zip(lanes.clone()) {
            let from = self.start + index * self.lane_stride;
            let lane = &self.data[from + ks.start..from + ks.end];
            *group = T::as_f32(lane).unwrap_or_else(|| {
                T::widen(lane, widened);
                &widened[..lane.len()]
            });
        }
        if lanes.len() == GROUP {
            return interleave(group, to, width);
        }
        for (k, row) in to.chunks_mut(width).enumerate().take(ks.len()) {
            for (to, lane) in row.iter_mut().zip(&group[..lanes.len()]) {
                *to = lane[k];
            }
        }
    }
}
