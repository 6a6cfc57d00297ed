//! GGUF: a typed key-value header, tensor records, then aligned data. Versions 2 and 3, split sets too.
//!
//! Layout after <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. All numbers are little-endian. Each
//! count and length is checked against the bytes that are left before anything is allocated for it.

mod write;

use std::ops::Range;
use std::path::Path;

use tensor::{DType, Shape};

use crate::contents::Contents;
use crate::error::{Problem, excerpt, malformed, unsupported};
use crate::file::WeightFile;
use crate::file_name::ShardName;
use crate::metadata::{MetaArray, MetaValue, Metadata, Strings, with_numbers};
use crate::{Error, Format};

pub use write::GgufWriter;

/// The first bytes of every GGUF file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// The data section starts at a multiple of this, and so does each tensor, unless the file says otherwise.
const DEFAULT_ALIGNMENT: u32 = 32;
const ALIGNMENT_KEY: &str = "general.alignment";
/// Alignments above this are taken for damage.
const MAX_ALIGNMENT: u32 = 1 << 20;
/// Bytes of the longest metadata key, as the format's description limits them.
const MAX_KEY: usize = (1 << 16) - 1;
/// ggml has tensors of at most four axes.
const MAX_AXES: u32 = 4;
/// The smallest key-value record: an empty key's length, a type, one byte.
const MIN_KEY_VALUE: usize = 8 + 4 + 1;
/// The smallest tensor record: an empty name's length, no axes, a type, an offset.
const MIN_TENSOR: usize = 8 + 4 + 4 + 8;

/// Reads a model in one file, or all files of the split set that the first of `files` is a part of.
pub(crate) fn read(files: Vec<WeightFile>) -> Result<Contents, Error> {
    let path = files[0].path();
    let mut contents = Contents::new(Format::Gguf);
    contents.metadata = read_file(files[0].clone(), &mut contents)?;
    let count = split_count(path, &contents.metadata).map_err(|problem| problem.at(path, Format::Gguf))?;
    if files.len() > 1 && count != files.len() {
        let what = format!("split.count is {count}, the file names say {}", files.len());
        return Err(Problem::Malformed(what).at(path, Format::Gguf));
    }
    if count < 2 { Ok(contents) } else { read_parts(&files, count) }
}

/// How many bytes of a file must be at hand, more than there are, before its header is; `None` if it is.
pub(crate) fn header_needs(header: WeightFile, size: usize) -> Result<Option<usize>, Error> {
    let mut reader = Reader { file: &header, size, position: 0, needs: None };
    match reader.whole() {
        Ok(_) => Ok(None),
        Err(problem) => match reader.needs {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(problem.at(header.path(), Format::Gguf)),
        },
    }
}

/// Reads all `count` files of the split set that the first of `files` is a part of, whether they are among these or lie
/// next to it: tensors in the order of the parts, metadata of the first.
fn read_parts(files: &[WeightFile], count: usize) -> Result<Contents, Error> {
    let path = files[0].path();
    let mut contents = Contents::new(Format::Gguf);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shard = ShardName::parse(name).expect("the name was checked with the count");
    for (index, part) in (1..=count).map(|number| shard.shard(number)).enumerate() {
        let file = match files.iter().find(|file| file.path().file_name() == Some(part.as_ref())) {
            Some(file) => file.clone(),
            None => WeightFile::open(&path.with_file_name(part))?,
        };
        let part = file.path().to_path_buf();
        let metadata = read_file(file, &mut contents)?;
        check_part(&metadata, index, count).map_err(|problem| problem.at(&part, Format::Gguf))?;
        if index == 0 {
            contents.metadata = metadata;
        }
    }
    let found = contents.tensors.len();
    match contents.metadata.optional::<usize>("split.tensors.count")? {
        Some(total) if total != found => {
            let what = format!("split.tensors.count is {total}, the {count} parts hold {found}");
            Err(Problem::Malformed(what).at(contents.files[0].path(), Format::Gguf))
        }
        _ => Ok(contents),
    }
}

