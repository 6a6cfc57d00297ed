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
use crate::kernels::every::{even_lanes, join_every, odd_lanes};
use crate::vec::{LANES, Simd, with_scratch};

/// Rows of the result that are computed together.
const ROWS: usize = 4;
/// Elements of a band's copy, if that has more rows than one must have: half of the L1 cache.
const BAND: usize = 4096;

/// Channels of the result from one on, [depth, height, width] each.
#[inline(always)]
pub(super) fn channels<S: Simd>(s: S, conv: &Depthwise<'_>, first: usize, out: &mut [f32]) {
    let geometry = conv.geometry;
    if let Some(small) = Small::new(geometry) {
        return small.channels(s, conv, first, out);
    }
    let band = Band::new(geometry);
    with_scratch(
        band.len(geometry),
        #[inline(always)]
        |copy| {
            for (number, out) in (first..).zip(out.chunks_exact_mut(geometry.positions())) {
                Channel::new(conv, number).write(s, conv, &band, copy, out);
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

impl<'a> Channel<'a> {
    fn new(conv: &Depthwise<'a>, number: usize) -> Channel<'a> {
        let geometry = conv.geometry;
        let (group, taps) = (number % geometry.groups, geometry.taps());
        let from: usize = geometry.from.iter().product();
        Channel {
            x: &conv.x[number * from..][..from],
            filter: &conv.filter[group * taps..][..taps],
            bias: conv.bias.map_or(0.0, |bias| bias[group]),
        }
    }

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
                add_line(s, &mut sums, load_line(s, from, columns), &factors, 0);
                add_line(s, &mut sums, load_line(s, from.add(band.step), columns), &factors, 1);
                add_line(s, &mut sums, load_line(s, from.add(2 * band.step), columns), &factors, 2);
                add_line(s, &mut sums, load_line(s, from.add(3 * band.step), columns), &factors, 3);
                add_line(s, &mut sums, load_line(s, from.add(4 * band.step), columns), &factors, 4);
                add_line(s, &mut sums, load_line(s, from.add(5 * band.step), columns), &factors, 5);
            }
            rows.store(s, sums, start, out);
        }
    }
}

/// Loads the elements of a line that lie under each column of a window, for sixteen positions.
///
/// # Safety
/// Sixteen values are readable at each of three columns from `from` on.
#[inline(always)]
unsafe fn load_line<S: Simd>(s: S, from: *const f32, columns: [usize; 3]) -> [S::F32; 3] {
    // SAFETY: the caller's promise.
    unsafe { [s.load(from.add(columns[0])), s.load(from.add(columns[1])), s.load(from.add(columns[2]))] }
}

/// Adds the products of a line, as the columns of a window of 3 × 3 see it, to the sums of the rows that do.
#[inline(always)]
fn add_line<S: Simd>(
    s: S,
    sums: &mut [S::F32; ROWS],
    columns: [S::F32; 3],
    factors: &[S::F32; 9],
    line: usize,
) {
    for (across, x) in columns.into_iter().enumerate() {
        for (r, sum) in sums.iter_mut().enumerate() {
            if r <= line && line < r + 3 {
                *sum = s.fma(x, factors[(line - r) * 3 + across], *sum);
            }
        }
    }
}

/// Windows of 3 × 3 over images whose rows fit a vector with a lane to spare: it is shifted, not copied.
struct Small {
    /// For each column of the window, the lanes of a row that lie under it. The last lane is zero: it stands for the padding.
    columns: [[u8; LANES]; 3],
}

impl Small {
    fn new(geometry: &Geometry) -> Option<Small> {
        let Geometry { from, to, window, strides, dilations, before, .. } = *geometry;
        let square = window == [1, 3, 3] && strides == [1; 3] && dilations[1] == 1 && before[0] == 0;
        let fits = from[0] == to[0] && from[2] < LANES && to[2] <= LANES && to[1] >= ROWS;
        let column = |column: usize| shifted(before[2], column * dilations[2], from[2]);
        (square && fits).then(|| Small { columns: std::array::from_fn(column) })
    }

    /// Channels of the result from one on, [depth, height, width] each.
    #[inline(always)]
    fn channels<S: Simd>(&self, s: S, conv: &Depthwise<'_>, first: usize, out: &mut [f32]) {
        let [depth, height, width] = conv.geometry.to;
        let [_, lines, columns] = conv.geometry.from;
        for (number, out) in out.chunks_exact_mut(height * width).enumerate() {
            let channel = Channel::new(conv, first + number / depth);
            let mut factors = [s.splat(0.0); 9];
            for (lanes, &factor) in factors.iter_mut().zip(channel.filter) {
                *lanes = s.splat(factor);
            }
            let x = &channel.x[number % depth * lines * columns..][..lines * columns];
            for row in (0..height).step_by(ROWS) {
                // The last rows again, rather than fewer.
                let row = row.min(height - ROWS);
                let sums = self.sums(s, conv.geometry, x, row, &factors, channel.bias);
                for (r, sum) in sums.into_iter().enumerate() {
                    let to = &mut out[(row + r) * width..][..width];
                    s.store_slice(to, s.max(s.splat(least(conv.activation)), sum));
                }
            }
            activate(conv.activation, out);
        }
    }

    /// The sums of [`ROWS`] neighbouring rows, each in the order of the taps.
    #[inline(always)]
    fn sums<S: Simd>(
        &self,
        s: S,
        geometry: &Geometry,
        x: &[f32],
        row: usize,
        factors: &[S::F32; 9],
        bias: f32,
    ) -> [S::F32; ROWS] {
        let mut sums = [s.splat(bias); ROWS];
        // Written out, as above.
        add_line(s, &mut sums, self.line(s, geometry, x, row), factors, 0);
        add_line(s, &mut sums, self.line(s, geometry, x, row + 1), factors, 1);
        add_line(s, &mut sums, self.line(s, geometry, x, row + 2), factors, 2);
        add_line(s, &mut sums, self.line(s, geometry, x, row + 3), factors, 3);
        add_line(s, &mut sums, self.line(s, geometry, x, row + 4), factors, 4);
        add_line(s, &mut sums, self.line(s, geometry, x, row + 5), factors, 5);
        sums
    }

    /// Loads the elements of a line that lie under each column of the window. Lines count from the top of the padding.
    #[inline(always)]
    fn line<S: Simd>(&self, s: S, geometry: &Geometry, x: &[f32], number: usize) -> [S::F32; 3] {
        let [_, lines, width] = geometry.from;
        let number = number.checked_sub(geometry.before[1]).filter(|&number| number < lines);
        let from = match number.map(|number| &x[number * width..][..width]) {
            Some(from) => s.load_slice(from),
            None => s.splat(0.0),
        };
        let [first, second, third] = &self.columns;
        [s.permute(from, first), s.permute(from, second), s.permute(from, third)]
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
            s.store_slice(to, s.max(self.least, sum));
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
    /// The lanes of a row's first vector, behind the padding.
    shifted: [u8; LANES],
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
        let shifted = shifted(geometry.before[2], 0, LANES - 1);
        let square = [depth, height, width] == [1, 3, 3] && down == 1 && geometry.strides[1] == 1;
        Band { rows, part, line, step: geometry.strides[1] * line, taps, shifted, square }
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
        match parts {
            1 => return fill_side_by_side(s, x, before, copy),
            2 if before < LANES => return fill_in_halves(s, x, before, &self.shifted, copy),
            _ => {}
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
        s.store_slice(&mut copy[to..to + LANES], s.load_slice(from));
        to += LANES;
    }
}

/// Copies a row behind some zeros, fewer than sixteen, and zeros behind it: its even elements to the first half, its odd
/// ones to the other. Halves have whole vectors.
#[inline(always)]
fn fill_in_halves<S: Simd>(s: S, x: &[f32], before: usize, shifted: &[u8; LANES], copy: &mut [f32]) {
    let (evens, odds) = copy.split_at_mut(copy.len() / 2);
    let pairs = evens.as_chunks_mut::<LANES>().0.iter_mut().zip(odds.as_chunks_mut::<LANES>().0);
    for (number, (evens, odds)) in pairs.enumerate() {
        let first = load_padded(s, x, 2 * number * LANES, before, shifted);
        let second = load_padded(s, x, (2 * number + 1) * LANES, before, shifted);
        // SAFETY: both have sixteen values.
        unsafe {
            s.store(evens.as_mut_ptr(), even_lanes(s, first, second));
            s.store(odds.as_mut_ptr(), odd_lanes(s, first, second));
        }
    }
}

/// Sixteen elements, from one on, of a row behind some zeros, and zeros behind it.
#[inline(always)]
fn load_padded<S: Simd>(s: S, x: &[f32], start: usize, before: usize, shifted: &[u8; LANES]) -> S::F32 {
    match start.checked_sub(before) {
        // Nothing is loaded behind the row: memory may end there, and then even a load of no values is slow.
        Some(start) if start >= x.len() => s.splat(0.0),
        Some(start) => s.load_slice(&x[start..]),
        None => s.permute(s.load_slice(&x[..x.len().min(LANES - before)]), shifted),
    }
}

/// The places of the elements that positions see `across` further than themselves, in a row behind some zeros; the last
/// lane is one, for elements that are not among `count`.
#[inline(always)]
fn shifted(before: usize, across: usize, count: usize) -> [u8; LANES] {
    std::array::from_fn(|lane| {
        let place = (lane + across).checked_sub(before).filter(|&place| place < count);
        place.unwrap_or(LANES - 1) as u8
    })
}
