//! Changes to the pages that prefix caching lends, for those who choose between machines by what their caches hold.

use std::sync::Arc;

use super::page_pool::Page;

/// A change to the pages that prefix caching can lend. Pages that are not full are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheEvent {
    /// A page can be lent.
    Stored {
        /// Which one; it stays the same page until it is removed.
        page: Page,
        /// The page before it in its text, which is stored already; `None` for a first page.
        parent: Option<Page>,
        /// The tokens of this page alone.
        tokens: Arc<[u32]>,
        /// With whom it is shared: requests with the same [`Request::cache_salt`](crate::Request::cache_salt).
        cache_salt: Option<Arc<str>>,
    },
    /// A page can no longer be lent.
    Removed {
        /// Which one.
        page: Page,
    },
    /// No page can be lent.
    Cleared,
}