/// The number of files of the split set that `path` is a part of; 1 for a model in one file.
fn split_count(path: &Path, metadata: &Metadata) -> Result<usize, Problem> {
    let count = metadata.optional::<usize>("split.count");
    let count = count.map_err(|error| Problem::Malformed(error.to_string()))?.unwrap_or(1);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if count > 1 && ShardName::parse(name).is_none_or(|shard| shard.count != count) {
        return malformed!(
            "split.count is {count}, but the file is not named like one part of {count} \
             (`NAME-00001-of-{count:05}.gguf`)"
        );
    }
    Ok(count)
}

fn check_part(metadata: &Metadata, index: usize, count: usize) -> Result<(), Problem> {
    for (key, expected) in [("split.no", index), ("split.count", count)] {
        let found = metadata.usize(key).map_err(|error| Problem::Malformed(error.to_string()))?;
        if found != expected {
            return malformed!("{key} is {found}, the file name says {expected}");
        }
    }
    Ok(())
}

/// Adds the tensors of one file to `contents` and gives back its metadata.
fn read_file(file: WeightFile, contents: &mut Contents) -> Result<Metadata, Error> {
    let at = |problem: Problem| problem.at(file.path(), Format::Gguf);
    let mut reader = Reader { file: &file, size: file.len(), position: 0, needs: None };
    let (metadata, records) = reader.whole().map_err(at)?;
    let (start, alignment) = data_start(&metadata, reader.position).map_err(at)?;
    let index = contents.add_file(file.clone());
    contents.tensors.reserve_exact(records.len());
    for record in records {
        let range = record.place(start, alignment, file.len()).map_err(at)?;
        contents.add_view(index, record.name, record.dtype, record.shape, range)?;
    }
    Ok(metadata)
}

/// Where the data section starts, and the alignment of each tensor in it.
fn data_start(metadata: &Metadata, header_end: usize) -> Result<(usize, usize), Problem> {
    let alignment = match metadata.get(ALIGNMENT_KEY) {
        None => DEFAULT_ALIGNMENT,
        Some(&MetaValue::U32(alignment)) => alignment,
        Some(other) => return malformed!("general.alignment is {other}, not a u32"),
    };
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return malformed!("general.alignment is {alignment}, not a power of two up to {MAX_ALIGNMENT}");
    }
    let alignment = alignment as usize;
    Ok((header_end.next_multiple_of(alignment), alignment))
}

/// A tensor record.
struct Record {
    name: String,
    dtype: DType,
    shape: Shape,
    /// From the start of the data section.
    offset: u64,
}

impl Record {
    /// The bytes of the tensor in the file.
    fn place(&self, start: usize, alignment: usize, len: usize) -> Result<Range<usize>, Problem> {
        let Record { name, dtype, shape, offset } = self;
        if !offset.is_multiple_of(alignment as u64) {
            return malformed!("tensor `{name}`: offset {offset} is not aligned to {alignment}");
        }
        let Some(size) = dtype.bytes_for_shape(shape) else {
            let block = dtype.block().elements;
            return malformed!(
                "tensor `{name}`: the size of {dtype}{shape} overflows, or its rows are not in blocks of {block}"
            );
        };
        let begin = usize::try_from(*offset).ok().and_then(|offset| start.checked_add(offset));
        match begin.and_then(|begin| Some((begin, begin.checked_add(size)?))) {
            // A tensor of no bytes may stand where the data section would start, past the end of the file.
            Some((begin, _)) if size == 0 => Ok(begin.min(len)..begin.min(len)),
            Some((begin, end)) if end <= len => Ok(begin..end),
            _ => malformed!(
                "tensor `{name}`: {size} bytes at data offset {offset} leave the file of {len} bytes, \
                 whose data start at {start}"
            ),
        }
    }
}

