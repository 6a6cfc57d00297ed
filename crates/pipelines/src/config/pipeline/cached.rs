//! What a configuration finds out and need not find again.

use std::fmt;
use std::sync::OnceLock;

/// A value that is found once, when it is first asked for. It is no part of what a configuration says: all are equal,
/// and none is written to files.
pub struct Cached<T>(OnceLock<T>);

impl<T> Cached<T> {
    /// The value, which `find` gives the first time.
    ///
    /// # Errors
    /// That of `find`, which is then asked again the next time.
    pub fn get_or_try<E>(&self, find: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(found) = self.0.get() {
            return Ok(found);
        }
        let found = find()?;
        Ok(self.0.get_or_init(|| found))
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Cached<T> {
        Cached(OnceLock::new())
    }
}

impl<T: Clone> Clone for Cached<T> {
    fn clone(&self) -> Cached<T> {
        Cached(self.0.clone())
    }
}

impl<T> PartialEq for Cached<T> {
    fn eq(&self, _: &Cached<T>) -> bool {
        true
    }
}

impl<T> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "found" } else { "not asked for" })
    }
}
