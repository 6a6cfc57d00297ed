//! `z = f(x, y)` for each pair of elements, with broadcasting.

/// placeholder
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {}
