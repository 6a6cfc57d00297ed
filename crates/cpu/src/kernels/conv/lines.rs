//! Lines of an image whose channels lie last, copied with their padding.
//!
//! Positions of a row then see elements that lie equally far apart, and each row of a window is one run of them, so
//! the product reads all windows from one copy of the lines.

use std::ops::Range;

use super::Geometry;
use super::filter::STEP_K;
use crate::kernels::matmul::LeftRows;

/// The least width and height of a result. Tiles of the product end with each of its rows, which costs too much if rows are
/// short, and few rows share few lines.
const LEAST: usize = 28;

/// Elements of a line that stay in the L1 cache, as those of a window's other rows do.
const MOST: usize = 4096;

/// How lines are copied.
pub(super) struct Lines {
    /// Elements of a line with its padding.
    len: usize,
}

impl Lines {
    /// Lines for windows with few elements, of which a copy for each position would cost more than its product; `None` for
    /// others.
    pub(super) fn new(geometry: &Geometry) -> Option<Lines> {
        let Geometry { channels, from, to, window, strides, dilations, .. } = *geometry;
        let plain = geometry.channels_last && geometry.groups == 1 && strides[2] <= window[2];
        let flat = [from[0], to[0], window[0], dilations[2]] == [1; 4] && geometry.before[0] == 0;
        if !plain || !flat || to[1] < LEAST || to[2] < LEAST {
            return None;
        }
        let len = geometry.spanned(2, to[2]) * channels;
        ((1..=MOST).contains(&len) && geometry.terms() <= STEP_K).then_some(Lines { len })
    }

    /// How the product reads the windows of a row.
    pub(super) fn rows(&self, geometry: &Geometry) -> LeftRows {
        let Geometry { channels, window, strides, dilations, .. } = *geometry;
        LeftRows { apart: strides[2] * channels, run: window[2] * channels, jump: dilations[1] * self.len }
    }

    /// From what a row of positions sees to what the next sees.
    pub(super) fn down(&self, geometry: &Geometry) -> usize {
        geometry.strides[1] * self.len
    }

    /// Elements of a copy that whole rows of positions see.
    pub(super) fn copied(&self, geometry: &Geometry, positions: usize) -> usize {
        geometry.spanned(1, positions / geometry.to[2]) * self.len
    }

    /// Copies what whole rows of positions see of an image.
    pub(super) fn copy(&self, geometry: &Geometry, image: &[f32], positions: Range<usize>, copy: &mut [f32]) {
        let Geometry { channels, from: [_, height, width], before: [_, above, before], .. } = *geometry;
        let first = positions.start / geometry.to[2] * geometry.strides[1];
        for (line, copy) in copy.chunks_exact_mut(self.len).enumerate() {
            let Some(row) = (first + line).checked_sub(above).filter(|&row| row < height) else {
                copy.fill(0.0);
                continue;
            };
            let row = &image[row * width * channels..][..width * channels];
            let (zeros, copy) = copy.split_at_mut((before * channels).min(self.len));
            let (seen, zeros_after) = copy.split_at_mut(row.len().min(copy.len()));
            zeros.fill(0.0);
            seen.copy_from_slice(&row[..seen.len()]);
            zeros_after.fill(0.0);
        }
    }
}
