//! What can be wrong with a call to a kernel.

/// Why a kernel refuses its arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slice has another length than the shapes need.
    #[error("{kernel}: {what} has {found} elements where {expected} are needed")]
    Length {
        /// The kernel called.
        kernel: &'static str,
        /// The argument.
        what: &'static str,
        /// Elements the shapes need.
        expected: usize,
        /// Elements it has.
        found: usize,
    },
    /// A size that no call can have.
    #[error("{kernel}: {what} is {found}, which must be {rule}")]
    Size {
        /// The kernel called.
        kernel: &'static str,
        /// The argument.
        what: &'static str,
        /// What every size must satisfy.
        rule: &'static str,
        /// Its value.
        found: usize,
    },
    /// The row offsets do not divide the tokens into sequences.
    #[error(
        "ragged batch: row_offsets[{index}] is {found}, outside {low}..={high} (offsets rise from 0 to the number of tokens)"
    )]
    RowOffset {
        /// Place in `row_offsets`.
        index: usize,
        /// The offset there.
        found: usize,
        /// The smallest it could be.
        low: usize,
        /// The largest it could be.
        high: usize,
    },
    /// A sequence is longer than its row of the page table.
    #[error(
        "ragged batch: sequence {sequence} holds {cached} tokens and adds {added}, but its {pages} pages of {page_size} hold {capacity}"
    )]
    SequenceTooLong {
        /// Place in the batch.
        sequence: usize,
        /// Tokens in the cache before the call.
        cached: usize,
        /// Tokens the call adds.
        added: usize,
        /// Columns of the page table.
        pages: usize,
        /// Positions of a page.
        page_size: usize,
        /// Positions of all its pages.
        capacity: usize,
    },
    /// The page table names a page that the cache does not have.
    #[error(
        "ragged batch: page {position} of sequence {sequence} is page {page} of a cache of {pages} pages"
    )]
    PageOutOfRange {
        /// Place in the batch.
        sequence: usize,
        /// Which of the sequence's pages.
        position: usize,
        /// The page named.
        page: usize,
        /// Pages of the cache.
        pages: usize,
    },
}
