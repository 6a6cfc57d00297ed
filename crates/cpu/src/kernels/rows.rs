//! Kernels that turn each row of a matrix into another: how rows are shared among threads.

use super::disjoint::Disjoint;
use crate::Pool;

/// Calls `body(rows, part of out)` on parts of a matrix of rows of `dims`, each small enough to stay in a cache.
///
/// # Panics
/// When the lengths disagree or are no whole rows.
pub(super) fn each_part(
    kernel: &'static str,
    pool: &Pool,
    dims: usize,
    x: &[f32],
    out: &mut [f32],
    body: &(dyn Fn(&[f32], &mut [f32]) + Sync),
) {
    assert_eq!(x.len(), out.len(), "{kernel}: lengths of x and out");
    if x.is_empty() {
        return;
    }
    assert!(dims > 0 && x.len().is_multiple_of(dims), "{kernel}: {} elements in rows of {dims}", x.len());
    let rows = (16_384 / dims).clamp(1, (x.len() / dims).div_ceil(pool.threads())) * dims;
    let out = Disjoint::new(out);
    pool.run(x.len().div_ceil(rows), &|chunk| {
        let part = chunk * rows..x.len().min((chunk + 1) * rows);
        // SAFETY: chunks are disjoint.
        body(&x[part.clone()], unsafe { out.part(part) });
    });
}
