//! The compiled grammars that were used last.

use std::collections::HashMap;

/// Compiled grammars that are kept.
pub(super) const MAX_GRAMMARS: usize = 256;

/// A map that forgets what was not used for the longest time.
#[derive(Debug)]
pub(super) struct Cache<V> {
    /// Each with the time of its last use.
    entries: HashMap<[u8; 32], (u64, V)>,
    uses: u64,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Cache { entries: HashMap::new(), uses: 0 }
    }
}

impl<V: Clone> Cache<V> {
    pub(super) fn get(&mut self, key: &[u8; 32]) -> Option<V> {
        self.uses += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(value.clone())
    }

    pub(super) fn insert(&mut self, key: [u8; 32], value: V) {
        self.uses += 1;
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > MAX_GRAMMARS {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
            oldest.map(|key| self.entries.remove(&key));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
