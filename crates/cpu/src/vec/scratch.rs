//! Working memory that a thread keeps from one chunk to the next.

use std::cell::RefCell;

use super::LANES;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

thread_local! {
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with `len` values of this thread's own memory, aligned to 64 bytes, holding whatever was left there.
///
/// # Panics
/// When called again within `body`.
pub fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|lines| {
        let needed = len.div_ceil(LANES);
        if lines.len() < needed {
            lines.resize(needed, Line([0.0; LANES]));
        }
        // SAFETY: a line is exactly sixteen f32 without padding, and `len` values fit in the lines there are.
        let values = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<f32>(), len) };
        body(values)
    })
}
