//! A decoder-only transformer as a value, and the graph, sizes and counts that follow from it.

use graph::ops::{Embedding, Gather, RaggedPositions};
use graph::{Dim, Graph, Type, Value};
use tensor::DType;

use crate::layers::{self, Attention, Cached, Context, FeedForward, Norm, Norms, Temperature};
use crate::{Error, Rope};

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoder {
    /// Rows of the embedding, and columns of the logits.
    pub vocab: usize,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The longest sequence the model was made for.
    pub context_length: usize,
    /// The factor on embeddings.
    pub embedding_scale: f32,
    /// The rotary embeddings that layers choose from.
    pub ropes: Vec<Rope>,
    /// The factor on queries, if it is not 1.
    pub temperature: Option<Temperature>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The norm after the last layer.
    pub norm: Norm,
    /// Whether the logits come from the embedding itself (tied), or from a matrix of their own.
    pub tied: bool,
    /// The factor on logits.
    pub logit_scale: f32,
    /// Logits `s` become `c · tanh(s / c)` for this `c`, after scaling.
    pub logit_softcap: Option<f32>,
}

/// One layer: attention, then a feed-forward block, each around the residual stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// Where both blocks have their norms.
    pub norms: Norms,
    /// Attention.
    pub attention: Attention,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
    /// The factor on what each block adds to the residual stream.
    pub residual_scale: f32,
}

/// The dtype of each stored weight, by canonical name.
pub trait WeightTypes {
    /// The dtype of a weight, if the checkpoint has it.
    fn dtype(&self, name: &str) -> Option<DType>;

    /// The weight `i32[columns]` that holds the order of a matrix's columns, if it is not that of the input they are
    /// multiplied with.
    fn order(&self, _name: &str) -> Option<&str> {
        None
    }
}

/// The inputs of the decoder graph, by position.
///
/// A ragged batch: `tokens: u32[tokens]` holds the new tokens of all sequences end to end,
/// `row_offsets: u32[batch + 1]` where each starts, `cache_lengths: u32[batch]` how many earlier tokens of each
/// are in the cache, `page_table: u32[batch, max_pages]` in which pages; `output_rows: u32[outputs]` names the
/// tokens whose logits are wanted. The cache is `[pages, layers, 2, kv_heads, page_size · head_dim]`, of f32, bf16 or f16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The new tokens.
    Tokens,
    /// Where each sequence's new tokens start, and the end.
    RowOffsets,
    /// Tokens of each sequence that are in the cache already.
    CacheLengths,
    /// The pages of each sequence.
    PageTable,
    /// The rows whose logits are wanted.
    OutputRows,
    /// Keys and values; changed by the step.
    Cache,
}

/// What a graph gives of the rows that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Hidden,
    Logits,
}

impl Step {
    /// Every input, in order.
    pub const INPUTS: &[(Step, &str)] = &[
        (Step::Tokens, "tokens"),
        (Step::RowOffsets, "row_offsets"),
        (Step::CacheLengths, "cache_lengths"),
        (Step::PageTable, "page_table"),
        (Step::OutputRows, "output_rows"),
        (Step::Cache, "cache"),
    ];
}

