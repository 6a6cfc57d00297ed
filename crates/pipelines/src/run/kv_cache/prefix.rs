//! Prefix caching: pages are known by what they hold, and lent again to sequences that begin alike.
//!
//! The pages form a tree: each hangs from the page before it, first pages from a root of their cache salt. A page
//! has a name, the keyed hash of its parent's name and its own tokens, which finds it; its tokens and its parent
//! are compared as well, so that no collision can lend a page that holds something else.
//!
//! A sequence that holds a page holds its parent too, and pages are released tail first, so a page never outlives its
//! parent here. It belongs to the tenant of its parent, so that it is given up before that.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use blake3::Hasher;

use super::event::CacheEvent;
use super::page_pool::{Page, PagePool};
use super::prefix_end::PrefixEnd;
use super::sequence::{Name, PrefixState, Sequence};
use super::states::States;

/// How many tokens of prompts were in the cache already when their sequences started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PrefixStats {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Those that did not have to run.
    pub cached_tokens: u64,
}

impl PrefixStats {
    /// Cached tokens as a part of all, from 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        if self.prompt_tokens == 0 { 0.0 } else { self.cached_tokens as f64 / self.prompt_tokens as f64 }
    }
}

/// The longest beginning of a sequence that pages hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hit {
    /// Pages that hold it in full.
    pub(super) pages: Vec<Page>,
    /// A page that begins as the next one is to begin.
    pub(super) partial: Option<Partial>,
    /// Why it ends there.
    pub(super) end: PrefixEnd,
}

/// A page of which only the beginning can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partial {
    pub(super) page: Page,
    /// Tokens of the beginning.
    tokens: usize,
}

impl Hit {
    /// Tokens that need not run.
    pub(super) fn tokens(&self, page_size: usize) -> usize {
        self.pages.len() * page_size + self.partial.map_or(0, |partial| partial.tokens)
    }
}

/// The tree of pages: full ones, and those at the ends of sequences that are gone.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    page_size: usize,
    /// A name cannot be foreseen outside of this process.
    key: [u8; 32],
    /// Makes a name of what was hashed; tests make names collide.
    finish: fn(&Hasher) -> Name,
    by_name: HashMap<Name, Page>,
    /// By page.
    nodes: Vec<Option<Node>>,
    /// First pages, by salt.
    roots: HashMap<Option<Arc<str>>, Vec<Page>>,
    /// How often everything was forgotten.
    epoch: u64,
    stats: PrefixStats,
    /// Since they were last taken, if they are recorded.
    events: Option<Vec<CacheEvent>>,
}

#[derive(Debug)]
struct Node {
    name: Name,
    parent: Parent,
    tokens: Arc<[u32]>,
    children: Vec<Page>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Parent {
    Root(Option<Arc<str>>),
    Page(Page),
}

impl PrefixCache {
    pub(super) fn new(num_pages: usize, page_size: usize) -> PrefixCache {
        PrefixCache {
            page_size,
            key: random_key(),
            finish: |hasher| *hasher.finalize().as_bytes(),
            by_name: HashMap::new(),
            nodes: (0..num_pages).map(|_| None).collect(),
            roots: HashMap::new(),
            epoch: 0,
            stats: PrefixStats::default(),
            events: None,
        }
    }

    /// Records changes from now on. Returns how an empty tree becomes this one.
    pub(crate) fn record_events(&mut self) -> Vec<CacheEvent> {
        self.events.get_or_insert_default();
        let mut events = vec![CacheEvent::Cleared];
        for (salt, pages) in &self.roots {
            let mut pages: VecDeque<Page> = pages.iter().copied().collect();
            while let Some(page) = pages.pop_front() {
                let node = self.nodes[page as usize].as_ref().expect("the pages of the tree are nodes");
                events.extend(self.stored(page, node, salt));
                pages.extend(&node.children);
            }
        }
        events
    }

    /// The changes since they were last taken.
    pub(crate) fn take_events(&mut self) -> Vec<CacheEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records no further changes.
    pub(crate) fn ignore_events(&mut self) {
        self.events = None;
    }

