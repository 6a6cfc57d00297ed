//! An encoder as a value, and the graph and counts that follow from it.

use std::ops::Range;
use std::sync::OnceLock;

use graph::ops::{Broadcast, RaggedPositions, Transpose};
use graph::{Builder, Dim, Graph, Type, Value};
use tensor::{DType, Tensor};
use weights::Metadata;

use crate::layers::{ClassificationHead, Context, Experts, Gated, Norm, Plain, SelfAttention, Texts};
use crate::model::Part;
use crate::state::{self, State};
use crate::{Config, Error, Model, Output, Rope, WeightTypes};

/// A transformer encoder: texts become hidden states.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoder {
    /// Rows of the embedding.
    pub vocab: usize,
    /// The width of the hidden states.
    pub hidden: usize,
    /// Tokens of the longest text.
    pub context_length: usize,
    /// The factor on the embeddings of tokens.
    pub embedding_scale: f32,
    /// The learned positions, if there are any.
    pub positions: Option<Positions>,
    /// The rotary embeddings that layers choose from.
    pub ropes: Vec<Rope>,
    /// Rows of the token-type table; `None` if there is none. Hidden states use the first row.
    pub token_types: Option<usize>,
    /// What scores have added to them by relative position, in all layers alike.
    pub relative_bias: Option<RelativeBias>,
    /// The norm of the sum of embeddings, if it has one.
    pub norm: Option<Norm>,
    /// The layers, first to last.
    pub layers: Vec<EncoderLayer>,
    /// The norm of the hidden states after the last layer, if layers have theirs in front of blocks.
    pub final_norm: Option<Norm>,
    /// The head that scores texts, if the model has one.
    pub head: Option<ClassificationHead>,
}

/// What keeps a key out: far below any score, and finite, so that no difference of two is NaN.
const BEYOND: f32 = -1e30;

/// What names of heads of encoders begin with, after those of wrappers: other tasks, and layers behind the pooling, which
/// are no part of the graph.
const HEADS: &[&str] =
    &["cls.", "pooler.", "lm_head.", "classifier.", "vocab_", "head.", "decoder.", "dense_2.", "dense_3."];
/// Wrappers of encoders.
const WRAPPERS: &[&str] = &["bert.", "distilbert.", "roberta.", "mpnet.", "gte.", "new."];

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

/// One layer: attention, then a feed-forward block, each added to what it read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EncoderLayer {
    /// Attention.
    pub attention: SelfAttention,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
    /// The norm of both.
    pub norm: Norm,
    /// Where the norms are.
    pub norms: EncoderNorms,
}

/// The feed-forward block of an encoder's layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeedForward {
    /// Two projections.
    Plain(Plain),
    /// Three projections.
    Gated {
        /// The block.
        block: Gated,
        /// Whether the last projection alone has a bias.
        down_bias: bool,
    },
    /// A few of many blocks for each token.
    Experts {
        /// The blocks.
        experts: Experts,
        /// Whether their sum has a bias.
        sum_bias: bool,
    },
}

impl FeedForward {
    /// The inner width.
    pub fn width(&self) -> usize {
        match self {
            FeedForward::Plain(plain) => plain.width,
            FeedForward::Gated { block, .. } => block.width,
            FeedForward::Experts { experts, .. } => experts.width,
        }
    }
}

/// Where the two blocks of an encoder's layer have their norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderNorms {
    /// On the sum of what a block reads and makes.
    After,
    /// On what each block reads.
    Before,
    /// On what the feed-forward block reads; attention reads what was normalized before.
    BeforeFeedForward,
    /// On what each block reads, and on what it makes.
    Sandwich,
}

impl Encoder {
    /// Whether the tokens of a pair of texts have different types, which scores depend on.
    pub fn reads_token_types(&self) -> bool {
        self.token_types.is_some_and(|rows| rows > 1)
    }

    /// The position of each token, if a text's first one has a certain one: u32[tokens]
    fn positions(
        context: &mut Context<'_, Texts>,
        tokens: Value,
        batch: &Dim,
        first: usize,
    ) -> Result<Value, Error> {
        let first = context.graph.constant(Tensor::scalar(first as u32));
        let firsts = context.graph.op(Broadcast { shape: vec![batch.clone()] }, &[first])?;
        let operands = [tokens, context.shared.row_offsets, firsts];
        Ok(context.graph.op(RaggedPositions, &operands)?)
    }

