//! A decoder-only transformer as a value, and the graph, sizes and counts that follow from it.

use graph::ops::{Binary, Embedding, Gather, RaggedPositions};
use graph::{Graph, Value};
use tensor::DType;

use crate::layers::{
    self, Alibi, Attention, Cached, Channel, ChannelStateSpace, ClassificationHead, Context, GatedDelta,
    LatentAttention, LayerEmbedding, Norm, Norms, ShortConvolution, StateSpace, Streams, Temperature,
};
use crate::state::{self, LayerState};
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
    /// Rows of a table of learned positions, which are added to embeddings, if there is one.
    pub learned_positions: Option<usize>,
    /// The rotary embeddings that layers choose from.
    pub ropes: Vec<Rope>,
    /// The factor on queries, if it is not 1.
    pub temperature: Option<Temperature>,
    /// The biases of keys, if positions are not in keys themselves.
    pub alibi: Option<Alibi>,
    /// The second embedding, of which each layer takes a part, if there is one.
    pub layer_embedding: Option<LayerEmbedding>,
    /// The residual streams, if there are several.
    pub streams: Option<Streams>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The norm after the last layer.
    pub norm: Norm,
    /// Whether the logits come from the embedding itself (tied), or from a matrix of their own.
    pub tied: bool,
    /// Whether a bias is added to the logits, before scaling.
    pub head_bias: bool,
    /// The factor on logits.
    pub logit_scale: f32,
    /// Logits `s` become `c · tanh(s / c)` for this `c`, after scaling.
    pub logit_softcap: Option<f32>,
    /// The head that scores texts, if the model is one that does, and makes no text.
    pub head: Option<ClassificationHead>,
    /// Whether the model has no head at all, and makes hidden states alone.
    pub bare: bool,
}

/// One layer: a block that mixes tokens, and one that mixes the elements of each, around the residual stream. One of them may
/// be missing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// Where both blocks have their norms.
    pub norms: Norms,
    /// The block that mixes tokens.
    pub mixer: Mixer,
    /// The block that mixes the elements of a token.
    pub channel: Channel,
    /// How the blocks join the residual stream.
    pub residual: Residual,
    /// The rank of a projection of what the first block reads. The second one reads `(r + x + norm(x · Lᵀ · Rᵀ)) / √2` for
    /// what the first one reads, `x`, and the residual stream after it, `r`.
    pub low_rank: Option<usize>,
    /// Whether the residual stream after the layer is multiplied with a number.
    pub scaled: bool,
}

/// What mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mixer {
    /// Attention over all earlier tokens, or those of a window.
    Attention(Attention),
    /// Attention of which all heads share a row of each token.
    Latent(LatentAttention),
    /// A linear attention whose state forgets.
    GatedDelta(GatedDelta),
    /// A gated convolution over the last few tokens.
    ShortConvolution(ShortConvolution),
    /// A state space whose heads decay as a whole.
    StateSpace(StateSpace),
    /// A state space whose channels decay each on its own.
    ChannelStateSpace(ChannelStateSpace),
    /// Attention and a state space, which read the same and whose results are summed.
    SideBySide(Attention, StateSpace),
    /// The layer does not mix tokens.
    None,
}

/// How the two blocks of a layer join the residual stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Whether both blocks read what the layer reads. Else the second one reads what the first one has added to.
    pub parallel: bool,
    /// The factor on what each block adds.
    pub scale: f32,
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

/// The output of a decoder's graph, for the rows that the input [`state::OUTPUT_ROWS`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecoderOutput {
    /// f32[outputs, hidden]: the hidden states after the last norm.
    Hidden,
    /// f32[outputs, vocab].
    Logits,
    /// f32[outputs, labels]: the scores of the head, before any activation.
    Scores,
}

