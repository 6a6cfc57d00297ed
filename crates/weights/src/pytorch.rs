//! PyTorch checkpoints: what `torch.save` writes, as a zip archive or (before 1.6) a run of pickles.
//!
//! The pickle says names, shapes and strides; the numbers are in separate storages, which are viewed in place.
//! Layouts after PyTorch's `torch/serialization.py`.

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::ops::Range;

use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};
use zip::CompressionMethod;
use zip::read::ZipArchive;
use zip::result::ZipError;

use crate::allowed::Global;
use crate::contents::{Contents, Stored, WeightMap};
use crate::error::{Problem, malformed, unsupported};
use crate::metadata::MetaValue;
use crate::pickle::{Pickle, Value};
use crate::{Error, Format, WeightFile};

/// The first pickle of a non-zip file: the number 0x1950a86a20f9469cfc6c, least byte first.
const LEGACY_MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// The second.
const LEGACY_PROTOCOL: i64 = 1001;
/// PyTorch stores and never compresses; who does gets no more out of an archive than this many times its size.
const MAX_INFLATION: u64 = 8;
/// Where training code puts the weights among other things.
const STATE_DICTS: &[&str] = &["state_dict", "model_state_dict", "model", "module", "net", "weights"];
/// The name of a tensor that was saved by itself, without one.
const LONE_TENSOR: &str = "tensor";
/// Dicts in dicts until there are weights.
const MAX_NESTING: usize = 4;

/// Reads all shards of a model; `shards` says which tensor is in which.
pub(crate) fn read(files: Vec<WeightFile>, shards: WeightMap) -> Result<Contents, Error> {
    let mut contents = Contents::with_index(Format::PyTorch, shards);
    for file in files {
        let is_zip = file.starts_with(b"PK");
        let index = contents.add_file(file.clone());
        let tensors = if is_zip { read_zip(&file, &mut contents) } else { read_legacy(&file, &mut contents) };
        for (name, tensor, place) in tensors.map_err(|problem| problem.at(file.path(), Format::PyTorch))? {
            contents.add(name, Stored { tensor, file: index, place })?;
        }
    }
    Ok(contents)
}

/// Names, tensors, and their places in the file.
type Named = Vec<(String, Tensor, Range<usize>)>;

/// The bytes of a storage.
#[derive(Clone)]
struct Storage {
    bytes: Bytes,
    /// Where they lie in the file; empty if they were decompressed.
    place: Range<usize>,
}

fn read_zip(file: &WeightFile, contents: &mut Contents) -> Result<Named, Problem> {
    let mut archive = Archive::open(file)?;
    let pickle = archive.record("data.pkl")?;
    if archive.has("byteorder") && &*archive.record("byteorder")?.bytes != b"little" {
        return unsupported!("the storages are big-endian");
    }
    let pickle = Pickle::read(&pickle.bytes)?;
    let mut storages: HashMap<String, Storage> = HashMap::new();
    read_tensors(&pickle, contents, |key| {
        if let Some(storage) = storages.get(key) {
            return Ok(storage.clone());
        }
        let storage = archive.record(&format!("data/{key}"))?;
        storages.insert(key.to_string(), storage.clone());
        Ok(storage)
    })
}

/// A zip archive whose records lie in one folder, named after the file when it was written.
struct Archive<'a> {
    file: &'a WeightFile,
    zip: ZipArchive<Cursor<&'a [u8]>>,
    folder: String,
    /// How many more bytes may be decompressed.
    inflatable: u64,
}

impl<'a> Archive<'a> {
    fn open(file: &'a WeightFile) -> Result<Archive<'a>, Problem> {
        let zip = ZipArchive::new(Cursor::new(&**file)).map_err(zip_problem)?;
        let folders = zip.file_names_raw().filter_map(|name| name.strip_suffix(b"data.pkl"));
        let mut folders = folders.filter(|folder| folder.is_empty() || folder.ends_with(b"/"));
        let (Some(folder), None) = (folders.next(), folders.next()) else {
            return malformed!("the archive has no `data.pkl`, or several");
        };
        let Ok(folder) = String::from_utf8(folder.to_vec()) else {
            return malformed!("the archive's folder is not named in UTF-8");
        };
        drop(folders);
        Ok(Archive { file, zip, folder, inflatable: MAX_INFLATION * file.len() as u64 })
    }

    fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{}{name}", self.folder)).is_some()
    }

