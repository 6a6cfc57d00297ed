//! What a computation is: values, ops and their meaning, types, text, verification.
//!
//! Floor 1: knows `tensor`. No `unsafe`, no I/O, no device.
//!
//! A [`Graph`] is a list of nodes in program order over values in single-assignment form. Each value has a
//! [`Type`]: an element type, a shape whose sizes may be symbols, a device. Each op ([`ops`]) states its type
//! rule and its meaning; the meaning is slow and obvious, and every device is tested against it.

#![forbid(unsafe_code)]

mod bind;
mod builder;
mod dim;
mod error;
mod evaluate;
mod graph;
pub mod ops;
mod text;
mod ty;
mod verify;

pub use builder::{Builder, RaggedBatch};
pub use dim::{Bindings, Dim};
pub use error::{Error, TypeError};
pub use evaluate::Evaluation;
pub use graph::{Graph, Input, Module, Node, NodeId, Value};
pub use ops::Op;
pub use ty::{DeviceRef, Kind, Type};
