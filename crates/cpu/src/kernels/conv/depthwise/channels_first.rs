//! Depthwise convolution where channels come first: sixteen positions of some neighbouring rows at a time.
//!
//! The elements that a band of rows sees are copied with their padding, so that they stay in the L1 cache and all loads are
//! of whole vectors. Columns lie apart by their remainder divided by the stride, so that neighbouring positions read
//! neighbouring elements. Each sum is in the order of the taps.
//!
//! Bound by loads, of which many cross cache lines: rows that are computed together share the weights, and in windows of
//! 3 × 3 the elements too.

use crate::kernels::conv::geometry::Geometry;
use crate::kernels::conv::operands::{Depthwise, activate, least};
use crate::kernels::every::join_every;
use crate::vec::{LANES, Simd, with_scratch};

/// Rows of the result that are computed together.
const ROWS: usize = 4;
/// Elements of a band's copy, if that has more rows than one must have: half of the L1 cache.
const BAND: usize = 4096;

/// Channels of the result from one on, [depth, height, width] each.
#[inline(always)]
pub(super) fn channels<S: Simd>(s: S, conv: &Depthwise<'_>, first: usize, out: &mut [f32]) {
    let geometry = conv.geometry;
    let band = Band::new(geometry);
    let from: usize = geometry.from.iter().product();
    with_scratch(
        band.len(geometry),
        #[inline(always)]
        |copy| {
            for (number, out) in (first..).zip(out.chunks_exact_mut(geometry.positions())) {
                let group = number % geometry.groups;
                let channel = Channel {
                    x: &conv.x[number * from..][..from],
                    filter: &conv.filter[group * geometry.taps()..][..geometry.taps()],
                    bias: conv.bias.map_or(0.0, |bias| bias[group]),
                };
                channel.write(s, conv, &band, copy, out);
            }
        },
    );
}

/// One channel of one image.
struct Channel<'a> {
    x: &'a [f32],
    filter: &'a [f32],
    bias: f32,
}

impl Channel<'_> {
    #[inline(always)]
    fn write<S: Simd>(&self, s: S, conv: &Depthwise<'_>, band: &Band, copy: &mut [f32], out: &mut [f32]) {
        let (geometry, least) = (conv.geometry, s.splat(least(conv.activation)));
        let [_, height, width] = geometry.to;
        for (plane, out) in out.chunks_exact_mut(height * width).enumerate() {
            for (number, out) in out.chunks_mut(band.rows * width).enumerate() {
                let rows = out.len() / width;
                band.fill(s, geometry, self.x, [plane, number * band.rows, rows], copy);
                // The last rows again, rather than fewer.
                let together = if rows < ROWS { 1 } else { ROWS };
                for row in (0..rows).step_by(together) {
                    let first = row.min(rows - together);
                    let rows = Rows { band, copy: &copy[first * band.step..], width, least };
                    let out = &mut out[first * width..];
                    match <&[f32; 9]>::try_from(self.filter) {
                        _ if together == 1 => self.sums::<S, 1>(s, rows, out),
                        Ok(filter) if band.square => self.sums_of_square(s, filter, rows, out),
                        _ => self.sums::<S, ROWS>(s, rows, out),
                    }
                }
                activate(conv.activation, out);
            }
        }
    }

    /// Writes `R` neighbouring rows, tap after tap.
    #[inline(always)]
    fn sums<S: Simd, const R: usize>(&self, s: S, rows: Rows<'_, S>, out: &mut [f32]) {
        let Rows { band, copy, width, .. } = rows;
        let last = width.next_multiple_of(LANES) + (R - 1) * band.step;
        assert!(band.taps.iter().all(|tap| tap + last <= copy.len()), "conv: a copy of {}", copy.len());
        for start in (0..width).step_by(LANES) {
            let mut sums = [s.splat(self.bias); R];
            for (&tap, &factor) in band.taps.iter().zip(self.filter) {
                let factor = s.splat(factor);
                for (r, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: as asserted for the last vector of the last row.
                    let x = unsafe { s.load(copy.as_ptr().add(tap + start + r * band.step)) };
                    *sum = s.fma(x, factor, *sum);
                }
            }
            rows.store(s, sums, start, out);
        }
    }

    /// Writes [`ROWS`] neighbouring rows of a window of 3 × 3 that moves by one row: each element is loaded once for all
    /// rows that see it, and still each sum is in the order of the taps.
    #[inline(always)]
    fn sums_of_square<S: Simd>(&self, s: S, filter: &[f32; 9], rows: Rows<'_, S>, out: &mut [f32]) {
        let Rows { band, copy, width, .. } = rows;
        let columns = [band.taps[0], band.taps[1], band.taps[2]];
        let last = width.next_multiple_of(LANES) + (ROWS + 1) * band.step;
        assert!(columns.iter().all(|column| column + last <= copy.len()), "conv: a copy of {}", copy.len());
        let mut factors = [s.splat(0.0); 9];
        for (lanes, &factor) in factors.iter_mut().zip(filter) {
            *lanes = s.splat(factor);
        }
        for start in (0..width).step_by(LANES) {
            let mut sums = [s.splat(self.bias); ROWS];
            // SAFETY: as asserted for the last vector of the last line, `ROWS + 1`.
            unsafe {
                let from = copy.as_ptr().add(start);
                // Written out: the compiler then knows which rows see a line.
                add_line(s, &mut sums, from, columns, &factors, 0);
                add_line(s, &mut sums, from.add(band.step), columns, &factors, 1);
                add_line(s, &mut sums, from.add(2 * band.step), columns, &factors, 2);
                add_line(s, &mut sums, from.add(3 * band.step), columns, &factors, 3);
                add_line(s, &mut sums, from.add(4 * band.step), columns, &factors, 4);
                add_line(s, &mut sums, from.add(5 * band.step), columns, &factors, 5);
            }
            rows.store(s, sums, start, out);
        }
    }
}

