//! The `decoder` of a `tokenizer.json` in our own form, which works token by token.

use serde_json::Value;

use super::super::decoder::{Decoder, Step};
use super::super::json::{character, flag, list, number, text};
use super::pre_tokenizers::{Prepend, prepend};
use super::{MAX_CONTENT, pattern};

/// Reads the file's decoder.
pub(super) fn read(value: &Value) -> Result<Decoder, String> {
    if value.is_null() {
        return Ok(Decoder { steps: vec![Step::Spaced], strip_start: None });
    }
    let mut reader = Reader { decoder: Decoder::default(), is_whole: false, growth: 1 };
    reader.add(value)?;
    Ok(reader.decoder)
}

struct Reader {
    decoder: Decoder,
    /// Whether the steps so far make one text of all tokens.
    is_whole: bool,
    /// How many bytes one byte may become.
    growth: usize,
}

impl Reader {
    fn add(&mut self, value: &Value) -> Result<(), String> {
        let kind = text(value, "type")?;
        if self.is_whole && !matches!(kind, "Strip" | "Fuse" | "Sequence") {
            return Err(format!("decoder {kind:?} after all tokens are one text cannot work token by token"));
        }
        let step = match kind {
            "Sequence" => return list(value, "decoders")?.iter().try_for_each(|part| self.add(part)),
            "Fuse" => {
                self.is_whole = true;
                return Ok(());
            }
            "ByteLevel" => {
                self.is_whole = true;
                Step::ByteLevel
            }
            "ByteFallback" => Step::ByteFallback,
            "Strip" => {
                let (mark, start, stop) =
                    (character(value, "content")?, number(value, "start", 0)?, number(value, "stop", 0)?);
                if !self.is_whole {
                    Step::Strip { mark, start, stop }
                } else if stop > 0 || self.decoder.strip_start.is_some() {
                    return Err("a decoder that strips the end of a text cannot work token by token".into());
                } else {
                    self.decoder.strip_start = Some((mark, start)).filter(|&(_, start)| start > 0);
                    return Ok(());
                }
            }
            "Metaspace" => Step::Metaspace {
                mark: character(value, "replacement")?,
                drop_first: prepend(value)? != Prepend::Never,
            },
            "WordPiece" => {
                Step::WordPiece { prefix: text(value, "prefix")?.into(), tidy: flag(value, "cleanup", true)? }
            }
            "Replace" => {
                let to = text(value, "content")?;
                self.growth = self.growth.saturating_mul(to.len().max(1));
                if self.growth > MAX_CONTENT {
                    return Err(format!(
                        "the decoder makes {} bytes of one; at most {MAX_CONTENT}",
                        self.growth
                    ));
                }
                Step::Replace { pattern: pattern(value)?, to: to.into() }
            }
            "BPEDecoder" => Step::Suffix(text(value, "suffix")?.into()),
            "CTC" => Step::Ctc {
                pad: text(value, "pad_token")?.into(),
                delimiter: text(value, "word_delimiter_token")?.into(),
                tidy: flag(value, "cleanup", true)?,
            },
            other => return Err(format!("decoder {other:?} is not supported")),
        };
        self.decoder.steps.push(step);
        Ok(())
    }
}
