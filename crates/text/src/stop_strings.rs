//! Finds where a growing text first completes one of several strings, and holds back only what may become one.
//!
//! The automaton of Aho and Corasick ("Efficient string matching", 1975), fed byte by byte: each byte is looked at
//! once, however the text is cut into pieces. Its state is the longest end of the text that begins a string, which is
//! exactly what must be held back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Strings to stop at.
#[derive(Debug)]
pub struct StopStrings {
    /// From a state and a byte to the state one deeper.
    edges: HashMap<(State, u8), State>,
    states: Vec<Node>,
    lengths: Vec<usize>,
}

type State = u32;
const START: State = 0;

/// A state: the beginning of one or more of the strings.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// The state of its longest proper end that begins a string.
    fallback: State,
    /// Its length in bytes.
    depth: u32,
    /// The longest of the strings that end here.
    complete: Option<usize>,
}

/// A piece of a text, looked through.
#[derive(Debug)]
pub(crate) struct Found {
    /// The text that is now certain.
    pub(crate) text: String,
    /// The string that the piece completed.
    pub(crate) string: Option<usize>,
    /// The bytes of the piece up to the end of that string; all of them if there is none.
    pub(crate) end: usize,
}

/// A text that is looked through as it grows.
#[derive(Debug)]
pub struct StopSearch {
    strings: Arc<StopStrings>,
    state: State,
    /// The end of the text; what is before `released` was given out.
    buffer: String,
    released: usize,
}

impl StopStrings {
    /// An automaton for strings that are not empty. Of equal ones, the first counts.
    pub fn new(strings: &[String]) -> StopStrings {
        let lengths = strings.iter().map(String::len).collect();
        let mut new = StopStrings { edges: HashMap::new(), states: vec![Node::default()], lengths };
        for (index, string) in strings.iter().enumerate() {
            let mut state = START;
            for byte in string.bytes() {
                state = new.edge(state, byte);
            }
            new.states[state as usize].complete.get_or_insert(index);
        }
        new.link();
        new
    }

    /// The state one deeper, made if it is not there.
    fn edge(&mut self, state: State, byte: u8) -> State {
        let depth = self.states[state as usize].depth + 1;
        *self.edges.entry((state, byte)).or_insert_with(|| {
            self.states.push(Node { depth, ..Node::default() });
            self.states.len() as State - 1
        })
    }

    /// Finds all fallbacks, from the shallowest states to the deepest.
    fn link(&mut self) {
        let mut children: HashMap<State, Vec<(u8, State)>> = HashMap::new();
        for (&(state, byte), &child) in &self.edges {
            children.entry(state).or_default().push((byte, child));
        }
        let mut queue = VecDeque::from([START]);
        while let Some(state) = queue.pop_front() {
            for &(byte, child) in children.get(&state).into_iter().flatten() {
                let fallback = match state {
                    START => START,
                    _ => self.next(self.states[state as usize].fallback, byte),
                };
                let inherited = self.states[fallback as usize].complete;
                let node = &mut self.states[child as usize];
                (node.fallback, node.complete) = (fallback, node.complete.or(inherited));
                queue.push_back(child);
            }
        }
    }

    /// The state after one more byte.
    fn next(&self, mut state: State, byte: u8) -> State {
        loop {
            match self.edges.get(&(state, byte)) {
                Some(&next) => return next,
                None if state == START => return START,
                None => state = self.states[state as usize].fallback,
            }
        }
    }
}

impl StopSearch {
    /// A text without a character yet.
    pub fn new(strings: Arc<StopStrings>) -> StopSearch {
        StopSearch { strings, state: START, buffer: String::new(), released: 0 }
    }

    /// Adds a piece of text. Gives the text that is now certain, and the string that the piece completed, if any:
    /// the one completed first, of several at once the longest. The text then ends where that string begins.
    pub fn push(&mut self, piece: &str) -> (String, Option<usize>) {
        let Found { text, string, .. } = self.find(piece);
        (text, string)
    }

    /// As [`StopSearch::push`], and gives the end of the string that it found.
    pub(crate) fn find(&mut self, piece: &str) -> Found {
        let before = self.buffer.len();
        self.buffer.push_str(piece);
        for (index, byte) in piece.bytes().enumerate() {
            self.state = self.strings.next(self.state, byte);
            if let Some(string) = self.strings.states[self.state as usize].complete {
                let text = self.release(before + index + 1 - self.strings.lengths[string]);
                return Found { text, string: Some(string), end: index + 1 };
            }
        }
        let held = self.strings.states[self.state as usize].depth as usize;
        Found { text: self.release(self.buffer.len() - held), string: None, end: piece.len() }
    }

