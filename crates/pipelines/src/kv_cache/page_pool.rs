//! The pages of the KV cache: how many sequences hold each, and in which order free ones are used again. The slots of
//! states are lent in the same way.

use std::collections::BTreeMap;

/// A page of the KV cache: an index along its outermost axis.
pub type Page = u32;

/// Hands out pages and takes them back. Knows nothing of their contents but whether they may be wanted again.
#[derive(Debug, Clone)]
pub(super) struct PagePool {
    /// How many sequences hold each page.
    holders: Vec<u32>,
    /// Free pages without cached content; a stack, so that warm pages are used again first.
    blank: Vec<Page>,
    /// Free pages whose contents may be wanted again, by when they were released.
    kept: BTreeMap<u64, Page>,
    /// When each page was released last: its key in `kept`.
    released: Vec<u64>,
    clock: u64,
}

impl PagePool {
    /// A pool of `num_pages` pages, all free.
    pub(super) fn new(num_pages: usize) -> PagePool {
        let count = Page::try_from(num_pages).expect("fewer than 2^32 pages");
        PagePool {
            holders: vec![0; num_pages],
            blank: (0..count).rev().collect(),
            kept: BTreeMap::new(),
            released: vec![0; num_pages],
            clock: 0,
        }
    }

    /// Pages that no sequence holds.
    pub(super) fn num_free(&self) -> usize {
        self.blank.len() + self.kept.len()
    }

    /// Of these, pages whose contents may be wanted again.
    pub(super) fn num_kept(&self) -> usize {
        self.kept.len()
    }

    /// Whether no sequence holds a page.
    pub(super) fn is_free(&self, page: Page) -> bool {
        self.holders[page as usize] == 0
    }

    /// Whether one sequence holds a page.
    pub(super) fn has_one_holder(&self, page: Page) -> bool {
        self.holders[page as usize] == 1
    }

    /// Lends a free page: a blank one, or else the one that was kept longest.
    pub(super) fn take(&mut self) -> Option<Page> {
        let page = self.blank.pop().or_else(|| Some(self.kept.pop_first()?.1))?;
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// Lends a page to one more sequence. A page that no sequence holds must have been kept.
    pub(super) fn hold(&mut self, page: Page) {
        if self.is_free(page) {
            let kept = self.kept.remove(&self.released[page as usize]);
            debug_assert_eq!(kept, Some(page), "a free page that is wanted for its contents was kept");
        }
        self.holders[page as usize] += 1;
    }

    /// Takes a page back from one sequence. If that was the last, the page is free, and kept as long as blank
    /// pages and those released earlier suffice, if `keep` says that it may be wanted again.
    pub(super) fn release(&mut self, page: Page, keep: bool) {
        let holders = &mut self.holders[page as usize];
        *holders = holders.checked_sub(1).expect("a page is released by who holds it");
        if *holders > 0 {
            return;
        }
        if keep { self.keep(page) } else { self.blank.push(page) }
    }

    /// Keeps a page that was kept, from now on.
    pub(super) fn touch(&mut self, page: Page) {
        if self.is_free(page) {
            self.kept.remove(&self.released[page as usize]);
            self.keep(page);
        }
    }

    /// Keeps a page no longer, if no sequence holds it.
    pub(super) fn forget(&mut self, page: Page) {
        if self.is_free(page) && self.kept.remove(&self.released[page as usize]).is_some() {
            self.blank.push(page);
        }
    }

    /// Keeps nothing any more.
    pub(super) fn forget_kept(&mut self) {
        self.blank.extend(std::mem::take(&mut self.kept).into_values());
    }

    fn keep(&mut self, page: Page) {
        self.clock += 1;
        self.released[page as usize] = self.clock;
        self.kept.insert(self.clock, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_pages_are_used_first_then_those_kept_longest() {
        let mut pool = PagePool::new(4);
        let pages: Vec<Page> = (0..4).map(|_| pool.take().unwrap()).collect();
        assert_eq!(pages, [0, 1, 2, 3]);
        assert_eq!(pool.take(), None);
        for (page, keep) in [(2, true), (0, true), (3, false), (1, true)] {
            pool.release(page, keep);
        }
        assert_eq!(pool.num_free(), 4);
        pool.touch(2);
        let pages: Vec<Page> = (0..4).map(|_| pool.take().unwrap()).collect();
        assert_eq!(pages, [3, 0, 1, 2]);
    }

    #[test]
    fn a_page_is_free_when_its_last_holder_has_gone() {
        let mut pool = PagePool::new(2);
        let page = pool.take().unwrap();
        pool.hold(page);
        pool.release(page, true);
        assert_eq!(pool.num_free(), 1);
        pool.release(page, true);
        assert_eq!(pool.num_free(), 2);
        pool.hold(page);
        assert_eq!((pool.num_free(), pool.take(), pool.take()), (1, Some(1), None));
        pool.release(page, true);
        pool.forget_kept();
        assert_eq!(pool.take(), Some(page));
    }
}
