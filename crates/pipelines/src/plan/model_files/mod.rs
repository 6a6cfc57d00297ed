//! What the files of a model say, and how GGUF files say it.

pub(crate) mod classifier;
pub(crate) mod gguf;
pub(crate) mod pair_template;
pub(crate) mod repo_tokenizer;
pub(crate) mod sentence_transformers;
pub(crate) mod transformers;
