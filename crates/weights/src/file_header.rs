//! The header of a file that is not on this machine: all about its weights except their values.

use std::io;
use std::path::Path;

use tensor::{Bytes, DType, Shape, Tensor};

use crate::error::Problem;
use crate::{Error, Format, GgufWriter, Metadata, WeightFile, gguf, safetensors};

/// Headers longer than this are taken for damage; the `safetensors` crate has the same limit.
const MAX_HEADER: usize = 100_000_000;

/// The first bytes of a GGUF or safetensors file that is not on this machine. Bytes are added until the header is whole.
///
/// ```
/// # fn main() -> Result<(), perihelion_weights::Error> {
/// # let file = [&2_u64.to_le_bytes()[..], b"{}"].concat();
/// use perihelion_weights::{FileHeader, Weights};
///
/// let mut header = FileHeader::new("model.safetensors", file.len() as u64);
/// while let Some(end) = header.needs()? {
///     header.push(&file[header.len()..end]);
/// }
/// let weights = Weights::from_files(vec![header.into_file()?])?;
/// # assert!(weights.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FileHeader {
    name: String,
    bytes: Vec<u8>,
    size: u64,
}

impl FileHeader {
    /// Nothing yet of a file of `size` bytes; `name` stands for its path in messages.
    pub fn new(name: impl Into<String>, size: u64) -> FileHeader {
        FileHeader { name: name.into(), bytes: Vec::new(), size }
    }

