//! A model that classifies: an encoder or a decoder with its head, its tokenizer, and how its files make scores of logits.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{InferenceSession, Model, Progress};
use models::{Checkpoint, ClassificationHead};
use tensor::Buffer;
use text::Tokenizer;
use weights::Format;

use crate::Error;
use crate::activation::ScoreActivation;
use crate::plan::model_files::classifier::ClassifierConfig;
use crate::plan::model_files::pair_template::PairTemplate;
use crate::plan::{Plan, Task};
use crate::tasks::compiled::{CompiledPlan, Loaded, LoadedGraph, Program};
use crate::tasks::texts::{self, TextRows};
use crate::tasks::vectors::Tokens;

/// A model ready to classify texts and to score pairs of them.
pub struct ClassificationModel {
    plan: Plan,
    tokenizer: Arc<Tokenizer>,
    graph: LoadedGraph,
    files: ClassifierConfig,
    pair_template: Option<PairTemplate>,
}

impl CompiledPlan {
    /// Fetches the weights if need be, binds and packs them, and builds the tokenizer meanwhile. Calls `progress` after
    /// each weight.
    ///
    /// # Errors
    /// If the model was not compiled to classify, does not fit into memory, or has no tokenizer; or if its files name an
    /// activation or a chat template that is not supported.
    pub fn load_classifier(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ClassificationModel, Error> {
        let other = models::Error::NotAClassifier { name: self.plan().architecture().to_string() };
        if self.task() != Task::Classify {
            return Err(other.into());
        }
        let Loaded { plan, tokenizer, program: Program::Graph(graph) } = self.init(session, progress)? else {
            return Err(other.into());
        };
        let checkpoint = &graph.checkpoint;
        let files = match checkpoint.weights().format() {
            Format::Gguf => ClassifierConfig::from_gguf(checkpoint.weights().metadata())?,
            _ => ClassifierConfig::from_folder(plan.folder())?,
        };
        let own_template = || plan.chat_template();
        let pair_template = PairTemplate::for_model(checkpoint, &tokenizer, &files, own_template)?;
        Ok(ClassificationModel { plan, tokenizer, graph, files, pair_template })
    }
}

impl ClassificationModel {
    /// Fetches, compiles and loads a planned model. Calls `progress` after each weight that is packed.
    ///
    /// # Errors
    /// If the model has no classification head, as [`Plan::compile`], and as [`CompiledPlan::load_classifier`].
    pub fn from_plan(
        session: &InferenceSession,
        plan: Plan,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ClassificationModel, Error> {
        CompiledPlan::new(session, plan, Task::Classify, None)?.load_classifier(session, progress)
    }

    /// The plan that it was loaded with.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The names of the labels, in the order of the scores.
    pub fn labels(&self) -> &[String] {
        &self.head().labels
    }

    /// How logits become scores: as the model's files say, or else by the number of labels, one or several.
    pub fn activation(&self) -> ScoreActivation {
        self.files.activation(self.head())
    }

    /// The most tokens of a text or a pair as the model's files say, those around it included.
    pub fn max_length(&self) -> usize {
        let context = self.graph.checkpoint.model.context_length;
        self.files.max_length.map_or(context, |length| length.min(context))
    }

    /// The instructions that the model's files name.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        &self.files.prompts
    }

    /// The name of the one that is used unless another is chosen.
    pub(crate) fn default_prompt(&self) -> Option<&str> {
        self.files.default_prompt.as_deref()
    }

    /// The chat template that joins pairs, if the tokenizer does not.
    pub(crate) fn pair_template(&self) -> Option<&PairTemplate> {
        self.pair_template.as_ref()
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.graph.checkpoint
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The executable.
    pub fn model(&self) -> &Model {
        &self.graph.model
    }

    /// Checks that it can run: its files are as they were.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.graph.model.check_files()?)
    }

    /// The logits of texts, one for each label.
    ///
    /// # Errors
    /// If the model fails.
    pub(crate) fn logits(&self, texts: &[&Tokens]) -> Result<Vec<Vec<f32>>, Error> {
        let labels = self.labels().len();
        if self.graph.checkpoint.model.runs_in_steps() {
            let texts: Vec<&[u32]> = texts.iter().map(|text| &text.ids[..]).collect();
            let logits = texts::decode(&self.plan, &self.graph, &texts, TextRows::Last, labels)?;
            return Ok((0..logits.rows()).map(|row| logits.row(row).to_vec()).collect());
        }
        let mut offsets = vec![0_u32];
        for text in texts {
            offsets.push(offsets[offsets.len() - 1] + text.ids.len() as u32);
        }
        let tokens: Vec<u32> = texts.iter().flat_map(|text| &text.ids).copied().collect();
        let mut inputs =
            vec![Buffer::from_slice([tokens.len()], &tokens), Buffer::from_slice([offsets.len()], &offsets)];
        if self.token_types() > 1 {
            let types: Vec<u32> = texts.iter().flat_map(|text| text.all_types()).collect();
            inputs.push(Buffer::from_slice([types.len()], &types));
        }
        let outputs = self.graph.model.execute(&inputs)?;
        let logits = outputs[0].read().expect("the output is not written by another");
        Ok(logits.as_slice::<f32>().chunks_exact(labels).map(<[f32]>::to_vec).collect())
    }

    /// How many types of tokens the model tells apart.
    pub(crate) fn token_types(&self) -> usize {
        self.graph.checkpoint.model.token_types
    }

    fn head(&self) -> &ClassificationHead {
        self.graph.checkpoint.model.head.as_ref().expect("a model that was compiled to classify has a head")
    }
}
