//! The file formats, and the bytes that they begin with.

use std::fmt;

/// How a file stores weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// llama.cpp's single-file format: weights, configuration and vocabulary.
    Gguf,
    /// Hugging Face's: a JSON header and plain data.
    Safetensors,
    /// A pickle and plain data, in a zip archive or not.
    PyTorch,
}

impl Format {
    /// The format whose first bytes these are.
    pub(crate) fn from_content(bytes: &[u8]) -> Option<Format> {
        // Local file header or, for an empty archive, the end of the central directory.
        let zip = bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06");
        // The opcode PROTO and a version: every pickle since protocol 2.
        let pickle = matches!(bytes, [0x80, 2..=5, ..]);
        let header = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
        if bytes.starts_with(b"GGUF") {
            Some(Format::Gguf)
        } else if header.is_some_and(|length| length < bytes.len() as u64) && bytes.get(8) == Some(&b'{') {
            Some(Format::Safetensors)
        } else if zip || pickle {
            Some(Format::PyTorch)
        } else {
            None
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Format::Gguf => "GGUF",
            Format::Safetensors => "safetensors",
            Format::PyTorch => "PyTorch",
        })
    }
}
