//! The arithmetic of one task: tiles of up to [`TILE_ROWS`] query rows over some ranges of positions.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::dots::{self, Dots};
use super::plan::{
    Attention, Chosen, Plan, QueryTile, RANGE, SCORES_STRIDE, TILE_ROWS, TILES, TILES_AT_ONCE, partial_len,
};
use crate::kernels::disjoint::Disjoint;
use crate::kernels::kv_cache::{RaggedBatch, TILE};
use crate::vec::{LANES, Scalar, Simd, exp, tanh};

/// Everything a task reads, and where it writes.
pub struct AttentionCall<'a, T> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) batch: &'a RaggedBatch<'a>,
    pub(super) layer: usize,
    /// Checked: every page of the batch lies within.
    pub(super) cache: &'a [T],
    /// `[tokens, heads, head_dim]`
    pub(super) q: &'a [f32],
    /// `[tokens, heads, width]`; a task writes the rows of its own tile only.
    pub(super) out: Disjoint<'a, f32>,
    pub(super) plan: &'a Plan,
    /// Results of ranges whose tile is divided among several tasks; each range belongs to one task.
    pub(super) partials: Disjoint<'a, f32>,
}

impl<'a, T> AttentionCall<'a, T> {
    /// Dims of a value.
    fn width(&self) -> usize {
        self.attention.width(self.batch.layout().head_dim())
    }

    /// Elements of the result of a tile.
    fn partial_len(&self, tile: &QueryTile) -> usize {
        partial_len(tile.rows, self.width())
    }

    /// The result of a range of a shared tile.
    ///
    /// # Safety
    /// No other task uses it at the same time.
    unsafe fn shared_partial(&self, tile: &QueryTile, shared: usize, range: usize) -> &'a mut [f32] {
        let (shared, len) = (&self.plan.shared[shared], self.partial_len(tile));
        let start = shared.partials + (range - shared.ranges.start) * len;
        // SAFETY: the caller's promise.
        unsafe { self.partials.part(start..start + len) }
    }

    /// The positions chosen for the token of a task's rows, unless they are all that it sees.
    fn chosen(&self, tile: &QueryTile) -> Option<&[u32]> {
        let Chosen { count, positions } = self.attention.chosen?;
        let token = tile.first_row / self.plan.group;
        if self.batch.first_position(tile.sequence) + token < count {
            return None;
        }
        Some(&positions[(self.batch.rows(tile.sequence).start + token) * count..][..count])
    }
}

/// Elements of the scores of a tile.
const SCORES_LEN: usize = TILE_ROWS * SCORES_STRIDE;

/// From this many query rows on, it pays to transpose keys that lie row by row.
const TRANSPOSED_FOR: usize = 2 * TILE_ROWS;

/// Elements of working memory: queries and results so far of each tile, scores, the partial result of a range, and copies:
/// rows of chosen positions, a tile of transposed rows, or keys and values as f32.
pub(super) fn scratch_len<T>(attention: &Attention<'_>, head_dim: usize) -> usize {
    let copies = match attention.chosen {
        Some(_) => RANGE * head_dim,
        None if may_transpose(attention) => dots::transposed_len(head_dim),
        None if may_widen::<T>(attention, head_dim) => 2 * RANGE * head_dim,
        None => 0,
    };
    let partial = partial_len(TILE_ROWS, attention.width(head_dim));
    TILES_AT_ONCE * (queries_len(head_dim) + partial) + scores_len(attention) + partial + copies
}

/// Elements of the scores that are kept at a time: those of all tiles, if a tile of keys is transposed for all of them.
fn scores_len(attention: &Attention<'_>) -> usize {
    if may_transpose(attention) { TILES_AT_ONCE * SCORES_LEN } else { SCORES_LEN }
}

/// Whether the tiles of a task may share transposed copies of keys that lie row by row.
fn may_transpose(attention: &Attention<'_>) -> bool {
    attention.values.is_some() && attention.chosen.is_none()
}

/// Whether the keys and values of a range are worth widening: as f32 they must stay in the second-level cache.
fn may_widen<T>(attention: &Attention<'_>, head_dim: usize) -> bool {
    size_of::<T>() < size_of::<f32>() && attention.values.is_none() && head_dim <= 256
}

fn queries_len(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES) * LANES
}

impl QueryTile {
    /// The positions that row `row` of the tile sees.
    fn visible<T>(&self, call: &AttentionCall<'_, T>, row: usize) -> Range<usize> {
        let group = call.plan.group;
        let position = call.batch.first_position(self.sequence) + (self.first_row + row) / group;
        call.attention.first_seen(position)..call.attention.last_seen(position) + 1
    }