impl Decoder {
    /// The graph of one step over a paged cache that keeps `cache_dtype`, f32, bf16 or f16, with the inputs of
    /// [`Decoder::inputs`].
    ///
    /// # Errors
    /// If a weight is missing from `weights`, or no cache keeps `cache_dtype`.
    ///
    /// # Panics
    /// If `page_size` is not a power of two or is less than 16, or `output` is `Scores` and the decoder has no head.
    pub fn build(
        &self,
        output: DecoderOutput,
        name: &str,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error> {
        assert!(page_size.is_power_of_two() && page_size >= 16, "a page of {page_size} tokens");
        let mut graph = Graph::new(name);
        let inputs = self.inputs(page_size, cache_dtype).into_iter();
        let inputs: Vec<(String, Value)> =
            inputs.map(|(name, ty)| (name.clone(), graph.input(name, ty))).collect();
        let input = |name: &str| inputs.iter().find(|(own, _)| own == name).expect("an input of its own").1;
        let (state, locations) = self.state_and_locations();
        let (tokens, output_rows) = (input(state::TOKENS), input(state::OUTPUT_ROWS));
        let ragged = [state::ROW_OFFSETS, state::CACHE_LENGTHS, state::PAGE_TABLE].map(input);
        let caches = state.per_token.iter().map(|cache| input(&cache.name)).collect();
        let states = state.per_sequence.iter().map(|state| input(&state.name)).collect();
        let state_table = (!state.per_sequence.is_empty()).then(|| input(state::STATE_TABLE));
        let positions = graph.push_one(RaggedPositions.into(), &[tokens, ragged[0], ragged[1]])?;
        let ropes = self.ropes.iter().map(|rope| Ok((rope.style, rope.table(&mut graph, positions)?)));
        let ropes = ropes.collect::<Result<_, Error>>()?;
        let temperature = self.temperature.map(|temperature| temperature.build(&mut graph, positions));
        let temperature = temperature.transpose()?;
        let alibi = self.alibi.map(|alibi| alibi.build(&mut graph)).transpose()?;
        let (streams, layer_embedding, chosen) = (self.streams, None, None);
        let shared = Cached {
            ropes,
            temperature,
            alibi,
            layer_embedding,
            streams,
            caches,
            ragged,
            chosen,
            states,
            state_table,
        };
        let mut context = Context { graph: &mut graph, weights, hidden: self.hidden, shared };
        let mut x = self.embed(&mut context, tokens, positions)?;
        if let Some(embedding) = self.layer_embedding {
            let parts = embedding.build(&mut context, self.layers.len(), tokens, x)?;
            context.shared.layer_embedding = Some((embedding, parts));
        }
        if let Some(streams) = streams {
            x = streams.split(&mut context, x)?;
        }
        for (index, (layer, state)) in self.layers.iter().zip(&locations).enumerate() {
            x = layer.build(&mut context, index, state, x)?;
        }
        let mut rows = context.graph.push_one(Gather { axis: 0 }.into(), &[x, output_rows])?;
        if let Some(streams) = streams {
            rows = streams.merge(&mut context, "outputs".into(), rows)?; // [outputs, hidden]
        }
        let rows = self.norm.build(&mut context, "output_norm", self.hidden, rows)?;
        let results = match output {
            DecoderOutput::Hidden => rows,
            DecoderOutput::Logits => self.logits(&mut context, rows)?,
            DecoderOutput::Scores => {
                self.head.as_ref().expect("a decoder with a head").scores(&mut context, rows)?
            }
        };
        graph.set_outputs(&[results]);
        Ok(graph)
    }

    /// f32[outputs, hidden] → f32[outputs, vocab]
    fn logits(&self, context: &mut Context<'_>, rows: Value) -> Result<Value, Error> {
        let head = if self.tied { "token_embd" } else { "output" };
        let mut logits = layers::linear(context, head, [self.vocab, self.hidden], false, rows)?;
        if self.head_bias {
            let bias = context.vector("output.bias", self.vocab)?;
            logits = layers::add(context, logits, bias)?;
        }
        let logits = layers::scale(context, logits, self.logit_scale)?;
        layers::softcap(context, logits, self.logit_softcap)
    }

    /// Scores if the model has a head for them, else logits; hidden states if it has no head.
    pub(crate) fn output(&self) -> DecoderOutput {
        match self.head {
            Some(_) => DecoderOutput::Scores,
            None if self.bare => DecoderOutput::Hidden,
            None => DecoderOutput::Logits,
        }
    }

    /// The attention of each layer that has it, to be changed.
    pub(crate) fn attentions_mut(&mut self) -> impl Iterator<Item = &mut Attention> {
        self.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
            Mixer::Attention(attention) | Mixer::SideBySide(attention, _) => Some(attention),
            Mixer::Latent(_)
            | Mixer::GatedDelta(_)
            | Mixer::ShortConvolution(_)
            | Mixer::StateSpace(_)
            | Mixer::ChannelStateSpace(_)
            | Mixer::None => None,
        })
    }

    /// The number of weights.
    pub fn parameters(&self) -> usize {
        self.count(Channel::parameters)
    }

    /// The number of weights that compute each token: fewer than all if layers have experts.
    pub fn active_parameters(&self) -> usize {
        self.count(Channel::active_parameters)
    }

    fn count(&self, channel: impl Fn(&Channel, usize) -> usize) -> usize {
        let logits = if self.tied || self.head.is_some() { 0 } else { self.vocab };
        let rows = self.vocab + logits + self.learned_positions.unwrap_or(0);
        let head = self.head.as_ref().map_or(0, |head| head.parameters(self.hidden));
        let of_layer = |layer: &Layer| layer.parameters(self.hidden) + channel(&layer.channel, self.hidden);
        let layers: usize = self.layers.iter().map(of_layer).sum();
        let head_bias = if self.head_bias { self.vocab } else { 0 };
        let (count, hidden) = (self.layers.len(), self.hidden);
        let embedding = self.layer_embedding.map_or(0, |embedding| embedding.parameters(count, hidden));
        let streams = self.streams.map_or(0, |streams| streams.parameters(count, hidden));
        rows * hidden + head + head_bias + embedding + streams + layers + self.norm.parameters(hidden)
    }

    /// The scaled embeddings of tokens, with learned positions added: f32[tokens, hidden]
    fn embed(&self, context: &mut Context<'_>, tokens: Value, positions: Value) -> Result<Value, Error> {
        let table = context.weight("token_embd.weight", [self.vocab, self.hidden])?;
        let embedded = context.graph.push_one(Embedding.into(), &[table, tokens])?;
        let x = layers::scale(context, embedded, self.embedding_scale)?;
        let Some(rows) = self.learned_positions else { return Ok(x) };
        let table = context.weight("position_embd.weight", [rows, self.hidden])?;
        let positions = context.graph.push_one(Embedding.into(), &[table, positions])?;
        layers::add(context, x, positions)
    }
}

