//! Runs a batch through the model: a [`Runner`] for whatever runs it, and the one place that knows how a decoder graph is
//! called.

use engine::{ExecuteOptions, Model, Profile, TensorSpec};
use graph::{Bindings, Dim, Kind};
use models::state;
use tensor::{Buffer, DType, ReadGuard};

use crate::Error;
use crate::error::OutOfMemory;
use crate::limits::SLOTS_PER_SEQUENCE;
use crate::run::batch::{Batch, BatchInputs};
use crate::run::kv_cache::{PageCopy, SequenceId};

/// A model with what it keeps of the texts that it reads.
pub struct Runner(Box<dyn StepModel>);

/// What runs steps.
pub(crate) trait StepModel: Send {
    /// Begins a step: copies pages, in order. This must happen once: a page that is read may be written by a later copy or
    /// by a slice.
    fn begin(&mut self, copies: &[PageCopy]);

    /// Runs the slices of the step that began, or some of them.
    ///
    /// # Errors
    /// If the model refuses its inputs, or fails. The slices can then run again.
    fn run_slices(&mut self, batch: &Batch) -> Result<Logits, Error>;

    /// Runs a batch again and measures each part of it; `None` if the model has no parts that can be seen.
    fn profile(&mut self, _: &Batch) -> Option<Result<Profile, Error>> {
        None
    }

    /// Forgets what is kept of sequences that gave their pages back. Pages need no such care: whoever gets them writes them.
    fn release(&mut self, _: &[SequenceId]) {}

    /// Forgets what is kept of all sequences.
    fn clear(&mut self) {}
}

/// An executable graph with its state.
pub(crate) struct GraphRunner {
    model: Model,
    /// For each input of the model what it keeps there between steps, or what else it takes.
    inputs: Vec<Input>,
    /// The logits of an earlier step; used again where the size is the same, as it is from decode to decode.
    spare: Option<Buffer>,
    vocab: usize,
}

/// The logits of a step: f32[rows, vocab].
pub struct Logits {
    values: ReadGuard,
    vocab: usize,
}

/// Where an input of the model comes from.
enum Input {
    Batch(fn(&BatchInputs) -> &Buffer),
    /// What is kept of tokens, in pages along the first axis.
    Pages(Buffer),
    /// What is kept of sequences, in slots along the first axis.
    Slots(Buffer),
}

impl Runner {
    /// A runner of a graph, with an empty state of so many pages; each row of the output has `width` numbers. Memory is taken
    /// page by page as sequences grow. If the model keeps a state of each sequence, there are two slots, enough for one
    /// sequence.
    ///
    /// # Errors
    /// If the system refuses so much memory, or the device fails.
    ///
    /// # Panics
    /// If the model takes something that [`models::Decoder::inputs`] does not name.
    pub fn new(model: Model, pages: usize, width: usize) -> Result<Runner, Error> {
        Runner::with_slots(model, pages, SLOTS_PER_SEQUENCE, width)
    }

    /// As [`Runner::new`], with so many slots for the states of sequences if the model keeps any.
    ///
    /// # Errors
    /// As [`Runner::new`].
    pub fn with_slots(model: Model, pages: usize, slots: usize, width: usize) -> Result<Runner, Error> {
        Ok(Runner::for_model(GraphRunner::new(model, pages, slots, width)?))
    }

    /// A runner of something that runs steps.
    pub(crate) fn for_model(model: impl StepModel + 'static) -> Runner {
        Runner(Box::new(model))
    }

    /// Runs a batch: stores its keys and values, and gives the logits of the tokens that each slice wants them of,
    /// in the order of [`Batch::rows`].
    ///
    /// # Errors
    /// If the model refuses its inputs, such as a token beyond the vocabulary.
    pub fn run(&mut self, batch: &Batch) -> Result<Logits, Error> {
        self.0.begin(&batch.copies);
        self.0.run_slices(batch)
    }

    /// Runs a batch as [`Runner::run`] does, and measures how long each step of the plan took.
    ///
    /// # Errors
    /// As [`Runner::run`], and if the model is no graph.
    pub fn profile(&mut self, batch: &Batch) -> Result<Profile, Error> {
        self.0.begin(&batch.copies);
        self.0.profile(batch).unwrap_or(Err(Error::NoGraph { what: "profile" }))
    }

    /// What runs the steps.
    pub(crate) fn steps(&mut self) -> &mut dyn StepModel {
        &mut *self.0
    }
}

impl StepModel for GraphRunner {
    fn begin(&mut self, copies: &[PageCopy]) {
        self.copy_pages(copies);
    }

    /// Nothing is read but what earlier steps and copies wrote.
    fn run_slices(&mut self, batch: &Batch) -> Result<Logits, Error> {
        let inputs = batch.inputs();
        let output = self.output(inputs.output_rows.shape()[0])?;
        self.model.execute_into(
            &self.operands(&inputs),
            std::slice::from_ref(&output),
            &ExecuteOptions::default(),
        )?;
        let values = output.read().expect("the runner alone writes its outputs");
        self.spare = Some(output);
        Ok(Logits::new(values, self.vocab))
    }

