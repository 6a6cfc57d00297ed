//! The pages of the KV cache: which are free, which belong to a sequence.

/// A page of the KV cache: an index along its outermost axis.
pub type Page = u32;

/// Hands out pages and takes them back. Knows nothing of their contents.
#[derive(Debug, Clone)]
pub struct PagePool {
    page_size: usize,
    num_pages: usize,
    /// Used as a stack, so that warm pages are used again first.
    free: Vec<Page>,
}

impl PagePool {
    /// A pool of `num_pages` pages of `page_size` tokens, all free.
    pub fn new(num_pages: usize, page_size: usize) -> PagePool {
        let count = Page::try_from(num_pages).expect("fewer than 2^32 pages");
        PagePool { page_size, num_pages, free: (0..count).rev().collect() }
    }

    /// Tokens in a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Pages in all.
    pub fn num_pages(&self) -> usize {
        self.num_pages
    }

    /// Pages that nobody has.
    pub fn num_free(&self) -> usize {
        self.free.len()
    }

    /// The pages that `tokens` tokens take.
    pub fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_size)
    }

    /// Grows `pages` until it holds `tokens` tokens. Takes nothing, and says no, when too few are free.
    pub fn grow(&mut self, pages: &mut Vec<Page>, tokens: usize) -> bool {
        let missing = self.pages_for(tokens).saturating_sub(pages.len());
        if missing > self.free.len() {
            return false;
        }
        let taken = self.free.split_off(self.free.len() - missing);
        pages.extend(taken.into_iter().rev());
        true
    }

    /// Takes all `pages` back.
    pub fn release(&mut self, pages: &mut Vec<Page>) {
        self.free.extend(pages.drain(..).rev());
        debug_assert!(self.free.len() <= self.num_pages, "a page was released twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_lent_once() {
        let mut pool = PagePool::new(4, 16);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        assert!(pool.grow(&mut a, 17) && a == [0, 1]);
        assert!(pool.grow(&mut a, 32) && a.len() == 2, "32 tokens still fit two pages");
        assert!(pool.grow(&mut b, 1) && b == [2]);
        assert!(!pool.grow(&mut b, 64) && b == [2], "a refusal takes nothing");
        pool.release(&mut a);
        assert_eq!(pool.num_free(), 3);
        assert!(pool.grow(&mut b, 64) && b == [2, 0, 1, 3]);
    }
}
