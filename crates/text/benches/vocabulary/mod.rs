//! A large vocabulary for benches.

use std::collections::HashSet;

/// The 256 bytes, then strings of eight letters by length.
pub(crate) fn tokens(count: usize) -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let (shown, hidden): (Vec<u32>, Vec<u32>) = (0..256).partition(|&byte| printable(byte));
    let stand_ins = (256..).take(hidden.len());
    let bytes = shown.into_iter().chain(stand_ins).filter_map(char::from_u32);
    let mut tokens: Vec<String> = bytes.map(String::from).collect();
    let mut longest: Vec<String> = ('a'..='h').map(String::from).collect();
    while tokens.len() < count {
        longest = longest.iter().flat_map(|text| ('a'..='h').map(move |c| format!("{text}{c}"))).collect();
        tokens.extend(longest.iter().take(count - tokens.len()).cloned());
    }
    tokens
}

/// Ways to make a token of two others, as vocabularies list them.
pub(crate) fn merges(tokens: &[String], count: usize) -> Vec<String> {
    let known: HashSet<&str> = tokens.iter().map(String::as_str).collect();
    let cuts =
        tokens.iter().flat_map(|token| token.char_indices().skip(1).map(|(cut, _)| token.split_at(cut)));
    let pairs = cuts.filter(|(left, right)| known.contains(left) && known.contains(right));
    pairs.map(|(left, right)| format!("{left} {right}")).take(count).collect()
}
