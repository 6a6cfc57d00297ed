//! Many strings in one run of bytes.

use std::fmt;
use std::ops::Range;

use tensor::Bytes;

/// Many strings in one run of bytes: a vocabulary of 128 000 tokens costs no allocation of its own.
///
/// They are bytes until someone asks for text, since old vocabularies cut characters in two. Nothing is lost.
#[derive(Clone)]
pub struct Strings {
    bytes: Bytes,
    ranges: Vec<Range<usize>>,
}

impl Strings {
    /// Strings at the given places in `bytes`, every one of which must lie inside.
    pub(crate) fn new(bytes: Bytes, ranges: Vec<Range<usize>>) -> Strings {
        debug_assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= bytes.len()));
        Strings { bytes, ranges }
    }

    /// How many strings.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The bytes of one string.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(self.ranges.get(index)?.clone())
    }

    /// The bytes of each string, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let bytes: &[u8] = &self.bytes;
        self.ranges.iter().map(move |range| &bytes[range.clone()])
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut bytes = Vec::new();
        let ranges = strings.into_iter().map(|string| {
            let start = bytes.len();
            bytes.extend_from_slice(string.as_ref());
            start..bytes.len()
        });
        let ranges = ranges.collect();
        Strings::new(Bytes::new(bytes), ranges)
    }
}

impl PartialEq for Strings {
    fn eq(&self, other: &Strings) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}
