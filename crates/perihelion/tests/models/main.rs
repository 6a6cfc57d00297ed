//! Real trained models: what they compute, and that it is always the same.

mod architectures;
mod casts;
mod determinism;
mod encoders;
mod experts;
mod gptq;
mod hostile;
mod mixes;
mod reference;
mod states;
mod support;
