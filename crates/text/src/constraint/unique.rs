//! Unique items of arrays: follows an answer as JSON, and rules out the tokens that would repeat an item.
//!
//! The grammar knows nothing of this: it allows every token that goes on with an answer of the schema. Of those, tokens are
//! ruled out that complete an item which is equal to one before it, and tokens after which only such items could follow.
//! Whether others could follow is found out by trying: the grammar is asked byte by byte for a way to an item that differs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use llguidance::TokenParser;
use llguidance::earley::ParserRecognizer;
use toktrie::{Recognizer, SimpleVob, TokTrie};

use super::schema::{Place, UniqueMap};

/// The most bytes that are tried for the tokens of one mask. Those that are left then are allowed.
const MAX_TRIES: usize = 100_000;
/// The most bytes that are tried for one token.
const MAX_TRIES_OF_TOKEN: usize = 10_000;
/// JSON inside an item that is compared. Items with more inside each other count as equal.
const MAX_DEPTH: usize = 100;

/// The tokens of a vocabulary that matter: those with a quote, and those that may hold several items.
#[derive(Debug)]
pub(super) struct MarkedTokens {
    quotes: SimpleVob,
    lists: SimpleVob,
}

impl MarkedTokens {
    pub(super) fn new(trie: &TokTrie) -> MarkedTokens {
        let mut marked = MarkedTokens { quotes: trie.alloc_token_set(), lists: trie.alloc_token_set() };
        for id in 0..trie.vocab_size() as u32 {
            let token = trie.token(id);
            if token.contains(&b'"') {
                marked.quotes.allow_token(id);
            }
            if let Some(at) = token.iter().position(|byte| *byte == b'[')
                && token[at..].contains(&b',')
            {
                marked.lists.allow_token(id);
            }
        }
        marked
    }
}

/// Keeps the items of arrays unique in one answer.
#[derive(Clone)]
pub(super) struct UniqueItems {
    reader: Reader,
    tokens: Arc<MarkedTokens>,
}

impl UniqueItems {
    pub(super) fn new(map: Arc<UniqueMap>, tokens: Arc<MarkedTokens>) -> UniqueItems {
        UniqueItems { reader: Reader::new(map), tokens }
    }

    /// Takes the bytes of a token. Returns whether no item came twice.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        let is_unique = bytes.iter().all(|byte| self.reader.push(*byte));
        self.reader.settle();
        is_unique
    }

    /// Rules out tokens of a mask that was computed for where the answer is.
    pub(super) fn narrow(&self, parser: &mut TokenParser, mask: &mut SimpleVob) {
        let forced = parser.parser.currently_forced_bytes().to_vec();
        let environment = Arc::clone(&parser.token_env);
        let trie = environment.tok_trie();
        let mut unfit: Vec<u32> = Vec::new();
        parser.parser.with_recognizer(|grammar| {
            grammar.trie_started("unique");
            let mut search = Search { grammar, forced: &forced, tries: MAX_TRIES };
            let mut check = |id: u32| {
                let token = trie.token(id);
                let is_text = !token.is_empty() && token[0] != TokTrie::SPECIAL_TOKEN_MARKER;
                if is_text && !search.may_come(&self.reader, token) {
                    unfit.push(id);
                }
            };
            let mut check_all = |tokens: Option<&SimpleVob>| {
                let mut chosen = mask.clone();
                if let Some(tokens) = tokens {
                    chosen.and(tokens);
                }
                chosen.iter_set_entries(|id| check(id as u32));
            };
            if self.reader.num_unique == 0 {
                check_all(Some(&self.tokens.lists));
            } else if !self.reader.is_inside_string() || !forced.is_empty() {
                check_all(None);
            } else {
                check_all(Some(&self.tokens.quotes));
                for mut rest in self.reader.rests_of_strings() {
                    if search.leads_away(&self.reader, &rest) {
                        continue;
                    }
                    rest.truncate(search.reach(&rest));
                    let is_open = search.may_come(&self.reader, &rest);
                    let starts = if is_open { Vec::new() } else { trie.all_prefixes(&rest) };
                    let allowed = starts.into_iter().filter(|id| mask.is_allowed(*id));
                    unfit.extend(allowed.filter(|id| !search.may_come(&self.reader, trie.token(*id))));
                }
            }
            grammar.trie_finished();
        });
        unfit.into_iter().for_each(|id| mask.disallow_token(id));
    }
}

/// Looks for ways on, in the grammar and with unique items.
struct Search<'a, 'g> {
    grammar: &'a mut ParserRecognizer<'g>,
    /// The bytes that the grammar has taken before the answer has.
    forced: &'a [u8],
    /// How many bytes may still be tried.
    tries: usize,
}