    /// A tree like this one with nothing in it.
    pub(super) fn emptied(&self) -> PrefixCache {
        let events = self.events.as_ref().map(|_| vec![CacheEvent::Cleared]);
        PrefixCache { events, ..PrefixCache::new(self.nodes.len(), self.page_size) }
    }

    pub(super) fn stats(&self) -> PrefixStats {
        self.stats
    }

    /// Whether a page is in the tree.
    pub(super) fn holds(&self, page: Page) -> bool {
        self.nodes[page as usize].is_some()
    }

    /// The longest beginning of a sequence that is in the tree, but for its last token: that one must run, as the
    /// next is predicted from it. If there are states, it ends with a page that has a checkpoint.
    pub(super) fn find(&self, sequence: &mut Sequence, states: &States) -> Hit {
        if sequence.compute_all {
            return Hit { end: PrefixEnd::PromptLogits, ..Hit::default() };
        }
        self.name_pages(sequence);
        let reusable = &sequence.tokens[..sequence.tokens.len() - 1];
        let mut hit = Hit::default();
        let mut parent = Parent::Root(sequence.cache_salt.clone());
        for (name, tokens) in sequence.prefix.names.iter().zip(reusable.chunks_exact(self.page_size)) {
            let Some(page) = self.get(name, &parent, tokens) else { break };
            hit.pages.push(page);
            parent = Parent::Page(page);
        }
        let matching = hit.pages.len() * self.page_size;
        let following = &reusable[matching..];
        hit.partial = self.find_partial(&parent, following);
        hit.end = self.end_of(&parent, following, hit.partial.map_or(0, |partial| partial.tokens));
        if states.are_kept() {
            hit.partial = None;
            let deepest = hit.pages.iter().rposition(|&page| states.checkpoint(page).is_some());
            hit.pages.truncate(deepest.map_or(0, |index| index + 1));
            if hit.pages.len() * self.page_size < matching {
                hit.end = PrefixEnd::NoState { matching };
            }
        }
        hit
    }

    /// Why no more of the `following` tokens are found below a parent than `common` ones at their beginning.
    fn end_of(&self, parent: &Parent, following: &[u32], common: usize) -> PrefixEnd {
        let goes_on = |&page: &Page| {
            let tokens = &self.node(page).tokens;
            tokens.len() > common && tokens[..common] == following[..common]
        };
        if following.len() == common {
            PrefixEnd::LastToken
        } else if self.children(parent).is_some_and(|pages| pages.iter().any(goes_on)) {
            PrefixEnd::OtherTokens
        } else {
            PrefixEnd::NothingCached
        }
    }

    /// Takes note that a sequence runs with the pages that were found for it.
    pub(super) fn note_start(&mut self, sequence: &mut Sequence) {
        sequence.prefix.published = sequence.cached / self.page_size;
        sequence.prefix.epoch = self.epoch;
        if sequence.cached_prompt.is_none() {
            self.stats.prompt_tokens += sequence.prompt as u64;
            self.stats.cached_tokens += sequence.cached.min(sequence.prompt) as u64;
        }
    }

    /// Puts the pages that a sequence has filled into the tree. Where the same page is there already, the sequence
    /// holds that one from now on, and its own is free.
    pub(super) fn publish(&mut self, sequence: &mut Sequence, pool: &mut PagePool) {
        // What began before everything was forgotten stays forgotten.
        if sequence.prefix.epoch != self.epoch {
            return;
        }
        while (sequence.prefix.published + 1) * self.page_size <= sequence.cached {
            let index = sequence.prefix.published;
            self.name_pages(sequence);
            let name = sequence.prefix.names[index];
            let tokens = &sequence.tokens[index * self.page_size..][..self.page_size];
            let parent = match index.checked_sub(1) {
                None => Parent::Root(sequence.cache_salt.clone()),
                Some(before) => Parent::Page(sequence.pages[before]),
            };
            match self.get(&name, &parent, tokens) {
                None => {
                    let page = sequence.pages[index];
                    self.insert(page, name, parent, tokens.into(), &sequence.cache_salt, pool);
                }
                Some(page) => {
                    pool.hold(page);
                    pool.release(std::mem::replace(&mut sequence.pages[index], page), false);
                }
            }
            sequence.prefix.published += 1;
        }
    }

