//! A device for tests: its memory is a thread's, reached by commands alone, and it computes with the host's kernels.
//!
//! Commands wait for a random while, and memory is filled with NaN before it is written, so that whoever reads too early
//! or looks at the wrong place gets other results. Results are the host's to the bit.

#![forbid(unsafe_code)]

mod device;
mod kernel;
mod memory;
mod queue;

pub use device::{FarDevice, OneFarDevice};
