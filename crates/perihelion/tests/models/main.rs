//! Models compute the logits of their references, with the same bits in every run.

mod architectures;
mod casts;
mod classifiers;
mod determinism;
mod embedders;
mod encoders;
mod experts;
mod gptq;
#[cfg(feature = "webgpu")]
mod gpu;
mod hostile;
mod mixes;
mod reference;
mod rerankers;
mod states;
mod support;