/// Adds the products of a line of the copy to the sums of the rows that see it through a window of 3 × 3.
///
/// # Safety
/// Sixteen values are readable at each of three columns from `from` on.
#[inline(always)]
unsafe fn add_line<S: Simd>(
    s: S,
    sums: &mut [S::F32; ROWS],
    from: *const f32,
    columns: [usize; 3],
    factors: &[S::F32; 9],
    line: usize,
) {
    for (across, column) in columns.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        let x = unsafe { s.load(from.add(column)) };
        for (r, sum) in sums.iter_mut().enumerate() {
            if r <= line && line < r + 3 {
                *sum = s.fma(x, factors[(line - r) * 3 + across], *sum);
            }
        }
    }
}

/// Some neighbouring rows of the result.
#[derive(Clone, Copy)]
struct Rows<'a, S: Simd> {
    band: &'a Band,
    /// From what the first of them sees.
    copy: &'a [f32],
    width: usize,
    /// The lower bound of results.
    least: S::F32,
}

impl<S: Simd> Rows<'_, S> {
    /// Writes the columns from `start` on, at most sixteen.
    #[inline(always)]
    fn store<const R: usize>(&self, s: S, sums: [S::F32; R], start: usize, out: &mut [f32]) {
        let count = LANES.min(self.width - start);
        for (r, &sum) in sums.iter().enumerate() {
            let to = &mut out[r * self.width + start..][..count];
            // SAFETY: as many as sliced.
            unsafe { s.store_partial(to.as_mut_ptr(), s.max(self.least, sum), count) };
        }
    }
}

/// How the elements that a band of rows of the result sees are copied: [depth of the window, lines, remainders, columns].
struct Band {
    /// Rows of the result.
    rows: usize,
    /// Columns of one remainder, and room for a vector more.
    part: usize,
    /// From one line to the next.
    line: usize,
    /// From what one row of the result sees to what the next sees.
    step: usize,
    /// Where each tap sees its element from the first position.
    taps: Vec<usize>,
    /// Whether the window has 3 × 3 elements and moves by a line, which is as far as its rows are apart.
    square: bool,
}

