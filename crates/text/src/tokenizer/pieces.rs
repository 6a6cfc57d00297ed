//! The tokens of a text with where in it each stands.

use std::ops::Range;

use super::{AddSpecial, DecoderState, Model, ParseSpecial, SkipSpecial, Tokenizer};
use crate::Error;

/// A token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The id.
    pub id: u32,
    /// The token as the vocabulary writes it, with marks for spaces and bytes.
    pub token: String,
    /// The bytes of the text that it stands for; `None` for tokens that were put around the text, and for all where the
    /// tokenizer changes texts in ways that are not known. Tokens of one character may share its bytes.
    pub place: Option<Range<usize>>,
}

impl Tokenizer {
    /// As [`Tokenizer::encode`], with the tokens and their places.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_pieces(
        &self,
        text: &str,
        add: AddSpecial,
        parse: ParseSpecial,
    ) -> Result<Vec<Piece>, Error> {
        let ids = self.encode(text, add, parse)?;
        let around = if add == AddSpecial::Yes { (self.before.len(), self.after.len()) } else { (0, 0) };
        let places = match &self.model {
            Model::HuggingFace(model) => {
                let mut places = vec![None; around.0];
                places.extend(model.places(text, parse)?);
                places
            }
            Model::Own(..) => self.align(text, &ids, around),
        };
        let piece = |(id, place): (u32, Option<Range<usize>>)| {
            let token = self.token(id).unwrap_or_default().into_owned();
            Piece { id, token, place: place.filter(|place| place.end <= text.len()) }
        };
        Ok(ids.into_iter().zip(places.into_iter().chain(std::iter::repeat(None))).map(piece).collect())
    }

    /// Where tokens stand, found by decoding them one after the other; nowhere, if together they are not the text.
    fn align(&self, text: &str, ids: &[u32], (before, after): (usize, usize)) -> Vec<Option<Range<usize>>> {
        let mut places = vec![None; ids.len()];
        let inside = before..ids.len().saturating_sub(after);
        let (mut state, mut position) = (DecoderState::default(), 0);
        for (place, &id) in places[inside.clone()].iter_mut().zip(&ids[inside]) {
            let mut bytes = Vec::new();
            self.append_text(id, SkipSpecial::No, &mut state, &mut bytes);
            let rest = &text.as_bytes()[position..];
            // A space may have been put before a word.
            let written = [Some(&bytes[..]), bytes.strip_prefix(b" ")].into_iter().flatten();
            let Some(length) = written.filter(|bytes| rest.starts_with(bytes)).map(<[u8]>::len).next() else {
                return vec![None; ids.len()];
            };
            *place = Some(position..position + length);
            position += length;
        }
        if position == text.len() { places } else { vec![None; ids.len()] }
    }
}
