//! Arrays seen along other strides: transposes and broadcasts.
//!
//! A transpose that moves the innermost axis goes tile by tile through a small buffer, so that whole cache lines
//! are read and written, and rows a power of two apart do not evict each other. The tiles of a block, whose rows
//! the TLB holds, come one after another. Bound by memory.

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall};
use tensor::MAX_RANK;

use super::disjoint::Disjoint;
use super::operands::{CHUNK, elements, elements_mut, view, with_width};
use super::strided::Strided;
use crate::Pool;
use crate::vec::interleave;

/// The sides of a tile: two cache lines of f32.
const TILE: usize = 32;
/// The sides of a block: source and result stay in the second-level cache.
const BLOCK: usize = 8 * TILE;
/// A row of the buffer; one more than a tile, so that its columns lie in different cache sets.
const PITCH: usize = TILE + 1;
/// Columns that a task joins at a time.
const PIECE: usize = 4096;
/// The columns from which rows are worth joining.
const LONG: usize = 256;

/// Axes in another order.
pub(crate) struct TransposeKernel {
    /// Axis `i` of the result is axis `order[i]` of the operand.
    pub(crate) order: Vec<usize>,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for TransposeKernel {
    fn name(&self) -> String {
        "transpose".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let own = x.shape.row_major_strides();
        let mut strides = [0; MAX_RANK];
        for (stride, &axis) in strides.iter_mut().zip(&self.order) {
            *stride = own[axis];
        }
        let result = &mut call.outputs[0];
        let walk = Strided::new(result.shape.dims(), &strides[..self.order.len()], 0);
        with_width!(x.dtype.block().bytes, T => {
            rearrange::<T>(&self.pool, &elements(x.bytes), &walk, elements_mut(result.bytes));
        });
        Ok(())
    }
}

/// Repeats along axes of size 1 and new axes.
pub(crate) struct BroadcastKernel {
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for BroadcastKernel {
    fn name(&self) -> String {
        "broadcast".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let result = &mut call.outputs[0];
        let walk = Strided::broadcast(x.shape, result.shape);
        with_width!(x.dtype.block().bytes, T => {
            rearrange::<T>(&self.pool, &elements(x.bytes), &walk, elements_mut(result.bytes));
        });
        Ok(())
    }
}

/// Copies a whole walk.
fn rearrange<T: Pod + Send + Sync>(pool: &Pool, source: &[T], walk: &Strided, result: &mut [T]) {
    if result.is_empty() {
        return;
    }
    match Tiles::of(walk) {
        Some(tiles) => tiles.transpose(pool, source, result),
        None if join_rows(pool, source, walk, result) => {}
        None => pool.run_on_pieces(result, CHUNK, &|index, piece| walk.copy(source, index * CHUNK, piece)),
    }
}

/// Joins two or three long rows of elements of four bytes, of each plane: the channels of an image that move last. False if
/// the walk is another.
fn join_rows<T: Pod + Send + Sync>(pool: &Pool, source: &[T], walk: &Strided, result: &mut [T]) -> bool {
    let axes: Vec<(usize, isize)> = walk.axes().collect();
    let (planes, plane, len, rows, row) = match axes[..] {
        [(len @ LONG.., 1), (rows @ 2..4, row @ 1..)] => (1, 0, len, rows, row as usize),
        [(planes, plane @ 1..), (len @ LONG.., 1), (rows @ 2..4, row @ 1..)] => {
            (planes, plane as usize, len, rows, row as usize)
        }
        _ => return false,
    };
    if size_of::<T>() != size_of::<f32>() {
        return false;
    }
    let (source, result) = (bytemuck::cast_slice(source), bytemuck::cast_slice_mut(result));
    let (pieces, result) = (len.div_ceil(PIECE), Disjoint::new(result));
    pool.run(planes * pieces, &|task| {
        let (index, piece) = (task / pieces, task % pieces);
        let columns = piece * PIECE..len.min((piece + 1) * PIECE);
        let start = walk.offset() + index * plane + columns.start;
        let places = (index * len + columns.start) * rows..(index * len + columns.end) * rows;
        // SAFETY: each place belongs to one column of one piece, and each piece to one task.
        let to = unsafe { result.part(places) };
        // A missing row is written where the next column begins, so the last column has a way of its own.
        let row = |index: usize| &source[start + index.min(rows - 1) * row..][..columns.len()];
        let all: [&[f32]; 4] = std::array::from_fn(row);
        let last = columns.len() - 1;
        interleave(all.map(|row| &row[..last]), to, rows);
        for (to, row) in to[last * rows..].iter_mut().zip(all) {
            *to = row[last];
        }
    });
    true
}

/// A walk whose innermost axis jumps through memory, while another goes straight.
struct Tiles {
    /// All axes but the two of the tiles: size, stride in the source, stride in the result.
    outer: Vec<(usize, usize, usize)>,
    /// The axis along which memory is read: size, stride in the result.
    straight: (usize, usize),
    /// The innermost axis of the result: size, stride in the source.
    inner: (usize, usize),
}

impl Tiles {
    /// The tiles of a walk, if it is one to be tiled: axes shorter than a few elements are not worth it.
    fn of(walk: &Strided) -> Option<Tiles> {
        let mut axes = Vec::new();
        let mut result_stride = 1;
        for (size, stride) in walk.axes().rev() {
            axes.push((size, usize::try_from(stride).ok()?, result_stride));
            result_stride *= size;
        }
        let (size, stride, _) = *axes.first()?;
        let straight = axes.iter().position(|axis| axis.1 == 1)?;
        let (straight_size, _, straight_result) = axes[straight];
        if straight == 0 || stride == 0 || size < 4 || straight_size < 4 {
            return None;
        }
        let outer = axes.iter().enumerate().filter(|&(i, _)| i != 0 && i != straight).map(|(_, &axis)| axis);
        let outer = outer.collect();
        Some(Tiles { outer, straight: (straight_size, straight_result), inner: (size, stride) })
    }

