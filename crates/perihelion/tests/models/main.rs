//! Real trained models: what they compute, and that it is always the same.

mod determinism;
mod reference;
mod support;
