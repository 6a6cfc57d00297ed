//! Which task computes which rows and positions. Decides speed only: no result depends on it.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use crate::kernels::kv_cache::{RaggedBatch, TILE};
use crate::vec::LANES;

/// Positions whose scores share one maximum.
pub const RANGE: usize = 256;

/// Tiles of keys in a range.
pub(in crate::kernels) const TILES: usize = RANGE / TILE;

/// From one row of scores to the next: a line more than the range, so that rows do not compete for cache sets.
pub(in crate::kernels) const SCORES_STRIDE: usize = RANGE + LANES;

/// Query rows that share a load of the cache.
pub const TILE_ROWS: usize = 12;

/// How queries attend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention<'a> {
    /// Query heads: a multiple of the cache's heads; `heads / kv_heads` neighbors share one.
    pub heads: usize,
    /// Factor of the scores, commonly `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A query sees this many positions, its own the last; all before it where there is no window.
    pub window: Option<usize>,
    /// Positions are counted off in chunks of so many, and a query sees none before its own chunk.
    pub chunk: Option<usize>,
    /// Scores become `softcap · tanh(score / softcap)`.
    pub softcap: Option<f32>,
    /// For each query head the score of one more position, which has no value.
    pub sinks: Option<&'a [f32]>,
    /// `[heads, positions]`: added to the scores of keys, by their positions.
    pub biases: Option<&'a [f32]>,
    /// How many of the first dims of a row are its value, where the cache keeps rows.
    pub values: Option<usize>,
    /// The positions of each token, where not all are seen. Ranges are then of the chosen ones, counted in their order.
    pub chosen: Option<Chosen<'a>>,
}

/// The positions that tokens attend to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen<'a> {
    /// How many there are for each token.
    pub count: usize,
    /// `[tokens, count]`: the first entries of a row ascend to at most the token's own position.
    pub positions: &'a [u32],
}

impl Attention<'_> {
    /// Dims of a value, and of a result.
    pub(super) fn width(&self, head_dim: usize) -> usize {
        self.values.unwrap_or(head_dim)
    }

    /// The last position that the query at a position sees, counting chosen ones.
    pub(super) fn last_seen(&self, position: usize) -> usize {
        self.chosen.map_or(position, |chosen| position.min(chosen.count - 1))
    }

    /// The biases of a query head, by position.
    pub(super) fn biases(&self, head: usize) -> Option<&[f32]> {
        let biases = self.biases?;
        let positions = biases.len() / self.heads;
        Some(&biases[head * positions..][..positions])
    }

    /// The first position that the query at a position sees.
    pub(super) fn first_seen(&self, position: usize) -> usize {
        let of_window = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        self.chunk.map_or(of_window, |chunk| of_window.max(position / chunk * chunk))
    }
}

/// Tiles that a task takes over each range together: the range is read once for all, and stays in the second-level cache.
pub(super) const TILES_AT_ONCE: usize = 8;

/// Tasks in the order they should start.
pub(super) struct Plan {
    /// Query heads for each head of the cache.
    pub(super) group: usize,
    pub(super) tiles: Vec<QueryTile>,
    /// Neighbors in `tiles`, of one sequence and head.
    pub(super) tasks: Vec<Range<usize>>,
    /// Rows whose ranges several tasks share.
    pub(super) shared: Vec<Shared>,
    /// Elements of all partial results of shared tiles.
    pub(super) partials_len: usize,
}

/// Some query rows of one head of the cache, and the ranges of positions to take them over.
///
/// The rows of a sequence and head of the cache are counted token by token, within a token query head by query head.
pub(super) struct QueryTile {
    pub(super) sequence: usize,
    pub(super) kv_head: usize,
    pub(super) first_row: usize,
    pub(super) rows: usize,
    /// The positions that any of the rows sees.
    pub(super) seen: Range<usize>,
    /// Numbers of [`RANGE`]s.
    pub(super) ranges: Range<usize>,
    /// Index into [`Plan::shared`], where other tasks do the tile's other ranges.
    pub(super) shared: Option<usize>,
}

/// Rows whose ranges are divided among several tiles of one task each; the last to finish folds the results.
pub(super) struct Shared {
    /// Tasks not finished.
    pub(super) unfinished: AtomicUsize,
    /// All ranges of the tile.
    pub(super) ranges: Range<usize>,
    /// Where the partial result of its first range lies.
    pub(super) partials: usize,
}