    /// The bytes of a record: in place where stored, else decompressed.
    fn record(&mut self, name: &str) -> Result<Storage, Problem> {
        let name = format!("{}{name}", self.folder);
        let mut record = match self.zip.by_name(&name) {
            Ok(record) => record,
            Err(ZipError::FileNotFound) => return malformed!("the archive has no record `{name}`"),
            Err(error) => return Err(zip_problem(error)),
        };
        let size = record.size();
        if record.compression() == CompressionMethod::Stored {
            let start = record.data_start().and_then(|start| usize::try_from(start).ok());
            let len = usize::try_from(size).ok().filter(|_| record.compressed_size() == size);
            let place = start.zip(len).and_then(|(start, len)| Some(start..start.checked_add(len)?));
            let found = place.and_then(|place| Some((self.file.slice(place.clone())?, place)));
            let Some((bytes, place)) = found else {
                return malformed!("record `{name}` of {size} bytes leaves the file");
            };
            return Ok(Storage { bytes, place });
        }
        if size > self.inflatable {
            return unsupported!(
                "record `{name}` decompresses to {size} bytes, beyond {MAX_INFLATION} times the file"
            );
        }
        self.inflatable -= size;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let mut bytes = AlignedBytes::try_zeroed(len).map_err(Problem::Memory)?;
        let read = record.read_exact(&mut bytes).and_then(|()| record.read(&mut [0]));
        match read {
            Ok(0) => Ok(Storage { bytes: Bytes::new(bytes), place: 0..0 }),
            Ok(_) => malformed!("record `{name}` holds more than its {size} bytes"),
            Err(error) => malformed!("record `{name}`: {error}"),
        }
    }
}

fn zip_problem(error: ZipError) -> Problem {
    Problem::Malformed(format!("archive: {error}"))
}

/// Five pickles (magic, protocol, system, contents, storage keys), then each storage: its length, its numbers.
fn read_legacy(file: &WeightFile, contents: &mut Contents) -> Result<Named, Problem> {
    if file.first() != Some(&0x80) {
        return malformed!("neither a zip archive nor a pickle of protocol 2 or later");
    }
    let mut position = 0;
    let mut next = || {
        let pickle = Pickle::read(&file[position..])?;
        position += pickle.len;
        Ok(pickle)
    };
    let magic = next()?;
    if magic.bytes(magic.root) != Some(&LEGACY_MAGIC) {
        return malformed!("a pickle that is no checkpoint: it does not start with PyTorch's magic number");
    }
    let protocol = next()?;
    if protocol.integer(protocol.root) != Some(LEGACY_PROTOCOL) {
        return unsupported!("a checkpoint of another protocol than {LEGACY_PROTOCOL}");
    }
    let system = next()?;
    if entry(&system, system.root, "little_endian") != Some(Value::Bool(true)) {
        return unsupported!("the storages are not little-endian");
    }
    let pickle = next()?;
    let keys = next()?;
    let storages = legacy_storages(file, position, &pickle, &keys)?;
    read_tensors(&pickle, contents, |key| match storages.get(key) {
        Some(storage) => Ok(storage.clone()),
        None => malformed!("storage `{key}` is not in the file"),
    })
}

/// The storages that follow the pickles, in the order of `keys`.
fn legacy_storages<'p>(
    file: &WeightFile,
    mut position: usize,
    pickle: &'p Pickle,
    keys: &Pickle,
) -> Result<HashMap<&'p str, Storage>, Problem> {
    let mut references = HashMap::new();
    for id in pickle.persistents() {
        let reference = Reference::read(pickle, id)?;
        references.insert(reference.key, reference);
    }
    let mut storages = HashMap::new();
    for &key in keys.list(keys.root).unwrap_or_default() {
        let Some(reference) = keys.text(key).and_then(|key| references.get(key)) else {
            return malformed!("a storage that no tensor refers to, at byte {position}");
        };
        let Some(&len) = file.get(position..).and_then(|rest| rest.first_chunk::<8>()) else {
            return malformed!("the file ends before storage `{}`", reference.key);
        };
        let (start, len) = (position + 8, u64::from_le_bytes(len));
        if len != reference.elements as u64 {
            let Reference { key, elements, .. } = reference;
            return malformed!("storage `{key}` has {len} elements, its tensors say {elements}");
        }
        let place = start..start.saturating_add(reference.bytes()?);
        let Some(bytes) = file.slice(place.clone()) else {
            return malformed!("storage `{}` of {len} elements leaves the file", reference.key);
        };
        position = place.end;
        storages.insert(reference.key, Storage { bytes, place });
    }
    Ok(storages)
}

