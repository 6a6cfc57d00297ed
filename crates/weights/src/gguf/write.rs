//! Writing GGUF files: the header at once, then the tensors one after the other, in pieces of any size.

use std::io::{self, Write};

use tensor::{DType, Shape};

use super::{MAGIC, MAX_AXES, MAX_KEY, TYPES, data_start};
use crate::error::Problem;
use crate::metadata::{MetaArray, MetaValue, Metadata, with_numbers};

/// The version that is written.
const VERSION: u32 = 3;
/// Bytes of the longest tensor name that llama.cpp reads: its buffers of 64 end in a zero.
const MAX_NAME: usize = 63;

/// A GGUF file in the making. The header is written when it is made; the values of each tensor follow in the order of
/// the header, in pieces of any size.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use perihelion_weights::{GgufWriter, Metadata, Weights};
/// use tensor::{Bytes, DType, Shape};
///
/// let mut metadata = Metadata::new();
/// metadata.insert("general.architecture", "llama");
/// let tensors = [("output_norm.weight".to_string(), DType::F32, Shape::new(&[2]))];
/// let mut file = GgufWriter::new(Vec::new(), &metadata, &tensors)?;
/// file.write_all(&1f32.to_le_bytes())?;
/// file.write_all(&2f32.to_le_bytes())?;
/// let weights = Weights::from_bytes("small.gguf", Bytes::new(file.finish()?)).unwrap();
/// assert_eq!(weights.get("output_norm.weight").unwrap().to_f32_vec(), [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GgufWriter<W> {
    out: W,
    /// Names of tensors and the bytes that each still lacks, the last one first.
    rest: Vec<(String, usize)>,
    alignment: usize,
    position: usize,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header of a file with these metadata and tensors. The alignment is that of `general.alignment`, or
    /// else 32.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if a key, a name, a dtype or a shape cannot stand in a GGUF file or llama.cpp
    /// would refuse it; or if `out` fails.
    pub fn new(
        mut out: W,
        metadata: &Metadata,
        tensors: &[(String, DType, Shape)],
    ) -> io::Result<GgufWriter<W>> {
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            check_key(key)?;
            put_text(&mut header, key.as_bytes());
            put_value(&mut header, value);
        }
        // Checks it as the reader does.
        let (_, alignment) = data_start(metadata, 0).map_err(|problem| match problem {
            Problem::Malformed(what) | Problem::Unsupported(what) | Problem::Refused(what) => invalid(what),
            Problem::Memory(error) => invalid(error.to_string()),
        })?;
        let (mut offset, mut rest) = (0, Vec::with_capacity(tensors.len()));
        for (name, dtype, shape) in tensors {
            let size = put_record(&mut header, name, *dtype, shape, offset)?;
            offset += size.next_multiple_of(alignment) as u64;
            rest.push((name.clone(), size));
        }
        rest.reverse();
        header.resize(header.len().next_multiple_of(alignment), 0);
        out.write_all(&header)?;
        let mut writer = GgufWriter { out, rest, alignment, position: header.len() };
        writer.end_tensors()?;
        Ok(writer)
    }

    /// Writes values that come next. A piece may end one tensor and begin another.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if there are more bytes than tensors need; or if the output fails.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let Some((_, lacking)) = self.rest.last_mut() else {
                return Err(invalid(format!("{} bytes more than the tensors have", bytes.len())));
            };
            let (now, later) = bytes.split_at(bytes.len().min(*lacking));
            self.out.write_all(now)?;
            *lacking -= now.len();
            self.position += now.len();
            bytes = later;
            self.end_tensors()?;
        }
        Ok(())
    }

    /// Ends the file, and gives back what it was written to.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if a tensor lacks values; or if the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some((name, lacking)) = self.rest.last() {
            return Err(invalid(format!("tensor `{name}` lacks {lacking} bytes")));
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Ends tensors that lack no values, and pads what is written up to the next one.
    fn end_tensors(&mut self) -> io::Result<()> {
        while self.rest.pop_if(|(_, lacking)| *lacking == 0).is_some() {
            let end = self.position.next_multiple_of(self.alignment);
            self.out.write_all(&vec![0; end - self.position])?;
            self.position = end;
        }
        Ok(())
    }
}