    /// Where row `row` of the tile lies in `q` or `out`, whose rows have so many dims.
    fn row<T>(&self, call: &AttentionCall<'_, T>, row: usize, dims: usize) -> Range<usize> {
        let token = call.batch.rows(self.sequence).start + (self.first_row + row) / call.plan.group;
        let start = (token * call.attention.heads + self.head(call, row)) * dims;
        start..start + dims
    }

    /// The query head of row `row` of the tile.
    fn head<T>(&self, call: &AttentionCall<'_, T>, row: usize) -> usize {
        let group = call.plan.group;
        self.kv_head * group + (self.first_row + row) % group
    }
}

/// Does task `index` of the plan.
///
/// The call has been checked, so that every page of the batch lies in its cache; `scratch` is of [`scratch_len`].
#[inline(always)]
pub(super) fn run<S: Simd, T: Scalar>(s: S, call: &AttentionCall<'_, T>, index: usize, scratch: &mut [f32]) {
    let tiles = &call.plan.tiles[call.plan.tasks[index].clone()];
    let head_dim = call.batch.layout().head_dim();
    let (tile_len, queries_len) = (head_dim * TILE, queries_len(head_dim));
    let partial_len = partial_len(TILE_ROWS, call.width());
    let (queries, rest) = scratch.split_at_mut(TILES_AT_ONCE * queries_len);
    let (states, rest) = rest.split_at_mut(TILES_AT_ONCE * partial_len);
    let (scores, rest) = rest.split_at_mut(scores_len(call.attention));
    let (partial, copies) = rest.split_at_mut(partial_len);
    for ((tile, queries), state) in
        tiles.iter().zip(queries.chunks_exact_mut(queries_len)).zip(states.chunks_exact_mut(partial_len))
    {
        pack_queries(call, tile, queries);
        clear(&mut state[..call.partial_len(tile)]);
        sink(call, tile, state);
    }
    let transposes =
        may_transpose(call.attention) && tiles.iter().map(|tile| tile.rows).sum::<usize>() >= TRANSPOSED_FOR;
    let widens = S::WIDENS_ONCE && tiles.len() > 2 && may_widen::<T>(call.attention, head_dim);
    let first = tiles.iter().map(|tile| tile.ranges.start).min().unwrap_or(0);
    let end = tiles.iter().map(|tile| tile.ranges.end).max().unwrap_or(0);
    for range in first..end {
        let cached = KvTiles::of_range(call, tiles, range, copies);
        let wide = widens.then(|| cached.widen(s, tile_len, copies));
        if transposes {
            score_transposed(s, call, tiles, &cached, range, queries, scores, copies);
        }
        for (index, ((tile, queries), state)) in tiles
            .iter()
            .zip(queries.chunks_exact(queries_len))
            .zip(states.chunks_exact_mut(partial_len))
            .enumerate()
        {
            if !tile.ranges.contains(&range) {
                continue;
            }
            let partial = match tile.shared {
                None => &mut partial[..call.partial_len(tile)],
                // SAFETY: each range of shared rows belongs to one task.
                Some(shared) => unsafe { call.shared_partial(tile, shared, range) },
            };
            let visible = visible_in(call, tile, range);
            let scores = &mut scores[if transposes { index * SCORES_LEN } else { 0 }..][..SCORES_LEN];
            match &wide {
                Some(wide) => {
                    score_in_place(s, call, tile, wide, &visible, queries, scores);
                    attend(s, call, tile, wide, range, &visible, scores, partial);
                }
                None => {
                    if !transposes {
                        score_in_place(s, call, tile, &cached, &visible, queries, scores);
                    }
                    attend(s, call, tile, &cached, range, &visible, scores, partial);
                }
            }
            if tile.shared.is_none() {
                fold(s, call, tile, &visible, partial, state);
            }
        }
    }
    for (tile, state) in tiles.iter().zip(states.chunks_exact_mut(partial_len)) {
        if fold_shared(s, call, tile, state) {
            finish(s, call, tile, state);
        }
    }
}

