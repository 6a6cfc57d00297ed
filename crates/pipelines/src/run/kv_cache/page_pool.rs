//! The pages of the KV cache: how many sequences hold each, and in which order free ones are used again. The slots of
//! states are lent in the same way.
//!
//! Each page that is held or kept belongs to a tenant. When no page is blank, the tenant with the most pages gives up the one
//! of its own that was kept longest. So a tenant loses nothing that it keeps to others while it has less than an equal share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A page of the KV cache: an index along its outermost axis.
pub type Page = u32;

/// Whom a page belongs to; those without a name are one.
pub(super) type Tenant = Option<Arc<str>>;

/// Hands out pages and takes them back. Knows nothing of their contents but whether they may be wanted again.
#[derive(Debug, Clone)]
pub(super) struct PagePool {
    /// How many sequences hold each page.
    holders: Vec<u32>,
    /// Free pages without cached content; a stack, so that warm pages are used again first.
    blank: Vec<Page>,
    /// The tenant of each page that is not blank.
    tenants: Vec<Tenant>,
    /// What each tenant has; none has nothing.
    shares: HashMap<Tenant, Share>,
    /// Free pages whose contents may be wanted again, of all tenants.
    num_kept: usize,
    /// When each page was released last: its key in [`Share::kept`].
    released: Vec<u64>,
    clock: u64,
}

/// The pages of a tenant.
#[derive(Debug, Clone, Default)]
struct Share {
    /// Held or kept.
    num_pages: usize,
    /// Free pages whose contents may be wanted again, by when they were released.
    kept: BTreeMap<u64, Page>,
}

impl PagePool {
    /// A pool of `num_pages` pages, all free.
    pub(super) fn new(num_pages: usize) -> PagePool {
        let count = Page::try_from(num_pages).expect("fewer than 2^32 pages");
        PagePool {
            holders: vec![0; num_pages],
            blank: (0..count).rev().collect(),
            tenants: vec![None; num_pages],
            shares: HashMap::new(),
            num_kept: 0,
            released: vec![0; num_pages],
            clock: 0,
        }
    }

    /// Pages that no sequence holds.
    pub(super) fn num_free(&self) -> usize {
        self.blank.len() + self.num_kept
    }

    /// Of these, pages whose contents may be wanted again.
    pub(super) fn num_kept(&self) -> usize {
        self.num_kept
    }

    /// Whether no sequence holds a page.
    pub(super) fn is_free(&self, page: Page) -> bool {
        self.holders[page as usize] == 0
    }

    /// Whether one sequence holds a page.
    pub(super) fn has_one_holder(&self, page: Page) -> bool {
        self.holders[page as usize] == 1
    }

    /// Lends a tenant a free page: a blank one, or else one that was kept.
    pub(super) fn take(&mut self, tenant: &Tenant) -> Option<Page> {
        let page = self.blank.pop().or_else(|| self.evict())?;
        self.holders[page as usize] = 1;
        self.tenants[page as usize].clone_from(tenant);
        self.share_mut(page).num_pages += 1;
        Some(page)
    }

    /// Lends a page to one more sequence. A page that no sequence holds must have been kept.
    pub(super) fn hold(&mut self, page: Page) {
        if self.is_free(page) {
            let kept = self.unkeep(page);
            debug_assert!(kept, "a free page that is wanted for its contents was kept");
        }
        self.holders[page as usize] += 1;
    }

    /// Gives a page that a sequence holds to the tenant of another page.
    pub(super) fn give(&mut self, page: Page, like: Page) {
        if self.tenants[page as usize] != self.tenants[like as usize] {
            self.disown(page);
            self.tenants[page as usize] = self.tenants[like as usize].clone();
            self.share_mut(page).num_pages += 1;
        }
    }

    /// Takes a page back from one sequence. If that was the last, the page is free, and kept as long as blank
    /// pages and those that are given up before suffice, if `keep` says that it may be wanted again.
    pub(super) fn release(&mut self, page: Page, keep: bool) {
        let holders = &mut self.holders[page as usize];
        *holders = holders.checked_sub(1).expect("a page is released by who holds it");
        if *holders > 0 {
            return;
        }
        if keep { self.keep(page) } else { self.clear(page) }
    }

    /// Keeps a page that was kept, from now on.
    pub(super) fn touch(&mut self, page: Page) {
        if self.is_free(page) && self.unkeep(page) {
            self.keep(page);
        }
    }

    /// Keeps a page no longer, if no sequence holds it.
    pub(super) fn forget(&mut self, page: Page) {
        if self.is_free(page) && self.unkeep(page) {
            self.clear(page);
        }
    }

    /// Keeps nothing any more.
    pub(super) fn forget_kept(&mut self) {
        while let Some(page) = self.evict() {
            self.blank.push(page);
        }
    }