/// Refuses keys that llama.cpp would not read.
fn check_key(key: &str) -> io::Result<()> {
    if key.is_empty() || key.len() > MAX_KEY || key.contains('\0') {
        let excerpt: String = key.chars().take(64).collect();
        return Err(invalid(format!(
            "the metadata key `{}` has {} bytes, expected 1 to {MAX_KEY}, none of them NUL",
            excerpt.escape_debug(),
            key.len()
        )));
    }
    Ok(())
}

/// Appends the record of a tensor, and gives its bytes.
fn put_record(
    header: &mut Vec<u8>,
    name: &str,
    dtype: DType,
    shape: &Shape,
    offset: u64,
) -> io::Result<usize> {
    let refuse = |what: String| Err(invalid(format!("tensor `{name}`: {what}")));
    if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
        let what = format!("the name has {} bytes, expected 1 to {MAX_NAME}, none of them NUL", name.len());
        return refuse(what);
    }
    if shape.rank() > MAX_AXES as usize {
        return refuse(format!("has {} axes, at most {MAX_AXES} are allowed", shape.rank()));
    }
    let Some((code, _)) = TYPES.iter().find(|(_, known)| *known == dtype) else {
        return refuse(format!("GGUF has no type for {dtype}"));
    };
    let Some(size) = dtype.bytes_for_shape(shape) else {
        let block = dtype.block().elements;
        return refuse(format!("the rows of {dtype}{shape} are not in blocks of {block}"));
    };
    put_text(header, name.as_bytes());
    header.extend((shape.rank() as u32).to_le_bytes());
    // The innermost axis comes first.
    for &dim in shape.iter().rev() {
        header.extend((dim as u64).to_le_bytes());
    }
    header.extend(code.to_le_bytes());
    header.extend(offset.to_le_bytes());
    Ok(size)
}

fn put_text(header: &mut Vec<u8>, text: &[u8]) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend(text);
}

/// Appends the code of a value's type, and the value.
fn put_value(header: &mut Vec<u8>, value: &MetaValue) {
    macro_rules! put {
        ($(($code:literal, $variant:ident, $number:ident))*) => {
            match value {
                $(MetaValue::$variant(value) => put_coded(header, $code, &value.to_le_bytes()),)*
                MetaValue::Bool(value) => put_coded(header, 7, &[u8::from(*value)]),
                MetaValue::String(text) => put_coded(header, 8, &with_length(text.as_bytes())),
                MetaValue::InvalidString(text) => put_coded(header, 8, &with_length(text)),
                MetaValue::Array(array) => {
                    header.extend(9u32.to_le_bytes());
                    put_array(header, array);
                }
            }
        };
    }
    with_numbers!(put);
}

/// Appends the code of the type of an array's values, their number, and the values.
fn put_array(header: &mut Vec<u8>, array: &MetaArray) {
    let len = (array.len() as u64).to_le_bytes();
    macro_rules! put {
        ($(($code:literal, $variant:ident, $number:ident))*) => {
            match array {
                $(MetaArray::$variant(values) => {
                    put_coded(header, $code, &len);
                    values.iter().for_each(|value| header.extend(value.to_le_bytes()));
                })*
                MetaArray::Bool(values) => {
                    put_coded(header, 7, &len);
                    header.extend(values.iter().map(|&value| u8::from(value)));
                }
                MetaArray::Strings(strings) => {
                    put_coded(header, 8, &len);
                    strings.iter().for_each(|text| put_text(header, text));
                }
            }
        };
    }
    with_numbers!(put);
}

fn put_coded(header: &mut Vec<u8>, code: u32, bytes: &[u8]) {
    header.extend(code.to_le_bytes());
    header.extend(bytes);
}

fn with_length(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + text.len());
    put_text(&mut bytes, text);
    bytes
}

fn invalid(problem: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem.to_string())
}

#[cfg(test)]
mod tests {
    use tensor::Bytes;

    use super::*;
    use crate::Weights;
    use crate::metadata::Strings;

    fn tensor(name: &str, dtype: DType, shape: &[usize]) -> (String, DType, Shape) {
        (name.to_string(), dtype, Shape::new(shape))
    }

