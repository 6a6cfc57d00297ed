//! Weights as a program reads them.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tensor::{MappedFile, Tensor};

use crate::device::far::FarBytes;
use crate::{Device, Error, PackedWeight};

/// A weight slot with its contents.
#[derive(Clone)]
pub(crate) enum BoundWeight {
    /// As stored; shared with the registry.
    Raw(Tensor),
    /// As stored, in the memory of a device.
    Far(FarBytes),
    /// In the device's layout, and the artifact that it lies in if it is used there.
    Packed(PackedWeight, Option<Arc<MappedFile>>),
}

impl BoundWeight {
    pub(crate) fn raw(&self) -> &[u8] {
        match self {
            BoundWeight::Raw(tensor) => tensor.bytes(),
            BoundWeight::Far(_) | BoundWeight::Packed(..) => {
                unreachable!("the host reads this slot as it is stored")
            }
        }
    }

    pub(crate) fn far(&self) -> &FarBytes {
        match self {
            BoundWeight::Far(bytes) => bytes,
            BoundWeight::Raw(_) | BoundWeight::Packed(..) => {
                unreachable!("a device reads this slot as it is stored")
            }
        }
    }

    pub(crate) fn packed(&self) -> &PackedWeight {
        match self {
            BoundWeight::Packed(weight, _) => weight,
            BoundWeight::Raw(_) | BoundWeight::Far(_) => unreachable!("the program reads this slot packed"),
        }
    }

    /// The file that it lies in, if it does.
    fn file(&self) -> Option<&Arc<MappedFile>> {
        match self {
            BoundWeight::Raw(tensor) => tensor.file(),
            BoundWeight::Far(_) => None,
            BoundWeight::Packed(_, file) => file.as_ref(),
        }
    }
}

/// The weights of a program in the order of its slots.
pub(crate) struct BoundWeights {
    /// Tells these weights from all others that were bound in this process.
    pub(crate) number: u64,
    weights: Vec<BoundWeight>,
    /// The files that some of them lie in, each once.
    files: Vec<Arc<MappedFile>>,
    /// Those that were not packed at once.
    late: Vec<PackedWeight>,
    /// Whether a call has read the weights.
    was_called: AtomicBool,
    /// How long it took to pack those that were not packed at once; set when they are.
    packing_time: OnceLock<Duration>,
    device: Arc<dyn Device>,
}

impl BoundWeights {
    pub(crate) fn new(weights: Vec<BoundWeight>, device: Arc<dyn Device>) -> BoundWeights {
        let files = each_once(weights.iter().filter_map(BoundWeight::file).cloned());
        let late = weights.iter().filter_map(|weight| match weight {
            BoundWeight::Packed(packed, _) => device.file_of(packed).map(|_| packed.clone()),
            BoundWeight::Raw(_) | BoundWeight::Far(_) => None,
        });
        static BINDINGS: AtomicU64 = AtomicU64::new(0);
        let number = BINDINGS.fetch_add(1, Ordering::Relaxed);
        let (was_called, packing_time) = (AtomicBool::new(false), OnceLock::new());
        BoundWeights { number, late: late.collect(), weights, files, was_called, packing_time, device }
    }

    /// Checks the files before a call. The first call packs late weights for itself, in little memory, and the second packs them
    /// for all others.
    pub(crate) fn start_call(&self) -> Result<(), Error> {
        self.check_files()?;
        if self.packing_time.get().is_none() && self.was_called.swap(true, Ordering::Relaxed) {
            self.pack();
        }
        Ok(())
    }

    /// Packs the weights that were not packed at once.
    pub(crate) fn pack(&self) {
        if self.late.is_empty() {
            return;
        }
        let start = Instant::now();
        self.late.iter().for_each(|weight| self.device.finish_packing(weight));
        if self.late_files().is_empty() {
            let _ = self.packing_time.set(start.elapsed());
        }
    }

    /// How long it took to pack the weights that were not packed at once; `None` until they are.
    pub(crate) fn packing_time(&self) -> Option<Duration> {
        self.packing_time.get().copied()
    }

    /// Checks that they are what they were, as far as that can be told.
    pub(crate) fn check_files(&self) -> Result<(), Error> {
        let late = if self.packing_time.get().is_some() { Vec::new() } else { self.late_files() };
        self.files.iter().chain(&late).try_for_each(|file| Ok(file.check()?))
    }

    /// The files that some are still to be packed from, each once.
    fn late_files(&self) -> Vec<Arc<MappedFile>> {
        each_once(self.late.iter().filter_map(|weight| self.device.file_of(weight)))
    }
}

fn each_once(files: impl Iterator<Item = Arc<MappedFile>>) -> Vec<Arc<MappedFile>> {
    let mut files: Vec<Arc<MappedFile>> = files.collect();
    files.sort_by_key(Arc::as_ptr);
    files.dedup_by(|a, b| Arc::ptr_eq(a, b));
    files
}

impl Deref for BoundWeights {
    type Target = [BoundWeight];

    fn deref(&self) -> &[BoundWeight] {
        &self.weights
    }
}
