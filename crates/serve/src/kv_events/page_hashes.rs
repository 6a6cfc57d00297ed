//! The names of pages outside of the process: a hash of a page's tokens and of all before it.

use std::collections::HashMap;

use minicbor::Encoder;
use pipelines::{CacheEvent, Page};
use sha2::{Digest, Sha256};

use super::batch::Event;

/// How pages are named. The name is the last 8 bytes of the hash, as a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KvEventsHash {
    /// BLAKE3 over the parent's hash, the tokens and the salt, for routers that learn names from the events.
    #[default]
    Internal,
    /// `sha256_cbor` of vLLM 0.33.0, for routers that compute the names themselves.
    VllmSha256Cbor {
        /// The beginning of each chain: the `PYTHONHASHSEED` of vLLM and the router, or else [`VLLM_SEED`].
        seed: String,
    },
}

/// The beginning of vLLM's chains without a `PYTHONHASHSEED`.
pub const VLLM_SEED: &str = "vllm-none-hash";

type Hash = [u8; 32];

/// The names of the pages that routers know.
pub(super) struct PageHashes {
    rule: KvEventsHash,
    salted: bool,
    hashes: HashMap<Page, Hash>,
}

impl PageHashes {
    pub(super) fn new(rule: &KvEventsHash, salted: bool) -> PageHashes {
        PageHashes { rule: rule.clone(), salted, hashes: HashMap::new() }
    }

    /// The events as routers read them. Pages that follow each other share one.
    pub(super) fn name(&mut self, events: Vec<CacheEvent>) -> Vec<Event> {
        let mut named = Vec::new();
        // The page that a page must follow to join the last event.
        let mut last = None;
        for event in events {
            match event {
                CacheEvent::Stored { page, parent, tokens, cache_salt } => {
                    if cache_salt.is_some() && !self.salted {
                        continue;
                    }
                    let parent_hash = parent.and_then(|parent| self.hashes.get(&parent));
                    let hash = self.rule.hash(parent_hash, &tokens, cache_salt.as_deref());
                    match named.last_mut() {
                        Some(Event::Stored(chain)) if parent.is_some() && parent == last => {
                            chain.block_hashes.push(number(&hash));
                            chain.token_ids.extend_from_slice(&tokens);
                        }
                        _ => named.push(Event::stored(number(&hash), parent_hash.map(number), &tokens)),
                    }
                    self.hashes.insert(page, hash);
                    last = Some(page);
                }
                CacheEvent::Removed { page } => {
                    let Some(hash) = self.hashes.remove(&page) else { continue };
                    match named.last_mut() {
                        Some(Event::Removed(removed)) => removed.block_hashes.push(number(&hash)),
                        _ => named.push(Event::removed(number(&hash))),
                    }
                }
                CacheEvent::Cleared => {
                    self.hashes.clear();
                    named.push(Event::cleared());
                }
                _ => {}
            }
        }
        named
    }
}

impl KvEventsHash {
    fn hash(&self, parent: Option<&Hash>, tokens: &[u32], salt: Option<&str>) -> Hash {
        match self {
            KvEventsHash::Internal => internal(parent, tokens, salt),
            KvEventsHash::VllmSha256Cbor { seed } => {
                let root = || sha256(|cbor| drop(cbor.str(seed)));
                // Only first pages name their salt: the others name it through their parents.
                sha256_cbor(parent.copied().unwrap_or_else(root), tokens, salt.filter(|_| parent.is_none()))
            }
        }
    }
}