    #[test]
    fn written_files_read_back_equal() {
        let mut metadata = Metadata::new();
        let texts: Strings = [&b"a"[..], b"", b"\xff\xfe"].into_iter().collect();
        let values: Vec<(&str, MetaValue)> = vec![
            ("general.architecture", "llama".into()),
            ("general.alignment", 64u32.into()),
            ("u8", 200u8.into()),
            ("i8", (-2i8).into()),
            ("u16", 60_000u16.into()),
            ("i16", (-3i16).into()),
            ("i32", (-4i32).into()),
            ("u64", u64::MAX.into()),
            ("i64", i64::MIN.into()),
            ("f32", 1.5f32.into()),
            ("f64", (-2.5f64).into()),
            ("bool", true.into()),
            ("invalid", MetaValue::InvalidString(vec![0xff])),
            ("strings", texts.into()),
            ("i32s", vec![1i32, -1].into()),
            ("f32s", vec![0.25f32].into()),
            ("bools", vec![true, false].into()),
            ("none", Vec::<u8>::new().into()),
        ];
        for (key, value) in values {
            metadata.insert(key, value);
        }
        let tensors = [
            tensor("a", DType::F32, &[3]),
            tensor("empty", DType::F16, &[0]),
            tensor("blocks", DType::Q4K, &[2, 256]),
            tensor("last", DType::BF16, &[1, 2, 1]),
        ];
        let bytes: Vec<u8> = (0..12 + 288 + 4).map(|i| (i % 251) as u8).collect();
        let mut file = GgufWriter::new(Vec::new(), &metadata, &tensors).unwrap();
        for piece in bytes.chunks(7) {
            file.write_all(piece).unwrap();
        }
        let error = file.write_all(&[0]).unwrap_err().to_string();
        assert_eq!(error, "1 bytes more than the tensors have");
        let file = file.finish().unwrap();
        assert!(file.len().is_multiple_of(64));
        let weights = Weights::from_bytes("written.gguf", Bytes::new(file)).unwrap();
        assert!(weights.metadata().iter().eq(metadata.iter()));
        let read: Vec<_> =
            weights.tensors().map(|(name, t)| (name.to_string(), t.dtype(), *t.shape())).collect();
        assert_eq!(read, tensors);
        let read = ["a", "blocks", "last"].map(|name| weights.get(name).unwrap().bytes().to_vec());
        assert_eq!(read.concat(), bytes);
    }

    #[test]
    fn unreadable_headers_are_refused() {
        let check = |key: &str, tensor: (String, DType, Shape), expected: &str| {
            let mut metadata = Metadata::new();
            metadata.insert(key, 1u32);
            let error = GgufWriter::new(Vec::new(), &metadata, &[tensor]).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        let good = || tensor("a", DType::F32, &[1]);
        check("", good(), "expected 1 to 65535");
        check(&"k".repeat(65_536), good(), "has 65536 bytes, expected 1 to 65535");
        check("a\0b", good(), "`a\\0b` has 3 bytes");
        check("k", tensor(&"n".repeat(64), DType::F32, &[1]), "the name has 64 bytes");
        check("k", tensor("a", DType::F32, &[1, 1, 1, 1, 1]), "has 5 axes");
        check("k", tensor("a", DType::U8, &[1]), "GGUF has no type for u8");
        check("k", tensor("a", DType::Gptq, &[32]), "GGUF has no type for gptq");
        check("k", tensor("a", DType::Q4K, &[2, 128]), "not in blocks of 256");
        let mut metadata = Metadata::new();
        metadata.insert("general.alignment", 48u32);
        let error = GgufWriter::new(Vec::new(), &metadata, &[]).unwrap_err().to_string();
        assert!(error.contains("general.alignment is 48, not a power of two"), "{error}");
        let file = GgufWriter::new(Vec::new(), &Metadata::new(), &[good()]).unwrap();
        assert_eq!(file.finish().unwrap_err().to_string(), "tensor `a` lacks 4 bytes");
    }
    /// A header with one key, which the writer would not write.
    fn with_key(key: &[u8]) -> Vec<u8> {
        let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &0u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
        put_text(&mut file, key);
        put_value(&mut file, &1u32.into());
        file
    }

    #[test]
    fn keys_beyond_the_format_are_not_read() {
        let read = |key: &[u8]| Weights::from_bytes("keys.gguf", Bytes::new(with_key(key)));
        assert_eq!(read(&[b'k'; 65_535]).unwrap().metadata().len(), 1);
        let error = read(&[b'k'; 65_536]).unwrap_err().to_string();
        assert!(error.ends_with("at byte 24 has 65536 bytes, at most 65535 are allowed"), "{error}");
        let error = read(b"a\0b").unwrap_err().to_string();
        assert!(error.ends_with("the metadata key `a\\x00b` at byte 24 holds a NUL"), "{error}");
    }
}