/// Folds the results of all ranges of rows that several tasks share, if this task is the last of them; says whether the
/// state is complete.
#[inline(always)]
fn fold_shared<S: Simd, T: Scalar>(
    s: S,
    call: &AttentionCall<'_, T>,
    tile: &QueryTile,
    state: &mut [f32],
) -> bool {
    let Some(index) = tile.shared else { return true };
    let shared = &call.plan.shared[index];
    // Releases this task's results; the last task acquires those of all.
    if shared.unfinished.fetch_sub(1, Ordering::AcqRel) != 1 {
        return false;
    }
    for range in shared.ranges.clone() {
        // SAFETY: all tasks that share the rows have finished with their parts.
        let partial = unsafe { call.shared_partial(tile, index, range) };
        fold(s, call, tile, &visible_in(call, tile, range), partial, state);
    }
    true
}

/// Queries scaled and transposed, `[head_dim, 16]`, or row by row for keys that lie so, `[16, head_dim]` with rows of
/// whole vectors. All that registers take together with them is 0.
#[inline(always)]
fn pack_queries<T>(call: &AttentionCall<'_, T>, tile: &QueryTile, queries: &mut [f32]) {
    let layout = call.batch.layout();
    let dims = layout.head_dim();
    let stride = dims.next_multiple_of(LANES);
    let (row_stride, dim_stride) = if layout.has_rows() { (stride, 1) } else { (1, LANES) };
    for row in 0..tile.rows {
        let q = &call.q[tile.row(call, row, dims)];
        let packed = &mut queries[row * row_stride..];
        for (packed, q) in packed.iter_mut().step_by(dim_stride).zip(q) {
            *packed = q * call.attention.scale;
        }
        if layout.has_rows() {
            packed[dims..stride].fill(0.0);
        }
    }
    if !layout.has_rows() {
        for row in tile.rows..tile.rows.next_power_of_two().min(TILE_ROWS) {
            queries[row..].iter_mut().step_by(LANES).for_each(|packed| *packed = 0.0);
        }
    }
}

/// A result of no positions: maxima `-inf`, sums and values 0.
#[inline(always)]
fn clear(partial: &mut [f32]) {
    partial[..LANES].fill(f32::NEG_INFINITY);
    partial[LANES..].fill(0.0);
}

/// Starts the result of each row with its head's sink, whose weight is `exp(sink - sink)`.
#[inline(always)]
fn sink<T>(call: &AttentionCall<'_, T>, tile: &QueryTile, state: &mut [f32]) {
    let Some(sinks) = call.attention.sinks else { return };
    for row in 0..tile.rows {
        state[row] = sinks[tile.head(call, row)];
        state[LANES + row] = 1.0;
    }
}

/// Scores the positions of one range, whose keys lie row by row, for all query tiles that take the range. Each tile of keys is
/// transposed once and shared by them.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "tiles over a range, and the parts of the working memory")]
fn score_transposed<S: Simd, T: Scalar>(
    s: S,
    call: &AttentionCall<'_, T>,
    tiles: &[QueryTile],
    kv: &KvTiles<T>,
    range: usize,
    queries: &[f32],
    scores: &mut [f32],
    copies: &mut [f32],
) {
    let dims = call.batch.layout().head_dim();
    let queries_len = queries_len(dims);
    assert!(tiles.len() * SCORES_LEN <= scores.len() && tiles.len() * queries_len <= queries.len());
    let start = range * RANGE;
    for key_tile in kv.tiles.clone() {
        // SAFETY: the tile is set, and its rows lie in the cache.
        let keys = unsafe { dots::transpose(s, kv.values[key_tile], dims, copies) };
        let positions = start + key_tile * TILE..start + (key_tile + 1) * TILE;
        for (index, tile) in tiles.iter().enumerate().filter(|(_, tile)| tile.ranges.contains(&range)) {
            if tile.seen.start >= positions.end || tile.seen.end <= positions.start {
                continue;
            }
            let (queries, scores) =
                (queries[index * queries_len..].as_ptr(), &mut scores[index * SCORES_LEN..]);
            let scores = scores[key_tile * TILE..].as_mut_ptr();
            // SAFETY: the asserted lengths, and the keys are those of a whole tile.
            unsafe { dots::score_tile(s, tile.rows, queries, keys, scores) };
        }
    }
}

