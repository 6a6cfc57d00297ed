//! Tensors as files, as the print op leaves them: raw bytes, or one tensor with its type and shape (`.max`).
//!
//! A `.max` file, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic, `93 f0 9f 94 a5 2b 2b 93` |
//! | 4, 4 | version, major (0) and minor |
//! | 8 | how many bytes of metadata follow |
//! | 4, n | length of the key, the key in UTF-8 |
//! | 1, 1 | code of the dtype ([`DType::code`]), number of axes |
//! | 4 each | sizes of the axes |
//! | 8 | where in the file the elements start |
//!
//! The elements lie behind it, row-major; here at the next multiple of 64, so that a mapped file is aligned.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

use crate::{Buffer, DType, Error, MAX_RANK, MapMode, Shape, Tensor};

const MAGIC: [u8; 8] = [0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93];
/// The version written; a reader takes any minor version.
const VERSION: (u32, u32) = (0, 1);
/// Magic, version, size of the metadata.
const HEADER: u64 = 24;
const ALIGNMENT: u64 = 64;
/// The most metadata that is read: more is no tensor's.
const MAX_METADATA: u64 = 1 << 20;

/// Writes a tensor's bytes to the file `label` in a directory: what
/// [`Buffer::mmap`](crate::Buffer::mmap) reads, given dtype and shape. A file of that name is replaced. Gives the file's path.
///
/// # Errors
/// If the label is no relative path of plain names, or the file cannot be written.
pub fn save_binary(directory: &Path, label: &str, tensor: &Tensor) -> Result<PathBuf, Error> {
    let path = output_path(directory, label, "")?;
    write_file(&path, |file| file.write_all(tensor.contiguous().bytes())).map_err(Error::io(&path))?;
    Ok(path)
}

/// Writes a tensor under the key `label` to the file `label.max` in a directory: what
/// [`load_max_buffer`](crate::load_max_buffer) reads. A file of that name is replaced. Gives the file's path.
///
/// # Errors
/// As [`save_binary`], and if an axis has more than 2³² − 1 elements.
pub fn save_max_checkpoint(directory: &Path, label: &str, tensor: &Tensor) -> Result<PathBuf, Error> {
    let path = output_path(directory, label, ".max")?;
    let header = header(&path, label, tensor)?;
    let write = |file: &mut dyn Write| {
        file.write_all(&header)?;
        file.write_all(tensor.contiguous().bytes())
    };
    write_file(&path, write).map_err(Error::io(&path))?;
    Ok(path)
}

/// The tensor of a `.max` file, mapped rather than read; writing it leaves the file as it is.
///
/// # Errors
/// If the file cannot be read, is none, is of a newer version, holds several tensors, or is damaged.
pub fn load_max_buffer(path: impl AsRef<Path>) -> Result<Buffer, Error> {
    let path = path.as_ref();
    let head = read_head(path)?;
    Buffer::mmap(path, head.dtype, head.shape, head.offset, MapMode::CopyOnWrite)
}

/// What the head of a `.max` file says of its tensor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) key: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Of the elements, from the start of the file.
    pub(crate) offset: u64,
}

/// Reads the head of a `.max` file, and checks that the elements lie within the file.
pub(crate) fn read_head(path: &Path) -> Result<Head, Error> {
    let io = Error::io(path);
    // Asked before opening: to open a named pipe is to wait for its writer.
    if !path.metadata().map_err(&io)?.is_file() {
        return Err(Error::file(path, "no regular file"));
    }
    let mut file = File::open(path).map_err(&io)?;
    let len = file.metadata().map_err(&io)?.len();
    parse_head(&mut file, len).map_err(|message| Error::file(path, message))
}

