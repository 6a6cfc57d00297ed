//! What a computation is: values, ops and their meaning, types, text, verification.
//!
//! Layer 1: knows `tensor`. No `unsafe`, no I/O, no device.
//!
//! A [`Graph`] is a list of nodes in program order over values in single-assignment form. Each value has a
//! [`Type`]: an element type, a shape whose sizes may be symbols, a device. Each op ([`ops`]) states its type
//! rule and its meaning; the meaning is slow and obvious, and every device is tested against it.
//!
//! ```
//! # use perihelion_graph as graph;
//! use graph::{Builder, Graph, Type, dims};
//! use tensor::{DType, Tensor};
//!
//! let mut b = Builder::new("layer");
//! let x = b.input("x", Type::new(DType::F32, dims!["tokens", 2]));
//! let weight = b.weight("up.weight", Type::new(DType::F32, [3, 2]))?;
//! let y = b.linear(x, weight)?;
//! let y = b.silu(y)?;
//! let graph = b.finish(&[y])?;
//!
//! let text = r#"graph layer(%x: f32[tokens, 2]) {
//!   %0 = weight "up.weight" : f32[3, 2]
//!   %1 = linear(%x, %0) : f32[tokens, 3]
//!   %2 = silu(%1) : f32[tokens, 3]
//!   return %2
//! }
//! "#;
//! assert_eq!(graph.to_string(), text);
//! assert_eq!(Graph::parse(text)?.to_string(), text);
//!
//! let x = Tensor::from_slice([1, 2], &[1.0f32, 2.0]);
//! let weight = Tensor::from_slice([3, 2], &[1.0f32, 0.0, 0.0, 0.0, 0.0, 50.0]);
//! let evaluation = graph.evaluate(&[x], &|name| (name == "up.weight").then(|| weight.clone()))?;
//! assert_eq!(evaluation.outputs[0].to_vec::<f32>(), [0.731_058_6, 0.0, 100.0]);
//! # Ok::<(), graph::Error>(())
//! ```

#![forbid(unsafe_code)]

#[macro_use]
mod error;

mod apply;
mod bind;
mod builder;
mod dim;
mod evaluate;
mod graph;
mod location;
pub mod ops;
#[cfg(test)]
mod random;
pub mod sharding;
mod text;
mod ty;
mod verify;

pub use builder::{Approximation, Builder, Index, Operand, RaggedBatch, Region, Suppression};
pub use dim::{Bindings, Dim, Substitution};
pub use error::{Error, TypeError};
pub use evaluate::Evaluation;
pub use graph::{DevicePlacementPolicy, Graph, Input, Module, Node, NodeId, Value};
pub use location::SourceLocation;
pub use ops::Op;
pub use ty::{DeviceRef, Kind, Type};