    fn transpose<T: Pod + Send + Sync>(&self, pool: &Pool, source: &[T], result: &mut [T]) {
        let planes: usize = self.outer.iter().map(|axis| axis.0).product();
        let (down, across) = (self.straight.0.div_ceil(BLOCK), self.inner.0.div_ceil(BLOCK));
        let result = Disjoint::new(result);
        pool.run(planes * down * across, &|task| {
            let (plane, block) = (task / (down * across), task % (down * across));
            let (first, start) = (block / across * BLOCK, block % across * BLOCK);
            let mut tile = [[T::zeroed(); PITCH]; TILE];
            for first in (first..self.straight.0.min(first + BLOCK)).step_by(TILE) {
                for start in (start..self.inner.0.min(start + BLOCK)).step_by(TILE) {
                    self.transpose_tile(source, &result, self.plane(plane), (first, start), &mut tile);
                }
            }
        });
    }

    /// The tile whose first element is the `first`-th of the straight and the `start`-th of the inner axis.
    #[inline]
    fn transpose_tile<T: Pod>(
        &self,
        source: &[T],
        result: &Disjoint<'_, T>,
        (from, to): (usize, usize),
        (first, start): (usize, usize),
        tile: &mut [[T; PITCH]; TILE],
    ) {
        let (rows, columns) = (TILE.min(self.straight.0 - first), TILE.min(self.inner.0 - start));
        let run = |column: usize| &source[from + first + (start + column) * self.inner.1..][..rows];
        let whole = rows == TILE && columns == TILE;
        if !(whole && fill_with_halves(tile, run)) {
            for (column, run) in (0..columns).map(run).enumerate() {
                match run.first_chunk::<TILE>() {
                    // Of a length that the compiler knows, so that it unrolls the loop.
                    Some(run) => (0..TILE).for_each(|row| tile[row][column] = run[row]),
                    None => (0..rows).for_each(|row| tile[row][column] = run[row]),
                }
            }
        }
        for (row, line) in tile[..rows].iter().enumerate() {
            let position = to + (first + row) * self.straight.1 + start;
            // SAFETY: each run of the result belongs to one row of one tile, and each tile to one task.
            let run = unsafe { result.part(position..position + columns) };
            run.copy_from_slice(&line[..columns]);
        }
    }