impl Search<'_, '_> {
    /// Whether a token repeats no item, and something can follow it that does not.
    fn may_come(&mut self, reader: &Reader, token: &[u8]) -> bool {
        let mut reader = reader.clone();
        let (taken, more) = token.split_at(token.len().min(self.forced.len()));
        let behind = &self.forced[taken.len()..];
        if !token.iter().chain(behind).all(|byte| reader.push(*byte)) {
            return false;
        }
        if reader.is_free() {
            return true;
        }
        let known = self.push(more);
        let may_follow = known < more.len() || self.may_follow(reader);
        self.grammar.pop_bytes(known);
        may_follow
    }

    /// Whether characters of a string lead to where others than in items before can follow.
    fn leads_away(&mut self, reader: &Reader, characters: &[u8]) -> bool {
        let known = self.push(characters);
        let near: Vec<u8> = reader
            .open_items()
            .flat_map(|(items, text)| items.bytes_after(&[text, characters].concat()))
            .collect();
        let mut others = (0x20..0x7f).filter(|byte| !matches!(byte, b'"' | b'\\') && !near.contains(byte));
        let leads_away = known == characters.len() && others.any(|byte| self.reach(&[byte]) == 1);
        self.grammar.pop_bytes(known);
        leads_away
    }

    /// How many of some bytes the grammar allows next.
    fn reach(&mut self, bytes: &[u8]) -> usize {
        let known = self.push(bytes);
        self.grammar.pop_bytes(known);
        known
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        bytes.iter().take_while(|byte| self.grammar.try_push_byte(**byte)).count()
    }

    /// Whether the answer can go on without repeating an item, as far as that can be tried.
    fn may_follow(&mut self, reader: Reader) -> bool {
        let limit = self.tries.saturating_sub(MAX_TRIES_OF_TOKEN);
        let mut ways = vec![(reader.next_bytes(), reader)];
        while let Some((bytes, reader)) = ways.last_mut() {
            if self.tries == limit {
                self.grammar.pop_bytes(ways.len() - 1);
                return true;
            }
            let Some(byte) = bytes.pop() else {
                ways.pop();
                self.grammar.pop_bytes(usize::from(!ways.is_empty()));
                continue;
            };
            self.tries -= 1;
            if !self.grammar.try_push_byte(byte) {
                continue;
            }
            let mut next = reader.clone();
            if !next.push(byte) {
                self.grammar.pop_bytes(1);
            } else if next.is_free() {
                self.grammar.pop_bytes(ways.len());
                return true;
            } else {
                ways.push((next.next_bytes(), next));
            }
        }
        false
    }
}

/// The state of the JSON reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    Key,
    Colon,
    /// A value has ended.
    After,
    String {
        is_key: bool,
        is_escaped: bool,
    },
    /// A number or a word.
    Scalar,
}

/// An object or array that has not ended.
#[derive(Clone)]
struct Frame {
    is_array: bool,
    place: Place,
    /// The place of the value in it.
    inner: Place,
    /// Of the item in an array.
    index: usize,
    /// If its items are unique.
    items: Option<Items>,
}

/// The items of an array so far.
#[derive(Clone, Default)]
struct Items {
    /// Where the item that is being written begins in the reader's text.
    start: usize,
    seen: Arc<Seen>,
    /// Those that are only tried.
    tried: Vec<Item>,
}

#[derive(Clone, Default)]
struct Seen {
    /// The texts of items, sorted.
    texts: Vec<Vec<u8>>,
    values: HashSet<Vec<u8>>,
}

#[derive(Clone)]
struct Item {
    text: Vec<u8>,
    /// The same for all texts of equal values.
    value: Vec<u8>,
}

impl Items {
    fn is_empty(&self) -> bool {
        self.seen.texts.is_empty() && self.tried.is_empty()
    }

    fn has(&self, value: &[u8]) -> bool {
        self.seen.values.contains(value) || self.tried.iter().any(|item| item.value == value)
    }

    /// The texts that begin so.
    fn starting<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let first = self.seen.texts.partition_point(|seen| &seen[..] < text);
        let seen = self.seen.texts[first..].iter().take_while(move |seen| seen.starts_with(text));
        let tried = self.tried.iter().map(|item| &item.text).filter(move |seen| seen.starts_with(text));
        seen.chain(tried).map(Vec::as_slice)
    }

    /// The bytes that come next in those.
    fn bytes_after(&self, text: &[u8]) -> Vec<u8> {
        let bytes: BTreeSet<u8> =
            self.starting(text).filter_map(|seen| seen.get(text.len()).copied()).collect();
        bytes.into_iter().collect()
    }

    /// Whether an item that begins so may become equal to one before it.
    fn may_repeat(&self, text: &[u8]) -> bool {
        let is_number = text.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit());
        let is_same_number = || self.has(&number(text.trim_ascii_end()));
        self.starting(text).next().is_some() || is_number && is_same_number()
    }

    fn settle(&mut self) {
        if self.tried.is_empty() {
            return;
        }
        let seen = Arc::make_mut(&mut self.seen);
        for item in self.tried.drain(..) {
            let at = seen.texts.partition_point(|known| *known < item.text);
            seen.texts.insert(at, item.text);
            seen.values.insert(item.value);
        }
    }
}

