//! A text that is changed step by step, and for each of its bytes the place in the text that it comes from.
//!
//! Places follow the library `tokenizers`: a character that replaces another takes its place, and one that is inserted
//! takes the place of the one before it.

use std::borrow::Cow;
use std::ops::Range;

/// Bytes of the given text, from and to.
type Span = (u32, u32);

/// A part of a text, perhaps changed.
#[derive(Debug, Clone)]
pub(super) struct Aligned<'t> {
    text: Cow<'t, str>,
    spans: Spans,
    /// The most bytes that changes may make of it.
    limit: usize,
}

#[derive(Debug, Clone)]
enum Spans {
    /// Not changed: the text starts at this byte of the given one.
    Verbatim(u32),
    /// One per byte.
    Each(Vec<Span>),
}

/// A changed text under construction.
struct Edit<'a, 't> {
    source: &'a Aligned<'t>,
    text: String,
    spans: Vec<Span>,
}

impl<'t> Aligned<'t> {
    /// `text`, which starts at byte `start` of the given text.
    pub(super) fn new(text: &'t str, start: usize) -> Aligned<'t> {
        /// No normalizer makes more than 18 bytes of one.
        const GROWTH: usize = 32;
        let limit = text.len().saturating_mul(GROWTH).saturating_add(1 << 20).min(i32::MAX as usize);
        Aligned { text: Cow::Borrowed(text), spans: Spans::Verbatim(start as u32), limit }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The bytes of the given text that `range` comes from, if it comes from any.
    pub(super) fn place(&self, range: Range<usize>) -> Option<Range<usize>> {
        if range.start >= range.end || range.end > self.text.len() {
            return None;
        }
        let place = self.span(range.start).0 as usize..self.span(range.end - 1).1 as usize;
        (!place.is_empty()).then_some(place)
    }

    /// Whether the byte at `index` comes from the start of the given text.
    pub(super) fn is_at_start(&self, index: usize) -> bool {
        index < self.text.len() && self.span(index).0 == 0
    }

    /// A part of the text.
    pub(super) fn slice(&self, range: Range<usize>) -> Aligned<'t> {
        let text = match &self.text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[range.clone()]),
            Cow::Owned(text) => Cow::Owned(text[range.clone()].to_owned()),
        };
        let spans = match &self.spans {
            Spans::Verbatim(start) => Spans::Verbatim(start + range.start as u32),
            Spans::Each(spans) => Spans::Each(spans[range].to_vec()),
        };
        Aligned { text, spans, limit: self.limit }
    }

    /// Puts for each character those that `map` emits.
    pub(super) fn map(self, mut map: impl FnMut(char, &mut dyn FnMut(char))) -> Result<Aligned<'t>, String> {
        let whole = 0..self.text.len();
        let (mapped, _) = self.map_words(&[whole], |_, c, emit| map(c, emit))?;
        Ok(mapped)
    }

    /// Keeps of the text these words, and puts for each character of them those that `map` emits; it is told where the
    /// word starts if the character is the first of it. Gives the new text, and the words in it.
    pub(super) fn map_words(
        &self,
        words: &[Range<usize>],
        mut map: impl FnMut(Option<usize>, char, &mut dyn FnMut(char)),
    ) -> Result<(Aligned<'t>, Vec<Range<usize>>), String> {
        let mut edit = Edit::new(self);
        let mut ranges = Vec::with_capacity(words.len());
        for word in words {
            let start = edit.text.len();
            for (offset, c) in self.text[word.clone()].char_indices() {
                let span = self.span(word.start + offset);
                map((offset == 0).then_some(word.start), c, &mut |c| edit.push(c, span));
            }
            ranges.push(start..edit.text.len());
        }
        Ok((edit.finish()?, ranges))
    }

    /// Puts other characters in place of all: each comes with 1 if it is inserted, and otherwise with less, replacing
    /// one character and removing as many more as the number is below 0.
    pub(super) fn rewrite(
        self,
        events: impl IntoIterator<Item = (char, isize)>,
    ) -> Result<Aligned<'t>, String> {
        let mut edit = Edit::new(&self);
        let mut replaced = self.text.char_indices();
        // The byte after the last character that was replaced or removed.
        let mut done = 0;
        for (c, change) in events {
            if change > 0 {
                edit.push(c, self.span_before(done));
                continue;
            }
            edit.push(c, self.span(done.min(self.text.len().saturating_sub(1))));
            for (start, old) in replaced.by_ref().take(1 + change.unsigned_abs()) {
                done = start + old.len_utf8();
            }
        }
        edit.finish()
    }

    /// Puts `content` in place of each of these ranges, which are in order.
    pub(super) fn replace(self, ranges: &[Range<usize>], content: &str) -> Result<Aligned<'t>, String> {
        if ranges.is_empty() {
            return Ok(self);
        }
        let mut edit = Edit::new(&self);
        let mut done = 0;
        for range in ranges {
            edit.copy(done..range.start);
            let span = self.span_before(range.end);
            content.chars().for_each(|c| edit.push(c, span));
            done = range.end;
        }
        edit.copy(done..self.text.len());
        edit.finish()
    }

    /// The place of the byte before `index`; at the start of the text an empty one.
    fn span_before(&self, index: usize) -> Span {
        match index.checked_sub(1) {
            Some(before) if before < self.text.len() => self.span(before),
            _ if self.text.is_empty() => (0, 0),
            _ => (self.span(0).0, self.span(0).0),
        }
    }

    fn span(&self, index: usize) -> Span {
        match &self.spans {
            Spans::Each(spans) => spans.get(index).copied().unwrap_or_default(),
            Spans::Verbatim(start) => {
                let from = self.text.floor_char_boundary(index);
                let to = self.text.ceil_char_boundary(index + 1);
                (start + from as u32, start + to as u32)
            }
        }
    }
}