    /// Where a plane starts in the source and in the result.
    fn plane(&self, index: usize) -> (usize, usize) {
        let (mut rest, mut from, mut to) = (index, 0, 0);
        for &(size, source_stride, result_stride) in &self.outer {
            from += rest % size * source_stride;
            to += rest % size * result_stride;
            rest /= size;
        }
        (from, to)
    }
}

/// Fills a tile with columns of elements of two bytes, eight by eight; false if they have another size.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn fill_with_halves<'s, T: Pod>(tile: &mut [[T; PITCH]; TILE], column: impl Fn(usize) -> &'s [T]) -> bool {
    if size_of::<T>() != size_of::<u16>() {
        return false;
    }
    for first in (0..TILE).step_by(8) {
        let columns: [&[[u16; 8]]; 8] = std::array::from_fn(|i| bytemuck::cast_slice(column(first + i)));
        for (i, rows) in tile.chunks_exact_mut(8).enumerate() {
            // SAFETY: all machines of these architectures have SSE2 or NEON.
            let block = unsafe { transpose_halves(columns.map(|column| column[i])) };
            for (row, values) in rows.iter_mut().zip(block) {
                row[first..first + 8].copy_from_slice(bytemuck::cast_slice(&values));
            }
        }
    }
    true
}

/// Other machines have no instructions for it here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn fill_with_halves<'s, T: Pod>(_: &mut [[T; PITCH]; TILE], _: impl Fn(usize) -> &'s [T]) -> bool {
    false
}

/// Rows as columns: pairs, then fours, then eights side by side.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn transpose_halves(rows: [[u16; 8]; 8]) -> [[u16; 8]; 8] {
    use std::arch::x86_64::{
        _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi16, _mm_unpacklo_epi32,
        _mm_unpacklo_epi64,
    };
    let rows = rows.map(bytemuck::cast);
    let pairs =
        |a: usize| (_mm_unpacklo_epi16(rows[a], rows[a + 1]), _mm_unpackhi_epi16(rows[a], rows[a + 1]));
    let fours = |a: usize| {
        let ((low, high), (next_low, next_high)) = (pairs(a), pairs(a + 2));
        [
            _mm_unpacklo_epi32(low, next_low),
            _mm_unpackhi_epi32(low, next_low),
            _mm_unpacklo_epi32(high, next_high),
            _mm_unpackhi_epi32(high, next_high),
        ]
    };
    let (upper, lower) = (fours(0), fours(4));
    std::array::from_fn(|i| {
        let (a, b) = (upper[i / 2], lower[i / 2]);
        bytemuck::cast(if i % 2 == 0 { _mm_unpacklo_epi64(a, b) } else { _mm_unpackhi_epi64(a, b) })
    })
}

/// Rows as columns: pairs, then fours, then eights side by side.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
#[inline]
fn transpose_halves(rows: [[u16; 8]; 8]) -> [[u16; 8]; 8] {
    use std::arch::aarch64::{
        vld1q_u16, vreinterpretq_u16_u64, vreinterpretq_u32_u16, vreinterpretq_u64_u32, vst1q_u16,
        vzip1q_u16, vzip1q_u32, vzip1q_u64, vzip2q_u16, vzip2q_u32, vzip2q_u64,
    };
    // SAFETY: a row has eight values.
    let rows = rows.map(|row| unsafe { vld1q_u16(row.as_ptr()) });
    let pairs = |a: usize| {
        let (low, high) = (vzip1q_u16(rows[a], rows[a + 1]), vzip2q_u16(rows[a], rows[a + 1]));
        (vreinterpretq_u32_u16(low), vreinterpretq_u32_u16(high))
    };
    let fours = |a: usize| {
        let ((low, high), (next_low, next_high)) = (pairs(a), pairs(a + 2));
        [
            vzip1q_u32(low, next_low),
            vzip2q_u32(low, next_low),
            vzip1q_u32(high, next_high),
            vzip2q_u32(high, next_high),
        ]
        .map(|four| vreinterpretq_u64_u32(four))
    };
    let (upper, lower) = (fours(0), fours(4));
    std::array::from_fn(|i| {
        let (a, b) = (upper[i / 2], lower[i / 2]);
        let eight = if i % 2 == 0 { vzip1q_u64(a, b) } else { vzip2q_u64(a, b) };
        let mut row = [0; 8];
        // SAFETY: the row has eight values.
        unsafe { vst1q_u16(row.as_mut_ptr(), vreinterpretq_u16_u64(eight)) };
        row
    })
}