    /// The header of a GGUF file of these tensors. The values of those that have some come first in the file, and are
    /// at hand.
    ///
    /// # Errors
    /// As [`GgufWriter::new`].
    pub fn from_gguf(
        name: impl Into<String>,
        metadata: &Metadata,
        tensors: Vec<(String, DType, Shape, Option<Tensor>)>,
    ) -> io::Result<FileHeader> {
        let (first, others): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|(.., values)| values.is_some());
        let record = |(name, dtype, shape, _): &(String, DType, Shape, _)| (name.clone(), *dtype, *shape);
        let records: Vec<_> = first.iter().chain(&others).map(record).collect();
        let mut bytes = Vec::new();
        let mut file = GgufWriter::new(&mut bytes, metadata, &records)?;
        for values in first.iter().filter_map(|(.., values)| values.as_ref()) {
            file.write_all(values.bytes())?;
        }
        let alignment = metadata.optional::<u64>("general.alignment").ok().flatten().unwrap_or(32);
        let sizes =
            others.iter().map(|(_, dtype, shape, _)| dtype.bytes_for_shape(shape).unwrap_or(0) as u64);
        let size = bytes.len() as u64 + sizes.map(|size| size.next_multiple_of(alignment)).sum::<u64>();
        Ok(FileHeader { name: name.into(), bytes, size })
    }

    /// Adds the bytes that come next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes at hand.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bytes at hand.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of the whole file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many bytes must be at hand at least, more than there are, before the header is; `None` if it is.
    ///
    /// # Errors
    /// If what is at hand is no header of such a file.
    pub fn needs(&self) -> Result<Option<usize>, Error> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let is_gguf = match Format::from_name(Path::new(&self.name)) {
            Some(format) => format == Format::Gguf,
            None => self.bytes.starts_with(gguf::MAGIC),
        };
        let (format, needs) = match is_gguf {
            true => {
                let file = WeightFile::in_memory(&self.name, Bytes::new(self.bytes.clone()));
                (Format::Gguf, gguf::header_needs(file, size)?)
            }
            false => (Format::Safetensors, safetensors::header_needs(&self.bytes)),
        };
        let malformed = |what| Err(Problem::Malformed(what).at(Path::new(&self.name), format));
        match needs {
            Some(bytes) if bytes > size => {
                malformed(format!("the header has {bytes} bytes or more, the file {size}"))
            }
            Some(bytes) if bytes > MAX_HEADER => {
                malformed(format!("the header has {bytes} bytes or more, at most {MAX_HEADER} are read"))
            }
            needs => Ok(needs),
        }
    }

    /// The file, with zeros in place of the values of its weights.
    ///
    /// # Errors
    /// If the file has more bytes than there are addresses.
    pub fn into_file(self) -> Result<WeightFile, Error> {
        let too_large = |_| {
            let what = format!("has {} bytes, more than this machine has addresses", self.size);
            Error::Unsupported { path: self.name.clone().into(), what }
        };
        let size = usize::try_from(self.size).map_err(too_large)?;
        WeightFile::beginning(&self.name, &self.bytes[..self.bytes.len().min(size)], size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weights;

    /// Reads a file's header, a quarter more of it at a time; gives how often that was, and what it holds.
    fn read(name: &str, file: &[u8]) -> Result<(usize, Weights), Error> {
        let (mut header, mut times) = (FileHeader::new(name, file.len() as u64), 0);
        while let Some(end) = header.needs()? {
            assert!(end > header.len() && end <= file.len(), "{end} of {}", file.len());
            let end = end.max(header.len() * 5 / 4).min(file.len() - 1);
            header.push(&file[header.len()..end]);
            times += 1;
        }
        assert!(header.len() < file.len(), "the header alone");
        Ok((times, Weights::from_files(vec![header.into_file()?])?))
    }

    #[test]
    fn headers_say_all_but_values() {
        let gguf = testdata::asset("storyteller/model.gguf");
        let safetensors = testdata::shared("stories260k/hf/model.safetensors");
        for path in [Some(gguf), safetensors].into_iter().flatten() {
            let (times, header) =
                read(path.file_name().unwrap().to_str().unwrap(), &std::fs::read(&path).unwrap()).unwrap();
            let whole = Weights::open(&path).unwrap();
            assert!(times > 1 && whole.has_values() && !header.has_values());
            assert_eq!((header.format(), header.bytes()), (whole.format(), whole.bytes()));
            assert!(header.metadata().iter().eq(whole.metadata().iter()));
            let types = |weights: &Weights| {
                let tensors = weights.tensors();
                tensors.map(|(name, t)| (name.to_string(), t.dtype(), *t.shape())).collect::<Vec<_>>()
            };
            assert_eq!(types(&header), types(&whole));
        }
    }

    #[test]
    fn tensors_with_values_come_first() {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", "llama");
        let matrix = Shape::new(&[3, 256]);
        let vector = Tensor::from_slice([3], &[1f32, 2.0, 3.0]);
        let tensors = vec![
            ("matrix".to_string(), DType::Q4K, matrix, None),
            ("vector".to_string(), DType::F32, *vector.shape(), Some(vector)),
        ];
        let header = FileHeader::from_gguf("a.gguf", &metadata, tensors).unwrap();
        // Three blocks of 144 bytes, padded to the alignment of 32.
        assert_eq!(header.size(), header.bytes().len() as u64 + 448);
        let weights = Weights::from_files(vec![header.into_file().unwrap()]).unwrap();
        assert_eq!(weights.metadata().str("general.architecture").unwrap(), "llama");
        assert!(weights.has_value("vector") && !weights.has_value("matrix"));
        assert_eq!(weights.get("vector").unwrap().to_f32_vec(), [1.0, 2.0, 3.0]);
        let found = weights.get("matrix").unwrap();
        assert_eq!((found.dtype(), *found.shape()), (DType::Q4K, matrix));
    }

    #[test]
    fn hostile_headers_are_refused() {
        let check = |name: &str, size: u64, bytes: &[u8], message: &str| {
            let mut header = FileHeader::new(name, size);
            header.push(bytes);
            let error = header.needs().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        let length = |length: u64| length.to_le_bytes();
        check("a.safetensors", 1 << 40, &length(1 << 39), "at most 100000000 are read");
        check("a.safetensors", 100, &length(1000), "1008 bytes or more, the file 100");
        check("a.safetensors", 100, &length(u64::MAX), "or more, the file 100");
        check("a.safetensors", 5, b"", "8 bytes or more, the file 5");
        check("a.gguf", 1 << 40, b"PK\x03\x04", "not `GGUF`");
        check("a.gguf", 3, b"", "only 3 are left");
        // Of so many tensors nothing is allocated before they are at hand.
        let tensors = |count: u64| [&b"GGUF\x03\0\0\0"[..], &count.to_le_bytes(), &[0; 8]].concat();
        check("a.gguf", 1 << 40, &tensors(1 << 33), "at most 100000000 are read");
        check("a.gguf", 1 << 20, &tensors(1 << 33), "the count 8589934592");
        check("a", 1 << 40, &tensors(1 << 33), "at most 100000000 are read");
    }

    #[test]
    fn files_have_no_more_bytes_than_there_are_addresses() {
        assert!(FileHeader::new("a.gguf", u64::MAX).into_file().is_err());
        assert!(FileHeader::new("a.gguf", 1 << 60).into_file().is_err());
    }
}