    /// Puts the page that a sequence has begun to fill into the tree, now that the sequence leaves it: the next turn of
    /// a conversation copies it. No page hangs from one that is not full.
    pub(super) fn publish_tail(&mut self, sequence: &mut Sequence, pool: &mut PagePool) {
        let index = sequence.prefix.published;
        let filled = sequence.cached.min(sequence.tokens.len());
        let tail = index * self.page_size..filled;
        if sequence.prefix.epoch != self.epoch || tail.is_empty() || tail.len() >= self.page_size {
            return;
        }
        self.name_pages(sequence);
        let tokens = &sequence.tokens[tail];
        let name = self.name(sequence.prefix.names[..index].last(), &sequence.cache_salt, tokens);
        let parent = match index.checked_sub(1) {
            None => Parent::Root(sequence.cache_salt.clone()),
            Some(before) => Parent::Page(sequence.pages[before]),
        };
        let page = sequence.pages[index];
        if !self.by_name.contains_key(&name) && !self.holds(page) {
            self.insert(page, name, parent, tokens.into(), &sequence.cache_salt, pool);
        }
    }

    /// Takes a page out of the tree, if it is there: it will hold something else.
    pub(super) fn forget(&mut self, page: Page) {
        let Some(node) = self.nodes[page as usize].take() else { return };
        debug_assert!(node.children.is_empty(), "pages are released tail first");
        if let Some(events) = self.events.as_mut().filter(|_| node.tokens.len() == self.page_size) {
            events.push(CacheEvent::Removed { page });
        }
        if self.by_name.get(&node.name) == Some(&page) {
            self.by_name.remove(&node.name);
        }
        let siblings = self.children_mut(&node.parent);
        siblings.retain(|&sibling| sibling != page);
        if let (Parent::Root(salt), true) = (&node.parent, siblings.is_empty()) {
            self.roots.remove(salt);
        }
    }

    /// What a sequence knows of its pages if it has the first `pages` of another's, and tokens of its own after them.
    pub(super) fn fork(of: &PrefixState, pages: usize) -> PrefixState {
        let mut state = of.clone();
        state.names.truncate(pages);
        state
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.by_name.clear();
        self.roots.clear();
        self.nodes.fill_with(|| None);
        self.epoch += 1;
        self.stats = PrefixStats::default();
        if let Some(events) = &mut self.events {
            *events = vec![CacheEvent::Cleared];
        }
    }

    /// Names the full pages of a sequence that have no name yet.
    fn name_pages(&self, sequence: &mut Sequence) {
        let names = &mut sequence.prefix.names;
        for tokens in sequence.tokens.chunks_exact(self.page_size).skip(names.len()) {
            names.push(self.name(names.last(), &sequence.cache_salt, tokens));
        }
    }

    /// The name of a page with these tokens.
    fn name(&self, parent: Option<&Name>, salt: &Option<Arc<str>>, tokens: &[u32]) -> Name {
        let mut hasher = Hasher::new_keyed(&self.key);
        match (parent, salt) {
            (Some(parent), _) => hasher.update(b"page").update(parent),
            (None, None) => hasher.update(b"root"),
            (None, Some(salt)) => {
                hasher.update(b"salt").update(&(salt.len() as u64).to_le_bytes()).update(salt.as_bytes())
            }
        };
        tokens.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
        (self.finish)(&hasher)
    }

    fn get(&self, name: &Name, parent: &Parent, tokens: &[u32]) -> Option<Page> {
        let page = *self.by_name.get(name)?;
        let node = self.nodes[page as usize].as_ref().expect("names are those of nodes");
        (node.parent == *parent && *node.tokens == *tokens).then_some(page)
    }

    /// The page below `parent` that has most tokens in common with what follows there.
    fn find_partial(&self, parent: &Parent, following: &[u32]) -> Option<Partial> {
        let children = self.children(parent)?;
        let common = |&page: &Page| {
            let tokens = self.node(page).tokens.iter().zip(following).take_while(|(a, b)| a == b).count();
            Partial { page, tokens }
        };
        children.iter().map(common).max_by_key(|partial| partial.tokens).filter(|partial| partial.tokens > 0)
    }