/// The scores of the rows of a tile at the positions that they see of a range.
#[inline(always)]
fn score_in_place<S: Simd, T, K: Scalar>(
    s: S,
    call: &AttentionCall<'_, T>,
    tile: &QueryTile,
    kv: &KvTiles<K>,
    visible: &[(usize, usize); TILE_ROWS],
    queries: &[f32],
    scores: &mut [f32],
) {
    let layout = call.batch.layout();
    let dims = layout.head_dim();
    let seen = kv.seen(&visible[..tile.rows]);
    let tiles = seen.start / TILE..seen.end.div_ceil(TILE);
    assert!(queries.len() == queries_len(dims) && scores.len() == SCORES_LEN && tile.rows <= TILE_ROWS);
    // SAFETY: the asserted lengths; the tiles named here are set, each to a whole tile or to all rows that are seen.
    unsafe {
        if layout.has_rows() {
            let (queries, keys, scores) = (queries.as_ptr(), &kv.values, scores.as_mut_ptr());
            Dots { queries, keys, dims, scores }.score(s, tile.rows, seen);
        } else {
            score(s, tile.rows, queries.as_ptr(), &kv.keys, tiles, dims, scores.as_mut_ptr());
        }
    }
}

/// Weights and weighted values of one range of which the scores are known, into `partial`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a tile over a range, and the parts of the working memory")]
fn attend<S: Simd, T, K: Scalar>(
    s: S,
    call: &AttentionCall<'_, T>,
    tile: &QueryTile,
    kv: &KvTiles<K>,
    range: usize,
    visible: &[(usize, usize); TILE_ROWS],
    scores: &mut [f32],
    partial: &mut [f32],
) {
    clear(partial);
    let (dims, width) = (call.batch.layout().head_dim(), call.width());
    kv.seen(&visible[..tile.rows]);
    assert!(scores.len() == SCORES_LEN && width <= dims);
    assert!(partial.len() == partial_len(tile.rows, width) && tile.rows <= TILE_ROWS);
    for (row, &(from, to)) in visible[..tile.rows].iter().enumerate() {
        if from < to {
            let scores = &mut scores[row * SCORES_STRIDE..][..RANGE];
            if let Some(cap) = call.attention.softcap {
                bound(s, &mut scores[from / TILE * TILE..to.next_multiple_of(TILE)], cap);
            }
            if let Some(biases) = call.attention.biases(tile.head(call, row)) {
                let biases = &biases[range * RANGE..][from..to];
                scores[from..to].iter_mut().zip(biases).for_each(|(score, bias)| *score += bias);
            }
            let (largest, sum) = weigh(s, scores, from, to);
            partial[row] = largest;
            partial[LANES + row] = sum;
        }
    }
    let out = partial[2 * LANES..].as_mut_ptr();
    let sums = Sums { values: &kv.values, stride: dims, dims: width, scores: scores.as_ptr(), out };
    // SAFETY: the asserted lengths; rows see positions within the tiles only.
    unsafe { sums.add_visible(s, &visible[..tile.rows]) };
}

/// The positions that each row sees of a range, counted from its start; first and end are equal where it sees none.
#[inline(always)]
fn visible_in<T>(call: &AttentionCall<'_, T>, tile: &QueryTile, range: usize) -> [(usize, usize); TILE_ROWS] {
    let start = range * RANGE;
    let mut visible = [(0, 0); TILE_ROWS];
    for (row, slot) in visible.iter_mut().enumerate().take(tile.rows) {
        let Range { start: from, end: to } = tile.visible(call, row);
        let from = from.saturating_sub(start).min(RANGE);
        *slot = (from, to.saturating_sub(start).clamp(from, RANGE));
    }
    visible
}

/// Where the keys and the values of tiles of positions of one range lie: `keys[i]` is `[head_dim, 16]`, `values[i]` is
/// `[16, head_dim]`.
struct KvTiles<T> {
    keys: [*const T; TILES],
    values: [*const T; TILES],
    /// The tiles that are set.
    tiles: Range<usize>,
}

impl<T: Scalar> KvTiles<T> {
    /// The positions that any of some tiles of queries sees; chosen ones are copied.
    #[inline(always)]
    fn of_range(
        call: &AttentionCall<'_, T>,
        tiles: &[QueryTile],
        range: usize,
        copies: &mut [f32],
    ) -> KvTiles<T> {
        let start = range * RANGE;
        let inside = |position: usize| position.saturating_sub(start).min(RANGE);
        let within = || tiles.iter().filter(|tile| tile.ranges.contains(&range));
        let from = within().map(|tile| inside(tile.seen.start)).min().unwrap_or(0);
        let to = within().map(|tile| inside(tile.seen.end)).max().unwrap_or(0);
        let tiles_seen = from / TILE..to.div_ceil(TILE);
        let (keys, values) = match call.chosen(&tiles[0]) {
            None => pointers(call, &tiles[0], range, tiles_seen.clone()),
            Some(chosen) => {
                let rows = gather(call, &tiles[0], &chosen[start..][..to], copies);
                (rows, rows)
            }
        };
        KvTiles { keys, values, tiles: tiles_seen }
    }

