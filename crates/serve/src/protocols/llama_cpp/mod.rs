//! Routes in the shapes of llama.cpp's server, in addition to those that it has under OpenAI's names.

mod answer;
pub(crate) mod completion;
pub(crate) mod infill;
pub(crate) mod props;
pub(crate) mod slots;