    fn profile(&mut self, batch: &Batch) -> Option<Result<Profile, Error>> {
        let profiled = self.model.profile(&self.operands(&batch.inputs()));
        Some(profiled.map(|(_, profile)| profile).map_err(Error::from))
    }
}

impl GraphRunner {
    /// A runner with an empty state of so many pages and slots; each row of the output has `width` numbers.
    ///
    /// # Errors
    /// If the system refuses so much memory.
    pub(crate) fn new(model: Model, pages: usize, slots: usize, width: usize) -> Result<GraphRunner, Error> {
        let inputs = model.input_metadata().iter().map(|spec| Input::for_spec(&model, spec, pages, slots));
        let inputs = inputs.collect::<Result<_, _>>()?;
        Ok(GraphRunner { model, inputs, spare: None, vocab: width })
    }

    /// Runs a batch, and gives every output of a model that has others than logits.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub(crate) fn run_outputs(&mut self, batch: &Batch) -> Result<Vec<Buffer>, Error> {
        self.copy_pages(&batch.copies);
        Ok(self.model.execute(&self.operands(&batch.inputs()))?)
    }

    fn copy_pages(&self, copies: &[PageCopy]) {
        if copies.is_empty() {
            return;
        }
        let parts: Vec<_> = copies.iter().map(|copy| [copy.from as usize, copy.to as usize, 1]).collect();
        for cache in self.inputs.iter().filter_map(Input::pages) {
            cache.copy_within(&parts).expect("nothing reads or writes the state between steps");
        }
    }

    /// The inputs of the model, in its order.
    fn operands(&self, batch: &BatchInputs) -> Vec<Buffer> {
        let operand = |input: &Input| match input {
            Input::Batch(of) => of(batch).clone(),
            Input::Pages(buffer) | Input::Slots(buffer) => buffer.clone(),
        };
        self.inputs.iter().map(operand).collect()
    }

    /// A buffer for `rows` rows of logits that are not read any more.
    fn output(&mut self, rows: usize) -> Result<Buffer, Error> {
        let fits = |buffer: &Buffer| buffer.shape()[0] == rows && buffer.write().is_ok();
        match self.spare.take().filter(fits) {
            Some(spare) => Ok(spare),
            None => Buffer::try_zeros(DType::F32, [rows, self.vocab])
                .map_err(|error| refused("logits of a step", error)),
        }
    }
}

impl Input {
    /// What the model takes under a name; state is made, with nothing in it.
    fn for_spec(model: &Model, spec: &TensorSpec, pages: usize, slots: usize) -> Result<Input, Error> {
        if spec.ty.kind == Kind::Buffer {
            let mut bindings = Bindings::default();
            bindings.insert(state::PAGES, pages);
            bindings.insert(state::SLOTS, slots);
            let shape = spec.ty.resolve(&bindings).expect("state has no other sizes than pages and slots");
            let is_slots = spec.ty.shape.first() == Some(&Dim::symbol(state::SLOTS));
            let (what, input) = if is_slots {
                ("states of sequences", Input::Slots as fn(Buffer) -> Input)
            } else {
                ("KV cache", Input::Pages as fn(Buffer) -> Input)
            };
            let buffer = Buffer::zeros_on(model.allocator(spec.ty.device), spec.ty.dtype, shape);
            return Ok(input(buffer.map_err(|error| refused(what, error))?));
        }
        Ok(Input::Batch(match &spec.name[..] {
            state::TOKENS => |batch| &batch.tokens,
            state::ROW_OFFSETS => |batch| &batch.row_offsets,
            state::CACHE_LENGTHS => |batch| &batch.cache_lengths,
            state::PAGE_TABLE => |batch| &batch.page_table,
            state::OUTPUT_ROWS => |batch| &batch.output_rows,
            state::STATE_TABLE => |batch| &batch.state_table,
            other => unreachable!("decoders take no input `{other}`"),
        }))
    }

    fn pages(&self) -> Option<&Buffer> {
        match self {
            Input::Pages(buffer) => Some(buffer),
            Input::Batch(_) | Input::Slots(_) => None,
        }
    }
}

/// That an allocation failed, and what it was for.
pub(crate) fn refused(what: &'static str, error: tensor::Error) -> Error {
    match error {
        tensor::Error::OutOfMemory { bytes } => OutOfMemory::Refused { what, bytes: bytes as u64 }.into(),
        failure => engine::Error::from(failure).into(),
    }
}

impl Logits {
    /// Rows of `vocab` numbers.
    pub(crate) fn new(values: ReadGuard, vocab: usize) -> Logits {
        Logits { values, vocab }
    }

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