    fn insert(
        &mut self,
        page: Page,
        name: Name,
        parent: Parent,
        tokens: Arc<[u32]>,
        salt: &Option<Arc<str>>,
        pool: &mut PagePool,
    ) {
        if let Parent::Page(parent) = parent {
            pool.give(page, parent);
        }
        self.children_mut(&parent).push(page);
        self.by_name.insert(name, page);
        let node = Node { name, parent, tokens, children: Vec::new() };
        let stored = self.stored(page, &node, salt);
        if let Some(events) = &mut self.events {
            events.extend(stored);
        }
        self.nodes[page as usize] = Some(node);
    }

    /// How a page comes to be in the tree, if it is full.
    fn stored(&self, page: Page, node: &Node, salt: &Option<Arc<str>>) -> Option<CacheEvent> {
        let parent = match node.parent {
            Parent::Root(_) => None,
            Parent::Page(parent) => Some(parent),
        };
        let (tokens, cache_salt) = (Arc::clone(&node.tokens), salt.clone());
        (tokens.len() == self.page_size).then_some(CacheEvent::Stored { page, parent, tokens, cache_salt })
    }

    fn node(&self, page: Page) -> &Node {
        self.nodes[page as usize].as_ref().expect("the pages of the tree are nodes")
    }

    fn children(&self, parent: &Parent) -> Option<&Vec<Page>> {
        match parent {
            Parent::Root(salt) => self.roots.get(salt),
            Parent::Page(page) => Some(&self.node(*page).children),
        }
    }

    fn children_mut(&mut self, parent: &Parent) -> &mut Vec<Page> {
        match parent {
            Parent::Root(salt) => self.roots.entry(salt.clone()).or_default(),
            Parent::Page(page) => {
                &mut self.nodes[*page as usize].as_mut().expect("a page outlives its children").children
            }
        }
    }
}

/// A key of the randomness that the standard library takes from the system.
fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    let random = RandomState::new();
    for (index, part) in key.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&random.hash_one(index).to_le_bytes());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::kv_cache::SequenceId;

    /// Even if all pages have one name, no sequence gets a page that holds something else.
    #[test]
    fn names_that_collide_lend_nothing_wrong() {
        let mut pool = PagePool::new(8);
        let mut prefixes = PrefixCache { finish: |_| [7; 32], ..PrefixCache::new(8, 2) };
        let mut publish = |prefixes: &mut PrefixCache, tokens: &[u32]| {
            let mut sequence = Sequence::new(SequenceId(0), tokens.to_vec(), 100);
            sequence.pages = tokens.chunks(2).map(|_| pool.take(&None).unwrap()).collect();
            sequence.cached = tokens.len();
            prefixes.publish(&mut sequence, &mut pool);
            sequence.pages
        };
        let find = |prefixes: &PrefixCache, tokens: &[u32]| -> Vec<Page> {
            let mut sequence = Sequence::new(SequenceId(0), tokens.to_vec(), 100);
            prefixes.find(&mut sequence, &States::new(0)).pages
        };
        let first = publish(&mut prefixes, &[1, 2]);
        assert_eq!(find(&prefixes, &[1, 2, 9]), first);
        assert!(find(&prefixes, &[3, 4, 9]).is_empty());
        let second = publish(&mut prefixes, &[3, 4]);
        assert_eq!(find(&prefixes, &[3, 4, 9]), second);
        assert!(find(&prefixes, &[1, 2, 9]).is_empty(), "the name finds the other page now");
        // The same tokens after others are another page.
        let third = publish(&mut prefixes, &[5, 6, 3, 4]);
        assert_ne!(third[1], second[0]);
        assert!(find(&prefixes, &[3, 4, 9]).is_empty());
        third.iter().rev().chain(&second).chain(&first).for_each(|&page| prefixes.forget(page));
        assert!(prefixes.by_name.is_empty() && prefixes.roots.is_empty());
    }

    #[test]
    fn keys_differ() {
        assert_ne!(random_key(), random_key());
    }
}