/// Reads JSON byte by byte, and keeps the items of arrays that must be unique.
#[derive(Clone)]
struct Reader {
    map: Arc<UniqueMap>,
    state: State,
    frames: Vec<Frame>,
    /// How many of the arrays have unique items.
    num_unique: usize,
    /// The text of the outermost of those arrays so far, without white space.
    text: Vec<u8>,
    /// The key that is read, with its quotes.
    key: Vec<u8>,
}

impl Reader {
    fn new(map: Arc<UniqueMap>) -> Reader {
        let (text, key) = (Vec::new(), Vec::new());
        Reader { map, state: State::Value, frames: Vec::new(), num_unique: 0, text, key }
    }

    /// Reads a byte of well-formed JSON. Returns false if it completes an item that is equal to one before it.
    fn push(&mut self, byte: u8) -> bool {
        match self.state {
            State::String { is_key, is_escaped } => {
                self.record(byte);
                self.state = State::String { is_key, is_escaped: byte == b'\\' && !is_escaped };
                byte != b'"' || is_escaped || self.end_string(is_key)
            }
            State::Scalar if matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => {
                self.end_value() && self.push(byte)
            }
            State::Scalar => {
                self.record(byte);
                true
            }
            _ => self.push_mark(byte),
        }
    }

    /// Reads a byte outside of strings, numbers and words, or the first of those.
    fn push_mark(&mut self, byte: u8) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return true,
            b']' | b'}' => return self.close(byte),
            _ => {}
        }
        let is_key = self.state == State::Key;
        if byte == b'"' {
            self.key.clear();
            self.state = State::String { is_key, is_escaped: false };
        }
        self.record(byte);
        match byte {
            b'"' => {}
            b'{' | b'[' => self.open(byte == b'['),
            b':' => self.state = State::Value,
            b',' => self.next_member(),
            _ => self.state = State::Scalar,
        }
        true
    }

    fn record(&mut self, byte: u8) {
        if self.num_unique > 0 {
            self.text.push(byte);
        }
        if matches!(self.state, State::String { is_key: true, .. }) {
            self.key.push(byte);
        }
    }

    fn open(&mut self, is_array: bool) {
        let place = self.frames.last().map_or_else(|| self.map.root(), |frame| Arc::clone(&frame.inner));
        let inner = if is_array { self.map.item(&place, 0) } else { Place::default() };
        let items = (is_array && self.map.is_unique(&place))
            .then(|| Items { start: self.text.len(), ..Items::default() });
        self.num_unique += usize::from(items.is_some());
        self.frames.push(Frame { is_array, place, inner, index: 0, items });
        self.state = if is_array { State::Value } else { State::Key };
    }

    fn next_member(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return };
        self.state = if frame.is_array { State::Value } else { State::Key };
        if frame.is_array {
            frame.index += 1;
            frame.inner = self.map.item(&frame.place, frame.index);
        }
        if let Some(items) = &mut frame.items {
            items.start = self.text.len();
        }
    }

    fn close(&mut self, byte: u8) -> bool {
        self.record(byte);
        if self.frames.pop().is_some_and(|frame| frame.items.is_some()) {
            self.num_unique -= 1;
            if self.num_unique == 0 {
                self.text.clear();
            }
        }
        self.end_value()
    }

    fn end_string(&mut self, is_key: bool) -> bool {
        if !is_key {
            return self.end_value();
        }
        self.state = State::Colon;
        if let Some(frame) = self.frames.last_mut()
            && !frame.place.is_empty()
        {
            let name: String = serde_json::from_slice(&self.key).unwrap_or_default();
            frame.inner = self.map.property(&frame.place, &name);
        }
        true
    }

    fn end_value(&mut self) -> bool {
        self.state = State::After;
        let Some(items) = self.frames.last_mut().and_then(|frame| frame.items.as_mut()) else { return true };
        let text = self.text[items.start..].to_vec();
        let value = comparable(&text);
        let is_new = !items.has(&value);
        items.tried.push(Item { text, value });
        is_new
    }

    /// Keeps what was read.
    fn settle(&mut self) {
        self.frames.iter_mut().filter_map(|frame| frame.items.as_mut()).for_each(Items::settle);
    }

    fn is_inside_string(&self) -> bool {
        matches!(self.state, State::String { is_escaped: false, .. })
    }

    /// The items before those that are being written, with the beginnings of those.
    fn open_items(&self) -> impl Iterator<Item = (&Items, &[u8])> {
        let items = self.frames.iter().filter_map(|frame| frame.items.as_ref());
        items.filter(|items| !items.is_empty()).map(|items| (items, &self.text[items.start..]))
    }

    /// Whether nothing that follows can repeat an item which the grammar forces.
    fn is_free(&self) -> bool {
        let is_between = self.state == State::After
            && self
                .frames
                .last()
                .is_some_and(|frame| frame.items.as_ref().is_some_and(|items| !items.is_empty()));
        !is_between && !self.open_items().any(|(items, text)| items.may_repeat(text))
    }

    /// The bytes to try next, the last one first: those that lead away from items before come first.
    fn next_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = match self.state {
            State::String { is_escaped: true, .. } => b"nrbtf\\\"".to_vec(),
            State::String { .. } => [0xf0, 0xe2, 0xc3].into_iter().chain((0x20..0x7f).rev()).collect(),
            State::Value => b"nft-0123456789{[\"]".to_vec(),
            State::Scalar => b"abcdefghijklmnopqrstuvwxyz-+.EtrueE0123456789 }],".to_vec(),
            State::Key => b"}\"".to_vec(),
            State::Colon => b":".to_vec(),
            State::After => b"},]".to_vec(),
        };
        let near: Vec<u8> = self.open_items().flat_map(|(items, text)| items.bytes_after(text)).collect();
        let is_far = |byte: &u8| !near.contains(byte) && !matches!(byte, b'"' | b'\\');
        bytes.sort_by_key(is_far);
        bytes
    }

    /// What could follow up to the end of the string that is being written so that an item begins as one before it.
    fn rests_of_strings(&self) -> Vec<Vec<u8>> {
        let rests = self.open_items().flat_map(|(items, text)| {
            items.starting(text).map(|seen| {
                let rest = &seen[text.len()..];
                rest[..string_end(rest)].to_vec()
            })
        });
        let mut rests: Vec<Vec<u8>> = rests.collect();
        rests.sort_unstable();
        rests.dedup();
        rests.retain(|rest| !rest.is_empty());
        rests
    }
}