/// A head from a file of `len` bytes.
fn parse_head(file: &mut dyn Read, len: u64) -> Result<Head, String> {
    let mut header = Fields { bytes: read_bytes(file, HEADER, "the header")?, at: 0 };
    if header.take::<8>()? != MAGIC {
        return Err("no MAX checkpoint: the magic number is missing".to_string());
    }
    let (major, minor) = (header.u32()?, header.u32()?);
    if major > VERSION.0 {
        return Err(format!(
            "a MAX checkpoint of version {major}.{minor}, the newest known is {}",
            VERSION.0
        ));
    }
    let size = header.u64()?;
    if size > len.saturating_sub(HEADER).min(MAX_METADATA) {
        return Err(format!("{size} bytes of metadata in a file of {len} bytes"));
    }
    let mut metadata = Fields { bytes: read_bytes(file, size, "the metadata")?, at: 0 };
    let head = metadata.head()?;
    let left = metadata.bytes.len() - metadata.at;
    if left > 0 {
        return Err(format!(
            "{left} bytes of metadata behind the tensor `{}`; files of several tensors are not read",
            head.key
        ));
    }
    let (dtype, shape) = (head.dtype, head.shape);
    let bytes =
        dtype.bytes_for_shape(&shape).ok_or_else(|| format!("{dtype}{shape} is not a possible array"))?;
    let end = head.offset.checked_add(bytes as u64);
    if head.offset < HEADER + size || end.is_none_or(|end| end > len) {
        let offset = head.offset;
        return Err(format!(
            "{dtype}{shape} takes {bytes} bytes from byte {offset}, in a file of {len} bytes"
        ));
    }
    Ok(head)
}

fn read_bytes(file: &mut dyn Read, count: u64, what: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(count).read_to_end(&mut bytes).map_err(|error| format!("{what}: {error}"))?;
    match bytes.len() as u64 {
        got if got == count => Ok(bytes),
        got => Err(format!("the file ends within {what}, after {got} of {count} bytes")),
    }
}

/// Little-endian fields, read one after the other.
struct Fields {
    bytes: Vec<u8>,
    at: usize,
}

impl Fields {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let field = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let field = *field.ok_or_else(|| format!("the metadata ends after {} bytes", self.bytes.len()))?;
        self.at += N;
        Ok(field)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    fn head(&mut self) -> Result<Head, String> {
        let length = self.u32()? as usize;
        let key = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let key =
            key.ok_or_else(|| format!("a key of {length} bytes in {} of metadata", self.bytes.len()))?;
        let key = String::from_utf8(key.to_vec()).map_err(|_| "the key is no UTF-8".to_string())?;
        self.at += length;
        let [code, rank] = self.take()?;
        let dtype =
            DType::from_code(code).ok_or_else(|| format!("tensor `{key}`: unknown dtype code {code}"))?;
        if usize::from(rank) > MAX_RANK {
            return Err(format!("tensor `{key}`: {rank} axes, above the maximum of {MAX_RANK}"));
        }
        let dims = (0..rank).map(|_| self.u32().map(|dim| dim as usize)).collect::<Result<Vec<_>, _>>()?;
        Ok(Head { key, dtype, shape: Shape::new(&dims), offset: self.u64()? })
    }
}

/// The bytes before the elements.
fn header(path: &Path, key: &str, tensor: &Tensor) -> Result<Vec<u8>, Error> {
    let too_large =
        |what: &str, size: usize| Error::file(path, format!("{what} is {size}, above the format's u32"));
    let key_length = u32::try_from(key.len()).map_err(|_| too_large("the length of the key", key.len()))?;
    let mut metadata = key_length.to_le_bytes().to_vec();
    metadata.extend_from_slice(key.as_bytes());
    metadata.extend([tensor.dtype().code(), tensor.shape().rank() as u8]);
    for &dim in tensor.shape().iter() {
        let dim = u32::try_from(dim).map_err(|_| too_large("an axis", dim))?;
        metadata.extend(dim.to_le_bytes());
    }
    let size = metadata.len() as u64 + 8;
    let offset = (HEADER + size).next_multiple_of(ALIGNMENT);
    metadata.extend(offset.to_le_bytes());

    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.0.to_le_bytes());
    bytes.extend(VERSION.1.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.append(&mut metadata);
    bytes.resize(offset as usize, 0);
    Ok(bytes)
}

