//! SentencePiece's normalization: maps characters, removes extra spaces, and marks the others.

/// The mark that stands for a space inside tokens.
pub(super) const SPACE_MARK: &str = "▁";

/// How a text is changed before it is cut into tokens.
#[derive(Debug, Default)]
pub(super) struct Normalizer {
    pub(super) charsmap: Option<Charsmap>,
    /// Runs of spaces become one, and those at either end go.
    pub(super) remove_extra_spaces: bool,
    /// A text gets a space in front.
    pub(super) space_prefix: bool,
}

impl Normalizer {
    /// `text` with its characters mapped and its spaces marked; `at_start` says whether it may get a space in front.
    pub(super) fn normalize(&self, text: &str, at_start: bool) -> String {
        let mapped = self.charsmap.as_ref().map(|charsmap| charsmap.apply(text));
        let text = mapped.as_deref().unwrap_or(text);
        let mut marked = String::with_capacity(text.len() + text.len() / 2 + 3);
        if self.remove_extra_spaces {
            for (index, word) in text.split(' ').filter(|word| !word.is_empty()).enumerate() {
                if index > 0 || (self.space_prefix && at_start) {
                    marked.push_str(SPACE_MARK);
                }
                marked.push_str(word);
            }
        } else if !text.is_empty() {
            if self.space_prefix && at_start {
                marked.push_str(SPACE_MARK);
            }
            marked.push_str(&text.replace(' ', SPACE_MARK));
        }
        marked
    }
}

/// SentencePiece's precompiled character map: a double-array trie (Darts-clone's layout) from a run of bytes to an
/// offset into a list of NUL-ended replacements.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

impl Charsmap {
    /// Reads `u32 bytes of trie, trie, replacements`, little endian.
    ///
    /// # Errors
    /// The problem, in words.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let (size, rest) = bytes.split_first_chunk().ok_or("the character map has no header")?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, replacements) = rest
            .split_at_checked(size)
            .ok_or_else(|| format!("the character map's trie has {size} bytes, but {} follow", rest.len()))?;
        let replacements = std::str::from_utf8(replacements)
            .map_err(|_| "the character map's replacements are not UTF-8")?;
        let (units, _) = trie.as_chunks();
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Self { units, replacements: replacements.to_owned() })
    }

    fn apply(&self, text: &str) -> String {
        let mut mapped = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (len, replacement) = match self.longest_match(rest.as_bytes()) {
                Some((len, replacement)) if rest.is_char_boundary(len) => (len, replacement),
                _ => (c.len_utf8(), &rest[..c.len_utf8()]),
            };
            mapped.push_str(replacement);
            rest = &rest[len..];
        }
        mapped
    }

    /// The longest run of bytes at the start of `text` that has a replacement.
    fn longest_match(&self, text: &[u8]) -> Option<(usize, &str)> {
        let (len, start) = self.matches(text).last()?;
        Some((len, self.replacement(start)?))
    }

    /// The replacement of the shortest run of bytes at the start of `text` that has one.
    pub(super) fn shortest_match(&self, text: &str) -> Option<&str> {
        let text = text.as_bytes().split(|&byte| byte == 0).next().unwrap_or_default();
        let (_, start) = self.matches(text).next()?;
        self.replacement(start)
    }

    /// The runs of bytes at the start of `text` that have replacements, shortest first: their lengths, and where the
    /// replacements start. A trie that points outside itself matches no further.
    fn matches(&self, text: &[u8]) -> impl Iterator<Item = (usize, usize)> {
        let mut node = self.units.first().map(|&unit| offset(unit));
        let walk = text.iter().enumerate().map_while(move |(index, &byte)| {
            let inner = node? ^ usize::from(byte);
            let unit = *self.units.get(inner).filter(|&unit| unit & (1 << 31 | 0xFF) == u32::from(byte))?;
            let next = inner ^ offset(unit);
            node = Some(next);
            let leaf = if unit >> 8 & 1 == 1 { Some(*self.units.get(next)?) } else { None };
            Some(leaf.map(|leaf| (index + 1, (leaf & !(1 << 31)) as usize)))
        });
        walk.flatten()
    }

    /// The replacement that starts at a byte of the list.
    fn replacement(&self, start: usize) -> Option<&str> {
        self.replacements.get(start..)?.split('\0').next()
    }
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces() {
        let normalizer = |remove_extra_spaces, space_prefix| Normalizer {
            charsmap: None,
            remove_extra_spaces,
            space_prefix,
        };
        assert_eq!(normalizer(true, true).normalize("  a  b ", true), "▁a▁b");
        assert_eq!(normalizer(true, false).normalize("  a  b ", true), "a▁b");
        assert_eq!(normalizer(false, true).normalize(" a  b", true), "▁▁a▁▁b");
        assert_eq!(normalizer(false, true).normalize("a", false), "a");
        assert_eq!(normalizer(true, true).normalize("  ", true), "");
        assert_eq!(normalizer(false, true).normalize("", true), "");
    }

    #[test]
    fn hostile_maps_do_no_harm() {
        assert!(Charsmap::read(&[]).is_err());
        assert!(Charsmap::read(&[255, 255, 255, 255, 0]).is_err());
        assert!(Charsmap::read(&[0, 0, 0, 0, 0xFF]).is_err());
        for seed in 0..200u32 {
            let noise = (0..64u32).flat_map(|i| (seed * 64 + i).wrapping_mul(0x9E37_79B9).to_le_bytes());
            let mut bytes = 256u32.to_le_bytes().to_vec();
            bytes.extend(noise);
            bytes.extend(b"abc\0\xC3\xA9\0");
            Charsmap::read(&bytes).unwrap().apply("héllo wörld \u{10FFFF}");
        }
    }
}
