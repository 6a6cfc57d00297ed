//! Rows that become columns, four at a time: what panels are made of.

/// Rows that are interleaved at a time.
const ROWS: usize = 4;

/// Writes element `i` of the four rows side by side, from `to[i · stride]` on, in the order of `i`: if `stride` is below
/// four, the next column replaces the end of the one before.
///
/// # Panics
/// If the rows differ in length, or `to` has no room.
#[inline(always)]
pub fn interleave(rows: [&[f32]; ROWS], to: &mut [f32], stride: usize) {
    let len = rows[0].len();
    assert!(rows.iter().all(|row| row.len() == len), "interleave: rows of one length");
    assert!(len == 0 || to.len() + stride >= len * stride + ROWS, "interleave: room for {len} columns");
    let whole = len / ROWS * ROWS;
    for start in (0..whole).step_by(ROWS) {
        // SAFETY: each row has four elements from `start` on, and `to` has room for four columns there.
        unsafe {
            let rows = rows.map(
                #[inline(always)]
                |row| row.as_ptr().add(start),
            );
            transpose(rows, to.as_mut_ptr().add(start * stride), stride);
        }
    }
    for i in whole..len {
        for (to, row) in to[i * stride..].iter_mut().zip(rows) {
            *to = row[i];
        }
    }
}

/// Writes a square of four rows as rows that lie `stride` apart.
///
/// # Safety
/// Four values are readable at each row, and writable at `to` and at each of three multiples of `stride` after it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose(rows: [*const f32; ROWS], to: *mut f32, stride: usize) {
    use std::arch::x86_64::{
        _mm_loadu_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps,
    };
    // SAFETY: every x86-64 has SSE; memory is the caller's promise.
    unsafe {
        let [a, b, c, d] = [0, 1, 2, 3].map(|row| _mm_loadu_ps(rows[row]));
        let (low, high) = (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let (next_low, next_high) = (_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        _mm_storeu_ps(to, _mm_movelh_ps(low, next_low));
        _mm_storeu_ps(to.add(stride), _mm_movehl_ps(next_low, low));
        _mm_storeu_ps(to.add(2 * stride), _mm_movelh_ps(high, next_high));
        _mm_storeu_ps(to.add(3 * stride), _mm_movehl_ps(next_high, high));
    }
}

/// Writes a square of four rows as rows that lie `stride` apart.
///
/// # Safety
/// Four values are readable at each row, and writable at `to` and at each of three multiples of `stride` after it.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn transpose(rows: [*const f32; ROWS], to: *mut f32, stride: usize) {
    for column in 0..ROWS {
        for (row, from) in rows.into_iter().enumerate() {
            // SAFETY: memory is the caller's promise.
            unsafe { *to.add(column * stride + row) = *from.add(column) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(len: usize, stride: usize) {
        let rows: [Vec<f32>; ROWS] =
            std::array::from_fn(|row| (0..len).map(|i| (100 * row + i) as f32).collect());
        let room = if len == 0 { 0 } else { (len - 1) * stride + ROWS };
        let mut to = vec![-1.0; room];
        interleave(rows.each_ref().map(|row| &row[..]), &mut to, stride);
        let mut want = vec![-1.0; room];
        for i in 0..len {
            for (row, values) in rows.iter().enumerate() {
                want[i * stride + row] = values[i];
            }
        }
        assert_eq!(to, want, "{len} columns {stride} apart");
    }

    #[test]
    fn rows_become_columns_and_nothing_else_is_written() {
        for len in [0, 1, 3, 4, 5, 8, 19] {
            for stride in [2, 3, 4, 5, 11, 12] {
                check(len, stride);
            }
        }
    }
}
