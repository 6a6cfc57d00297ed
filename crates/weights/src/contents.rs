//! The result of a reader: tensors in file order, metadata, and the files they came from.

use std::collections::BTreeMap;
use std::ops::Range;

use indexmap::IndexMap;
use indexmap::map::Entry;
use tensor::{DType, Shape, Tensor};

use crate::error::Problem;
use crate::file::WeightFile;
use crate::{Error, Format, Metadata};

/// All that was read from the files of one model.
pub(crate) struct Contents {
    pub(crate) format: Format,
    pub(crate) files: Vec<WeightFile>,
    pub(crate) tensors: IndexMap<String, Stored>,
    pub(crate) metadata: Metadata,
    /// The shard that an index lists for a tensor.
    pub(crate) shards: WeightMap,
}

/// Names of tensors, and of the files that hold them.
pub(crate) type WeightMap = BTreeMap<String, String>;

/// A tensor and where it rests.
pub(crate) struct Stored {
    pub(crate) tensor: Tensor,
    /// Index into [`Contents::files`].
    pub(crate) file: usize,
    /// The bytes of the file that the tensor is a view of; empty if it was decompressed into memory.
    pub(crate) place: Range<usize>,
}

impl Contents {
    pub(crate) fn new(format: Format) -> Contents {
        let (tensors, metadata, shards) = (IndexMap::new(), Metadata::new(), WeightMap::new());
        Contents { format, files: Vec::new(), tensors, metadata, shards }
    }

    /// Contents of files that an index lists.
    pub(crate) fn with_index(format: Format, shards: WeightMap) -> Contents {
        Contents { shards, ..Contents::new(format) }
    }

    /// Adds a file and gives back its index.
    pub(crate) fn add_file(&mut self, file: WeightFile) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    /// Adds a tensor that is a row-major view of a part of a file, which must lie inside.
    pub(crate) fn add_view(
        &mut self,
        file: usize,
        name: String,
        dtype: DType,
        shape: Shape,
        place: Range<usize>,
    ) -> Result<(), Error> {
        let bytes =
            self.files[file].slice(place.clone()).expect("the reader checked that it lies in the file");
        let tensor = Tensor::from_bytes(dtype, shape, bytes).map_err(|error| {
            Problem::Malformed(format!("tensor `{name}`: {error}")).at(self.files[file].path(), self.format)
        })?;
        self.add(name, Stored { tensor, file, place })
    }

    /// Adds a tensor under a name that must be new, unless the index lists another file for it: that one's counts.
    pub(crate) fn add(&mut self, name: String, stored: Stored) -> Result<(), Error> {
        let path = |file: usize| self.files[file].path();
        let shard = self.shards.get(&name);
        if shard.is_some_and(|shard| path(stored.file).file_name() != Some(shard.as_ref())) {
            return Ok(());
        }
        match self.tensors.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(stored);
                Ok(())
            }
            Entry::Occupied(entry) => Err(Error::DuplicateTensor {
                name: entry.key().clone(),
                first: path(entry.get().file).to_path_buf(),
                second: path(stored.file).to_path_buf(),
            }),
        }
    }

    /// Why a tensor that the index lists is not there.
    pub(crate) fn reason_of_absence(&self, name: &str) -> Option<String> {
        let shard = self.shards.get(name).filter(|_| !self.tensors.contains_key(name))?;
        let is_there = self.files.iter().any(|file| file.path().file_name() == Some(shard.as_ref()));
        Some(match is_there {
            true => format!("{shard}, where the index lists it, does not hold it"),
            false => format!("the model lacks {shard}, where the index lists it"),
        })
    }
}