    /// Makes the tables of rotary embeddings.
    fn rotate(&self, context: &mut Context<'_, Texts>, tokens: Value, batch: &Dim) -> Result<(), Error> {
        if self.ropes.is_empty() {
            return Ok(());
        }
        let positions = Encoder::positions(context, tokens, batch, 0)?;
        for rope in &self.ropes {
            let table = rope.table(&mut context.graph, positions)?;
            context.shared.ropes.push((rope.style, table));
        }
        Ok(())
    }

    /// Makes what keeps keys beyond a window out, for the windows of all layers.
    fn windows(&self, context: &mut Context<'_, Texts>) -> Result<(), Error> {
        for attention in self.layers.iter().map(|layer| layer.attention) {
            let Some(window) = attention.window else { continue };
            if context.shared.windows.iter().any(|(known, _)| *known == window) {
                continue;
            }
            // Keys further than the window share the ends: a bias that leaves them no weight at all.
            let row = |_: usize| {
                let inside = std::iter::repeat_n(0.0f32, 2 * window + 1);
                std::iter::once(BEYOND).chain(inside).chain([BEYOND])
            };
            let bias: Vec<f32> = (0..attention.heads).flat_map(row).collect();
            let bias = Tensor::from_slice([attention.heads, 2 * window + 3], &bias);
            let bias = context.graph.constant(bias);
            context.shared.windows.push((window, bias));
        }
        Ok(())
    }

    /// The normalized sum of the embeddings of token, type and position: f32[tokens, hidden]. Without `token_types`, all
    /// have the first type.
    fn embed(
        &self,
        context: &mut Context<'_, Texts>,
        tokens: Value,
        token_types: Option<Value>,
        batch: &Dim,
    ) -> Result<Value, Error> {
        let words = context.weight("token_embd.weight", [self.vocab, self.hidden])?;
        let x = context.graph.embedding(words, tokens)?;
        let mut x = context.scale(x, self.embedding_scale)?;
        if let Some(rows) = self.token_types {
            let types = context.weight("token_types.weight", [rows, self.hidden])?;
            let ids = match token_types {
                Some(ids) => ids,                                     // [tokens]
                None => context.graph.constant(Tensor::scalar(0u32)), // []
            };
            let types = context.graph.embedding(types, ids)?;
            x = context.graph.add(x, types)?;
        }
        if let Some(Positions { rows, first }) = self.positions {
            let table = context.weight("position_embd.weight", [rows, self.hidden])?;
            let positions = Encoder::positions(context, tokens, batch, first)?;
            let positions = context.graph.embedding(table, positions)?;
            x = context.graph.add(x, positions)?;
        }
        match self.norm {
            Some(norm) => norm.build(context, "token_embd_norm", self.hidden, x),
            None => Ok(x),
        }
    }
}

impl From<Encoder> for Model {
    fn from(encoder: Encoder) -> Model {
        let types = encoder.reads_token_types().then_some(state::TOKEN_TYPES);
        let scores = encoder.head.as_ref().map(|_| Output::Scores);
        Model {
            inputs: [state::TOKENS, state::ROW_OFFSETS].into_iter().chain(types).collect(),
            state: State::default(),
            outputs: scores.into_iter().chain([Output::Hidden]).collect(),
            vocab: encoder.vocab,
            hidden: encoder.hidden,
            context_length: encoder.context_length,
            token_types: encoder.token_types.unwrap_or(1),
            head: encoder.head.clone(),
            parts: vec![Box::new(encoder)],
            parameters: OnceLock::new(),
        }
    }
}

impl Part for Encoder {
    fn output(&self) -> Output {
        if self.head.is_some() { Output::Scores } else { Output::Hidden }
    }

    /// The graph of a ragged batch of texts: [`state::TOKENS`] and [`state::ROW_OFFSETS`]. The graph of scores has the input
    /// [`state::TOKEN_TYPES`] too if [`Encoder::reads_token_types`].
    fn graph(
        &self,
        output: Output,
        weights: &dyn WeightTypes,
        _page_size: usize,
        _cache_dtype: DType,
    ) -> Result<Graph, Error> {
        let scores = output == Output::Scores;
        let mut graph = Builder::new(if scores { "classifier" } else { "encoder" });
        let batch = Dim::symbol("batch");
        let tokens = graph.input(state::TOKENS, Type::new(DType::U32, ["tokens"]));
        let offsets = Type::new(DType::U32, [&batch + &Dim::from(1)]);
        let row_offsets = graph.input(state::ROW_OFFSETS, offsets);
        let token_types = (scores && self.reads_token_types())
            .then(|| graph.input(state::TOKEN_TYPES, Type::new(DType::U32, ["tokens"])));
        let shared = Texts { row_offsets, bias: None, ropes: Vec::new(), windows: Vec::new() };
        let (hidden, prefix) = (self.hidden, String::new());
        let mut context = Context { graph, weights, hidden, prefix, shared };
        context.shared.bias = self
            .relative_bias
            .map(|bias| bias.build(&mut context, self.layers[0].attention.heads))
            .transpose()?;
        self.rotate(&mut context, tokens, &batch)?;
        self.windows(&mut context)?;
        let mut x = self.embed(&mut context, tokens, token_types, &batch)?;
        for (index, layer) in self.layers.iter().enumerate() {
            context.prefix = format!("blk.{index}.");
            x = layer.build(&mut context, x)?;
        }
        context.prefix.clear();
        if let Some(norm) = self.final_norm {
            x = norm.build(&mut context, "output_norm", self.hidden, x)?;
        }
        if scores {
            x = self.head.as_ref().expect("an encoder with a head").build(&mut context, x)?;
        }
        Ok(context.graph.finish(&[x])?)
    }