    /// The range of positions that at least one of the rows sees.
    ///
    /// # Panics
    /// If they do not lie in tiles that are set.
    #[inline(always)]
    fn seen(&self, visible: &[(usize, usize)]) -> Range<usize> {
        let from = visible.iter().map(|v| v.0).min().unwrap_or(0);
        let to = visible.iter().map(|v| v.1).max().unwrap_or(0);
        assert!(self.tiles.start <= from / TILE && to.div_ceil(TILE) <= self.tiles.end);
        assert!(self.tiles.end <= TILES);
        from..to
    }

    /// Copies of the tiles, of `tile_len` elements each, as f32.
    #[inline(always)]
    fn widen<S: Simd>(&self, s: S, tile_len: usize, copies: &mut [f32]) -> KvTiles<f32> {
        assert!(tile_len.is_multiple_of(LANES) && copies.len() >= 2 * TILES * tile_len);
        let (mut keys, mut values) = ([std::ptr::null(); TILES], [std::ptr::null(); TILES]);
        let mut copies = copies.chunks_exact_mut(tile_len);
        for tile in self.tiles.clone() {
            for (from, wide) in [(self.keys[tile], &mut keys[tile]), (self.values[tile], &mut values[tile])] {
                let copy = copies.next().expect("two copies of each tile");
                for (index, to) in copy.chunks_exact_mut(LANES).enumerate() {
                    // SAFETY: the tile is set, and has as many vectors as its copy.
                    unsafe { s.store(to.as_mut_ptr(), T::load(s, from.add(index * LANES))) };
                }
                *wide = copy.as_ptr();
            }
        }
        KvTiles { keys, values, tiles: self.tiles.clone() }
    }
}

/// Where the keys and the values of each of `tiles` of a range lie in the cache.
#[inline(always)]
fn pointers<T>(
    call: &AttentionCall<'_, T>,
    tile: &QueryTile,
    range: usize,
    tiles: Range<usize>,
) -> ([*const T; TILES], [*const T; TILES]) {
    let layout = call.batch.layout();
    let tile_len = layout.head_dim() * TILE;
    let mut keys = [std::ptr::null(); TILES];
    let mut values = [std::ptr::null(); TILES];
    for index in tiles {
        let position = range * RANGE + index * TILE;
        let page = call.batch.page(tile.sequence, position);
        let offset = position % layout.page_size() / TILE * tile_len;
        let start = layout.keys(page, call.layer, tile.kv_head) + offset;
        keys[index] = call.cache[start..start + tile_len].as_ptr();
        let start = layout.values(page, call.layer, tile.kv_head) + offset;
        values[index] = call.cache[start..start + tile_len].as_ptr();
    }
    (keys, values)
}

/// Copies the rows of some positions, in their order, and gives where each tile of the copies lies.
#[inline(always)]
fn gather<T: Scalar>(
    call: &AttentionCall<'_, T>,
    tile: &QueryTile,
    positions: &[u32],
    gathered: &mut [f32],
) -> [*const T; TILES] {
    let layout = call.batch.layout();
    let dims = layout.head_dim();
    const { assert!(size_of::<T>() <= size_of::<f32>() && align_of::<T>() <= align_of::<f32>()) };
    assert!(positions.len() * dims <= gathered.len() && positions.len() <= RANGE);
    let copies = gathered.as_mut_ptr().cast::<T>();
    for (index, &position) in positions.iter().enumerate() {
        let page = call.batch.page(tile.sequence, position as usize);
        let slot = position as usize % layout.page_size();
        let start = layout.values(page, call.layer, tile.kv_head) + slot * dims;
        let row = &call.cache[start..start + dims];
        // SAFETY: the asserted lengths: an element takes no more room than an f32.
        unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), copies.add(index * dims), dims) };
    }
    let mut tiles = [std::ptr::null(); TILES];
    for (tile, pointer) in tiles.iter_mut().enumerate().take(positions.len().div_ceil(TILE)) {
        // SAFETY: the tile's first row is among the copies.
        *pointer = unsafe { copies.add(tile * TILE * dims) };
    }
    tiles
}

