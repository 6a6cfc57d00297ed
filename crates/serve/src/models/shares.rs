//! How the caches of several models share the memory that their weights leave: max-min fairly.

/// The cache of a model, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheDemand {
    /// Fewer shorten its sequences.
    pub(super) least: u64,
    /// As many as it has alone.
    pub(super) most: u64,
}

/// Bytes for each cache, of `room` for all. No cache could have more unless one that has no more than it got fewer.
/// `None` if not even the least of all fit.
pub(super) fn fair_shares(room: u64, demands: &[CacheDemand]) -> Option<Vec<u64>> {
    let share = |level: u64, demand: &CacheDemand| level.clamp(demand.least.min(demand.most), demand.most);
    let fits = |level: u64| {
        let mut shares = demands.iter().map(|demand| share(level, demand));
        shares.try_fold(0, u64::checked_add).is_some_and(|all| all <= room)
    };
    if !fits(0) {
        return None;
    }
    let (mut fitting, mut beyond) = (0, demands.iter().map(|demand| demand.most).max()?.saturating_add(1));
    while fitting + 1 < beyond {
        let middle = fitting.midpoint(beyond);
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    Some(demands.iter().map(|demand| share(fitting, demand)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(room: u64, demands: &[(u64, u64)], expected: Option<&[u64]>) {
        let demands: Vec<CacheDemand> =
            demands.iter().map(|&(least, most)| CacheDemand { least, most }).collect();
        assert_eq!(fair_shares(room, &demands).as_deref(), expected);
    }

    #[test]
    fn caches_share_alike_within_what_they_need_and_want() {
        check(100, &[(1, 30), (1, 30)], Some(&[30, 30]));
        check(100, &[(1, 80), (1, 80)], Some(&[50, 50]));
        check(100, &[(1, 20), (1, 90), (1, 70)], Some(&[20, 40, 40]));
        check(100, &[(60, 90), (1, 90), (1, 10)], Some(&[60, 30, 10]));
        check(100, &[(0, 0), (1, 90), (33, 33)], Some(&[0, 67, 33]));
        check(101, &[(0, 90), (0, 90)], Some(&[50, 50]));
        check(100, &[(60, 90), (41, 90)], None);
        check(0, &[], None);
        check(u64::MAX, &[(0, u64::MAX), (5, u64::MAX)], Some(&[u64::MAX / 2, u64::MAX / 2]));
    }
}