/// The dtypes of ggml's tensor types.
const TYPES: &[(u32, DType)] = &[
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (10, DType::Q2K),
    (11, DType::Q3K),
    (12, DType::Q4K),
    (13, DType::Q5K),
    (14, DType::Q6K),
    (16, DType::Iq2Xxs),
    (17, DType::Iq2Xs),
    (18, DType::Iq3Xxs),
    (19, DType::Iq1S),
    (20, DType::Iq4Nl),
    (21, DType::Iq3S),
    (22, DType::Iq2S),
    (23, DType::Iq4Xs),
    (24, DType::I8),
    (25, DType::I16),
    (26, DType::I32),
    (27, DType::I64),
    (28, DType::F64),
    (29, DType::Iq1M),
    (30, DType::BF16),
    (34, DType::Tq1_0),
    (35, DType::Tq2_0),
    (39, DType::Mxfp4),
    (40, DType::GgmlNvfp4),
];

/// The dtype of a ggml tensor type.
fn dtype(code: u32) -> Option<DType> {
    TYPES.iter().find(|(known, _)| *known == code).map(|&(_, dtype)| dtype)
}

/// ggml's name for a tensor type that is not read, for the message.
fn unread_type(code: u32) -> &'static str {
    match code {
        4 | 5 => "Q4_2 or Q4_3, which ggml removed",
        9 => "Q8_1",
        15 => "Q8_K",
        31..=33 | 36..=38 => "a repacked Q4_0 or IQ4_NL, which ggml removed",
        _ => "unknown",
    }
}

/// A position in the header of a file.
struct Reader<'a> {
    /// The bytes at hand: those of the whole file, or its first ones.
    file: &'a WeightFile,
    /// Bytes of the whole file.
    size: usize,
    position: usize,
    /// Bytes that had to be at hand, where they were not.
    needs: Option<usize>,
}

impl<'a> Reader<'a> {
    /// All there is before the data.
    fn whole(&mut self) -> Result<(Metadata, Vec<Record>), Problem> {
        let (num_tensors, num_keys) = self.header()?;
        Ok((self.metadata(num_keys)?, self.tensors(num_tensors)?))
    }

    /// The numbers of tensors and of metadata keys.
    fn header(&mut self) -> Result<(usize, usize), Problem> {
        let magic = self.take(4, "the magic")?;
        if magic != MAGIC {
            return malformed!("starts with `{}`, not `GGUF`", magic.escape_ascii());
        }
        match self.u32("the version")? {
            2 | 3 => {}
            1 => return unsupported!("GGUF version 1 (32-bit counts); versions 2 and 3 are read"),
            swapped if matches!(swapped.swap_bytes(), 1..=3) => {
                return unsupported!("a big-endian GGUF file; convert it to little-endian");
            }
            version => return unsupported!("GGUF version {version}; versions 2 and 3 are read"),
        }
        let num_tensors = self.count("number of tensors", MIN_TENSOR)?;
        let num_keys = self.count("number of metadata keys", MIN_KEY_VALUE)?;
        Ok((num_tensors, num_keys))
    }

    fn metadata(&mut self, num_keys: usize) -> Result<Metadata, Problem> {
        let mut metadata = Metadata::with_capacity(num_keys);
        for _ in 0..num_keys {
            let start = self.position;
            let key = self.string("length of a metadata key")?;
            if key.len() > MAX_KEY {
                let len = key.len();
                return malformed!(
                    "the metadata key `{}` at byte {start} has {len} bytes, at most {MAX_KEY} are allowed",
                    excerpt(key)
                );
            }
            if key.contains(&0) {
                return malformed!("the metadata key `{}` at byte {start} holds a NUL", excerpt(key));
            }
            let key = match std::str::from_utf8(key) {
                Ok("") => return malformed!("the metadata key at byte {start} is empty"),
                Ok(key) => key,
                Err(_) => {
                    return malformed!("the metadata key `{}` at byte {start} is not UTF-8", excerpt(key));
                }
            };
            let value = self.value(key)?;
            if metadata.insert(key, value).is_some() {
                return malformed!("metadata key `{}` is there twice", excerpt(key.as_bytes()));
            }
        }
        Ok(metadata)
    }