/// A tensor's reference to its storage: `("storage", class, key, location, elements)`.
#[derive(Clone, Copy)]
struct Reference<'p> {
    key: &'p str,
    /// The storage's, unless it is untyped.
    dtype: Option<DType>,
    elements: usize,
}

impl<'p> Reference<'p> {
    fn read(pickle: &'p Pickle, id: Value) -> Result<Reference<'p>, Problem> {
        let parts = pickle.tuple(id).unwrap_or_default();
        let &[kind, class, key, _location, elements, ref view @ ..] = parts else {
            return malformed!("a reference to a storage has {} parts instead of 5", parts.len());
        };
        let dtype = match class {
            Value::Global(Global::Storage(dtype)) => Some(dtype),
            Value::Global(Global::UntypedStorage) => None,
            _ => return malformed!("a reference to a storage of no known class"),
        };
        let (Some("storage"), Some(key)) = (pickle.text(kind), pickle.text(key)) else {
            return malformed!("a reference to something other than a storage");
        };
        if view.iter().any(|&view| view != Value::None) {
            return unsupported!("storage `{key}` is a view of another (PyTorch before 0.4)");
        }
        let elements = size(pickle, elements, || format!("storage `{key}`: its size"))?;
        Ok(Reference { key, dtype, elements })
    }

    fn bytes(&self) -> Result<usize, Problem> {
        match self.dtype.unwrap_or(DType::U8).bytes_for(self.elements) {
            Some(bytes) => Ok(bytes),
            None => malformed!("storage `{}`: {} elements overflow", self.key, self.elements),
        }
    }
}

/// The tensors of the state dict in a pickle, whose storages `storage` finds by key. Numbers and texts next to the
/// state dict go into the metadata; other values in it are left out.
fn read_tensors<'p>(
    pickle: &'p Pickle,
    contents: &mut Contents,
    mut storage: impl FnMut(&'p str) -> Result<Storage, Problem>,
) -> Result<Named, Problem> {
    if let Some(call) = tensor_call(pickle, pickle.root) {
        return Ok(vec![read_tensor(pickle, LONE_TENSOR, call, &mut storage)?]);
    }
    let mut dict = pickle.root;
    for _ in 0..MAX_NESTING {
        let pairs = pickle.dict(dict).unwrap_or_default();
        if pairs.iter().any(|pair| tensor_call(pickle, pair.1).is_some()) {
            let named = pairs.iter().filter_map(|&(name, value)| {
                let (name, call) = (pickle.text(name)?, tensor_call(pickle, value)?);
                Some(read_tensor(pickle, name, call, &mut storage))
            });
            return named.collect();
        }
        read_metadata(pickle, pairs, contents);
        let inner = STATE_DICTS.iter().find_map(|key| {
            let value = entry(pickle, dict, key)?;
            pickle.dict(value).map(|_| value)
        });
        match inner {
            Some(inner) => dict = inner,
            None => break,
        }
    }
    malformed!("no dict of tensors, neither on top nor under {}", STATE_DICTS.join(", "))
}

/// The call that makes a tensor, behind the one that makes it a parameter.
fn tensor_call<'p>(pickle: &'p Pickle, value: Value) -> Option<(Global, &'p [Value])> {
    match pickle.call(value)? {
        (Global::RebuildParameter, arguments) => {
            pickle.call(*arguments.first()?).filter(|call| call.0 != Global::RebuildParameter)
        }
        call @ (Global::RebuildTensor | Global::RebuildTensorV3, _) => Some(call),
        _ => None,
    }
}

