//! Copies a part of a matrix, of any strides and type, into panels that the tile reads from first byte to last.
//!
//! A panel is `[k, width]` f32: `width` rows of the left matrix, or columns of the right one, side by side.

use crate::vec::Scalar;

/// A part of a matrix seen as lanes: rows of the left matrix, columns of the right one.
#[derive(Clone, Copy)]
pub(super) struct Lanes<'a, T> {
    /// From the first element on.
    pub(super) data: &'a [T],
    pub(super) lanes: usize,
    /// Elements of each lane.
    pub(super) k: usize,
    /// From a lane to the next.
    pub(super) lane_stride: usize,
    /// From an element of a lane to the next.
    pub(super) k_stride: usize,
}

impl<T: Scalar> Lanes<'_, T> {
    /// Writes panels of `width` lanes, one after the other; lanes missing from the last are 0.
    pub(super) fn pack(&self, width: usize, panels: &mut [f32]) {
        let starts = (0..self.lanes).step_by(width);
        for (start, panel) in starts.zip(panels.chunks_exact_mut(self.k * width)) {
            self.pack_panel(start..self.lanes.min(start + width), width, panel);
        }
    }

    fn pack_panel(&self, lanes: std::ops::Range<usize>, width: usize, panel: &mut [f32]) {
        if lanes.len() < width {
            panel.fill(0.0);
        }
        if self.lane_stride == 1 {
            for (i, to) in panel.chunks_exact_mut(width).enumerate() {
                let from = i * self.k_stride;
                T::widen(&self.data[from + lanes.start..from + lanes.end], &mut to[..lanes.len()]);
            }
        } else if self.k_stride == 1 {
            // In steps of a cache line of each lane, so that the panel's lines are still near when the next lane comes.
            const STEP: usize = 16;
            let mut widened = [0f32; STEP];
            for start in (0..self.k).step_by(STEP) {
                let count = STEP.min(self.k - start);
                for (column, lane) in lanes.clone().enumerate() {
                    T::widen(&self.data[lane * self.lane_stride + start..][..count], &mut widened);
                    let to = panel[start * width + column..].iter_mut().step_by(width);
                    for (to, from) in to.zip(&widened[..count]) {
                        *to = *from;
                    }
                }
            }
        } else {
            for (i, to) in panel.chunks_exact_mut(width).enumerate() {
                for (to, lane) in to.iter_mut().zip(lanes.clone()) {
                    *to = self.data[i * self.k_stride + lane * self.lane_stride].to_f32();
                }
            }
        }
    }
}
