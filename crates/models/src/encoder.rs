//! An encoder as a value, and the graph and counts that follow from it.

use graph::ops::{Broadcast, Constant, Embedding, RaggedPositions, Transpose};
use graph::{Dim, Graph, Type, Value};
use tensor::{DType, Tensor};

use crate::layers::{self, ClassificationHead, Context, Norm, Plain, SelfAttention, Texts};
use crate::{Error, WeightTypes};

/// A transformer encoder with learned positions and a norm behind each block: texts become hidden states.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoder {
    /// Rows of the embedding.
    pub vocab: usize,
    /// The width of the hidden states.
    pub hidden: usize,
    /// The learned positions.
    pub positions: Positions,
    /// Rows of the token-type table; `None` if there is none. Hidden states use the first row.
    pub token_types: Option<usize>,
    /// What scores have added to them by relative position, in all layers alike.
    pub relative_bias: Option<RelativeBias>,
    /// The norm of the sum of embeddings.
    pub norm: Norm,
    /// The layers, first to last.
    pub layers: Vec<EncoderLayer>,
    /// The head that scores texts, if the model has one.
    pub head: Option<ClassificationHead>,
}

/// The output of an encoder's graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderOutput {
    /// f32[tokens, hidden]: the hidden states after the last layer.
    Hidden,
    /// f32[batch, labels]: the scores of the head, before any activation.
    Logits,
}

/// A table of learned positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// Rows of the table.
    pub rows: usize,
    /// The row of a text's first token.
    pub first: usize,
}

/// A bias by how far a key is from the query, in buckets that widen with the distance (Raffel et al. 2020, section
/// 2.1): half of the buckets for keys before the query and the query itself, half for keys behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativeBias {
    /// Rows of the table, one a bucket: a multiple of 4.
    pub buckets: usize,
    /// Keys as far as this, or further, share a bucket.
    pub max_distance: usize,
}

/// One layer: attention, then a feed-forward block, each added to what it read and normalized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EncoderLayer {
    /// Attention.
    pub attention: SelfAttention,
    /// The feed-forward block.
    pub feed_forward: Plain,
    /// The norm behind both.
    pub norm: Norm,
}

impl Encoder {
    /// Tokens of the longest text that there are positions for.
    pub fn context_length(&self) -> usize {
        self.positions.rows - self.positions.first
    }