impl Layer {
    /// f32[tokens, hidden], or f32[tokens, streams, hidden] → the same.
    fn build(
        &self,
        context: &mut Context<'_>,
        index: usize,
        state: &LayerState,
        x: Value,
    ) -> Result<Value, Error> {
        let prefix = format!("blk.{index}");
        let embedding = context.shared.layer_embedding;
        let Some(streams) = context.shared.streams else {
            let mut y = self.blocks(context, &prefix, state, x)?;
            if let Some((embedding, parts)) = embedding {
                let more = embedding.gated(context, index, parts, y)?;
                y = layers::add(context, y, more)?;
            }
            return self.scaled(context, &prefix, y);
        };
        let predicted = streams.predict(context, &prefix, x)?;
        let active = streams.active(context, predicted)?;
        let y = self.blocks(context, &prefix, state, active)?;
        let corrected = streams.correct(context, &prefix, predicted, y)?;
        let Some((embedding, parts)) = embedding else { return Ok(corrected) };
        let read = streams.read(context, &prefix, corrected)?;
        let more = embedding.gated(context, index, parts, read)?;
        streams.add_to_others(context, corrected, more)
    }

    /// The two blocks around the residual stream: f32[tokens, hidden] → f32[tokens, hidden]
    fn blocks(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        state: &LayerState,
        x: Value,
    ) -> Result<Value, Error> {
        let normalized = |context: &mut Context<'_>, name: &str, x: Value| match self.norms {
            Norms::Pre(norm) | Norms::Shared(norm) | Norms::Sandwich(norm) => {
                norm.build(context, &format!("{prefix}.{name}"), context.hidden, x)
            }
            Norms::Post(_) => Ok(x),
        };
        let read = normalized(context, "attn_norm", x)?;
        let sum = match self.mixer.build(context, state, prefix, read)? {
            None => x,
            Some(mixed) => {
                let mixed = self.result(context, &format!("{prefix}.post_attention_norm"), mixed)?;
                let sum = layers::add(context, x, mixed)?;
                self.with_low_rank(context, prefix, read, sum)?
            }
        };
        let read = match (self.norms, self.mixer, self.channel) {
            (_, _, Channel::None) => return Ok(sum),
            // One norm is all that there is.
            (Norms::Shared(_), ..) | (_, Mixer::None, _) => read,
            _ => normalized(context, "ffn_norm", if self.residual.parallel { x } else { sum })?,
        };
        let fed = self.channel.build(context, prefix, read, sum)?;
        let fed = self.result(context, &format!("{prefix}.post_ffw_norm"), fed)?;
        layers::add(context, sum, fed)
    }

    /// The residual stream after the first block, with what a projection of low rank adds.
    fn with_low_rank(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        read: Value,
        sum: Value,
    ) -> Result<Value, Error> {
        let Some(rank) = self.low_rank else { return Ok(sum) };
        let hidden = context.hidden;
        let y = layers::linear(context, &format!("{prefix}.laurel_l"), [rank, hidden], false, read)?;
        let y = layers::linear(context, &format!("{prefix}.laurel_r"), [hidden, rank], false, y)?;
        let y = self.norms.norm().build(context, &format!("{prefix}.laurel_post_norm"), hidden, y)?;
        let y = layers::add(context, read, y)?;
        let sum = layers::add(context, sum, y)?;
        layers::scale(context, sum, std::f32::consts::FRAC_1_SQRT_2)
    }

    /// The residual stream after the layer.
    fn scaled(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<Value, Error> {
        if !self.scaled {
            return Ok(x);
        }
        let factor = context.vector(&format!("{prefix}.layer_output_scale.weight"), 1)?;
        Ok(context.graph.push_one(Binary::Mul.into(), &[x, factor])?)
    }

    /// What the residual stream takes of a block's result.
    fn result(&self, context: &mut Context<'_>, norm_name: &str, x: Value) -> Result<Value, Error> {
        let x = self.norms.after(context, norm_name, x)?;
        layers::scale(context, x, self.residual.scale)
    }

    /// The number of weights other than the channel block's.
    fn parameters(&self, hidden: usize) -> usize {
        let is_lone = matches!(self.mixer, Mixer::None) || matches!(self.channel, Channel::None);
        let of_rank = |rank| 2 * hidden * rank + self.norms.norm().parameters(hidden);
        let low_rank = self.low_rank.map_or(0, of_rank);
        let norms = self.norms.parameters(hidden, if is_lone { 1 } else { 2 });
        norms + self.mixer.parameters(hidden) + low_rank + usize::from(self.scaled)
    }
}

