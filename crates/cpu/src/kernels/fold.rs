//! Windows laid over each other and summed: each element from its bias or 0, tap after tap.
//!
//! Bound by memory. Threads share channels where they come first, rows of the result where they lie last.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use graph::ops;
use tensor::DType;

use super::floats::{self, is_float};
use super::operands::view;
use super::window::inside;
use crate::{Cpu, Pool};

/// How windows lie over an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    /// Positions of the window, down and across.
    pub(crate) positions: [usize; 2],
    /// Height and width of the image.
    pub(crate) size: [usize; 2],
    /// Height and width of the window.
    pub(crate) window: [usize; 2],
    /// From one position to the next.
    pub(crate) strides: [usize; 2],
    /// From one element of the window to the next.
    pub(crate) dilations: [usize; 2],
    /// Padding before the first element.
    pub(crate) before: [usize; 2],
}

/// The elements of all windows over an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) data: &'a [f32],
    /// From one channel to the next.
    pub(crate) channel: usize,
    /// From one element of a window to the next.
    pub(crate) tap: usize,
    /// From one position to the next.
    pub(crate) position: usize,
}

impl Windows {
    /// How windows of two spatial axes slide, sizes still unknown.
    pub(crate) fn of(windows: &ops::Windows) -> Windows {
        let two = |values: &[usize]| [values[0], values[1]];
        Windows {
            positions: [0; 2],
            size: [0; 2],
            window: [0; 2],
            strides: two(&windows.strides),
            dilations: two(&windows.dilations),
            before: [windows.padding[0][0], windows.padding[1][0]],
        }
    }

    /// Elements of a window: number, row and column.
    fn taps(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let [height, width] = self.window;
        (0..height * width).map(move |tap| (tap, tap / width, tap % width))
    }

    fn offset(&self, axis: usize, tap: usize) -> isize {
        (tap * self.dilations[axis]) as isize - self.before[axis] as isize
    }
}

/// Sums windows, whose positions lie side by side, into channels [channels, height, width], each from its bias.
pub(crate) fn channels_first(
    pool: &Pool,
    windows: &Windows,
    columns: Columns<'_>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let ([down, across], [height, width]) = (windows.positions, windows.size);
    assert_eq!(columns.position, 1, "fold: positions side by side");
    if out.is_empty() {
        return;
    }
    let [stride_down, stride_across] = windows.strides;
    pool.run_on_pieces(out, height * width, &|channel, out| {
        out.fill(bias.map_or(0.0, |bias| bias[channel]));
        for (tap, row, column) in windows.taps() {
            let (above, before) = (windows.offset(0, row), windows.offset(1, column));
            let seen = inside(across, stride_across, before, width);
            if seen.is_empty() {
                continue;
            }
            for i in inside(down, stride_down, above, height) {
                let line = ((i * stride_down) as isize + above) as usize;
                let first = ((seen.start * stride_across) as isize + before) as usize;
                let to = &mut out[line * width + first..(line + 1) * width];
                let from = channel * columns.channel + tap * columns.tap + i * across;
                let from = &columns.data[from + seen.start..from + seen.end];
                match stride_across {
                    1 => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
                    stride => to.chunks_mut(stride).zip(from).for_each(|(to, from)| to[0] += from),
                }
            }
        }
    });
}

/// Sums windows into the channels `first..first + channels` of rows [height, width, all].
pub(crate) fn channels_last(
    pool: &Pool,
    windows: &Windows,
    columns: Columns<'_>,
    bias: Option<&[f32]>,
    [first, channels, all]: [usize; 3],
    out: &mut [f32],
) {
    let ([down, across], [_, width]) = (windows.positions, windows.size);
    if out.is_empty() || channels == 0 {
        return;
    }
    pool.run_on_pieces(out, width * all, &|line, out| {
        for pixel in out.chunks_exact_mut(all) {
            match bias {
                Some(bias) => pixel[first..][..channels].copy_from_slice(bias),
                None => pixel[first..][..channels].fill(0.0),
            }
        }
        for (tap, row, column) in windows.taps() {
            let above = line as isize - windows.offset(0, row);
            let i = above.unsigned_abs() / windows.strides[0];
            if above < 0 || !above.unsigned_abs().is_multiple_of(windows.strides[0]) || i >= down {
                continue;
            }
            let before = windows.offset(1, column);
            for j in inside(across, windows.strides[1], before, width) {
                let at = ((j * windows.strides[1]) as isize + before) as usize;
                let to = &mut out[at * all + first..][..channels];
                let from = &columns.data[tap * columns.tap + (i * across + j) * columns.position..];
                match columns.channel {
                    1 => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
                    stride => {
                        to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, from)| *to += from)
                    }
                }
            }
        }
    });
}

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, op: &ops::Fold, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let (op, pool) = (op.clone(), Arc::clone(&cpu.pool));
    if is_float(dtype) { Some(Arc::new(FoldKernel { op, dtype, pool })) } else { None }
}

struct FoldKernel {
    op: ops::Fold,
    dtype: DType,
    pool: Arc<Pool>,
}

impl Kernel for FoldKernel {
    fn name(&self) -> String {
        format!("fold[{}]", self.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, result) = (view(&call, 0), &mut call.outputs[0]);
        let (from, to) = (x.shape, result.shape);
        let positions = self.op.positions(from, to)?;
        let x = floats::read(x)?;
        let windows = Windows {
            positions,
            size: [to[2], to[3]],
            window: [self.op.window[0], self.op.window[1]],
            ..Windows::of(&self.op.windows)
        };
        let taps = windows.window[0] * windows.window[1];
        // The images of a batch are so many channels more.
        let columns = Columns { data: &x, channel: taps * from[2], tap: from[2], position: 1 };
        floats::write(result, |out| channels_first(&self.pool, &windows, columns, None, out))?;
        Ok(())
    }
}