/// A file inside a directory. Labels with slashes name files in folders of it, and none names a file outside.
fn output_path(directory: &Path, label: &str, suffix: &str) -> Result<PathBuf, Error> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if label.is_empty()
        || label.ends_with('/')
        || label.contains('\0')
        || !Path::new(label).components().all(plain)
    {
        return Err(Error::Label(label.to_string()));
    }
    Ok(directory.join(format!("{label}{suffix}")))
}

fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_of(bytes: &[u8]) -> Result<Head, String> {
        parse_head(&mut &bytes[..], bytes.len() as u64)
    }

    /// A file of one tensor, `u8[2]`, with parts of it replaced.
    fn file(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let tensor = Tensor::from_slice([2], &[7u8, 8]);
        let mut bytes = header(Path::new("t.max"), "t", &tensor).unwrap();
        bytes.extend([7, 8]);
        change(&mut bytes);
        bytes
    }

    #[test]
    fn the_layout_is_fixed() {
        let mut expected = vec![0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93, 0, 0, 0, 0, 1, 0, 0, 0];
        expected.extend([19, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, b't', 134, 1, 2, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0]);
        expected.resize(64, 0);
        expected.extend([7, 8]);
        assert_eq!(file(|_| ()), expected);
        let head = Head { key: "t".to_string(), dtype: DType::U8, shape: Shape::new(&[2]), offset: 64 };
        assert_eq!(head_of(&expected), Ok(head));
    }

    #[test]
    fn damaged_files_are_refused() {
        let check = |bytes: Vec<u8>, message: &str| assert_eq!(head_of(&bytes).unwrap_err(), message);
        check(file(|bytes| bytes[0] = 0), "no MAX checkpoint: the magic number is missing");
        check(file(|bytes| bytes[8] = 1), "a MAX checkpoint of version 1.1, the newest known is 0");
        check(file(|bytes| bytes.truncate(9)), "the file ends within the header, after 9 of 24 bytes");
        check(file(|bytes| bytes.truncate(30)), "19 bytes of metadata in a file of 30 bytes");
        check(file(|bytes| bytes.truncate(65)), "u8[2] takes 2 bytes from byte 64, in a file of 65 bytes");
        check(
            file(|bytes| bytes[16..24].fill(0xff)),
            "18446744073709551615 bytes of metadata in a file of 66 bytes",
        );
        check(file(|bytes| bytes[16] = 10), "the metadata ends after 10 bytes");
        check(
            file(|bytes| bytes[16] = 39),
            "20 bytes of metadata behind the tensor `t`; files of several tensors are not read",
        );
        check(file(|bytes| bytes[24] = 100), "a key of 100 bytes in 19 of metadata");
        check(file(|bytes| bytes[28] = 0xff), "the key is no UTF-8");
        check(file(|bytes| bytes[29] = 2), "tensor `t`: unknown dtype code 2");
        check(file(|bytes| bytes[30] = 17), "tensor `t`: 17 axes, above the maximum of 16");
        check(
            file(|bytes| bytes[31..35].fill(0xff)),
            "u8[4294967295] takes 4294967295 bytes from byte 64, in a file of 66 bytes",
        );
        check(
            file(|bytes| bytes[35..43].fill(0xff)),
            "u8[2] takes 2 bytes from byte 18446744073709551615, in a file of 66 bytes",
        );
        check(file(|bytes| bytes[35] = 8), "u8[2] takes 2 bytes from byte 8, in a file of 66 bytes");
    }

    #[test]
    fn labels_name_files_inside_the_directory_only() {
        let directory = Path::new("out");
        assert_eq!(output_path(directory, "layer/0", ".max").unwrap(), directory.join("layer/0.max"));
        for label in ["", "/etc/passwd", "../up", "a/../../up", "a/", ".", "a\0b"] {
            assert_eq!(output_path(directory, label, ""), Err(Error::Label(label.to_string())));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(changes in proptest::collection::vec((0usize..66, 0u8..), 0..6)) {
            let bytes = file(|bytes| changes.iter().for_each(|&(at, byte)| bytes[at] = byte));
            if let Ok(head) = head_of(&bytes) {
                let size = head.dtype.bytes_for_shape(&head.shape).unwrap() as u64;
                proptest::prop_assert!(head.offset + size <= bytes.len() as u64);
            }
        }
    }
}
