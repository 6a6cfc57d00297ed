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
//! The grammar, where `[x]` is optional and `{x}` may repeat:
//! ```text
//! module    = {graph}
//! graph     = "graph" name "(" inputs ")" "{" {node} "return" values "}"
//! inputs    = [value ":" type {"," value ":" type}]
//! node      = [values "="] (leaf | op "(" values ")" [attributes]) [":" type {"," type}]
//! leaf      = "weight" string | "constant" data
//! values    = [value {"," value}]            value = "%" (name | number)
//! attributes = "{" word "=" attribute {"," word "=" attribute} "}"
//! attribute = "true" | "false" | number | word | string | dtype | "[" dims "]" | "[" types "]" | graph | "@" name
//! types     = type {"," type}
//! type      = ["mut"] dtype "[" dims "]" ["@" ("cpu" | "gpu" ":" number)]
//! dim       = sums, products and quotients "//" of numbers, words and dims in parentheses
//! data      = "[" numbers "]" | "0x" hexadecimal bytes in memory order | "@" number
//! name      = word | string
//! ```
//! A node that runs graphs holds them as attributes; `@name` is the last graph of that name within the text so far.
//! Results may be named freely, and their types left out but for leaves; `#` starts a comment. `@3` is the fourth of
//! the constants that are kept beside the text, see [`crate::Graph::detached_text`].

mod data;
mod detached;
mod lexer;
mod parse;
mod print;

#[cfg(test)]
mod tests;