    fn layers(&self) -> Vec<[String; 2]> {
        let words = |EncoderLayer { attention, feed_forward, .. }: &EncoderLayer| {
            let heads = format!("{}, {} dims each", attention.heads, attention.head_dim);
            [heads, feed_forward.width().to_string()]
        };
        self.layers.iter().map(words).collect()
    }

    fn is_of_other_head(&self, name: &str) -> bool {
        let own = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)).unwrap_or(name);
        HEADS.iter().any(|head| own.starts_with(head))
    }

    /// Positions before the first that is used are left out.
    fn gguf_rows(&self, weight: &str) -> Option<Range<usize>> {
        let Positions { rows, first } = self.positions.filter(|_| weight == "position_embd.weight")?;
        (first > 0).then_some(first..rows)
    }

    fn gguf_metadata(
        &self,
        config: &Config,
        gguf: &str,
        weights: &dyn WeightTypes,
        metadata: Metadata,
    ) -> Result<Metadata, Error> {
        self.metadata(config, gguf, weights, metadata)
    }
}

impl RelativeBias {
    /// The bias of each head by distance: f32[heads, 2 · max_distance + 1]
    fn build(&self, context: &mut Context<'_, Texts>, heads: usize) -> Result<Value, Error> {
        let table = context.weight("attn_rel_b.weight", [self.buckets, heads])?;
        let reach = self.max_distance as i64;
        let buckets: Vec<u32> = (-reach..=reach).map(|distance| self.bucket(distance)).collect();
        let buckets = Tensor::from_slice([buckets.len()], &buckets);
        let buckets = context.graph.constant(buckets);
        let by_distance = context.graph.embedding(table, buckets)?;
        Ok(context.graph.op(Transpose { order: vec![1, 0] }, &[by_distance])?)
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
    fn build(&self, context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let normalize = |context: &mut Context<'_, Texts>, name: &str, on: bool, x: Value| match on {
            true => self.norm.build(context, name, hidden, x),
            false => Ok(x),
        };
        let (after, sandwich) = (self.norms == EncoderNorms::After, self.norms == EncoderNorms::Sandwich);
        let read = normalize(context, "attn_norm", sandwich || self.norms == EncoderNorms::Before, x)?;
        let attended = self.attention.build(context, read)?;
        let attended = normalize(context, "post_attention_norm", sandwich, attended)?;
        let x = context.graph.add(x, attended)?;
        let x = normalize(context, "attn_output_norm", after, x)?;
        let read = normalize(context, "ffn_norm", !after, x)?;
        let fed = self.feed_forward.build(context, read)?;
        let fed = normalize(context, "post_ffw_norm", sandwich, fed)?;
        let x = context.graph.add(x, fed)?;
        normalize(context, "layer_output_norm", after, x)
    }
}

impl FeedForward {
    fn build(&self, context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
        match self {
            FeedForward::Plain(plain) => plain.build(context, "", x),
            FeedForward::Gated { block, down_bias } => {
                let y = block.build(context, "", x)?;
                with_bias(context, "ffn_down.bias", *down_bias, y)
            }
            FeedForward::Experts { experts, sum_bias } => {
                let y = experts.build(context, x, x)?;
                with_bias(context, "ffn_exps.bias", *sum_bias, y)
            }
        }
    }
}

/// The sum with a bias, if there is one.
fn with_bias(context: &mut Context<'_, Texts>, name: &str, is_there: bool, x: Value) -> Result<Value, Error> {
    if !is_there {
        return Ok(x);
    }
    let hidden = context.hidden;
    let bias = context.vector(name, hidden)?;
    Ok(context.graph.add(x, bias)?)
}
