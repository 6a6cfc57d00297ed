//! Lines of a width, as Python's `textwrap` makes them.

use super::letters::is_space;

/// The lines of a text that has none yet. Where `long_words` is not set, words wider than a line stay whole; `hyphens`
/// are places to break at.
pub(super) fn wrapped(text: &str, width: usize, long_words: bool, hyphens: bool) -> Vec<String> {
    let mut chunks = chunks(text, hyphens);
    chunks.reverse();
    let mut lines: Vec<String> = Vec::new();
    while let Some(first) = chunks.last() {
        if is_blank(first) && !lines.is_empty() {
            chunks.pop();
        }
        let (mut line, mut taken) = (Vec::new(), 0);
        while let Some(chunk) = chunks.pop_if(|chunk| taken + chunk.len() <= width) {
            taken += chunk.len();
            line.push(chunk);
        }
        if let Some(long) = chunks.last_mut().filter(|chunk| chunk.len() > width) {
            if long_words {
                let room = (width - taken).max(1);
                let mut end = room;
                if hyphens && long.len() > room {
                    let hyphen = long[..room].iter().rposition(|&letter| letter == '-').unwrap_or(0);
                    if hyphen > 0 && long[..hyphen].iter().any(|&letter| letter != '-') {
                        end = hyphen + 1;
                    }
                }
                let rest = long.split_off(end);
                line.push(std::mem::replace(long, rest));
            } else if line.is_empty() {
                line.extend(chunks.pop());
            }
        }
        line.pop_if(|chunk| is_blank(chunk));
        if !line.is_empty() {
            lines.push(line.concat().into_iter().collect());
        }
    }
    lines
}

fn is_blank(chunk: &[char]) -> bool {
    chunk.iter().all(|&letter| is_space(letter))
}

/// White space and words in turn; words end after a hyphen between letters too.
fn chunks(text: &str, hyphens: bool) -> Vec<Vec<char>> {
    let letters: Vec<char> = text.chars().collect();
    let mut chunks: Vec<Vec<char>> = Vec::new();
    for (index, &letter) in letters.iter().enumerate() {
        let joins = index > 0 && is_space(letters[index - 1]) == is_space(letter);
        let breaks = hyphens && index > 1 && is_hyphenated(&letters, index);
        match chunks.last_mut().filter(|_| joins && !breaks) {
            Some(chunk) => chunk.push(letter),
            None => chunks.push(vec![letter]),
        }
    }
    chunks
}

/// Whether a word may break before a letter: two letters, a hyphen, and two letters of which none is a digit.
fn is_hyphenated(letters: &[char], index: usize) -> bool {
    let is_letter = |place: Option<usize>| {
        place
            .and_then(|place| letters.get(place))
            .is_some_and(|letter| letter.is_alphabetic() || *letter == '_')
    };
    letters[index - 1] == '-'
        && [index.checked_sub(3), index.checked_sub(2), Some(index), Some(index + 1)]
            .into_iter()
            .all(is_letter)
}
