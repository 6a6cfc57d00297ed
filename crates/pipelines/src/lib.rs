//! How tokens are made: tokenizer, sequences, scheduler, KV pages, runner, sampler, generator.

pub mod detokenizer;
pub mod error;
pub mod philox;
pub mod sampler;
pub mod tokenizer;

pub use error::Error;
