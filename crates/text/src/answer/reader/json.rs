//! Finds the end of a JSON value in a growing text, in one pass and without recursion.

use super::Progress;

/// A JSON value that is read.
#[derive(Debug, Default)]
pub(super) struct JsonScan {
    place: Place,
    /// Objects and lists that are open.
    depth: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Start,
    Structure,
    Scalar,
    Text,
    /// Behind a backslash.
    Escape,
}

impl JsonScan {
    /// The bytes of `text` that belong to the value, which begins without white space, and whether it ends there.
    ///
    /// Texts that cannot be JSON fail, as far as brackets, quotes and the characters between them show.
    pub(super) fn scan(&mut self, text: &str) -> (usize, Progress) {
        for (index, byte) in text.bytes().enumerate() {
            match self.step(byte) {
                Progress::More => {}
                // A number ends before what follows it.
                Progress::Done if self.place == Place::Scalar => return (index, Progress::Done),
                Progress::Done => return (index + 1, Progress::Done),
                Progress::Failed => return (index, Progress::Failed),
            }
        }
        (text.len(), Progress::More)
    }

    fn step(&mut self, byte: u8) -> Progress {
        let is_word = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        match (self.place, byte) {
            (Place::Escape, _) => self.place = Place::Text,
            (Place::Text, b'\\') => self.place = Place::Escape,
            (Place::Text, b'"') if self.depth == 0 => return Progress::Done,
            (Place::Text, b'"') => self.place = Place::Structure,
            (Place::Text, _) => {}
            (Place::Start | Place::Structure, b'"') => self.place = Place::Text,
            (Place::Start | Place::Structure, b'{' | b'[') => {
                (self.place, self.depth) = (Place::Structure, self.depth + 1);
            }
            (Place::Structure, b'}' | b']') => {
                self.depth -= 1;
                return if self.depth == 0 { Progress::Done } else { Progress::More };
            }
            (Place::Structure, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') => {}
            (Place::Structure, _) if is_word => {}
            (Place::Start | Place::Scalar, _) if is_word => self.place = Place::Scalar,
            (Place::Scalar, _) => return Progress::Done,
            _ => return Progress::Failed,
        }
        Progress::More
    }
}