/// The bytes of a string up to its closing quote.
fn string_end(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.unwrap_or(text.len())
}

/// A number as bytes that are the same for equal numbers; what is not yet a number is left out.
fn number(text: &[u8]) -> Vec<u8> {
    let digits = text.iter().rposition(u8::is_ascii_digit).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&text[..digits]).unwrap_or_default();
    let number = text.parse::<f64>().unwrap_or(f64::NAN);
    // Zero has a sign, and is the same.
    format!("{:?}", number + 0.0).into_bytes()
}

/// JSON without white space as bytes that are the same for equal values.
fn comparable(text: &[u8]) -> Vec<u8> {
    let mut rest = text;
    comparable_value(&mut rest, 0).unwrap_or_default()
}

/// Takes a value. `None` if it is too deep.
fn comparable_value(rest: &mut &[u8], depth: usize) -> Option<Vec<u8>> {
    let first = *rest.first().filter(|_| depth < MAX_DEPTH)?;
    match first {
        b'"' => Some(take(rest, 2 + string_end(&rest[1..])).to_vec()),
        b'[' => {
            let mut items = Vec::new();
            take(rest, 1);
            while *rest.first()? != b']' {
                items.push(comparable_value(rest, depth + 1)?);
                take(rest, usize::from(rest.first() == Some(&b',')));
            }
            take(rest, 1);
            Some([&b"["[..], &items.join(&b','), b"]"].concat())
        }
        b'{' => {
            // Of a key that comes twice, the last counts.
            let mut members = BTreeMap::new();
            take(rest, 1);
            while *rest.first()? != b'}' {
                let key = comparable_value(rest, depth + 1)?;
                take(rest, 1);
                members.insert(key, comparable_value(rest, depth + 1)?);
                take(rest, usize::from(rest.first() == Some(&b',')));
            }
            take(rest, 1);
            let members = members.into_iter().map(|(key, value)| [key, value].join(&b':'));
            Some([&b"{"[..], &members.collect::<Vec<_>>().join(&b','), b"}"].concat())
        }
        _ => {
            let is_end = |byte: &u8| matches!(byte, b',' | b']' | b'}');
            let scalar = take(rest, rest.iter().position(is_end).unwrap_or(rest.len()));
            let is_number = first == b'-' || first.is_ascii_digit();
            Some(if is_number { number(scalar) } else { scalar.to_vec() })
        }
    }
}

/// Takes bytes off the front.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}