    /// The graph of a ragged batch of texts: `tokens: u32[tokens]`, those of all texts end to end, and
    /// `row_offsets: u32[batch + 1]`, where each starts. The graph of logits has the input `token_types: u32[tokens]` too
    /// if [`Encoder::reads_token_types`].
    ///
    /// # Errors
    /// If a weight is missing from `weights`.
    ///
    /// # Panics
    /// If `output` is logits and the encoder has no head.
    pub fn build(
        &self,
        output: EncoderOutput,
        name: &str,
        weights: &dyn WeightTypes,
    ) -> Result<Graph, Error> {
        let mut graph = Graph::new(name);
        let batch = Dim::symbol("batch");
        let tokens = graph.input("tokens", Type::new(DType::U32, ["tokens"]));
        let offsets = Type::new(DType::U32, [&batch + &Dim::from(1)]);
        let row_offsets = graph.input("row_offsets", offsets);
        let token_types = (output == EncoderOutput::Logits && self.reads_token_types())
            .then(|| graph.input("token_types", Type::new(DType::U32, ["tokens"])));
        let shared = Texts { row_offsets, bias: None };
        let mut context = Context { graph: &mut graph, weights, hidden: self.hidden, shared };
        context.shared.bias = self
            .relative_bias
            .map(|bias| bias.build(&mut context, self.layers[0].attention.heads))
            .transpose()?;
        let mut x = self.embed(&mut context, tokens, token_types, batch)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.build(&mut context, index, x)?;
        }
        if output == EncoderOutput::Logits {
            x = self.head.as_ref().expect("an encoder with a head").build(&mut context, x)?;
        }
        graph.set_outputs(&[x]);
        Ok(graph)
    }

    /// Whether the tokens of a pair of texts have different types, which scores depend on.
    pub fn reads_token_types(&self) -> bool {
        self.token_types.is_some_and(|rows| rows > 1)
    }

    /// The number of weights.
    pub fn parameters(&self) -> usize {
        let rows = self.vocab + self.positions.rows + self.token_types.unwrap_or(0);
        let layers: usize = self.layers.iter().map(|layer| layer.parameters(self.hidden)).sum();
        let heads = self.layers[0].attention.heads;
        let bias = self.relative_bias.map_or(0, |bias| bias.buckets * heads);
        let head = self.head.as_ref().map_or(0, |head| head.parameters(self.hidden));
        rows * self.hidden + self.norm.parameters(self.hidden) + layers + bias + head
    }

    /// The normalized sum of the embeddings of token, type and position: f32[tokens, hidden]. Without `token_types`, all
    /// have the first type.
    fn embed(
        &self,
        context: &mut Context<'_, Texts>,
        tokens: Value,
        token_types: Option<Value>,
        batch: Dim,
    ) -> Result<Value, Error> {
        let words = context.weight("token_embd.weight", [self.vocab, self.hidden])?;
        let mut x = context.graph.push_one(Embedding.into(), &[words, tokens])?;
        if let Some(rows) = self.token_types {
            let types = context.weight("token_types.weight", [rows, self.hidden])?;
            let ids = match token_types {
                Some(ids) => ids,                                                                 // [tokens]
                None => context.graph.push_one(Constant::new(Tensor::scalar(0u32)).into(), &[])?, // []
            };
            let types = context.graph.push_one(Embedding.into(), &[types, ids])?;
            x = layers::add(context, x, types)?;
        }
        let table = context.weight("position_embd.weight", [self.positions.rows, self.hidden])?;
        let first = Tensor::scalar(self.positions.first as u32);
        let first = context.graph.push_one(Constant::new(first).into(), &[])?;
        let firsts = context.graph.push_one(Broadcast { shape: vec![batch] }.into(), &[first])?;
        let operands = [tokens, context.shared.row_offsets, firsts];
        let positions = context.graph.push_one(RaggedPositions.into(), &operands)?;
        let positions = context.graph.push_one(Embedding.into(), &[table, positions])?;
        x = layers::add(context, x, positions)?;
        self.norm.build(context, "token_embd_norm", self.hidden, x)
    }
}

impl RelativeBias {
    /// The bias of each head by distance: f32[heads, 2 · max_distance + 1]
    fn build(&self, context: &mut Context<'_, Texts>, heads: usize) -> Result<Value, Error> {
        let table = context.weight("attn_rel_b.weight", [self.buckets, heads])?;
        let reach = self.max_distance as i64;
        let buckets: Vec<u32> = (-reach..=reach).map(|distance| self.bucket(distance)).collect();
        let buckets = Tensor::from_slice([buckets.len()], &buckets);
        let buckets = context.graph.push_one(Constant::new(buckets).into(), &[])?;
        let by_distance = context.graph.push_one(Embedding.into(), &[table, buckets])?;
        Ok(context.graph.push_one(Transpose { order: vec![1, 0] }.into(), &[by_distance])?)
    }

    /// The bucket of a key so far behind the query.
    fn bucket(&self, distance: i64) -> u32 {
        let half = self.buckets / 2;
        let exact = half / 2;
        let far = distance.unsigned_abs() as usize;
        let bucket = match far < exact {
            true => far,
            false => {
                // In f32, as models were trained: which side of a boundary a distance is on depends on it.
                let octaves = (far as f32 / exact as f32).ln();
                let all = ((self.max_distance as f64 / exact as f64).ln()) as f32;
                (exact + (octaves / all * (half - exact) as f32) as usize).min(half - 1)
            }
        };
        (bucket + if distance > 0 { half } else { 0 }) as u32
    }
}

impl EncoderLayer {
    fn build(&self, context: &mut Context<'_, Texts>, index: usize, x: Value) -> Result<Value, Error> {
        let prefix = format!("blk.{index}");
        let attended = self.attention.build(context, &prefix, x)?;
        let x = layers::add(context, x, attended)?;
        let hidden = context.hidden;
        let x = self.norm.build(context, &format!("{prefix}.attn_output_norm"), hidden, x)?;
        let fed = self.feed_forward.build(context, &prefix, x)?;
        let x = layers::add(context, x, fed)?;
        self.norm.build(context, &format!("{prefix}.layer_output_norm"), hidden, x)
    }

    fn parameters(&self, hidden: usize) -> usize {
        self.attention.parameters(hidden)
            + self.feed_forward.parameters(hidden)
            + 2 * self.norm.parameters(hidden)
    }
}
