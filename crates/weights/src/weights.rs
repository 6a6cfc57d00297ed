//! The weights of a model: named tensors, as they rest in its files.

use std::fmt;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use tensor::{Bytes, Tensor};

use crate::contents::{Contents, Stored, WeightMap};
use crate::source::{ModelFiles, read_index};
use crate::{Error, Format, Metadata, WeightFile, gguf, pytorch, safetensors};

/// The tensors of one model, views of its mapped files.
///
/// Tensors keep the layout of their format. In particular the rows of `attn_q` and `attn_k` stand in the order of
/// the format's rotary embedding: Hugging Face checkpoints have half-split pairs (`i`, `i + head_dim / 2`); GGUF
/// files of the `llama` architecture and checkpoints in Meta's own naming have interleaved pairs (`2i`, `2i + 1`).
/// Nothing is permuted here.
///
/// Bytes are not aligned for their element type where the file does not align them (PyTorch's non-zip files,
/// seldom safetensors): [`Tensor::as_slice`] is then `None`, while [`Tensor::bytes`] and the copying reads work.
pub struct Weights {
    contents: Contents,
}

impl Weights {
    /// Opens the weights at `path`, which is
    ///
    /// - a `.gguf` file, of a split set any one of the files;
    /// - a `.safetensors` file, or a PyTorch `.bin`, `.pt` or `.pth`;
    /// - the `.index.json` of a sharded checkpoint;
    /// - a folder with one model. Of several formats, safetensors are taken, else GGUF, else PyTorch; of several
    ///   models in one format, the one under the usual name.
    ///
    /// Maps the files and reads their headers; the weights themselves are read when someone looks at them.
    ///
    /// Of the files that an index lists, those that are there are opened: a model need not use all
    /// ([`Weights::reason_of_absence`]).
    ///
    /// # Errors
    /// If the files cannot be read, contradict themselves or each other, or use what Perihelion does not read.
    pub fn open(path: &Path) -> Result<Weights, Error> {
        let ModelFiles { files, shards } = ModelFiles::find(path)?;
        let files: Vec<WeightFile> =
            files.iter().map(|file| WeightFile::open(file)).collect::<Result<_, _>>()?;
        Ok(Weights { contents: read(files, shards)? })
    }

    /// Opens the shards of one model that has no index.
    ///
    /// # Errors
    /// As [`Weights::open`], and if there are no files.
    pub fn open_all(paths: &[PathBuf]) -> Result<Weights, Error> {
        Weights::from_files(paths.iter().map(|path| WeightFile::open(path)).collect::<Result<_, _>>()?)
    }

    /// As [`Weights::open_all`], of files that are open; of a file that is elsewhere, its [`FileHeader`](crate::FileHeader)
    /// is enough to know all but its values.
    ///
    /// # Errors
    /// As [`Weights::open_all`].
    pub fn from_files(files: Vec<WeightFile>) -> Result<Weights, Error> {
        Weights::from_shards(files, None)
    }

    /// As [`Weights::from_files`], of files that an index lists.
    ///
    /// # Errors
    /// If there are no files, the index cannot be read, or a file contradicts it or another.
    pub fn from_shards(files: Vec<WeightFile>, index: Option<&Path>) -> Result<Weights, Error> {
        if files.is_empty() {
            return Err(Error::NoWeights { path: PathBuf::new() });
        }
        let shards = index.map(read_index).transpose()?.unwrap_or_default();
        Ok(Weights { contents: read(files, shards)? })
    }

    /// The weights of a file that is in memory already, whole; `name` stands for its path in messages.
    ///
    /// # Errors
    /// As [`Weights::open`].
    pub fn from_bytes(name: &str, bytes: Bytes) -> Result<Weights, Error> {
        Ok(Weights { contents: read(vec![WeightFile::in_memory(name, bytes)], WeightMap::new())? })
    }

    /// The format of the files.
    pub fn format(&self) -> Format {
        self.contents.format
    }

    /// The files, in the order they were read.
    pub fn files(&self) -> &[WeightFile] {
        &self.contents.files
    }