impl Decoder {
    /// The graph of one step over a paged cache that keeps `cache_dtype`, f32, bf16 or f16: inputs as [`Step`] says; one
    /// output, the logits f32[outputs, vocab].
    ///
    /// # Errors
    /// If a weight is missing from `weights`, or no cache keeps `cache_dtype`.
    ///
    /// # Panics
    /// If `page_size` is no power of two of at least 16.
    pub fn build(
        &self,
        name: &str,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error> {
        self.build_up_to(Output::Logits, name, weights, page_size, cache_dtype)
    }

    /// The graph of one step that ends before the head: its output is f32[outputs, hidden], the hidden states of
    /// the rows that [`Step::OutputRows`] names, after the last norm.
    ///
    /// # Errors
    /// As [`Decoder::build`].
    ///
    /// # Panics
    /// As there.
    pub fn build_hidden(
        &self,
        name: &str,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error> {
        self.build_up_to(Output::Hidden, name, weights, page_size, cache_dtype)
    }

    fn build_up_to(
        &self,
        output: Output,
        name: &str,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error> {
        assert!(page_size.is_power_of_two() && page_size >= 16, "a page of {page_size} tokens");
        let mut graph = Graph::new(name);
        let [tokens, row_offsets, cache_lengths, page_table, output_rows, cache] =
            self.inputs(&mut graph, page_size, cache_dtype);
        let positions = graph.push_one(RaggedPositions.into(), &[tokens, row_offsets, cache_lengths])?;
        let ropes = self.ropes.iter().map(|rope| Ok((rope.style, rope.table(&mut graph, positions)?)));
        let ropes = ropes.collect::<Result<_, Error>>()?;
        let temperature = self.temperature.map(|temperature| temperature.build(&mut graph, positions));
        let temperature = temperature.transpose()?;
        let mut context = Context {
            graph: &mut graph,
            weights,
            hidden: self.hidden,
            shared: Cached { ropes, temperature, cache, ragged: [row_offsets, cache_lengths, page_table] },
        };
        let table = context.weight("token_embd.weight", [self.vocab, self.hidden])?;
        let embedded = context.graph.push_one(Embedding.into(), &[table, tokens])?; // [tokens, hidden]
        let mut x = layers::scale(&mut context, embedded, self.embedding_scale)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.build(&mut context, index, x)?;
        }
        let rows = context.graph.push_one(Gather { axis: 0 }.into(), &[x, output_rows])?; // [outputs, hidden]
        let rows = self.norm.build(&mut context, "output_norm", self.hidden, rows)?;
        if output == Output::Hidden {
            graph.set_outputs(&[rows]);
            return Ok(graph);
        }
        let head = if self.tied { "token_embd.weight" } else { "output.weight" };
        let logits = layers::linear(&mut context, head, [self.vocab, self.hidden], None, rows)?;
        let logits = layers::scale(&mut context, logits, self.logit_scale)?;
        let logits = layers::softcap(&mut context, logits, self.logit_softcap)?;
        graph.set_outputs(&[logits]);
        Ok(graph)
    }

    /// The shape of the cache for a number of pages: `[pages, layers, 2, kv_heads, page_size · head_dim]`.
    pub fn cache_shape(&self, pages: usize, page_size: usize) -> [usize; 5] {
        let attention = self.layers[0].attention;
        [pages, self.layers.len(), 2, attention.kv_heads, page_size * attention.head_dim]
    }

    /// Bytes of cache for each token: keys and values of all layers, as `cache_dtype`.
    pub fn cache_bytes_per_token(&self, cache_dtype: DType) -> usize {
        self.cache_shape(1, 1).iter().product::<usize>() * cache_dtype.block().bytes
    }

    /// The number of weights.
    pub fn parameters(&self) -> usize {
        self.count(|block| block.parameters(self.hidden))
    }

    /// The number of weights that compute each token: fewer than all if layers have experts.
    pub fn active_parameters(&self) -> usize {
        self.count(|block| block.active_parameters(self.hidden))
    }

    fn count(&self, feed_forward: impl Fn(&FeedForward) -> usize) -> usize {
        let embedding = self.vocab * self.hidden;
        let of_layer = |layer: &Layer| layer.parameters(self.hidden) + feed_forward(&layer.feed_forward);
        let layers: usize = self.layers.iter().map(of_layer).sum();
        embedding * if self.tied { 1 } else { 2 } + layers + self.hidden
    }

    fn inputs(&self, graph: &mut Graph, page_size: usize, cache_dtype: DType) -> [Value; 6] {
        let [_, cache_shape @ ..] = self.cache_shape(1, page_size);
        let batch = Dim::symbol("batch");
        let cache_dims = std::iter::once(Dim::symbol("pages")).chain(cache_shape.map(Dim::from));
        let types = [
            Type::new(DType::U32, ["tokens"]),
            Type::new(DType::U32, [&batch + &Dim::from(1)]),
            Type::new(DType::U32, [batch.clone()]),
            Type::new(DType::U32, [batch, Dim::symbol("max_pages")]),
            Type::new(DType::U32, ["outputs"]),
            Type::buffer(cache_dtype, cache_dims),
        ];
        let mut inputs = Step::INPUTS.iter().zip(types).map(|(&(_, name), ty)| graph.input(name, ty));
        std::array::from_fn(|_| inputs.next().expect("six inputs"))
    }
}

impl Layer {
    fn build(&self, context: &mut Context<'_>, index: usize, x: Value) -> Result<Value, Error> {
        let prefix = format!("blk.{index}");
        let read = self.norms.before(context, &format!("{prefix}.attn_norm"), x)?;
        let attended = self.attention.build(context, index, &prefix, read)?;
        let x = self.add(context, &format!("{prefix}.post_attention_norm"), x, attended)?;
        let read = self.norms.before(context, &format!("{prefix}.ffn_norm"), x)?;
        let fed = self.feed_forward.build(context, &prefix, read)?;
        self.add(context, &format!("{prefix}.post_ffw_norm"), x, fed)
    }

    /// Adds the result of a block to the residual stream.
    fn add(
        &self,
        context: &mut Context<'_>,
        norm_name: &str,
        x: Value,
        result: Value,
    ) -> Result<Value, Error> {
        let result = self.norms.after(context, norm_name, result)?;
        let result = layers::scale(context, result, self.residual_scale)?;
        layers::add(context, x, result)
    }

    /// The number of weights beside the feed-forward block's.
    fn parameters(&self, hidden: usize) -> usize {
        self.norms.parameters(hidden) + self.attention.parameters(hidden)
    }
}