    fn tensors(&mut self, num_tensors: usize) -> Result<Vec<Record>, Problem> {
        let mut records = Vec::with_capacity(num_tensors);
        for _ in 0..num_tensors {
            records.push(self.tensor()?);
        }
        Ok(records)
    }

    fn tensor(&mut self) -> Result<Record, Problem> {
        let start = self.position;
        let name = self.string("length of a tensor name")?;
        let Ok(name) = std::str::from_utf8(name) else {
            return malformed!("the tensor name `{}` at byte {start} is not UTF-8", excerpt(name));
        };
        let num_axes = self.u32("a number of axes")?;
        if num_axes > MAX_AXES {
            return malformed!("tensor `{name}` has {num_axes} axes, at most {MAX_AXES} are allowed");
        }
        let mut dims = Vec::with_capacity(num_axes as usize);
        for _ in 0..num_axes {
            let dim = self.u64("an axis")?;
            match usize::try_from(dim) {
                Ok(dim) if dim <= isize::MAX as usize => dims.push(dim),
                _ => return malformed!("tensor `{name}` has an axis of {dim}"),
            }
        }
        dims.reverse(); // The file has the innermost axis first.
        let code = self.u32("a tensor type")?;
        let Some(dtype) = dtype(code) else {
            return unsupported!("tensor `{name}` is of ggml type {code} ({})", unread_type(code));
        };
        let offset = self.u64("a tensor offset")?;
        Ok(Record { name: name.to_string(), dtype, shape: Shape::new(&dims), offset })
    }

    fn value(&mut self, key: &str) -> Result<MetaValue, Problem> {
        let code = self.u32("a value type")?;
        macro_rules! read {
            ($(($code:literal, $variant:ident, $number:ident))*) => {
                match code {
                    $($code => MetaValue::$variant($number::from_le_bytes(self.number("a value")?)),)*
                    7 => MetaValue::Bool(truth(key, self.number::<1>("a value")?[0])?),
                    8 => text(self.string("length of a string")?),
                    9 => MetaValue::Array(self.array(key)?),
                    _ => return malformed!("metadata `{}` is of unknown type {code}", excerpt(key.as_bytes())),
                }
            };
        }
        Ok(with_numbers!(read))
    }

    fn array(&mut self, key: &str) -> Result<MetaArray, Problem> {
        let code = self.u32("an array type")?;
        let key_excerpt = excerpt(key.as_bytes());
        macro_rules! read {
            ($(($code:literal, $variant:ident, $number:ident))*) => {
                match code {
                    $($code => MetaArray::$variant(self.numbers($number::from_le_bytes)?),)*
                    7 => {
                        let bytes = self.numbers(u8::from_le_bytes)?.into_iter();
                        MetaArray::Bool(bytes.map(|byte| truth(key, byte)).collect::<Result<_, _>>()?)
                    }
                    8 => MetaArray::Strings(self.strings()?),
                    9 => return unsupported!("metadata `{key_excerpt}` is an array of arrays"),
                    _ => return malformed!("metadata `{key_excerpt}` is an array of unknown type {code}"),
                }
            };
        }
        Ok(with_numbers!(read))
    }

    fn numbers<T, const N: usize>(&mut self, read: fn([u8; N]) -> T) -> Result<Vec<T>, Problem> {
        let count = self.count("length of an array", N)?;
        let (chunks, _) = self.take(count * N, "array values")?.as_chunks::<N>();
        Ok(chunks.iter().map(|chunk| read(*chunk)).collect())
    }