/// `(storage, offset, size, stride, requires_grad, hooks[, dtype])` → a view of the storage.
fn read_tensor<'p>(
    pickle: &'p Pickle,
    name: &str,
    (function, arguments): (Global, &'p [Value]),
    storage: &mut impl FnMut(&'p str) -> Result<Storage, Problem>,
) -> Result<(String, Tensor, Range<usize>), Problem> {
    let &[source, offset, dims, strides, ref rest @ ..] = arguments else {
        return malformed!("tensor `{name}`: {} arguments instead of at least 4", arguments.len());
    };
    let Some(id) = pickle.persistent(source) else { return malformed!("tensor `{name}` has no storage") };
    let reference = Reference::read(pickle, id)?;
    let dtype = match (function, rest.get(2), reference.dtype) {
        (Global::RebuildTensorV3, Some(&Value::Global(Global::DType(dtype))), _) => dtype,
        (Global::RebuildTensor, _, Some(dtype)) => dtype,
        _ => return malformed!("tensor `{name}` has no dtype"),
    };
    let offset = size(pickle, offset, || format!("tensor `{name}`: the offset"))?;
    let dims = sizes(pickle, dims, || format!("tensor `{name}`: an axis"))?;
    let strides = sizes(pickle, strides, || format!("tensor `{name}`: a stride"))?;
    let strides: Vec<isize> = strides.into_iter().map(|stride| stride as isize).collect();
    let Some(shape) = Shape::try_new(&dims) else {
        return unsupported!("tensor `{name}` has {} axes", dims.len());
    };
    let Storage { bytes, place } = storage(reference.key)?;
    let needed = reference.bytes()?;
    let Some(bytes) = bytes.slice(0..needed) else {
        let (key, found) = (reference.key, bytes.len());
        return malformed!("tensor `{name}`: storage `{key}` has {found} bytes, {needed} are promised");
    };
    let elements = needed / dtype.block().bytes;
    // Also refuses what `expand` makes, as copying it could take any amount of memory.
    if shape.checked_elements().is_none_or(|wanted| wanted > elements) {
        let repeats = strides.iter().zip(shape.iter()).any(|(&stride, &dim)| stride == 0 && dim > 1);
        let view =
            if repeats { " (it repeats them with stride 0: save it with `.contiguous()`)" } else { "" };
        return malformed!(
            "tensor `{name}` of {shape} is larger than its storage of {elements} elements{view}"
        );
    }
    let whole = bytes.slice(0..elements * dtype.block().bytes).expect("a part of the storage");
    let tensor = Tensor::from_bytes(dtype, [elements], whole)
        .and_then(|flat| flat.strided(shape, &strides, offset))
        .map_err(|error| Problem::Malformed(format!("tensor `{name}`: {error}")))?;
    let place = if place.is_empty() || !tensor.is_contiguous() || tensor.elements() == 0 {
        place
    } else {
        let size = dtype.block().bytes;
        let start = place.start + offset * size;
        start..start + tensor.elements() * size
    };
    Ok((name.to_string(), tensor, place))
}

/// Numbers and texts next to the weights, and in dicts next to them: `{"model_args": {"dim": 64}}` becomes
/// `model_args.dim`.
fn read_metadata(pickle: &Pickle, pairs: &[(Value, Value)], contents: &mut Contents) {
    let mut insert = |key: String, value: Value| {
        if let Some(value) = meta_value(pickle, value)
            && contents.metadata.get(&key).is_none()
        {
            contents.metadata.insert(key, value);
        }
    };
    for &(key, value) in pairs {
        let Some(key) = pickle.text(key) else { continue };
        insert(key.to_string(), value);
        for &(inner, value) in pickle.dict(value).unwrap_or_default() {
            if let Some(inner) = pickle.text(inner) {
                insert(format!("{key}.{inner}"), value);
            }
        }
    }
}

fn meta_value(pickle: &Pickle, value: Value) -> Option<MetaValue> {
    if let Value::Bool(truth) = value {
        return Some(truth.into());
    }
    let integer = pickle.integer(value).map(MetaValue::from);
    let float = || pickle.float(value).map(MetaValue::from);
    let text = || pickle.text(value).map(MetaValue::from);
    integer.or_else(float).or_else(text)
}

/// The value of a key in a dict, if it is a dict.
fn entry(pickle: &Pickle, dict: Value, key: &str) -> Option<Value> {
    pickle.dict(dict)?.iter().find(|pair| pickle.text(pair.0) == Some(key)).map(|pair| pair.1)
}

/// A number that must be a size, at most `isize::MAX`.
fn size(pickle: &Pickle, value: Value, what: impl FnOnce() -> String) -> Result<usize, Problem> {
    match pickle.integer(value).map(isize::try_from) {
        Some(Ok(size)) if size >= 0 => Ok(size as usize),
        Some(_) => malformed!("{} is {}", what(), pickle.integer(value).unwrap_or_default()),
        None => malformed!("{} is no integer", what()),
    }
}

fn sizes(pickle: &Pickle, value: Value, what: impl Fn() -> String) -> Result<Vec<usize>, Problem> {
    // A shape is a plain tuple, or a call of torch.Size on one.
    let plain = match pickle.call(value) {
        Some((Global::Size, &[inner])) => inner,
        _ => value,
    };
    match pickle.tuple(plain) {
        Some(values) => values.iter().map(|&value| size(pickle, value, &what)).collect(),
        None => malformed!("{}: shapes and strides are tuples", what()),
    }
}