    /// Takes the page that was kept longest from the tenant that has most pages, of those that keep any.
    fn evict(&mut self) -> Option<Page> {
        let oldest = |share: &Share| share.kept.first_key_value().map(|(&released, &page)| (released, page));
        let shares = self.shares.values().filter_map(|share| Some((share.num_pages, oldest(share)?)));
        let (_, (_, page)) =
            shares.max_by_key(|&(num_pages, (released, _))| (num_pages, Reverse(released)))?;
        self.unkeep(page);
        self.disown(page);
        Some(page)
    }

    fn keep(&mut self, page: Page) {
        self.clock += 1;
        let released = self.clock;
        self.released[page as usize] = released;
        self.share_mut(page).kept.insert(released, page);
        self.num_kept += 1;
    }

    /// Whether a page was kept, which it is no more.
    fn unkeep(&mut self, page: Page) -> bool {
        let share = self.shares.get_mut(&self.tenants[page as usize]);
        let was_kept = share.is_some_and(|share| share.kept.remove(&self.released[page as usize]).is_some());
        self.num_kept -= usize::from(was_kept);
        was_kept
    }

    /// Makes a page blank.
    fn clear(&mut self, page: Page) {
        self.disown(page);
        self.blank.push(page);
    }

    fn disown(&mut self, page: Page) {
        let share = self.share_mut(page);
        share.num_pages -= 1;
        if share.num_pages == 0 {
            self.shares.remove(&self.tenants[page as usize]);
        }
    }

    /// The share of the tenant of a page.
    fn share_mut(&mut self, page: Page) -> &mut Share {
        self.shares.entry(self.tenants[page as usize].clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_pages_are_used_first_then_those_kept_longest() {
        let mut pool = PagePool::new(4);
        let pages: Vec<Page> = (0..4).map(|_| pool.take(&None).unwrap()).collect();
        assert_eq!(pages, [0, 1, 2, 3]);
        assert_eq!(pool.take(&None), None);
        for (page, keep) in [(2, true), (0, true), (3, false), (1, true)] {
            pool.release(page, keep);
        }
        assert_eq!(pool.num_free(), 4);
        pool.touch(2);
        let pages: Vec<Page> = (0..4).map(|_| pool.take(&None).unwrap()).collect();
        assert_eq!(pages, [3, 0, 1, 2]);
    }

    #[test]
    fn a_page_is_free_when_its_last_holder_has_gone() {
        let mut pool = PagePool::new(2);
        let page = pool.take(&None).unwrap();
        pool.hold(page);
        pool.release(page, true);
        assert_eq!(pool.num_free(), 1);
        pool.release(page, true);
        assert_eq!(pool.num_free(), 2);
        pool.hold(page);
        assert_eq!((pool.num_free(), pool.take(&None), pool.take(&None)), (1, Some(1), None));
        pool.release(page, true);
        pool.forget_kept();
        assert_eq!(pool.take(&None), Some(page));
    }

    #[test]
    fn the_tenant_with_most_pages_gives_them_up() {
        let [a, b] = ["a", "b"].map(|name| Some(Arc::from(name)));
        let mut pool = PagePool::new(6);
        let mut take = |tenant, count| {
            let pages: Vec<Page> = (0..count).map(|_| pool.take(tenant).unwrap()).collect();
            pages.iter().for_each(|&page| pool.release(page, true));
            pages
        };
        assert_eq!((take(&b, 2), take(&a, 4)), (vec![0, 1], vec![2, 3, 4, 5]));
        // Those of `b` were kept longer, but are fewer.
        assert_eq!(take(&a, 3), [2, 3, 4]);
        assert_eq!(take(&b, 1), [5]);
        // Both have as many.
        assert_eq!(take(&b, 1), [0]);
        assert_eq!(take(&None, 2), [1, 2]);
        pool.forget_kept();
        assert!(pool.shares.is_empty() && pool.num_free() == 6 && pool.num_kept() == 0);
    }

    #[test]
    fn pages_in_use_count_for_their_tenant() {
        let [a, b] = ["a", "b"].map(|name| Some(Arc::from(name)));
        let mut pool = PagePool::new(6);
        let pages: Vec<Page> = (0..4).map(|_| pool.take(&a).unwrap()).collect();
        for tenant in [&b, &b] {
            let page = pool.take(tenant).unwrap();
            pool.release(page, true);
        }
        pool.release(pages[3], true);
        assert_eq!(pool.take(&b), Some(3), "`a` has four pages, though only one that it keeps");
        assert_eq!(pool.take(&a), Some(4), "`a` keeps no other");
        pool.release(4, true);
        pool.give(0, 5);
        assert_eq!(pool.take(&a), Some(5), "both have three, of which this was kept longest");
    }
}
