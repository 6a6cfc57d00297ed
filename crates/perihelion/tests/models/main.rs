//! Real trained models: what they compute, and that it is always the same.

mod determinism;
mod hostile;
mod reference;
mod support;
