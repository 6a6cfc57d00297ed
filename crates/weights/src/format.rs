//! The file formats, and how to tell them apart.

use std::fmt;
use std::path::Path;

use crate::{Error, WeightFile, gguf};

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
    /// The one format of all files of a model.
    ///
    /// # Errors
    /// If they differ, or as [`Format::of`].
    pub(crate) fn of_all(files: &[WeightFile]) -> Result<Format, Error> {
        let first = Format::of(&files[0])?;
        for file in &files[1..] {
            let other = Format::of(file)?;
            if other != first {
                let what = format!("a {other} file among the {first} files of one model");
                return Err(Error::Unsupported { path: file.path().to_path_buf(), what });
            }
        }
        Ok(first)
    }

    /// The format of a file, by its content, or else by its name.
    ///
    /// # Errors
    /// If name and content contradict each other, or neither is known.
    fn of(file: &WeightFile) -> Result<Format, Error> {
        let path = file.path();
        match (Format::of_name(path), Format::of_content(file)) {
            (Some(name), Some(content)) if name != content => {
                Err(Error::Contradiction { path: path.to_path_buf(), name, content })
            }
            (_, Some(format)) | (Some(format), None) => Ok(format),
            (None, None) => {
                let start = file[..file.len().min(8)].to_vec();
                Err(Error::UnknownFormat { path: path.to_path_buf(), start })
            }
        }
    }

    /// The format that a file's name promises.
    pub(crate) fn of_name(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "gguf" => Some(Format::Gguf),
            "safetensors" => Some(Format::Safetensors),
            "bin" | "pt" | "pth" => Some(Format::PyTorch),
            _ => None,
        }
    }

    /// The format whose first bytes these are.
    fn of_content(bytes: &[u8]) -> Option<Format> {
        // Local file header or, for an empty archive, the end of the central directory.
        let zip = bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06");
        // The opcode PROTO and a version: every pickle since protocol 2.
        let pickle = matches!(bytes, [0x80, 2..=5, ..]);
        let header = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
        if bytes.starts_with(gguf::MAGIC) {
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
