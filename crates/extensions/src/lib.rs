//! Loads libraries of custom ops: shared libraries, packages, single sources of Rust.
//!
//! Layer 1: knows `tensor` and the ABI of `extension`. `unsafe` is here because foreign code is called; everything it
//! says of itself is checked before use. An extension is code with all rights of the process: it is loaded from paths
//! that somebody gave, and never from a model.
//!
//! ```text
//! path ─┬─ folder ─▶ package: manifest, digest ─┐
//!       ├─ .rs ────▶ source: rustc, cache ──────┼─▶ library: dlopen ─▶ table: check ─▶ Ops
//!       └─ other ───────────────────────────────┘
//! ```

mod error;
mod library;
mod op;
mod open;
mod package;
mod signature;
mod source;
mod table;

pub use error::Error;
pub use library::Library;
pub use op::{Argument, Array, ArrayMut, Guards, Op, Operand, Parallel};
pub use package::{MANIFEST, pack};
pub use signature::{Access, OperandDeclaration, ParameterDeclaration, ParameterKind, Signature};
pub use source::Compiler;
