//! A model as a value: its parts, and what their graphs take, keep and give.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::OnceLock;

use graph::{Dim, Graph, Type};
use tensor::DType;
use weights::Metadata;

use crate::layers::{ClassificationHead, WeightTypes};
use crate::state::{self, State};
use crate::{Config, Error};

/// A model of a checkpoint. A model of text has one part; a tower that turns other media into rows would be another.
#[derive(Debug)]
pub struct Model {
    /// The part that reads tokens comes first.
    pub(crate) parts: Vec<Box<dyn Part>>,
    /// The names of what a call passes in addition to the state.
    pub inputs: Vec<&'static str>,
    /// What is kept between steps; nothing if whole texts run at once.
    pub state: State,
    /// What graphs of the model can give. The graph of the first one reads all weights.
    pub outputs: Vec<Output>,
    /// Rows of the embedding, and columns of the logits.
    pub vocab: usize,
    /// The width of the hidden states.
    pub hidden: usize,
    /// Tokens of the longest sequence it was made for.
    pub context_length: usize,
    /// How many types of tokens it tells apart.
    pub token_types: usize,
    /// The head that scores texts, if it has one.
    pub head: Option<ClassificationHead>,
    pub(crate) parameters: OnceLock<Result<Parameters, Error>>,
}

/// What a graph of a model gives, for the rows that the input [`state::OUTPUT_ROWS`] names; of a model without that input,
/// for all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// f32[outputs, vocab]: the model makes text.
    Logits,
    /// f32[outputs, hidden]: the hidden states after the last norm.
    Hidden,
    /// f32[outputs, labels]: the scores of the head, before any activation. Without output rows, one row for each text.
    Scores,
}

/// The number of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// All weights.
    pub all: usize,
    /// Those that compute each token: fewer than all if layers have experts.
    pub active: usize,
}

/// A part of a model that has graphs of its own.
pub(crate) trait Part: Any + Debug + Send + Sync {
    /// The output whose graph reads all weights.
    fn output(&self) -> Output;

    /// As [`Model::graph`].
    fn graph(
        &self,
        output: Output,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error>;

    /// For each layer, what mixes tokens and what mixes the elements of a token, in words.
    fn layers(&self) -> Vec<[String; 2]>;

    /// How many experts share a weight, and how many of them a token gets, if it is one of experts.
    fn experts_of(&self, _weight: &str) -> Option<[usize; 2]> {
        None
    }

    /// Weights that files may have though no graph reads them.
    fn idle_weights(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a tensor, as files call it, is of a head for another task.
    fn is_of_other_head(&self, _name: &str) -> bool {
        false
    }

    /// The rows of a weight that GGUF files hold, if not all.
    fn gguf_rows(&self, _weight: &str) -> Option<Range<usize>> {
        None
    }

    /// Completes the metadata of a GGUF file of the architecture `gguf`. What is written is read back, and must be the same
    /// part.
    ///
    /// # Errors
    /// If GGUF cannot say what the configuration says.
    fn gguf_metadata(
        &self,
        config: &Config,
        gguf: &str,
        weights: &dyn WeightTypes,
        metadata: Metadata,
    ) -> Result<Metadata, Error>;
}

impl Model {
    /// A part, by its type.
    pub fn part<T: Any>(&self) -> Option<&T> {
        self.parts.iter().find_map(|part| (&**part as &dyn Any).downcast_ref())
    }

    /// The part that reads tokens.
    pub(crate) fn text(&self) -> &dyn Part {
        &*self.parts[0]
    }

    /// Whether its graphs can give an output.
    pub fn gives(&self, output: Output) -> bool {
        self.outputs.contains(&output)
    }

    /// The graph that gives an output: of one step over a paged cache that keeps `cache_dtype`, f32, bf16 or f16, in pages of
    /// `page_size` tokens; or, unless it [runs in steps](Model::runs_in_steps), of a batch of texts. The inputs are
    /// [`Model::inputs`], as [`state`] describes them, and the state.
    ///
    /// # Errors
    /// If a weight is missing from `weights`, or no cache keeps `cache_dtype`.
    ///
    /// # Panics
    /// If the model does not give the output, or `page_size` is not a power of two or is less than 16.
    pub fn graph(
        &self,
        output: Output,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error> {
        assert!(self.gives(output), "the model does not give {output:?}");
        self.text().graph(output, weights, page_size, cache_dtype)
    }

    /// Whether it runs in steps over what it keeps of earlier tokens, which come before those of a step. If not, it reads
    /// whole texts.
    pub fn runs_in_steps(&self) -> bool {
        self.inputs.contains(&state::PAGE_TABLE)
    }

    /// For each layer, what mixes tokens and what mixes the elements of a token, in words; empty if nothing does.
    pub fn layers(&self) -> Vec<[String; 2]> {
        self.text().layers()
    }

    /// The number of weights, counted once.
    ///
    /// # Errors
    /// If the graph cannot be built because the sizes of blocks disagree.
    pub fn parameters(&self) -> Result<Parameters, &Error> {
        self.parameters.get_or_init(|| self.count()).as_ref().copied()
    }

    fn count(&self) -> Result<Parameters, Error> {
        let (mut all, mut active) = (0, 0_usize);
        for part in &self.parts {
            let graph = part.graph(part.output(), &AnyWeight, 16, DType::F32)?;
            for (name, Type { shape, .. }) in graph.weights() {
                let elements = shape.iter().filter_map(Dim::as_static).fold(1, usize::saturating_mul);
                let own = part.experts_of(&name).map_or(elements, |[count, used]| elements / count * used);
                (all, active) = (elements.saturating_add(all), own.saturating_add(active));
            }
        }
        Ok(Parameters { all, active })
    }
}

/// Any weight that a graph asks for.
struct AnyWeight;

impl WeightTypes for AnyWeight {
    fn dtype(&self, _: &str) -> Option<DType> {
        Some(DType::F32)
    }
}
