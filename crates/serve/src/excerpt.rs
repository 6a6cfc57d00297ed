//! Texts of requests as answers and the log show them: of bounded length, with an ellipsis in place of the middle.

use std::borrow::Cow;

/// Stands for what is left out.
const ELLIPSIS: &str = "…";

/// A text of at most `limit` bytes, which are more than those of the ellipsis. The end stays, since errors explain there.
pub(crate) fn excerpt(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let room = limit.saturating_sub(ELLIPSIS.len());
    let head = text.floor_char_boundary(room - room / 3);
    let tail = text.ceil_char_boundary(text.len() - room / 3);
    format!("{}{ELLIPSIS}{}", &text[..head], &text[tail..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, limit: usize, expected: &str) {
        let cut = excerpt(text, limit);
        assert_eq!(cut, expected);
        assert!(cut.len() <= limit);
    }

    #[test]
    fn middle_of_a_long_text_is_left_out() {
        check("abcdef", 6, "abcdef");
        check("abcdefghijkl", 9, "abcd…kl");
        check("ääääääääää", 12, "äää…ä");
        check(&"x".repeat(1000), 12, "xxxxxx…xxx");
    }
}
