//! The CPU as sessions use it, in one binary.

mod dlpack;
mod settings;
mod vast_axes;
