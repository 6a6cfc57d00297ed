//! What a configuration finds out and need not find again.

use std::fmt;
use std::sync::OnceLock;

/// A value that is found once for what it follows from, when it is first asked for. It is no part of what a
/// configuration says: all are equal, and none is written to files.
pub struct Cached<K, T>(OnceLock<(Option<K>, T)>);

impl<K: PartialEq, T: Clone> Cached<K, T> {
    /// The value, which `find` gives the first time, and whenever it follows from something else.
    ///
    /// # Errors
    /// That of `find`, which is then asked again the next time.
    pub fn get_or_try<E>(&self, key: K, find: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if let Some((known, found)) = self.0.get()
            && known.as_ref().is_none_or(|known| *known == key)
        {
            return Ok(found.clone());
        }
        let found = find()?;
        // One that follows from something else stays: a fresh configuration asks anew.
        let _ = self.0.set((Some(key), found.clone()));
        Ok(found)
    }

    /// The value, if it was given rather than found.
    pub fn given(&self) -> Option<&T> {
        self.0.get().filter(|(known, _)| known.is_none()).map(|(_, given)| given)
    }
}

/// A value that is given, whatever it would follow from.
impl<K, T> From<T> for Cached<K, T> {
    fn from(given: T) -> Cached<K, T> {
        Cached(OnceLock::from((None, given)))
    }
}

impl<K, T> Default for Cached<K, T> {
    fn default() -> Cached<K, T> {
        Cached(OnceLock::new())
    }
}

impl<K: Clone, T: Clone> Clone for Cached<K, T> {
    fn clone(&self) -> Cached<K, T> {
        Cached(self.0.clone())
    }
}

impl<K, T> PartialEq for Cached<K, T> {
    fn eq(&self, _: &Cached<K, T>) -> bool {
        true
    }
}

impl<K, T> fmt::Debug for Cached<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "found" } else { "not asked for" })
    }
}
