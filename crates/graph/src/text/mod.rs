//! The text of graphs: what prints parses back to the same graph.
//!
//! ```text
//! graph decoder(%x: f32[tokens, 64], %cache: mut f32[pages, 1, 2, 4, 128]) {
//!   %0 = weight "blk.0.attn_norm.weight" : f32[64]
//!   %1 = rms_norm(%x, %0) {eps = 1e-5} : f32[tokens, 64]
//!   %2, %3 = top_k(%1) {k = 2, axis = 1} : f32[tokens, 2], i64[tokens, 2]
//!   %4 = constant [1.0, nan] : f32[2]
//!   return %2, %4
//! }
//! ```
//!
//! `docs/reference/graph-text.md` has the grammar, and the attributes of each op. `constant @3` is the fourth of the
//! constants that are kept apart from the text, see [`crate::Graph::detached_text`].

mod data;
mod detached;
mod lexer;
mod parse;
mod print;

#[cfg(test)]
mod tests;
