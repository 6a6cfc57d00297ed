//! Weights as a program reads them.

use std::ops::Deref;
use std::sync::Arc;

use tensor::{MappedFile, Tensor};

use crate::{Error, PackedWeight};

/// A weight slot with its contents.
#[derive(Clone)]
pub(crate) enum BoundWeight {
    /// As stored; shared with the registry.
    Raw(Tensor),
    /// In the device's layout, and the artifact that it lies in if it is used there.
    Packed(PackedWeight, Option<Arc<MappedFile>>),
}

impl BoundWeight {
    pub(crate) fn raw(&self) -> &[u8] {
        match self {
            BoundWeight::Raw(tensor) => tensor.bytes(),
            BoundWeight::Packed(..) => unreachable!("the program reads this slot as it is stored"),
        }
    }

    pub(crate) fn packed(&self) -> &PackedWeight {
        match self {
            BoundWeight::Packed(weight, _) => weight,
            BoundWeight::Raw(_) => unreachable!("the program reads this slot packed"),
        }
    }

    /// The file that it lies in, if it does.
    fn file(&self) -> Option<&Arc<MappedFile>> {
        match self {
            BoundWeight::Raw(tensor) => tensor.file(),
            BoundWeight::Packed(_, file) => file.as_ref(),
        }
    }
}

/// The weights of a program in the order of its slots.
pub(crate) struct BoundWeights {
    weights: Vec<BoundWeight>,
    /// The files that some of them lie in, each once.
    files: Vec<Arc<MappedFile>>,
}

impl BoundWeights {
    pub(crate) fn new(weights: Vec<BoundWeight>) -> BoundWeights {
        let mut files: Vec<Arc<MappedFile>> = weights.iter().filter_map(BoundWeight::file).cloned().collect();
        files.sort_by_key(Arc::as_ptr);
        files.dedup_by(|a, b| Arc::ptr_eq(a, b));
        BoundWeights { weights, files }
    }

    /// Checks that they are what they were, as far as that can be told.
    pub(crate) fn check_files(&self) -> Result<(), Error> {
        self.files.iter().try_for_each(|file| Ok(file.check()?))
    }
}

impl Deref for BoundWeights {
    type Target = [BoundWeight];

    fn deref(&self) -> &[BoundWeight] {
        &self.weights
    }
}
