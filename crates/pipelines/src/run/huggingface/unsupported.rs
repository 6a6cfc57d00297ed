//! What stands in for the engine on systems where it does not run.

use std::path::Path;
use std::sync::Arc;

use tensor::DType;

use crate::Error;
use crate::run::batch::Batch;
use crate::run::kv_cache::PageCopy;
use crate::run::runner::{Logits, StepModel};

/// A model that cannot be made.
pub(crate) enum TransformersModel {}

/// A runner that cannot be made.
pub(crate) struct TransformersRunner(Arc<TransformersModel>);

impl TransformersModel {
    pub(crate) fn load(
        _: Option<&Path>,
        _: &Path,
        _: &str,
        _: bool,
        _: Option<DType>,
        _: bool,
        _: usize,
    ) -> Result<TransformersModel, Error> {
        let problem = "needs Linux or macOS".to_string();
        Err(Error::Worker { python: "huggingface".to_string(), problem })
    }

    pub(crate) fn tokenizer(&self) -> Result<text::Tokenizer, Error> {
        match *self {}
    }

    pub(crate) fn width(&self) -> usize {
        match *self {}
    }

    pub(crate) fn vocab(&self) -> Option<usize> {
        match *self {}
    }

    pub(crate) fn hidden(&self, _: &[&[u32]]) -> Result<Logits, Error> {
        match *self {}
    }

    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        match *self {}
    }
}

impl TransformersRunner {
    pub(crate) fn new(model: Arc<TransformersModel>) -> TransformersRunner {
        TransformersRunner(model)
    }
}

impl StepModel for TransformersRunner {
    fn begin(&mut self, _: &[PageCopy]) {
        match *self.0 {}
    }

    fn run_slices(&mut self, _: &Batch) -> Result<Logits, Error> {
        match *self.0 {}
    }
}
