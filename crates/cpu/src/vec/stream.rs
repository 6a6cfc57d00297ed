//! Stores that pass the caches by: for results so large that nothing of them would be found there again.

/// Leave to store past the caches. Once it is dropped, all it stored is visible to threads that synchronize with the
/// thread, as plain stores are.
pub struct Stream(());

impl Stream {
    /// Begins to store.
    pub fn begin() -> Stream {
        Stream(())
    }

    /// Copies `from` to `to` without reading `to`'s cache lines first, which saves a third of the traffic of a copy
    /// that no cache holds.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "stream: the lengths of the two sides");
        let whole = stream_vectors(from, to);
        to[whole..].copy_from_slice(&from[whole..]);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: every x86-64 has it. Streaming stores are ordered with later ones only by a fence.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_sfence()
        };
    }
}

/// Asks for the cache lines of `bytes`, which will be read soon.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        prefetch_line(line.as_ptr());
    }
}

/// Asks for the cache line of an address, which need not be mapped.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn prefetch_line<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 has it, and it only hints.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Asks for the cache line of an address, which need not be mapped.
#[inline]
#[cfg(target_arch = "aarch64")]
pub fn prefetch_line<T>(address: *const T) {
    // SAFETY: every AArch64 has it, and it only hints.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// No hints are known for this processor.
#[inline]
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn prefetch_line<T>(_address: *const T) {}

/// Streams the whole vectors where `to` is aligned for them; returns how many bytes that were.
#[cfg(target_arch = "x86_64")]
fn stream_vectors(from: &[u8], to: &mut [u8]) -> usize {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const VECTOR: usize = size_of::<__m128i>();
    if !to.as_ptr().addr().is_multiple_of(VECTOR) {
        return 0;
    }
    let whole = from.len() / VECTOR * VECTOR;
    for start in (0..whole).step_by(VECTOR) {
        // SAFETY: both slices have `start + 16` bytes, and `to` is aligned; every x86-64 has these instructions.
        unsafe {
            let vector = _mm_loadu_si128(from.as_ptr().add(start).cast());
            _mm_stream_si128(to.as_mut_ptr().add(start).cast(), vector);
        }
    }
    whole
}

#[cfg(not(target_arch = "x86_64"))]
fn stream_vectors(_from: &[u8], _to: &mut [u8]) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::Stream;

    #[test]
    fn every_byte_arrives_whatever_the_alignment() {
        let from: Vec<u8> = (0..=255).collect();
        for start in 0..20 {
            for len in [0, 1, 15, 16, 17, 100, 200] {
                let mut to = vec![7u8; 256];
                Stream::begin().copy(&from[3..][..len], &mut to[start..][..len]);
                assert_eq!(to[start..][..len], from[3..][..len]);
                assert!(to[..start].iter().chain(&to[start + len..]).all(|&byte| byte == 7));
            }
        }
    }
}
