//! Pages on demand, from anywhere in the cache; with prefix caching, the same page for all who begin alike.

use super::PageCopy;
use super::page_pool::{Page, PagePool};
use super::prefix::{Hit, PrefixCache, PrefixStats};
use super::sequence::{Sequence, SequenceId};
use super::states::States;

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

    pub(super) fn num_cached(&self) -> usize {
        self.pool.num_kept()
    }

    pub(super) fn emptied(&self, num_pages: usize) -> Paged {
        let prefixes = self.prefixes.as_ref().map(PrefixCache::emptied);
        Paged { prefixes, ..Paged::new(num_pages, self.page_size) }
    }

    pub(super) fn prefixes_mut(&mut self) -> Option<&mut PrefixCache> {
        self.prefixes.as_mut()
    }

    pub(super) fn prefix_stats(&self) -> PrefixStats {
        self.prefixes.as_ref().map_or(PrefixStats::default(), PrefixCache::stats)
    }

    pub(super) fn reset_prefixes(&mut self, states: &mut States) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.reset();
            self.pool.forget_kept();
            states.forget_all();
        }
    }

    pub(super) fn start(&mut self, sequence: &mut Sequence, states: &mut States) -> bool {
        let hit = match &mut self.prefixes {
            Some(prefixes) => prefixes.find(sequence, states),
            None => Hit::default(),
        };
        let needed = sequence.tokens.len().div_ceil(self.page_size) - hit.pages.len();
        let kept = hit.pages.iter().filter(|&&page| self.pool.is_free(page)).count();
        let checkpoint = hit.pages.last().and_then(|&page| states.checkpoint(page));
        if needed > self.pool.num_free() - kept || !states.can_start(checkpoint) {
            return false;
        }
        sequence.cached = hit.tokens(self.page_size);
        states.hold(sequence, checkpoint);
        hit.pages.iter().for_each(|&page| self.pool.hold(page));
        sequence.pages = hit.pages;
        self.take(sequence, needed, hit.partial.map(|partial| partial.page), states);
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.note_start(sequence);
        }
        if sequence.cached_prompt.is_none() {
            sequence.cached_prompt = Some(sequence.cached);
            sequence.prefix_end = hit.end;
        }
        true
    }

    pub(super) fn grow(&mut self, sequence: &mut Sequence, missing: usize, states: &mut States) -> bool {
        if missing > self.pool.num_free() {
            return false;
        }
        self.take(sequence, missing, None, states);
        true
    }

    pub(super) fn fork(&mut self, sequence: &Sequence, id: SequenceId, states: &mut States) -> Sequence {
        let prompt = sequence.prompt;
        let pages = sequence.pages[..prompt.div_ceil(self.page_size)].to_vec();
        pages.iter().for_each(|&page| self.pool.hold(page));
        Sequence {
            id,
            tokens: sequence.tokens[..prompt].to_vec(),
            siblings: Vec::new(),
            cached: prompt,
            borrows_tail: !prompt.is_multiple_of(self.page_size),
            pages,
            prefix: PrefixCache::fork(&sequence.prefix, prompt / self.page_size),
            state: states.fork(sequence),
            ..sequence.clone()
        }
    }

    /// Lends a sequence that holds the pages of its prompt `missing` more, and one of its own in the place of a last one that
    /// it shares. Lends nothing, and says no, when too few are free.
    pub(super) fn resume(&mut self, sequence: &mut Sequence, missing: usize, states: &mut States) -> bool {
        let index = sequence.pages.len() - 1;
        let tail = sequence.pages[index];
        let shared = sequence.borrows_tail && !self.pool.has_one_holder(tail);
        if missing + usize::from(shared) > self.pool.num_free() {
            return false;
        }
        self.take(sequence, missing, None, states);
        if sequence.borrows_tail {
            sequence.borrows_tail = false;
            self.own(sequence, index, states);
        }
        true
    }

    /// Makes sure that no other sequence sees what a sequence writes to a page: copies it, or else takes it out of the
    /// tree. There is a free page if another sequence holds this one.
    fn own(&mut self, sequence: &mut Sequence, index: usize, states: &mut States) {
        let from = sequence.pages[index];
        let kept = self.prefixes.as_ref().is_some_and(|prefixes| prefixes.holds(from));
        if self.pool.has_one_holder(from) && !(kept && self.pool.num_free() > 0) {
            // Pages that hang from it would be free, or their holders hold it too.
            self.forget(from, states);
            return;
        }
        let to = self.pool.take(&sequence.tenant).expect("the free pages were counted");
        self.forget(to, states);
        // Until the copy is made, which is before the next step, nothing is written to the page, even if it is lent again.
        self.copies.push(PageCopy { from, to });
        sequence.pages[index] = to;
        let keep = self.prefixes.as_ref().is_some_and(|prefixes| prefixes.holds(from));
        self.pool.release(from, keep);
    }

    pub(super) fn publish(&mut self, sequence: &mut Sequence, states: &mut States) {
        let Some(prefixes) = &mut self.prefixes else { return };
        prefixes.publish(sequence, &mut self.pool);
        let border = sequence.cached;
        if !states.are_kept() || border == 0 || !border.is_multiple_of(self.page_size) {
            return;
        }
        let page = sequence.pages[border / self.page_size - 1];
        let generates = border > sequence.prompt;
        let regular = border.is_multiple_of(states.interval(self.page_size));
        let ends_prompt = !generates && sequence.prompt - border <= self.page_size;
        // It is not in the tree if everything was forgotten meanwhile.
        if prefixes.holds(page) && (generates || regular || ends_prompt) {
            states.keep(sequence, page, generates);
        }
    }

    /// How many of the next `count` tokens of a sequence run before its state is to be kept; all if that is not before their
    /// end. It is kept at every so many tokens, and at the last borders between pages in the prompt and in all there is to run.
    pub(super) fn until_checkpoint(&self, sequence: &Sequence, count: usize, states: &States) -> usize {
        if self.prefixes.is_none() {
            return count;
        }
        let cached = sequence.cached;
        let last = |tokens: usize| (tokens - 1) / self.page_size * self.page_size;
        let interval = states.interval(self.page_size);
        let borders =
            [(cached / interval + 1) * interval, last(sequence.prompt), last(sequence.tokens.len())];
        let next = borders.into_iter().filter(|&border| border > cached).min();
        next.map_or(count, |border| count.min(border - cached))
    }

    /// The tail of a sequence goes first, so that it is used again first: the head is likelier to be shared, and
    /// no page is kept longer than the one before it.
    pub(super) fn release(&mut self, sequence: &mut Sequence, states: &mut States) {
        // The tail of another is not whole yet, and no state is kept within a page.
        let publishes = !sequence.borrows_tail && !states.are_kept();
        if let Some(prefixes) = self.prefixes.as_mut().filter(|_| publishes) {
            prefixes.publish_tail(sequence, &mut self.pool);
        }
        sequence.borrows_tail = false;
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
    fn take(&mut self, sequence: &mut Sequence, count: usize, source: Option<Page>, states: &mut States) {
        if let Some(source) = source {
            self.pool.touch(source);
        }
        let first = sequence.pages.len();
        for _ in 0..count {
            let page = self.pool.take(&sequence.tenant).expect("the free pages were counted");
            self.forget(page, states);
            sequence.pages.push(page);
        }
        if let Some(from) = source {
            let to = sequence.pages[first];
            self.copies.extend((from != to).then_some(PageCopy { from, to }));
        }
    }

    /// Takes a page out of the tree, if it is there: it will hold something else.
    fn forget(&mut self, page: Page, states: &mut States) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.forget(page);
            states.forget(page);
        }
    }
}