impl Plan {
    pub(super) fn new(attention: &Attention<'_>, batch: &RaggedBatch, threads: usize) -> Plan {
        let tiles = tiles(attention, batch, tile_rows(attention, batch, threads));
        // A few tasks a thread suffice to even out; more ranges than that a tile, and it is divided.
        let total: usize = tiles.iter().map(|tile| tile.ranges.len()).sum();
        let share = if threads == 1 { usize::MAX } else { total.div_ceil(4 * threads).max(1) };
        let group = attention.heads / batch.layout().kv_heads();
        let width = attention.width(batch.layout().head_dim());
        let at_once = if attention.chosen.is_some() { 1 } else { tiles.len() / (4 * threads) };
        let at_once = at_once.clamp(1, TILES_AT_ONCE);
        let mut plan =
            Plan { group, tiles: Vec::new(), tasks: Vec::new(), shared: Vec::new(), partials_len: 0 };
        for tile in tiles {
            plan.add(tile, share, width);
        }
        plan.group(at_once);
        plan
    }

    fn add(&mut self, tile: QueryTile, share: usize, width: usize) {
        let ranges = tile.ranges.clone();
        if ranges.len() <= share {
            return self.tiles.push(tile);
        }
        let shared = Some(self.shared.len());
        let unfinished = AtomicUsize::new(ranges.len().div_ceil(share));
        self.shared.push(Shared { unfinished, ranges: ranges.clone(), partials: self.partials_len });
        self.partials_len += ranges.len() * partial_len(tile.rows, width);
        for start in ranges.clone().step_by(share) {
            let (seen, ranges) = (tile.seen.clone(), start..ranges.end.min(start + share));
            self.tiles.push(QueryTile { seen, ranges, shared, ..tile });
        }
    }

    /// Makes a task of up to `at_once` neighbors that read the same keys.
    fn group(&mut self, at_once: usize) {
        let of = |tile: &QueryTile| (tile.sequence, tile.kv_head, tile.shared.is_none());
        let mut start = 0;
        for tiles in self.tiles.chunk_by(|a, b| of(a) == of(b)) {
            let at_once = if tiles[0].shared.is_some() { 1 } else { at_once };
            let end = start + tiles.len();
            self.tasks.extend((start..end).step_by(at_once).map(|first| first..end.min(first + at_once)));
            start = end;
        }
    }
}

/// Elements of a partial result: the rows' maxima, their sums of weights, their weighted values.
pub(super) fn partial_len(rows: usize, width: usize) -> usize {
    2 * LANES + rows * width.next_multiple_of(LANES)
}

/// Fewer rows a tile where there would be fewer tiles than threads: the cache is then read more than once, but at once.
fn tile_rows(attention: &Attention<'_>, batch: &RaggedBatch, threads: usize) -> usize {
    let kv_heads = batch.layout().kv_heads();
    let group = attention.heads / kv_heads;
    let units = |tile_rows: usize| -> usize {
        let sequence = |sequence| {
            let tokens = batch.rows(sequence).len();
            let last = batch.first_position(sequence) + tokens.saturating_sub(1);
            let ranges = attention.last_seen(last) / RANGE + 1;
            kv_heads * (tokens * group).div_ceil(tile_rows) * ranges
        };
        (0..batch.sequences()).map(sequence).sum()
    };
    [TILE_ROWS, 8, 4, 2].into_iter().find(|&rows| units(rows) >= 2 * threads).unwrap_or(1)
}

/// Every tile whole, the long ones of each head first.
fn tiles(attention: &Attention<'_>, batch: &RaggedBatch, tile_rows: usize) -> Vec<QueryTile> {
    let kv_heads = batch.layout().kv_heads();
    let group = attention.heads / kv_heads;
    // Tokens whose positions are chosen share no keys.
    let tile_rows = if attention.chosen.is_some() { tile_rows.min(group) } else { tile_rows };
    let mut tiles = Vec::new();
    for sequence in 0..batch.sequences() {
        let rows = batch.rows(sequence).len() * group;
        let first = batch.first_position(sequence);
        for kv_head in 0..kv_heads {
            let unit = if attention.chosen.is_some() { group } else { rows.max(1) };
            let firsts = (0..rows).step_by(unit).flat_map(|start| (start..start + unit).step_by(tile_rows));
            for first_row in firsts.rev() {
                let rows = tile_rows.min(unit - first_row % unit);
                let from = first + first_row / group;
                let to = first + (first_row + rows - 1) / group;
                let seen = attention.first_seen(from)..attention.last_seen(to) + 1;
                let ranges = seen.start / RANGE..seen.end.div_ceil(RANGE);
                tiles.push(QueryTile { sequence, kv_head, first_row, rows, seen, ranges, shared: None });
            }
        }
    }
    tiles
}
