//! Working memory that a thread keeps from one call to the next.

use std::cell::RefCell;

use super::LANES;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

thread_local! {
    /// Buffers not in use, the outermost user's last.
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with `len` values of this thread's own memory, aligned to 64 bytes, holding whatever was left there.
///
/// Calls may nest: each depth keeps a buffer, as large as it ever had to be. Inlined, so that a body which is inlined too
/// is compiled for the instruction set of the kernel around it.
#[inline(always)]
pub fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    let needed = len.div_ceil(LANES);
    if lines.len() < needed {
        lines = vec![Line([0.0; LANES]); needed];
    }
    // SAFETY: a line is exactly sixteen f32 without padding, and `len` values fit in the lines there are.
    let values = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<f32>(), len) };
    let result = body(values);
    FREE.with_borrow_mut(|free| free.push(lines));
    result
}

#[cfg(test)]
mod tests {
    use super::with_scratch;

    #[test]
    fn nested_buffers_are_apart_and_kept() {
        let address = |values: &mut [f32]| values.as_ptr().addr();
        let outer = with_scratch(100, |outer| {
            outer.fill(1.0);
            let first = with_scratch(33, |inner| {
                inner.fill(2.0);
                address(inner)
            });
            assert_eq!(first, with_scratch(20, address));
            assert!(outer.iter().all(|x| *x == 1.0));
            assert_eq!(address(outer) % 64, 0);
            address(outer)
        });
        assert_eq!(outer, with_scratch(100, address));
    }
}
