//! Base64, in which files write bytes.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

/// Accepts any padding, and bits that are left over at the end.
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// Decodes base64.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_bits_that_are_left_over_do_not_matter() {
        for text in ["YWI=", "YWI", "YWI===", "YWJ="] {
            assert_eq!(base64(text).as_deref(), Some(&b"ab"[..]), "{text}");
        }
        assert_eq!(base64("").as_deref(), Some(&b""[..]));
        for text in ["Y", "YW I", "YW=I", "YW-_", "Z!Y="] {
            assert_eq!(base64(text), None, "{text}");
        }
    }
}
