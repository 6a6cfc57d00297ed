//! How many weights a model has: those that its graph reads.

use graph::{Dim, Graph, Type};
use tensor::DType;

use crate::{Channel, Decoder, Encoder, EncoderOutput, Error, WeightTypes};

/// Any weight that a graph asks for.
struct AnyWeight;

impl WeightTypes for AnyWeight {
    fn dtype(&self, _: &str) -> Option<DType> {
        Some(DType::F32)
    }
}

impl Decoder {
    /// The number of weights.
    ///
    /// # Errors
    /// If the graph cannot be built because the sizes of blocks disagree.
    pub fn parameters(&self) -> Result<usize, Error> {
        self.count(|_, elements| elements)
    }

    /// The number of weights that compute each token: fewer than all if layers have experts.
    ///
    /// # Errors
    /// As [`Decoder::parameters`].
    pub fn active_parameters(&self) -> Result<usize, Error> {
        self.count(|name, elements| match self.experts_of(name) {
            Some([count, per_token]) => elements / count * per_token,
            None => elements,
        })
    }

    fn count(&self, counted: impl Fn(&str, usize) -> usize) -> Result<usize, Error> {
        let graph = self.build(self.output(), "parameters", &AnyWeight, 16, DType::F32)?;
        Ok(weights(&graph).map(|(name, elements)| counted(&name, elements)).fold(0, usize::saturating_add))
    }

    /// How many experts share a weight, and how many of them a token gets, if it is one of experts.
    fn experts_of(&self, name: &str) -> Option<[usize; 2]> {
        let (layer, stem) = name.strip_prefix("blk.")?.split_once('.')?;
        let experts = match self.layers.get(layer.parse::<usize>().ok()?)?.channel {
            Channel::Experts(experts) => experts,
            Channel::GatedAndExperts(both) => both.experts,
            Channel::Gated(_) | Channel::Plain(_) | Channel::None => return None,
        };
        stem.contains("_exps.").then_some([experts.count, experts.per_token])
    }
}

impl Encoder {
    /// The number of weights.
    ///
    /// # Errors
    /// If the graph cannot be built because the sizes of blocks disagree.
    pub fn parameters(&self) -> Result<usize, Error> {
        let output = if self.head.is_some() { EncoderOutput::Logits } else { EncoderOutput::Hidden };
        let graph = self.build(output, "parameters", &AnyWeight)?;
        Ok(weights(&graph).map(|(_, elements)| elements).fold(0, usize::saturating_add))
    }
}

/// The weights of a graph with their numbers of elements.
fn weights(graph: &Graph) -> impl Iterator<Item = (String, usize)> {
    let elements = |ty: &Type| ty.shape.iter().filter_map(Dim::as_static).fold(1, usize::saturating_mul);
    graph.weights().into_iter().map(move |(name, ty)| (name, elements(&ty)))
}
