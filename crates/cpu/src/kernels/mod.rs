//! What the CPU can compute, one concept a file.

pub mod attention;
mod disjoint;
pub mod kv_cache;
pub mod matmul;
pub mod norm;
pub mod rope;
mod rows;
pub mod softmax;
pub mod variant;
pub mod linear;