    /// Strings by reference: only their places are stored, relative to the array.
    fn strings(&mut self) -> Result<Strings, Problem> {
        let count = self.count("length of an array", 8)?;
        let start = self.position;
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            let len = self.string("length of an array string")?.len();
            let end = self.position - start;
            ranges.push(end - len..end);
        }
        let bytes = self.file.slice(start..self.position).expect("what was read lies in the file");
        Ok(Strings::new(bytes, ranges))
    }

    fn string(&mut self, what: &str) -> Result<&'a [u8], Problem> {
        let len = self.count(what, 1)?;
        self.take(len, what)
    }

    /// A 64-bit count of things that each take at least `size` of the bytes that are left.
    fn count(&mut self, what: &str, size: usize) -> Result<usize, Problem> {
        let start = self.position;
        let count = self.u64(what)?;
        let left = self.size - self.position;
        match usize::try_from(count) {
            Ok(fitting) if fitting <= left / size => {
                self.at_hand(self.position + fitting * size)?;
                Ok(fitting)
            }
            _ => {
                malformed!("{what}: the count {count} at byte {start} is too large for the {left} bytes left")
            }
        }
    }

    fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        self.number(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        self.number(what).map(u64::from_le_bytes)
    }

    fn number<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Problem> {
        Ok(self.take(N, what)?.try_into().expect("as many bytes were taken"))
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], Problem> {
        let (at, left) = (self.position, self.size - self.position);
        if len > left {
            return malformed!("{what} of {len} bytes at byte {at}: only {left} are left");
        }
        self.at_hand(at + len)?;
        self.position += len;
        let file: &'a [u8] = self.file;
        Ok(&file[at..at + len])
    }

    /// Notes what is needed, if it is not at hand.
    fn at_hand(&mut self, end: usize) -> Result<(), Problem> {
        let at_hand = self.file.len();
        if end <= at_hand {
            return Ok(());
        }
        self.needs = Some(end);
        malformed!("the header has {end} bytes or more, of which {at_hand} are at hand")
    }
}

fn truth(key: &str, byte: u8) -> Result<bool, Problem> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => malformed!("metadata `{}`: a bool is 0 or 1, found {byte}", excerpt(key.as_bytes())),
    }
}

fn text(bytes: &[u8]) -> MetaValue {
    match std::str::from_utf8(bytes) {
        Ok(text) => MetaValue::String(text.to_string()),
        Err(_) => MetaValue::InvalidString(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weights;

    /// The codes, names and sizes are of the package `gguf`.
    #[test]
    fn grids_have_the_codes_of_ggml() {
        let types = [
            (16, "iq2_xxs", 66),
            (17, "iq2_xs", 74),
            (18, "iq3_xxs", 98),
            (19, "iq1_s", 50),
            (21, "iq3_s", 110),
            (22, "iq2_s", 82),
            (23, "iq4_xs", 136),
            (29, "iq1_m", 56),
            (34, "tq1_0", 54),
            (35, "tq2_0", 66),
            (39, "mxfp4", 17),
            (40, "ggml_nvfp4", 36),
        ];
        for (code, name, bytes) in types {
            let found = dtype(code).unwrap();
            assert_eq!((found.name(), found.block().bytes), (name, bytes));
        }
        assert_eq!((dtype(41), unread_type(41)), (None, "unknown"));
    }

    #[test]
    fn a_real_model_opens() {
        let Some(path) = testdata::shared("stories260k/gguf/stories260K-Q4_0.gguf") else { return };
        let weights = Weights::open(&path).unwrap();
        let metadata = weights.metadata();
        assert_eq!(metadata.str("general.architecture").unwrap(), "llama");
        assert_eq!(metadata.required::<u32>("llama.block_count").unwrap(), 5);
        assert_eq!(metadata.strings("tokenizer.ggml.tokens").unwrap()[..3], ["<unk>", "<s>", "</s>"]);
        assert_eq!(metadata.required::<Vec<f32>>("tokenizer.ggml.scores").unwrap().len(), 512);
        assert_eq!(weights.names().next(), Some("token_embd.weight"));
        let down = weights.get("blk.4.ffn_down.weight").unwrap();
        assert_eq!((down.dtype(), down.shape().dims()), (DType::F16, &[64, 172][..]));
        assert_eq!(weights.get("blk.0.attn_q.weight").unwrap().dtype(), DType::Q4_0);
    }
}