impl Mixer {
    /// f32[tokens, hidden] → f32[tokens, hidden], if there is a block.
    fn build(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<Option<Value>, Error> {
        match self {
            Mixer::Attention(attention) => attention.build(context, state, prefix, x).map(Some),
            Mixer::Latent(latent) => latent.build(context, state, prefix, x).map(Some),
            Mixer::GatedDelta(delta) => delta.build(context, state, prefix, x).map(Some),
            Mixer::ShortConvolution(convolution) => convolution.build(context, state, prefix, x).map(Some),
            Mixer::StateSpace(space) => space.build(context, state, prefix, x).map(Some),
            Mixer::ChannelStateSpace(space) => space.build(context, state, prefix, x).map(Some),
            Mixer::SideBySide(attention, space) => {
                let attended = attention.build(context, state, prefix, x)?;
                let scanned = space.build(context, state, prefix, x)?;
                layers::add(context, scanned, attended).map(Some)
            }
            Mixer::None => Ok(None),
        }
    }

    /// The number of weights.
    fn parameters(&self, hidden: usize) -> usize {
        match self {
            Mixer::Attention(attention) => attention.parameters(hidden),
            Mixer::Latent(latent) => latent.parameters(hidden),
            Mixer::GatedDelta(delta) => delta.parameters(hidden),
            Mixer::ShortConvolution(convolution) => convolution.parameters(hidden),
            Mixer::StateSpace(space) => space.parameters(hidden),
            Mixer::ChannelStateSpace(space) => space.parameters(hidden),
            Mixer::SideBySide(attention, space) => attention.parameters(hidden) + space.parameters(hidden),
            Mixer::None => 0,
        }
    }
}
