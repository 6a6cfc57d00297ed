//! Routes in the shapes that clients know, a folder or a file for each protocol.

pub(crate) mod anthropic;
pub(crate) mod kserve;
pub(crate) mod llama_cpp;
pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod sagemaker;
pub(crate) mod scoring;
pub(crate) mod text;