/// Scores of the first `rows` rows and all positions of `tiles`, as many rows at a time as the registers hold.
///
/// # Safety
/// `queries` holds `[dims, 16]`, each of `tiles` in `keys` points to `[dims, 16]`, and `scores` holds [`TILE_ROWS`] rows.
#[inline(always)]
unsafe fn score<S: Simd, T: Scalar>(
    s: S,
    rows: usize,
    queries: *const f32,
    keys: &[*const T; TILES],
    tiles: Range<usize>,
    dims: usize,
    scores: *mut f32,
) {
    let mut row = 0;
    while row < rows {
        // SAFETY: `row + R <= TILE_ROWS` in each arm, as each takes the rows left rounded up to a divisor of 12 or 8.
        unsafe {
            let (queries, scores) = (queries.add(row), scores.add(row * SCORES_STRIDE));
            macro_rules! score {
                ($rows:literal x $tiles:literal) => {
                    score_rows::<S, T, $rows, $tiles>(s, queries, keys, tiles.clone(), dims, scores)
                };
            }
            row += if const { S::REGISTERS == 32 } {
                match rows - row {
                    9.. => score!(12 x 2),
                    5.. => score!(8 x 2),
                    3.. => score!(4 x 4),
                    2 => score!(2 x 4),
                    _ => score!(1 x 4),
                }
            } else if const { S::REGISTERS == 8 } {
                match rows - row {
                    5.. => score!(6 x 1),
                    3.. => score!(4 x 1),
                    2 => score!(2 x 1),
                    _ => score!(1 x 4),
                }
            } else {
                match rows - row {
                    2.. => score!(2 x 1),
                    _ => score!(1 x 2),
                }
            };
        }
    }
}

