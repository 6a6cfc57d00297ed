//! Ranks of elements, by which the best of a row are chosen.

/// A rank of an element among others, the smaller, the better: its order, and below that its position, so that no two
/// are equal.
pub(super) type Rank = u128;

/// The rank of an element.
pub(super) fn rank(order: u64, position: usize) -> Rank {
    u128::from(order) << 64 | position as u128
}

/// Where the element of a rank lies.
pub(super) fn position(rank: Rank) -> usize {
    rank as u64 as usize
}

/// Keeps the `k` best, at least 1; returns the worst of them, which others have to beat.
pub(super) fn keep(best: &mut Vec<Rank>, k: usize) -> Rank {
    if best.len() > k {
        best.select_nth_unstable(k - 1);
        best.truncate(k);
    }
    best[k - 1]
}
