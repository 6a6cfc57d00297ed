//! Graphs that Python builds: the door to `graph::Builder`.

mod builder;
mod dim;
mod images;
mod sharding;
mod value;
mod weights;

pub(crate) use builder::{GraphBuilder, KernelLibrary, Region, module};
pub(crate) use dim::Dim;
pub(crate) use sharding::{block_parameters, shard};
pub(crate) use value::Value;
pub(crate) use weights::WeightFiles;
