//! Safetensors: a JSON header, then plain row-major data. One file or several shards.

use safetensors::{Dtype, SafeTensors};
use tensor::{DType, Shape};

use crate::contents::{Contents, WeightMap};
use crate::error::{Problem, unsupported};
use crate::{Error, Format, WeightFile};

/// Bytes before the header: its length.
const LENGTH_BYTES: usize = 8;

/// Reads all shards of a model; `shards` says which tensor is in which.
pub(crate) fn read(files: Vec<WeightFile>, shards: WeightMap) -> Result<Contents, Error> {
    let mut contents = Contents::with_index(Format::Safetensors, shards);
    for file in files {
        read_file(file, &mut contents)?;
    }
    Ok(contents)
}

/// How many bytes of a file must be at hand, more than these first ones, before its header is; `None` if it is.
pub(crate) fn header_needs(first: &[u8]) -> Option<usize> {
    let Some(length) = first.first_chunk::<LENGTH_BYTES>() else { return Some(LENGTH_BYTES) };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    Some(length.saturating_add(LENGTH_BYTES)).filter(|&bytes| bytes > first.len())
}

/// Adds the tensors of one file, in the order of their data. The `safetensors` crate checks that the header fits
/// the file, that each size is what dtype and shape need, and that the data have no holes and no overlaps.
fn read_file(file: WeightFile, contents: &mut Contents) -> Result<(), Error> {
    let at = |problem: Problem| problem.at(file.path(), Format::Safetensors);
    let (header_bytes, header) =
        SafeTensors::read_metadata(&file).map_err(|error| at(Problem::Malformed(error.to_string())))?;
    let start = LENGTH_BYTES + header_bytes;
    let mut texts: Vec<_> = header.metadata().iter().flatten().collect();
    texts.sort(); // The crate keeps them in a hash map.
    for (key, text) in texts {
        if contents.metadata.get(key).is_none() {
            contents.metadata.insert(key.as_str(), text.as_str());
        }
    }
    let index = contents.add_file(file.clone());
    let names = header.offset_keys();
    contents.tensors.reserve_exact(names.len());
    for name in names {
        let info = header.info(&name).expect("a name that the header just gave");
        let dtype = dtype(&name, info.dtype).map_err(at)?;
        let shape = Shape::try_new(&info.shape).ok_or_else(|| {
            at(Problem::Unsupported(format!("tensor `{name}` has {} axes", info.shape.len())))
        })?;
        let (begin, end) = info.data_offsets;
        contents.add_view(index, name, dtype, shape, start + begin..start + end)?;
    }
    Ok(())
}

fn dtype(name: &str, dtype: Dtype) -> Result<DType, Problem> {
    Ok(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E8M0 => DType::F8E8M0,
        Dtype::F8_E4M3FNUZ => DType::F8E4M3Fnuz,
        Dtype::F8_E5M2FNUZ => DType::F8E5M2Fnuz,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        other => return unsupported!("tensor `{name}` is of dtype {other:?}"),
    })
}
