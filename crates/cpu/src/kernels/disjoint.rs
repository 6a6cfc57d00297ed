//! A mutable slice that many threads write, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// Lends parts of one `&mut [T]` to several threads.
#[derive(Clone, Copy)]
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out parts that the callers of `part` keep disjoint, and `T: Send` may be written elsewhere.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice for as long as parts are lent.
    pub(crate) fn new(slice: &'a mut [T]) -> Disjoint<'a, T> {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), lifetime: PhantomData }
    }

    /// One part.
    ///
    /// # Safety
    /// While it is alive, no other living part overlaps `range`.
    ///
    /// # Panics
    /// When `range` reaches beyond the slice.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {} elements", self.len);
        // SAFETY: the range is within the slice, and the caller keeps the parts disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// A pointer to the start of `range`, for parts that are no single run.
    ///
    /// # Safety
    /// No two threads use the same element at once.
    ///
    /// # Panics
    /// When `range` reaches beyond the slice.
    pub(crate) unsafe fn pointer(&self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {} elements", self.len);
        // SAFETY: the range is within the slice.
        unsafe { self.start.add(range.start) }
    }
}