impl<'a, 't> Edit<'a, 't> {
    fn new(source: &'a Aligned<'t>) -> Self {
        let room = source.text.len() + source.text.len() / 2;
        Edit { source, text: String::with_capacity(room), spans: Vec::with_capacity(room) }
    }

    fn push(&mut self, c: char, span: Span) {
        // `finish` refuses a text that is too long.
        if self.text.len() <= self.source.limit {
            self.text.push(c);
            self.spans.resize(self.text.len(), span);
        }
    }

    fn copy(&mut self, range: Range<usize>) {
        for (offset, c) in self.source.text[range.clone()].char_indices() {
            self.push(c, self.source.span(range.start + offset));
        }
    }

    fn finish(self) -> Result<Aligned<'t>, String> {
        let limit = self.source.limit;
        if self.text.len() > limit {
            return Err(format!("the tokenizer's normalizers make more than {limit} bytes of the text"));
        }
        Ok(Aligned { text: Cow::Owned(self.text), spans: Spans::Each(self.spans), limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &Aligned<'_>, expected: &str, places: &[(usize, usize)]) {
        assert_eq!(text.text(), expected);
        let found = expected.char_indices().map(|(start, c)| {
            text.place(start..start + c.len_utf8()).map_or((0, 0), |place| (place.start, place.end))
        });
        assert_eq!(found.collect::<Vec<_>>(), places, "{expected}");
    }

    #[test]
    fn characters_keep_their_places() {
        let text = Aligned::new("aé b", 10);
        check(&text, "aé b", &[(10, 11), (11, 13), (13, 14), (14, 15)]);
        check(&text.slice(1..3), "é", &[(11, 13)]);
        let mapped = text.clone().map(|c, emit| if c == ' ' { "__".chars().for_each(emit) } else { emit(c) });
        let mapped = mapped.unwrap();
        check(&mapped, "aé__b", &[(10, 11), (11, 13), (13, 14), (13, 14), (14, 15)]);
        check(&mapped.slice(3..6), "__b", &[(13, 14), (13, 14), (14, 15)]);
        check(
            &text.clone().replace(&[0..1, 3..4], "xy").unwrap(),
            "xyéxyb",
            &[(10, 11), (10, 11), (11, 13), (13, 14), (13, 14), (14, 15)],
        );
        assert!(!text.is_at_start(0) && Aligned::new("a", 0).is_at_start(0));
    }

    #[test]
    fn rewriting_replaces_removes_and_inserts() {
        let text = Aligned::new("e\u{301}x", 0);
        check(&text.clone().rewrite([('é', -1), ('x', 0)]).unwrap(), "éx", &[(0, 1), (3, 4)]);
        check(&text.clone().rewrite([('a', 0), ('b', 1)]).unwrap(), "ab", &[(0, 1), (0, 1)]);
        check(&text.rewrite([('a', 1)]).unwrap(), "a", &[(0, 0)]);
    }

    #[test]
    fn growth_has_a_limit() {
        let long = "x".repeat(4096);
        let grown = Aligned::new(&"y".repeat(1000), 0)
            .map(|_, emit| long.chars().for_each(emit))
            .map(|text| text.text().len());
        assert!(grown.unwrap_err().contains("bytes of the text"));
    }
}
