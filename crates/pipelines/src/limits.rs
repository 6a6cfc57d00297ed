//! Numbers that planning and running must agree on.

/// Slots that a sequence which runs takes for its state: each step reads one and writes the other.
pub const SLOTS_PER_SEQUENCE: usize = 2;
/// The fewest tokens in a page of the KV cache: the attention kernels read pages of this many or more.
pub(crate) const MIN_PAGE_SIZE: usize = 16;
