//! Callers' memory that steps write: outputs, and inputs that are buffers.

use tensor::{AlignedBytes, Buffer, Error, WriteGuard};

/// What kernels are promised of memory they write.
const ALIGNMENT: usize = 64;

/// A caller's buffer, locked for writing. Where it does not start as kernels need it, as a part of a larger one may not,
/// steps write to a copy instead.
pub(crate) struct Written {
    guard: WriteGuard,
    aside: Option<AlignedBytes>,
}

impl Written {
    pub(crate) fn lock(buffer: &Buffer) -> Result<Written, Error> {
        let guard = buffer.write()?;
        let is_aligned = guard.as_ptr().addr().is_multiple_of(ALIGNMENT);
        let aside = if is_aligned { None } else { Some(AlignedBytes::try_copy_of(&guard)?) };
        Ok(Written { guard, aside })
    }

    /// The bytes for steps to write.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.aside {
            Some(aside) => aside,
            None => &mut self.guard,
        }
    }

    /// Puts what steps wrote into the caller's memory.
    pub(crate) fn finish(mut self) {
        if let Some(aside) = &self.aside {
            self.guard.copy_from_slice(aside);
        }
    }
}
