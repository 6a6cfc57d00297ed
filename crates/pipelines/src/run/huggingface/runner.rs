//! Runs batches through a model of Transformers, one sequence after the other.

use std::collections::HashMap;
use std::sync::Arc;

use super::TransformersModel;
use crate::Error;
use crate::run::batch::{Batch, Slice};
use crate::run::kv_cache::{PageCopy, SequenceId};
use crate::run::runner::{Logits, StepModel};

/// A model with a cache for each sequence, in the process that runs it.
pub(crate) struct TransformersRunner {
    model: Arc<TransformersModel>,
    name: u64,
    /// The logits of slices that have run, in a step that failed later: they cannot run twice.
    done: HashMap<SequenceId, Vec<u8>>,
}

impl TransformersRunner {
    /// A runner with nothing cached.
    pub(crate) fn new(model: Arc<TransformersModel>) -> TransformersRunner {
        TransformersRunner { name: model.runner_name(), model, done: HashMap::new() }
    }

    fn run_slice(&mut self, slice: &Slice) -> Result<(), Error> {
        if !self.done.contains_key(&slice.id) {
            let logits = self.model.read(self.name, slice)?;
            self.done.insert(slice.id, logits);
        }
        Ok(())
    }
}

impl StepModel for TransformersRunner {
    fn begin(&mut self, copies: &[PageCopy]) {
        debug_assert!(copies.is_empty(), "sequences share no pages");
        self.done.clear();
    }

    fn run_slices(&mut self, batch: &Batch) -> Result<Logits, Error> {
        self.model.check_alive()?;
        batch.slices.iter().try_for_each(|slice| self.run_slice(slice))?;
        let parts: Vec<&[u8]> = batch.slices.iter().map(|slice| &self.done[&slice.id][..]).collect();
        self.model.logits(&parts)
    }

    fn release(&mut self, ids: &[SequenceId]) {
        self.model.forget(self.name, Some(ids));
    }

    fn clear(&mut self) {
        self.done.clear();
        self.model.forget(self.name, None);
    }
}

impl Drop for TransformersRunner {
    fn drop(&mut self) {
        self.clear();
    }
}
