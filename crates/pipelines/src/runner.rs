//! Runs a batch through the model: the one place that knows how a decoder graph is called.

use engine::{Model, Profile};
use models::Step;
use tensor::{Buffer, DType, ReadGuard};

use crate::batch::{Batch, BatchInputs};
use crate::kv_cache::PageCopy;
use crate::{Error, OutOfMemory};

/// An executable model with its KV cache.
pub struct Runner {
    model: Model,
    /// [pages, layers, 2, kv_heads, page_size · head_dim] of the dtype that the model was built for
    cache: Buffer,
    /// The logits of an earlier step; used again where the size is the same, as it is from decode to decode.
    spare: Option<Buffer>,
    vocab: usize,
}

/// The logits of a step: f32[rows, vocab].
pub struct Logits {
    values: ReadGuard,
    vocab: usize,
}

impl Runner {
    /// A runner with an empty cache of the given shape. Memory is taken page by page as sequences grow.
    ///
    /// # Errors
    /// If the system refuses so much memory.
    ///
    /// # Panics
    /// If the model has no cache among its inputs, as decoders have it.
    pub fn new(model: Model, cache_shape: [usize; 5], vocab: usize) -> Result<Runner, OutOfMemory> {
        let position = Step::INPUTS.iter().position(|(step, _)| *step == Step::Cache);
        let dtype =
            position.and_then(|position| model.input_metadata().get(position)).map(|spec| spec.ty.dtype);
        let cache = Buffer::try_zeros(dtype.expect("a decoder's inputs"), cache_shape);
        let cache = cache.map_err(|error| refused("KV cache", &error))?;
        Ok(Runner { model, cache, spare: None, vocab })
    }

    /// Runs a batch: stores its keys and values, and gives the logits of the tokens that each slice wants them of,
    /// in the order of [`Batch::rows`].
    ///
    /// # Errors
    /// If the model refuses its inputs, such as a token beyond the vocabulary.
    pub fn run(&mut self, batch: &Batch) -> Result<Logits, Error> {
        self.copy_pages(&batch.copies);
        let inputs = batch.inputs();
        let output = self.output(inputs.output_rows.shape()[0])?;
        self.model.execute_into(&self.operands(inputs), std::slice::from_ref(&output))?;
        let values = output.read().expect("the runner alone writes its outputs");
        self.spare = Some(output);
        Ok(Logits { values, vocab: self.vocab })
    }

    /// Runs a batch as [`Runner::run`] does, and tells how long each step of the plan took.
    ///
    /// # Errors
    /// As there.
    pub fn profile(&mut self, batch: &Batch) -> Result<Profile, Error> {
        self.copy_pages(&batch.copies);
        let (_, profile) = self.model.profile(&self.operands(batch.inputs()))?;
        Ok(profile)
    }

    fn copy_pages(&self, copies: &[PageCopy]) {
        if copies.is_empty() {
            return;
        }
        let mut cache = self.cache.write().expect("nobody reads or writes the cache between steps");
        let page = cache.len() / self.cache.shape()[0];
        for &PageCopy { from, to } in copies {
            let from = from as usize * page;
            cache.copy_within(from..from + page, to as usize * page);
        }
    }

    /// The inputs of the model, in its order.
    fn operands(&self, inputs: BatchInputs) -> [Buffer; 6] {
        let BatchInputs { tokens, row_offsets, cache_lengths, page_table, output_rows } = inputs;
        [tokens, row_offsets, cache_lengths, page_table, output_rows, self.cache.clone()]
    }

    /// A buffer for `rows` rows of logits that nobody reads any more.
    fn output(&mut self, rows: usize) -> Result<Buffer, OutOfMemory> {
        let fits = |buffer: &Buffer| buffer.shape()[0] == rows && buffer.write().is_ok();
        match self.spare.take().filter(fits) {
            Some(spare) => Ok(spare),
            None => Buffer::try_zeros(DType::F32, [rows, self.vocab])
                .map_err(|error| refused("logits of a step", &error)),
        }
    }
}

/// That an allocation failed, and what it was for.
fn refused(what: &'static str, error: &tensor::Error) -> OutOfMemory {
    let bytes = match error {
        tensor::Error::OutOfMemory { bytes } => *bytes as u64,
        other => unreachable!("zeros fail for want of memory alone: {other}"),
    };
    OutOfMemory::Refused { what, bytes }
}

impl Logits {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.values.as_slice::<f32>().len() / self.vocab
    }

    /// All of them: f32[rows, vocab].
    pub(crate) fn as_slice(&self) -> &[f32] {
        self.values.as_slice()
    }

    /// The logits of a row, `f32[vocab]`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values.as_slice()[index * self.vocab..][..self.vocab]
    }
}