/// Scores of `R` rows, `C` tiles at a time; returns `R`.
///
/// # Safety
/// As [`score`], for `R` rows.
#[inline(always)]
unsafe fn score_rows<S: Simd, T: Scalar, const R: usize, const C: usize>(
    s: S,
    queries: *const f32,
    keys: &[*const T; TILES],
    tiles: Range<usize>,
    dims: usize,
    scores: *mut f32,
) -> usize {
    for first in tiles.clone().step_by(C) {
        let mut from = [std::ptr::null(); C];
        for c in 0..C {
            // Past the end the last tile is computed again, and not stored.
            from[c] = keys[(first + c).min(tiles.end - 1)];
        }
        let mut sums = [[s.splat(0.0); C]; R];
        for dim in 0..dims {
            let mut key = [s.splat(0.0); C];
            for c in 0..C {
                // SAFETY: `dim < dims`, and a tile is `[dims, 16]`.
                key[c] = unsafe { T::load(s, from[c].add(dim * TILE)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the queries are `[dims, 16]`, and the rows end within the sixteen.
                let query = s.splat(unsafe { *queries.add(dim * LANES + r) });
                for c in 0..C {
                    sums[c] = s.fma(query, key[c], sums[c]);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                if first + c < tiles.end {
                    // SAFETY: the tile is within the range, and the row within the scores.
                    unsafe { s.store(scores.add(r * SCORES_STRIDE + (first + c) * TILE), *sum) };
                }
            }
        }
    }
    R
}

/// Turns scores `x` into `cap · tanh(x / cap)`.
#[inline(always)]
fn bound<S: Simd>(s: S, scores: &mut [f32], cap: f32) {
    let cap = s.splat(cap);
    for tile in scores.chunks_exact_mut(LANES) {
        // SAFETY: a chunk has sixteen values.
        unsafe {
            let score = s.load(tile.as_ptr());
            s.store(tile.as_mut_ptr(), s.mul(cap, tanh(s, s.div(score, cap))));
        }
    }
}

/// Turns the scores at `from..to` into weights and returns their maximum and the sum of the weights.
///
/// Positions of the outer tiles that the row does not see get weight 0.
#[inline(always)]
fn weigh<S: Simd>(s: S, scores: &mut [f32], from: usize, to: usize) -> (f32, f32) {
    let (start, end) = (from / TILE * TILE, to.next_multiple_of(TILE));
    let scores = &mut scores[start..end];
    scores[..from - start].fill(f32::NEG_INFINITY);
    scores[to - start..].fill(f32::NEG_INFINITY);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for tile in scores.chunks_exact(LANES) {
        // SAFETY: a chunk has sixteen values.
        largest = s.max(largest, unsafe { s.load(tile.as_ptr()) });
    }
    let largest = s.largest(largest);
    let shift = s.splat(shift(largest));
    let mut sum = s.splat(0.0);
    for tile in scores.chunks_exact_mut(LANES) {
        // SAFETY: a chunk has sixteen values.
        unsafe {
            let weight = exp(s, s.sub(s.load(tile.as_ptr()), shift));
            s.store(tile.as_mut_ptr(), weight);
            sum = s.add(sum, weight);
        }
    }
    (largest, s.sum(sum))
}

/// What to take off the scores: their maximum, or 0 where every one is `-inf`.
#[inline(always)]
fn shift(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

/// Says which positions of a range are meant: those that all rows see, or those before and after that only some see.
#[derive(Clone, Copy)]
enum RangePart {
    Before,
    Common,
    After,
}

/// Where weighted sums of values are added up.
struct Sums<'a, T> {
    /// `[16, stride]` each, of which the first `dims` are summed.
    values: &'a [*const T; TILES],
    stride: usize,
    dims: usize,
    /// The weights of all rows; each row has [`SCORES_STRIDE`].
    scores: *const f32,
    /// The sums so far, `dims` rounded up to whole vectors a row.
    out: *mut f32,
}

impl<T: Scalar> Sums<'_, T> {
    /// Adds to each row's sum the values it sees.
    ///
    /// Positions that some rows do not see are added row by row, before and after those that all see: a weight of 0 would
    /// not do, as the value may be infinite.
    ///
    /// # Safety
    /// `values` has the tiles of all visible positions, and `scores` and `out` have a row for each item of `visible`.
    #[inline(always)]
    unsafe fn add_visible<S: Simd>(&self, s: S, visible: &[(usize, usize)]) {
        let common = visible.iter().fold((0, RANGE), |all, row| (all.0.max(row.0), all.1.min(row.1)));
        let (from, to) = (common.0, common.1.max(common.0));
        for part in [RangePart::Before, RangePart::Common, RangePart::After] {
            let mut row = 0;
            while row < visible.len() {
                let (first, end) = visible[row];
                let (rows, positions) = match part {
                    RangePart::Before => (1, first..end.min(from)),
                    RangePart::Common => (visible.len() - row, from..to),
                    RangePart::After => (1, to.max(first)..end),
                };
                // SAFETY: the caller's promise, for each row and for all.
                row += unsafe { self.add_rows(s, row, rows, positions) };
            }
        }
    }

    /// Adds the values at `positions` to the sums of as many of `rows` rows as the registers hold; returns how many.
    ///
    /// # Safety
    /// As [`Sums::add_visible`].
    #[inline(always)]
    unsafe fn add_rows<S: Simd>(&self, s: S, row: usize, rows: usize, positions: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            if const { S::REGISTERS == 32 } {
                match rows {
                    12.. => self.add::<S, 12, 2>(s, row, positions),
                    8.. => self.add::<S, 8, 2>(s, row, positions),
                    4.. => self.add::<S, 4, 4>(s, row, positions),
                    2.. => self.add::<S, 2, 4>(s, row, positions),
                    _ => self.add::<S, 1, 4>(s, row, positions),
                }
            } else if const { S::REGISTERS == 8 } {
                match rows {
                    6.. => self.add::<S, 6, 1>(s, row, positions),
                    4.. => self.add::<S, 4, 1>(s, row, positions),
                    2.. => self.add::<S, 2, 1>(s, row, positions),
                    _ => self.add::<S, 1, 4>(s, row, positions),
                }
            } else {
                match rows {
                    2.. => self.add::<S, 2, 1>(s, row, positions),
                    _ => self.add::<S, 1, 1>(s, row, positions),
                }
            }
        }
    }

    /// Adds the values at `positions` to the sums of `R` rows, `C` vectors of dims at a time; returns `R`.
    ///
    /// # Safety
    /// As [`Sums::add_visible`].
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        row: usize,
        positions: Range<usize>,
    ) -> usize {
        if positions.is_empty() {
            return R;
        }
        let mut dim = 0;
        // SAFETY: the caller's promise, and each step ends within the dims.
        unsafe {
            if const { C > 1 } {
                while dim + C * LANES <= self.dims {
                    self.add_dims::<S, R, C, false>(s, row, positions.clone(), dim);
                    dim += C * LANES;
                }
            }
            while dim + LANES <= self.dims {
                self.add_dims::<S, R, 1, false>(s, row, positions.clone(), dim);
                dim += LANES;
            }
            if dim < self.dims {
                for row in row..row + R {
                    self.add_dims::<S, 1, 1, true>(s, row, positions.clone(), dim);
                }
            }
        }
        R
    }

    /// Adds `C` vectors of dims from `dim` on; fewer than sixteen dims where they are `PARTIAL`.
    ///
    /// # Safety
    /// What [`Sums::add_visible`] asks for holds, and each sum has these dims.
    #[inline(always)]
    unsafe fn add_dims<S: Simd, const R: usize, const C: usize, const PARTIAL: bool>(
        &self,
        s: S,
        row: usize,
        positions: Range<usize>,
        dim: usize,
    ) {
        let stride = self.dims.next_multiple_of(LANES);
        let mut sums = [[s.splat(0.0); C]; R];
        // SAFETY: the caller's promise; rows of `out` are whole vectors.
        unsafe {
            let out = self.out.add(row * stride + dim);
            let weights = self.scores.add(row * SCORES_STRIDE);
            for (r, sums) in sums.iter_mut().enumerate() {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = s.load(out.add(r * stride + c * LANES));
                }
            }
            let mut position = positions.start;
            while position < positions.end {
                let end = positions.end.min((position / TILE + 1) * TILE);
                let tile = self.values[position / TILE].add(dim);
                for position in position..end {
                    let from = tile.add(position % TILE * self.stride);
                    let mut value = [s.splat(0.0); C];
                    for (c, value) in value.iter_mut().enumerate() {
                        *value = if PARTIAL {
                            T::load_partial(s, from, self.dims - dim)
                        } else {
                            T::load(s, from.add(c * LANES))
                        };
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let weight = s.splat(*weights.add(r * SCORES_STRIDE + position));
                        for (sum, value) in sums.iter_mut().zip(value) {
                            *sum = s.fma(weight, value, *sum);
                        }
                    }
                }
                position = end;
            }
            for (r, sums) in sums.iter().enumerate() {
                for (c, sum) in sums.iter().enumerate() {
                    s.store(out.add(r * stride + c * LANES), *sum);
                }
            }
        }
    }
}