    /// The text that is still held back, once no more comes.
    pub fn finish(&mut self) -> String {
        self.release(self.buffer.len())
    }

    /// Gives out the buffer up to `end`, and forgets it once that is more than half, so that no byte moves often.
    fn release(&mut self, end: usize) -> String {
        let text = self.buffer[self.released..end].to_owned();
        self.released = end;
        if self.released * 2 > self.buffer.len() {
            self.buffer.drain(..self.released);
            self.released = 0;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(stops: &[&str]) -> StopSearch {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        StopSearch::new(Arc::new(StopStrings::new(&stops)))
    }

    /// Compares the output for each piece, `|` and the string's index where one is complete, and the rest at the end.
    fn check(stops: &[&str], pieces: &[&str], expected: &[&str]) {
        let mut search = search(stops);
        let mut got = Vec::new();
        for piece in pieces {
            let (text, stop) = search.push(piece);
            got.push(stop.map_or(text.clone(), |stop| format!("{text}|{stop}")));
            if stop.is_some() {
                assert_eq!(got, expected, "{stops:?} in {pieces:?}");
                return;
            }
        }
        got.push(search.finish());
        assert_eq!(got, expected, "{stops:?} in {pieces:?}");
    }

    #[test]
    fn text_is_held_back_only_while_it_may_become_a_stop() {
        check(&["END"], &["a E", "N", "x E", "ND"], &["a ", "", "ENx ", "|0"]);
        check(&["END"], &["a E", "N"], &["a ", "", "EN"]);
        check(&["aab"], &["aa", "a", "ab!"], &["", "a", "a|0"]);
        check(&["\n\n", "é!"], &["oné", "\n", "e", "é", "!"], &["on", "é", "\ne", "", "|1"]);
    }

    #[test]
    fn first_complete_string_wins_and_of_several_the_longest() {
        check(&["bc", "abcd"], &["xabcd"], &["xa|0"]);
        check(&["c", "abc", "bc"], &["xabcd"], &["x|1"]);
        check(&["x", "x"], &["yx"], &["y|0"]);
        check(&["she", "he"], &["us", "hers"], &["u", "|0"]);
    }

    #[test]
    fn long_strings_cost_each_byte_once() {
        let stop = format!("{}b", "a".repeat(65_535));
        let mut search = search(&[&stop]);
        let mut out = 0;
        for _ in 0..200_000 {
            out += search.push("a").0.len();
        }
        assert_eq!(out, 200_000 - 65_535);
        assert!(search.buffer.len() <= 2 * 65_536 + 1, "{} bytes are kept", search.buffer.len());
        assert_eq!(search.push("b"), (String::new(), Some(0)));
    }

    proptest! {
        /// However the text is cut, it ends where looking at all of it from each end in turn finds the first stop.
        #[test]
        fn pieces_do_not_matter(
            text in "[abé]{0,40}",
            stops in prop::collection::vec("[abé]{1,4}", 0..5),
            cuts in prop::collection::vec(0usize..5, 40),
        ) {
            let ends = (1..=text.len()).filter(|&end| text.is_char_boundary(end));
            let found = ends.filter_map(|end| {
                let lengths = stops.iter().filter(|stop| text[..end].ends_with(&stop[..])).map(String::len);
                lengths.max().map(|length| end - length)
            }).next();
            let mut search = search(&stops.iter().map(|stop| &stop[..]).collect::<Vec<_>>());
            let (mut got, mut stopped, mut rest) = (String::new(), false, &text[..]);
            for cut in cuts {
                let end = rest.char_indices().nth(cut).map_or(rest.len(), |(at, _)| at);
                let (piece, after) = rest.split_at(end);
                let (text, stop) = search.push(piece);
                got.push_str(&text);
                rest = after;
                stopped = stop.is_some();
                if stopped { break }
            }
            if !stopped {
                let (text, stop) = search.push(rest);
                got.push_str(&text);
                stopped = stop.is_some();
            }
            if !stopped { got.push_str(&search.finish()) }
            prop_assert_eq!(stopped, found.is_some());
            prop_assert_eq!(&got[..], &text[..found.unwrap_or(text.len())]);
        }
    }
}