    /// Whether the values are at hand: where a file is not whole, tensors have the right names, dtypes and shapes, and
    /// zeros for values.
    pub fn has_values(&self) -> bool {
        self.files().iter().all(WeightFile::is_whole)
    }

    /// Whether the values of a tensor are at hand.
    pub fn has_value(&self, name: &str) -> bool {
        self.place(name).is_some_and(|(file, stored)| file.has(&stored.place))
    }

    /// The metadata of the files.
    pub fn metadata(&self) -> &Metadata {
        &self.contents.metadata
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.contents.tensors.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.contents.tensors.is_empty()
    }

    /// The names, as the files have them and in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.tensors.keys().map(String::as_str)
    }

    /// Names and tensors, in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.contents.tensors.iter().map(|(name, stored)| (name.as_str(), &stored.tensor))
    }

    /// The tensor of a name, as the files have it.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.contents.tensors.get(name).map(|stored| &stored.tensor)
    }

    /// The names that an index lists, though no file has such a tensor.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        let names = self.contents.shards.keys().map(String::as_str);
        names.filter(|name| !self.contents.tensors.contains_key(*name))
    }

    /// Why a tensor that an index lists is not there: `the model lacks b.safetensors, where the index lists it`.
    pub fn reason_of_absence(&self, name: &str) -> Option<String> {
        self.contents.reason_of_absence(name)
    }

    /// The same weights, those under another name for which `rename` gives one.
    ///
    /// # Errors
    /// If two tensors get one name.
    pub fn renamed(mut self, rename: impl Fn(&str) -> Option<String>) -> Result<Weights, Error> {
        let mut tensors: IndexMap<String, Stored> = IndexMap::with_capacity(self.len());
        for (name, stored) in std::mem::take(&mut self.contents.tensors) {
            let key = rename(&name).unwrap_or_else(|| name.clone());
            if tensors.insert(key.clone(), stored).is_some() {
                return Err(Error::AmbiguousName { first: key.clone(), canonical: key, second: name });
            }
        }
        self.contents.tensors = tensors;
        let shards = std::mem::take(&mut self.contents.shards).into_iter();
        self.contents.shards = shards.map(|(name, shard)| (rename(&name).unwrap_or(name), shard)).collect();
        Ok(self)
    }

    /// The bytes of all tensors together, as stored.
    pub fn bytes(&self) -> u64 {
        let size =
            |tensor: &Tensor| tensor.dtype().bytes_for_shape(tensor.shape()).unwrap_or_default() as u64;
        self.contents.tensors.values().map(|stored| size(&stored.tensor)).sum()
    }

    /// Whether the values are still those that the files had when they were opened ([`WeightFile::check`]).
    ///
    /// # Errors
    /// If not.
    pub fn check_files(&self) -> Result<(), tensor::Error> {
        self.files().iter().try_for_each(WeightFile::check)
    }

    /// Asks the kernel to read a tensor's part of its file now, ahead of use. Does nothing for an unknown name.
    pub fn prefetch(&self, name: &str) {
        if let Some((file, stored)) = self.place(name) {
            file.prefetch(stored.place.clone());
        }
    }

    /// Gives the memory of a tensor's pages back to the kernel, once it was repacked. Views stay valid: reading
    /// them again reads the file again. Does nothing for an unknown name, and on systems other than Unix.
    pub fn release(&self, name: &str) {
        if let Some((file, stored)) = self.place(name) {
            file.release(stored.place.clone());
        }
    }

    /// The file that holds a tensor.
    pub fn file_of(&self, name: &str) -> Option<&WeightFile> {
        self.place(name).map(|(file, _)| file)
    }

    fn place(&self, name: &str) -> Option<(&WeightFile, &Stored)> {
        let stored = self.contents.tensors.get(name)?;
        Some((&self.contents.files[stored.file], stored))
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weights({}, {} tensors)", self.format(), self.len())
    }
}

/// Reads the headers of files of one format.
fn read(files: Vec<WeightFile>, shards: WeightMap) -> Result<Contents, Error> {
    match WeightFile::common_format(&files)? {
        Format::Gguf => gguf::read(files),
        Format::Safetensors => safetensors::read(files, shards),
        Format::PyTorch => pytorch::read(files, shards),
    }
}
