//! Routes for texts and their tokens, in the shapes of vLLM and llama.cpp. They run no model.

pub(crate) mod apply_template;
pub(crate) mod detokenize;
pub(crate) mod tokenize;
