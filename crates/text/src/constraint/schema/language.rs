//! Patterns of texts that match some patterns and not others: their automaton, written as a pattern again.

use std::collections::{BTreeMap, HashMap};

use super::pattern;

/// The most states of an automaton, and the most bytes of its pattern.
const MAX_STATES: usize = 400;
const MAX_BYTES: usize = 20_000;

/// Characters that are told from each other: each of ASCII, and groups of others with one of them. Patterns that tell those
/// of a group apart have no form here.
const GROUPS: [(char, &str); 4] = [
    ('\u{2028}', r"\x{2028}\x{2029}"),
    ('\u{a0}', r"\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}"),
    ('\u{feff}', r"\x{85}\x{feff}"),
    (
        'é',
        r"\x{80}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}",
    ),
];

/// Texts that answers can have.
const WRITABLE: &str = r"^[^\x{0}-\x{7}\x{b}\x{e}-\x{1f}\x{7f}]*$";

/// A pattern that matches only texts which match all of some patterns and none of others, and whether it matches all of
/// those that answers can have. `None` if it would be too large, or none is known.
pub(super) fn without(all: &[&str], none: &[&str]) -> Option<(String, bool)> {
    for groups in [GROUPS.len(), 0] {
        let Some(pattern) = automaton(all, none, groups).and_then(Automaton::into_pattern) else { continue };
        let is_empty = |all: &[&str], none: &[&str]| pattern::exists(all, none) == Some(false);
        let is_right = all.iter().all(|other| is_empty(&[&pattern], &[other]))
            && none.iter().all(|other| is_empty(&[&pattern, other], &[]));
        if is_right {
            let others: Vec<&str> = none.iter().copied().chain([&*pattern]).collect();
            let written: Vec<&str> = all.iter().copied().chain([WRITABLE]).collect();
            let is_whole = is_empty(&written, &others);
            return Some((pattern, is_whole));
        }
    }
    None
}

/// A pattern that is part of others.
#[derive(Debug, Clone, Default)]
struct SubPattern {
    text: String,
    /// Whether it is alternatives, which need a group around them.
    is_choice: bool,
}

impl SubPattern {
    fn grouped(&self) -> String {
        if self.is_choice { format!("(?:{})", self.text) } else { self.text.clone() }
    }

    fn then(&self, other: &SubPattern) -> SubPattern {
        match (self.text.is_empty(), other.text.is_empty()) {
            (true, _) => other.clone(),
            (_, true) => self.clone(),
            _ => SubPattern { text: self.grouped() + &other.grouped(), is_choice: false },
        }
    }

    fn or(&self, other: &SubPattern) -> SubPattern {
        SubPattern { text: format!("{}|{}", self.text, other.text), is_choice: true }
    }

    fn repeated(&self) -> SubPattern {
        SubPattern { text: format!("(?:{})*", self.text), is_choice: false }
    }
}

/// States, with what leads from one to another; the first is the start.
struct Automaton {
    edges: Vec<BTreeMap<usize, SubPattern>>,
    ends: Vec<bool>,
}

/// The automaton of texts, without characters outside of ASCII but those of the first groups.
fn automaton(all: &[&str], none: &[&str], groups: usize) -> Option<Automaton> {
    let mut expression = pattern::compiled(all, none)?;
    let start = expression.initial_state();
    let (mut ids, mut states) = (HashMap::from([(start, 0)]), vec![start]);
    let mut automaton = Automaton { edges: Vec::new(), ends: Vec::new() };
    while let Some(&state) = states.get(automaton.edges.len()) {
        automaton.ends.push(expression.is_accepting(state));
        let mut classes: BTreeMap<usize, Class> = BTreeMap::new();
        let ascii = (0..0x80u8).filter(|byte| !pattern::is_unwritable(*byte));
        let ascii = ascii.map(|byte| (char::from(byte), None));
        let others = GROUPS[..groups].iter().map(|(member, group)| (*member, Some(*group)));
        for (character, group) in ascii.chain(others) {
            let next = expression.transition_bytes(state, character.encode_utf8(&mut [0; 4]).as_bytes());
            if next.is_dead() || expression.alpha().has_error() {
                continue;
            }
            let id = *ids.entry(next).or_insert_with(|| {
                states.push(next);
                states.len() - 1
            });
            let class = classes.entry(id).or_default();
            match group {
                Some(group) => class.groups.push(group),
                None => class.ascii.push(character as u8),
            }
        }
        let edges =
            classes.into_iter().map(|(id, class)| (id, SubPattern { text: class.write(), is_choice: false }));
        automaton.edges.push(edges.collect());
        if states.len() > MAX_STATES || expression.alpha().has_error() {
            return None;
        }
    }
    Some(automaton)
}

