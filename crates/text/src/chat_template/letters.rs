//! Letters as Python sees them: their kinds and their cases.

use std::sync::LazyLock;

use regex::Regex;

/// Whether `repr` shows a letter as it is.
pub(super) fn is_printable(letter: char) -> bool {
    match letter.is_ascii() {
        true => !letter.is_ascii_control(),
        false => !is_in_category(letter, Category::Unprintable),
    }
}

/// Unicode's categories of letters that the standard library does not know.
#[derive(Debug, Clone, Copy)]
enum Category {
    /// Controls, formats and white space but for the blank.
    Unprintable,
    /// Digits of numbers to the base of ten.
    Decimal,
}

/// Whether a letter is of a category.
fn is_in_category(letter: char, category: Category) -> bool {
    static CATEGORIES: LazyLock<[Regex; 2]> = LazyLock::new(|| {
        [r"[\p{C}\p{Z}&&[^ ]]", r"\p{Nd}"].map(|class| Regex::new(class).expect("the class is valid"))
    });
    CATEGORIES[category as usize].is_match(letter.encode_utf8(&mut [0; 4]))
}

/// White space: Unicode's, and four separators of ASCII.
pub(super) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\x1c'..='\x1f').contains(&letter)
}

/// Whether a letter ends a line for `splitlines`.
pub(super) fn ends_line(letter: char) -> bool {
    matches!(letter, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether a letter has a case: small, capital, or a capital and a small one in one.
pub(super) fn is_cased(letter: char) -> bool {
    letter.is_lowercase() || letter.is_uppercase() || letter.to_lowercase().ne([letter])
}

/// A letter as the first of a word.
fn titlecase(letter: char) -> String {
    match letter {
        '\u{1c4}'..='\u{1c6}' => "\u{1c5}".to_owned(),
        '\u{1c7}'..='\u{1c9}' => "\u{1c8}".to_owned(),
        '\u{1ca}'..='\u{1cc}' => "\u{1cb}".to_owned(),
        '\u{1f1}'..='\u{1f3}' => "\u{1f2}".to_owned(),
        // Georgian has no first letters.
        '\u{10d0}'..='\u{10ff}' => letter.to_string(),
        'ŉ' => "\u{2bc}N".to_owned(),
        _ => {
            let mut upper = letter.to_uppercase();
            let first = upper.next().into_iter();
            first.chain(upper.flat_map(char::to_lowercase)).collect()
        }
    }
}

/// A text for comparisons that know no case.
pub(super) fn casefold(text: &str) -> String {
    let fold = |letter: char| match letter {
        'ı' | '\u{13a0}'..='\u{13f5}' => letter.to_string(),
        '\u{ab70}'..='\u{abbf}' | '\u{13f8}'..='\u{13fd}' => letter.to_uppercase().to_string(),
        _ => letter.to_uppercase().flat_map(char::to_lowercase).collect(),
    };
    text.chars().map(fold).collect()
}

/// Small letters for capital ones, and the other way around.
pub(super) fn swapcase(own: &str) -> String {
    let swap = |letter: char| match (letter.is_uppercase(), letter.is_lowercase()) {
        (true, _) => letter.to_lowercase().collect(),
        (_, true) => letter.to_uppercase().collect(),
        _ => letter.to_string(),
    };
    own.chars().map(swap).collect()
}

/// Every word with a capital at its beginning.
pub(super) fn title(own: &str) -> String {
    let mut titled = String::with_capacity(own.len());
    let mut inside = false;
    for letter in own.chars() {
        match inside {
            true => titled.extend(letter.to_lowercase()),
            false => titled.push_str(&titlecase(letter)),
        }
        inside = is_cased(letter);
    }
    titled
}

/// Whether a letter is a digit of numbers to the base of ten.
pub(super) fn is_decimal(letter: char) -> bool {
    letter.is_ascii_digit() || !letter.is_ascii() && is_in_category(letter, Category::Decimal)
}

/// Whether a letter is a decimal, or a digit above or below the line or in a circle.
pub(super) fn is_digit(letter: char) -> bool {
    let code = u32::from(letter);
    let raised = matches!(letter, '²' | '³' | '¹' | '\u{1369}'..='\u{1371}' | '\u{19da}' | '\u{2070}')
        || matches!(code, 0x2074..=0x2079 | 0x2080..=0x2089 | 0x2460..=0x2468 | 0x2474..=0x247c | 0x2488..=0x2490)
        || matches!(code, 0x24ea | 0x24f5..=0x24fd | 0x24ff | 0x2776..=0x277e | 0x2780..=0x2788 | 0x278a..=0x2792)
        || matches!(code, 0x10a40..=0x10a43 | 0x10e60..=0x10e68 | 0x11052..=0x1105a | 0x1f100..=0x1f10a);
    raised || is_decimal(letter)
}