/// Adds the result of a range to the result so far, both scaled to their common maximum.
#[inline(always)]
fn fold<S: Simd, T>(
    s: S,
    call: &AttentionCall<'_, T>,
    tile: &QueryTile,
    visible: &[(usize, usize); TILE_ROWS],
    partial: &[f32],
    state: &mut [f32],
) {
    let (mut old, mut new) = ([0f32; LANES], [0f32; LANES]);
    for row in 0..tile.rows {
        let shift = shift(if state[row] > partial[row] { state[row] } else { partial[row] });
        (old[row], new[row]) = (state[row] - shift, partial[row] - shift);
        state[row] = if state[row] > partial[row] { state[row] } else { partial[row] };
    }
    // SAFETY: the arrays have sixteen values.
    let (old, new) =
        unsafe { (s.to_array(exp(s, s.load(old.as_ptr()))), s.to_array(exp(s, s.load(new.as_ptr())))) };
    let dims = call.width().next_multiple_of(LANES);
    for row in (0..tile.rows).filter(|&row| visible[row].0 < visible[row].1) {
        state[LANES + row] = state[LANES + row] * old[row] + partial[LANES + row] * new[row];
        let (old, new) = (s.splat(old[row]), s.splat(new[row]));
        let state = &mut state[2 * LANES + row * dims..][..dims];
        let partial = &partial[2 * LANES + row * dims..][..dims];
        for (state, partial) in state.chunks_exact_mut(LANES).zip(partial.chunks_exact(LANES)) {
            // SAFETY: chunks have sixteen values.
            unsafe {
                let sum = s.mul(s.load(state.as_ptr()), old);
                s.store(state.as_mut_ptr(), s.fma(s.load(partial.as_ptr()), new, sum));
            }
        }
    }
}

/// Divides by the sums of weights and writes the rows.
#[inline(always)]
fn finish<S: Simd, T>(s: S, call: &AttentionCall<'_, T>, tile: &QueryTile, state: &[f32]) {
    let width = call.width();
    let stride = width.next_multiple_of(LANES);
    for row in 0..tile.rows {
        // SAFETY: one task finishes each tile, and tiles do not share rows.
        let out = unsafe { call.out.part(tile.row(call, row, width)) };
        let sum = s.splat(state[LANES + row]);
        let values = &state[2 * LANES + row * stride..][..stride];
        for (out, values) in out.chunks_mut(LANES).zip(values.chunks_exact(LANES)) {
            s.store_slice(out, s.div(s.load_slice(values), sum));
        }
    }
}