/// Characters that lead to the same state.
#[derive(Default)]
struct Class {
    ascii: Vec<u8>,
    groups: Vec<&'static str>,
}

impl Class {
    fn write(&self) -> String {
        let is_written = |byte: &u8| !pattern::is_unwritable(*byte) && !self.ascii.contains(byte);
        let others: Vec<u8> = (0..0x80).filter(is_written).collect();
        if self.groups.len() < GROUPS.len() {
            return format!("[{}{}]", ranges(&self.ascii), self.groups.concat());
        }
        if others.is_empty() { "(?s:.)".into() } else { format!("[^{}]", ranges(&others)) }
    }
}

/// Sorted characters as they stand in a class.
fn ranges(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, next| *next == one + 1);
    let run = |run: &[u8]| match run {
        [first, .., last] => format!("\\x{{{first:x}}}-\\x{{{last:x}}}"),
        [only] => format!("\\x{{{only:x}}}"),
        [] => String::new(),
    };
    runs.map(run).collect()
}

impl Automaton {
    /// Takes out one state after the other, so that what led through it leads past it.
    fn into_pattern(mut self) -> Option<String> {
        let (start, end) = (self.ends.len(), self.ends.len() + 1);
        for (state, is_end) in self.ends.iter().enumerate() {
            if *is_end {
                self.edges[state].insert(end, SubPattern::default());
            }
        }
        self.edges.push(BTreeMap::from([(0, SubPattern::default())]));
        let mut left: Vec<usize> = (0..start).collect();
        while !left.is_empty() {
            let mut before = vec![0; end + 1];
            self.edges.iter().flat_map(BTreeMap::keys).for_each(|state| before[*state] += 1);
            let size =
                |state: usize| self.edges[state].values().map(|part| 1 + part.text.len()).sum::<usize>();
            let at = (0..left.len()).min_by_key(|at| before[left[*at]] * size(left[*at]))?;
            self.take_out(left.swap_remove(at));
            if self.edges.iter().flat_map(BTreeMap::values).any(|part| part.text.len() > MAX_BYTES) {
                return None;
            }
        }
        let whole = self.edges[start].get(&end)?;
        Some(format!("^(?:{})$", whole.text))
    }

    fn take_out(&mut self, state: usize) {
        let mut ways = std::mem::take(&mut self.edges[state]);
        let again = ways.remove(&state).map(|part| part.repeated()).unwrap_or_default();
        for edges in &mut self.edges {
            let Some(before) = edges.remove(&state) else { continue };
            let before = before.then(&again);
            for (next, after) in &ways {
                let way = before.then(after);
                let known = edges.remove(next);
                edges.insert(*next, known.map_or(way.clone(), |known| known.or(&way)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(all: &[&str], none: &[&str], good: &[&str], bad: &[&str]) {
        let (pattern, is_whole) = without(all, none).unwrap();
        assert!(is_whole, "{pattern}");
        for (text, fits) in good.iter().map(|text| (text, true)).chain(bad.iter().map(|text| (text, false))) {
            assert_eq!(pattern::matches(&pattern, text), Some(fits), "{pattern} {text:?}");
        }
    }

    #[test]
    fn texts_that_do_not_match_have_a_pattern() {
        check(&[], &["^[a-z]+$"], &["", "A", "aB", "é", "a\n"], &["a", "abc"]);
        check(&[], &["a"], &["", "b", "éß"], &["a", "bab"]);
        let space = pattern::read(r"^\s*$").unwrap().all.remove(0);
        check(&[], &[&space], &["a", " é ", "\u{feff}"], &["", " \n", "\u{a0}\u{2028}"]);
        check(&["^[a-z]+$"], &["^(?:create-|up)"], &["a", "create", "u", "cup"], &["up", "upper", "", "A"]);
        check(&["^[a-z-]*$", "[x-z]$"], &["^y"], &["x", "a-z"], &["y", "yx", "a", ""]);
        assert_eq!(without(&["^a"], &["^a"]), None);
    }
}