fn number(hash: &Hash) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn internal(parent: Option<&Hash>, tokens: &[u32], salt: Option<&str>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    match (parent, salt) {
        (Some(parent), _) => hasher.update(parent),
        (None, salt) => hasher.update(salt.unwrap_or_default().as_bytes()),
    };
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// `hash_block_tokens` of vLLM's `v1/core/kv_cache_utils.py`: SHA-256 of the canonical CBOR of (parent, tokens, extra).
fn sha256_cbor(parent: Hash, tokens: &[u32], salt: Option<&str>) -> Hash {
    sha256(|cbor| {
        let _ = cbor
            .array(3)
            .and_then(|cbor| cbor.bytes(&parent))
            .and_then(|cbor| cbor.array(tokens.len() as u64));
        tokens.iter().for_each(|&token| drop(cbor.u32(token)));
        let _ = match salt {
            Some(salt) => cbor
                .array(1)
                .and_then(|cbor| cbor.array(2)?.str("cache_salt"))
                .and_then(|cbor| cbor.str(salt)),
            None => cbor.null(),
        };
    })
}

/// Writing to memory cannot fail.
fn sha256(write: impl FnOnce(&mut Encoder<Vec<u8>>)) -> Hash {
    let mut cbor = Encoder::new(Vec::new());
    write(&mut cbor);
    Sha256::digest(cbor.into_writer()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(page: Page, parent: Option<Page>, tokens: &[u32], salt: Option<&str>) -> CacheEvent {
        CacheEvent::Stored { page, parent, tokens: tokens.into(), cache_salt: salt.map(Into::into) }
    }

    const FIRST: [u32; 4] = [1, 24, 300, 70_000];
    const SECOND: [u32; 4] = [0, 23, 65_535, u32::MAX];

    fn vllm(seed: &str) -> PageHashes {
        PageHashes::new(&KvEventsHash::VllmSha256Cbor { seed: seed.into() }, true)
    }

    /// The numbers are those of `hash_block_tokens` of vLLM 0.33.0.
    #[test]
    fn pages_have_the_names_that_vllm_gives_them() {
        let mut pages = vllm(VLLM_SEED);
        let named = pages.name(vec![
            stored(5, None, &FIRST, None),
            stored(3, Some(5), &SECOND, None),
            stored(4, None, &FIRST, Some("säure")),
        ]);
        let [Event::Stored(chain), salted] = &named[..] else { panic!("{named:?}") };
        assert_eq!(chain.block_hashes, [0xf5ed_fdc4_f7f4_5bd4, 0x6f9f_aea3_e21f_1e3b]);
        assert_eq!(chain.token_ids, [FIRST, SECOND].concat());
        assert_eq!(*salted, Event::stored(0x2e4b_5274_8f69_4294, None, &FIRST));
        let seeded = vllm("42").name(vec![stored(0, None, &FIRST, None)]);
        assert_eq!(seeded, [Event::stored(0x11e1_fa73_d957_46d5, None, &FIRST)]);
    }

    #[test]
    fn names_outlive_batches_and_end_with_their_pages() {
        let mut pages = vllm(VLLM_SEED);
        pages.name(vec![stored(5, None, &FIRST, None)]);
        let later = pages.name(vec![stored(3, Some(5), &SECOND, None)]);
        assert_eq!(later, [Event::stored(0x6f9f_aea3_e21f_1e3b, Some(0xf5ed_fdc4_f7f4_5bd4), &SECOND)]);
        let removed = pages.name(vec![CacheEvent::Removed { page: 3 }, CacheEvent::Removed { page: 9 }]);
        assert_eq!(removed, [Event::removed(0x6f9f_aea3_e21f_1e3b)]);
        assert_eq!(pages.name(vec![CacheEvent::Cleared]), [Event::cleared()]);
        assert_eq!(pages.name(vec![CacheEvent::Removed { page: 5 }]), []);
    }

    #[test]
    fn internal_names_depend_on_all_tokens_before_and_on_the_salt() {
        let name = |first: &[u32], salt| {
            let mut pages = PageHashes::new(&KvEventsHash::Internal, true);
            let named = pages.name(vec![stored(0, None, first, salt), stored(1, Some(0), &SECOND, salt)]);
            let [Event::Stored(chain)] = &named[..] else { panic!("{named:?}") };
            chain.block_hashes[1]
        };
        let all = [name(&FIRST, None), name(&SECOND, None), name(&FIRST, Some("a")), name(&FIRST, Some("b"))];
        assert!((1..all.len()).all(|end| !all[..end].contains(&all[end])), "{all:x?}");
        assert_eq!(name(&FIRST, None), all[0], "another process names it so too");
    }

    #[test]
    fn salted_pages_stay_private() {
        let mut pages = PageHashes::new(&KvEventsHash::Internal, false);
        let events = vec![stored(0, None, &FIRST, Some("key")), CacheEvent::Removed { page: 0 }];
        assert_eq!(pages.name(events), []);
    }
}