impl Band {
    fn new(geometry: &Geometry) -> Band {
        let [depth, height, width] = geometry.window;
        let (parts, [_, down, across]) = (geometry.strides[2], geometry.dilations);
        let part = (geometry.spanned(2, geometry.to[2]).div_ceil(parts) + LANES).next_multiple_of(LANES);
        let line = parts * part;
        let span = (height - 1) * down + 1;
        let fitting = (BAND / (depth * line)).saturating_sub(span - 1) / geometry.strides[1];
        let rows = (fitting / ROWS * ROWS).max(ROWS).min(geometry.to[1]);
        let lines = geometry.spanned(1, rows);
        let tap = |number: usize| {
            let [deep, high, wide] = geometry.tap(number);
            let column = wide * across;
            (deep * lines + high * down) * line + column % parts * part + column / parts
        };
        let taps = (0..geometry.taps()).map(tap).collect();
        let square = [depth, height, width] == [1, 3, 3] && down == 1 && geometry.strides[1] == 1;
        Band { rows, part, line, step: geometry.strides[1] * line, taps, square }
    }

    /// Elements of the copy.
    fn len(&self, geometry: &Geometry) -> usize {
        geometry.window[0] * geometry.spanned(1, self.rows) * self.line
    }

    /// Copies what some rows see, from one of a plane of the result on.
    #[inline(always)]
    fn fill<S: Simd>(
        &self,
        s: S,
        geometry: &Geometry,
        x: &[f32],
        [plane, first, rows]: [usize; 3],
        copy: &mut [f32],
    ) {
        let [depth, height, width] = geometry.from;
        let inside = |padded: usize, axis: usize, size: usize| {
            padded.checked_sub(geometry.before[axis]).filter(|&index| index < size)
        };
        let (all, wanted) = (geometry.spanned(1, self.rows), geometry.spanned(1, rows));
        for (deep, copy) in copy.chunks_exact_mut(all * self.line).enumerate() {
            let plane = inside(plane * geometry.strides[0] + deep * geometry.dilations[0], 0, depth);
            for (line, copy) in copy.chunks_exact_mut(self.line).take(wanted).enumerate() {
                let row = inside(first * geometry.strides[1] + line, 1, height);
                match plane.zip(row) {
                    Some((plane, row)) => {
                        let x = &x[(plane * height + row) * width..][..width];
                        self.fill_line(s, geometry, x, copy);
                    }
                    None => copy.fill(0.0),
                }
            }
        }
    }

    /// Copies a row of the image with padding on both sides.
    #[inline(always)]
    fn fill_line<S: Simd>(&self, s: S, geometry: &Geometry, x: &[f32], copy: &mut [f32]) {
        let (parts, before) = (geometry.strides[2], geometry.before[2]);
        if parts == 1 {
            return fill_side_by_side(s, x, before, copy);
        }
        for (remainder, copy) in copy.chunks_exact_mut(self.part).enumerate() {
            copy.fill(0.0);
            // The first column of the image with this remainder, and where it goes.
            let first = (remainder + parts - before % parts) % parts;
            let to = ((first + before) / parts).min(self.part);
            let from = x.get(first..).unwrap_or_default();
            join_every(
                parts,
                &mut copy[to..],
                from,
                #[inline(always)]
                |_, from| from,
            );
        }
    }
}

/// Copies a row behind some zeros, and zeros behind it.
#[inline(always)]
fn fill_side_by_side<S: Simd>(s: S, x: &[f32], before: usize, copy: &mut [f32]) {
    let zeros = before.next_multiple_of(LANES).min(copy.len());
    copy[..zeros].fill(0.0);
    let mut to = before;
    while to + LANES <= copy.len() {
        let from = x.get(to - before..).unwrap_or_default();
        let count = from.len().min(LANES);
        // SAFETY: as many as sliced, and a vector of the copy is left.
        unsafe { s.store(copy[to..].as_mut_ptr(), s.load_partial(from.as_ptr(), count)) };
        to += LANES;
    }
}
