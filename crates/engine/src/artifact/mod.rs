//! Compiled models as files (`.mef`), which start without passes and, where they hold packed weights, without packing.
//!
//! An artifact holds graphs as the passes left them: as text, with large constants apart from it. Loading verifies and
//! lowers them again, which takes a fraction of a millisecond, so that nothing in a file is trusted to be a sound plan.
//! It may hold weights too, in the layouts of the device that it was made for, and as graphs describe them where
//! steps read them so.
//!
//! **Safe to read.** Every byte is covered by a checksum. Opening checks the header; graphs and constants are checked
//! before they are parsed, weights before they are bound, all with several threads. What was altered, cut off, made by
//! another version or for another instruction set is refused with an error that says which.
//!
//! **Safe to write.** A file appears under its name whole or not at all, whatever happens to its writer, and replaces
//! one that is in use without disturbing those who use it.
//!
//! **Bound to a target.** An artifact is for the device and instruction set that it was compiled for, and loads where
//! these are available: one made for AVX2 loads on a machine with AVX-512, where the faster kernels then run it. One
//! compiled on a device that is limited to portable kernels loads wherever the architecture is the same. It may be compiled
//! where no such device is ([`CompileOptions::target`](crate::CompileOptions::target)): graphs are the same on all, and
//! weights are packed by the same code. If a larger instruction set wants other layouts than the file holds, the kernels of
//! the file's own set run.

mod atomic_file;
mod container;
mod read;
#[cfg(test)]
mod tests;
mod weights;

pub use self::atomic_file::AtomicFile;
pub(crate) use self::atomic_file::TEMPORARY;
pub use self::container::checksum;
pub(crate) use self::container::{
    ALIGNMENT, Header, ModelRecord, PREAMBLE, SectionRecord, SourceRecord, WeightRecord, maker, preamble,
};
pub use self::read::{Artifact, ArtifactModel, ArtifactWeight};
pub(crate) use self::weights::{StoredWeight, StoredWeights, address};
