//! A model that writes: checkpoint, tokenizer and executable, loaded together.

use std::sync::Arc;

use engine::{InferenceSession, Model, Progress};
use models::Checkpoint;
use tensor::DType;
use text::{ChatTemplate, GrammarCompiler, Tokenizer};

use crate::Error;
use crate::limits::SLOTS_PER_SEQUENCE;
use crate::plan::Plan;
use crate::run::huggingface::TransformersRunner;
use crate::run::runner::Runner;
use crate::tasks::compiled::{CompiledPlan, Loaded, Program};

/// A model ready to write.
pub struct TextModel {
    loaded: Loaded,
    grammars: Arc<GrammarCompiler>,
}

impl CompiledPlan {
    /// Fetches the weights if need be, binds and packs them, and builds the tokenizer meanwhile. Calls `progress` after
    /// each weight.
    ///
    /// # Errors
    /// If the model is an encoder, does not fit into memory, a weight cannot be packed, or as [`Plan::tokenizer`].
    pub fn load_text(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<TextModel, Error> {
        self.plan().expect_text()?;
        let loaded = self.init(session, progress)?;
        let grammars = Arc::new(GrammarCompiler::new(Arc::clone(&loaded.tokenizer)));
        Ok(TextModel { loaded, grammars })
    }
}

impl TextModel {
    /// Fetches, compiles and loads a planned model.
    ///
    /// # Errors
    /// As [`Plan::compile`] and [`CompiledPlan::load_text`].
    pub fn from_plan(session: &InferenceSession, plan: Plan) -> Result<TextModel, Error> {
        plan.expect_text()?;
        plan.compile(session)?.load_text(session, &mut |_| ())
    }

    /// As [`TextModel::from_plan`], and tells how far downloads are, and loading after each weight.
    ///
    /// # Errors
    /// As [`TextModel::from_plan`].
    pub fn from_plan_with(
        session: &InferenceSession,
        plan: Plan,
        fetch: &(dyn Fn(sources::Progress<'_>) + Sync),
        load: &mut dyn FnMut(Progress),
    ) -> Result<TextModel, Error> {
        plan.expect_text()?;
        plan.checked()?.fetch(fetch)?.compile(session)?.load_text(session, load)
    }

    /// The plan that it was loaded with.
    pub fn plan(&self) -> &Plan {
        &self.loaded.plan
    }

    /// Rows of the embedding: one more than the highest token.
    pub fn vocab(&self) -> usize {
        self.loaded.vocab()
    }

    /// The checkpoint; `None` if the model does not run as a graph.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.loaded.checkpoint()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.loaded.tokenizer
    }

    /// Compiles constraints for its tokenizer.
    pub fn grammars(&self) -> &Arc<GrammarCompiler> {
        &self.grammars
    }

    /// The chat template of the model's files; `None` if there is none.
    ///
    /// # Errors
    /// If it is not a valid template.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        self.loaded.plan.chat_template()
    }

    /// The executable; `None` if the model does not run as a graph.
    pub fn model(&self) -> Option<&Model> {
        self.loaded.model()
    }

    /// Checks that it can run: its files are as they were, and the process that runs it, if there is one, has not ended.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check(&self) -> Result<(), Error> {
        self.loaded.check()
    }

    /// Tokens in a page of the KV cache.
    pub fn page_size(&self) -> usize {
        self.loaded.plan.config().kv_cache_page_size
    }

    /// The dtype of the KV cache.
    pub fn cache_dtype(&self) -> DType {
        self.loaded.plan.cache_dtype()
    }

    /// A runner with a cache of `pages` pages, for one sequence at a time if the model keeps a state of each.
    ///
    /// # Errors
    /// If that does not fit into the memory that is free, or the system refuses it.
    pub fn runner(&self, pages: usize) -> Result<Runner, Error> {
        self.runner_with_slots(pages, SLOTS_PER_SEQUENCE)
    }

    /// A runner with a cache of `pages` pages, and `slots` slots for states of sequences if the model keeps any.
    ///
    /// # Errors
    /// As [`TextModel::runner`].
    pub fn runner_with_slots(&self, pages: usize, slots: usize) -> Result<Runner, Error> {
        let plan = &self.loaded.plan;
        let model = match &self.loaded.program {
            Program::Graph(graph) => graph.model.clone(),
            Program::Transformers(model) => {
                return Ok(Runner::for_model(TransformersRunner::new(Arc::clone(model))));
            }
        };
        let tokens = pages.saturating_mul(self.page_size());
        let cache = (tokens as u64).saturating_mul(plan.cache_bytes_per_token());
        let states = (slots as u64).saturating_mul(plan.state_bytes_per_slot());
        plan.check_host_memory(0, cache.saturating_add(states), tokens)?;
        Runner::with_slots(model, pages, slots, self.vocab())
    }
}
