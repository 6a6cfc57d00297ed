//! Pages on demand, from anywhere in the cache; with prefix caching, the same page for all who begin alike.

use super::PageCopy;
use super::page_pool::{Page, PagePool};
use super::prefix::{Hit, PrefixCache, PrefixStats};
use super::sequence::Sequence;

/// Who holds which page, and what full pages hold.
#[derive(Debug)]
pub(super) struct Paged {
    page_size: usize,
    pool: PagePool,
    prefixes: Option<PrefixCache>,
    copies: Vec<PageCopy>,
}

impl Paged {
    pub(super) fn new(num_pages: usize, page_size: usize) -> Paged {
        Paged { page_size, pool: PagePool::new(num_pages), prefixes: None, copies: Vec::new() }
    }

    pub(super) fn with_prefix_caching(num_pages: usize, page_size: usize) -> Paged {
        let prefixes = Some(PrefixCache::new(num_pages, page_size));
        Paged { prefixes, ..Paged::new(num_pages, page_size) }
    }

    pub(super) fn num_free(&self) -> usize {
        self.pool.num_free()
    }

    pub(super) fn shares_prefixes(&self) -> bool {
        self.prefixes.is_some()
    }

    pub(super) fn prefix_stats(&self) -> PrefixStats {
        self.prefixes.as_ref().map_or(PrefixStats::default(), PrefixCache::stats)
    }

    pub(super) fn reset_prefixes(&mut self) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.reset();
            self.pool.forget_kept();
        }
    }

    pub(super) fn start(&mut self, sequence: &mut Sequence) -> bool {
        let hit = match &mut self.prefixes {
            Some(prefixes) => prefixes.find(sequence),
            None => Hit::default(),
        };
        let needed = sequence.tokens.len().div_ceil(self.page_size) - hit.pages.len();
        let kept = hit.pages.iter().filter(|&&page| self.pool.is_free(page)).count();
        if needed > self.pool.num_free() - kept {
            return false;
        }
        sequence.cached = hit.tokens(self.page_size);
        hit.pages.iter().for_each(|&page| self.pool.hold(page));
        sequence.pages = hit.pages;
        self.take(sequence, needed, hit.partial.map(|partial| partial.page));
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.note_start(sequence);
        }
        sequence.cached_prompt.get_or_insert(sequence.cached);
        true
    }

    pub(super) fn grow(&mut self, sequence: &mut Sequence, missing: usize) -> bool {
        if missing > self.pool.num_free() {
            return false;
        }
        self.take(sequence, missing, None);
        true
    }

    pub(super) fn publish(&mut self, sequence: &mut Sequence) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.publish(sequence, &mut self.pool);
        }
    }

    /// The tail of a sequence goes first, so that it is used again first: the head is likelier to be shared, and
    /// no page is kept longer than the one before it.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.publish_tail(sequence);
        }
        for page in sequence.pages.drain(..).rev() {
            let keep = self.prefixes.as_ref().is_some_and(|prefixes| prefixes.holds(page));
            self.pool.release(page, keep);
        }
    }

    pub(super) fn take_copies(&mut self) -> Vec<PageCopy> {
        std::mem::take(&mut self.copies)
    }

    /// Lends a sequence `count` free pages, which there are. The first is to begin as a copy of `source`.
    ///
    /// The source may be taken for something else right away: copies are made before the step that would write it,
    /// in the order in which they were asked for.
    fn take(&mut self, sequence: &mut Sequence, count: usize, source: Option<Page>) {
        if let Some(source) = source {
            self.pool.touch(source);
        }
        let first = sequence.pages.len();
        for _ in 0..count {
            let page = self.pool.take().expect("the free pages were counted");
            if let Some(prefixes) = &mut self.prefixes {
                prefixes.forget(page);
            }
            sequence.pages.push(page);
        }
        if let Some(from) = source {
            let to = sequence.pages[first];
            self.copies.extend((from != to).then_some(PageCopy { from, to }));
        }
    }
}
