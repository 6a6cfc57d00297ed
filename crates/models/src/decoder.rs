//! A decoder-only transformer as a value, and the graph, sizes and counts that follow from it.

use std::collections::HashMap;
use std::sync::OnceLock;

use graph::ops::{Gather, RaggedPositions};
use graph::{Builder, Dim, Graph, Type, Value};
use tensor::DType;
use weights::Metadata;

use crate::layers::{
    Alibi, Attention, Cached, Channel, ClassificationHead, Context, LayerEmbedding, Mixer, Norm, Norms,
    Streams, Temperature, WeightTypes,
};
use crate::model::Part;
use crate::state::{self, LayerState, State};
use crate::{Config, Error, Model, Output, Rope};

/// The weights of layers that files have though the layers read the keys and values of earlier ones.
const OF_KEYS: [&str; 3] = ["attn_k", "attn_v", "attn_k_norm"];

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
    /// The norm of embeddings, if they have one.
    pub embedding_norm: Option<Norm>,
    /// Rows of a table of learned positions, which are added to embeddings, if there is one.
    pub learned_positions: Option<usize>,
    /// The rotary embeddings that layers choose from.
    pub ropes: Vec<Rope>,
    /// The biases of keys, if positions are not in keys themselves.
    pub alibi: Option<Alibi>,
    /// The factor on queries, if it is not 1.
    pub temperature: Option<Temperature>,
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

/// How the two blocks of a layer join the residual stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Whether both blocks read what the layer reads. Else the second one reads what the first one has added to.
    pub parallel: bool,
    /// The factor on what each block adds.
    pub scale: f32,
}

impl Decoder {
    /// The values that all layers share, of a step's inputs.
    fn shared(
        &self,
        graph: &mut Builder,
        inputs: &HashMap<String, Value>,
        state: &State,
        positions: Value,
    ) -> Result<Cached, Error> {
        let mut ropes = Vec::with_capacity(self.ropes.len());
        for rope in &self.ropes {
            ropes.push((rope.style, rope.table(graph, positions)?));
        }
        let temperature = self.temperature.map(|temperature| temperature.build(graph, positions));
        Ok(Cached {
            ropes,
            temperature: temperature.transpose()?,
            alibi: self.alibi.map(|alibi| alibi.build(graph)),
            layer_embedding: None,
            streams: self.streams,
            caches: state.per_token.iter().map(|cache| inputs[&cache.name]).collect(),
            ragged: [state::ROW_OFFSETS, state::CACHE_LENGTHS, state::PAGE_TABLE].map(|name| inputs[name]),
            chosen: None,
            shortcut: None,
            states: state.per_sequence.iter().map(|state| inputs[&state.name]).collect(),
            state_table: inputs.get(state::STATE_TABLE).copied(),
            layer: LayerState::default(),
        })
    }

    /// What becomes of the last layer's result: f32[outputs, hidden], or f32[outputs, streams, hidden] → f32[outputs, ..]
    fn results(&self, context: &mut Context<'_>, output: Output, rows: Value) -> Result<Value, Error> {
        let rows = match self.streams {
            Some(streams) => streams.merge(context, "outputs".into(), rows)?, // [outputs, hidden]
            None => rows,
        };
        let rows = self.norm.build(context, "output_norm", self.hidden, rows)?;
        match output {
            Output::Hidden => Ok(rows),
            Output::Logits => self.logits(context, rows),
            Output::Scores => self.head.as_ref().expect("a decoder with a head").scores(context, rows),
        }
    }

    /// f32[outputs, hidden] → f32[outputs, vocab]
    fn logits(&self, context: &mut Context<'_>, rows: Value) -> Result<Value, Error> {
        let head = if self.tied { "token_embd" } else { "output" };
        let mut logits = context.linear(head, [self.vocab, self.hidden], false, rows)?;
        if self.head_bias {
            let bias = context.vector("output.bias", self.vocab)?;
            logits = context.graph.add(logits, bias)?;
        }
        let logits = context.scale(logits, self.logit_scale)?;
        context.softcap(logits, self.logit_softcap)
    }

    /// What is kept between steps.
    pub fn state(&self) -> State {
        self.state_and_locations().0
    }

    /// What a step takes, by name: the ragged batch, and the state, which the step changes.
    ///
    /// All but the state is u32; caches keep `cache_dtype` in pages of `page_size` tokens.
    pub fn inputs(&self, page_size: usize, cache_dtype: DType) -> Vec<(String, Type)> {
        let batch = Dim::symbol("batch");
        let mut inputs = vec![
            (state::TOKENS.to_string(), Type::new(DType::U32, ["tokens"])),
            (state::ROW_OFFSETS.to_string(), Type::new(DType::U32, [&batch + &Dim::from(1)])),
            (state::CACHE_LENGTHS.to_string(), Type::new(DType::U32, [batch.clone()])),
            (state::PAGE_TABLE.to_string(), Type::new(DType::U32, [batch.clone(), Dim::symbol("max_pages")])),
            (state::OUTPUT_ROWS.to_string(), Type::new(DType::U32, ["outputs"])),
        ];
        let State { per_token, per_sequence } = self.state();
        inputs.extend(
            per_token.into_iter().map(|cache| (cache.name.clone(), cache.ty(page_size, cache_dtype))),
        );
        if !per_sequence.is_empty() {
            inputs.push((state::STATE_TABLE.to_string(), Type::new(DType::U32, [batch, 3.into()])));
        }
        inputs.extend(per_sequence.into_iter().map(|state| (state.name.clone(), state.ty())));
        inputs
    }

    /// The state, and where in it each layer has its part.
    pub(crate) fn state_and_locations(&self) -> (State, Vec<LayerState>) {
        let mut state = State::default();
        let mut locations: Vec<LayerState> = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let Some(mixer) = layer.mixer.block() else {
                locations.push(LayerState::default());
                continue;
            };
            let shapes = mixer.sequence_shapes(self.hidden).into_iter();
            let states = shapes.map(|shape| state.add_to_sequence(shape)).collect();
            let cache = match mixer.keys_of() {
                Some(earlier) => locations[earlier].cache,
                None => mixer.cached().map(|shape| state.add_to_token(shape)),
            };
            let index = mixer.indexed().map(|shape| state.add_to_token(shape));
            locations.push(LayerState { cache, index, states });
        }
        (state, locations)
    }

    /// The attention of each layer that has it, to be changed.
    pub(crate) fn attentions_mut(&mut self) -> impl Iterator<Item = &mut Attention> {
        self.layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut())
    }

    /// The scaled embeddings of tokens, with learned positions added: f32[tokens, hidden]
    fn embed(&self, context: &mut Context<'_>, tokens: Value, positions: Value) -> Result<Value, Error> {
        let table = context.weight("token_embd.weight", [self.vocab, self.hidden])?;
        let embedded = context.graph.embedding(table, tokens)?;
        let x = context.scale(embedded, self.embedding_scale)?;
        let x = match self.embedding_norm {
            None => x,
            Some(norm) => norm.build(context, "token_embd_norm", self.hidden, x)?,
        };
        let Some(rows) = self.learned_positions else { return Ok(x) };
        let table = context.weight("position_embd.weight", [rows, self.hidden])?;
        let positions = context.graph.embedding(table, positions)?;
        Ok(context.graph.add(x, positions)?)
    }
}

impl From<Decoder> for Model {
    fn from(decoder: Decoder) -> Model {
        let state = decoder.state();
        let batch = [state::TOKENS, state::ROW_OFFSETS, state::CACHE_LENGTHS, state::PAGE_TABLE];
        let table = (!state.per_sequence.is_empty()).then_some(state::STATE_TABLE);
        let hidden = (decoder.output() != Output::Hidden).then_some(Output::Hidden);
        Model {
            inputs: batch.into_iter().chain([state::OUTPUT_ROWS]).chain(table).collect(),
            state,
            outputs: std::iter::once(decoder.output()).chain(hidden).collect(),
            vocab: decoder.vocab,
            hidden: decoder.hidden,
            context_length: decoder.context_length,
            token_types: 1,
            head: decoder.head.clone(),
            parts: vec![Box::new(decoder)],
            parameters: OnceLock::new(),
        }
    }
}

impl Part for Decoder {
    /// Scores if the model has a head for them, else logits; hidden states if it has no head.
    fn output(&self) -> Output {
        match self.head {
            Some(_) => Output::Scores,
            None if self.bare => Output::Hidden,
            None => Output::Logits,
        }
    }

    /// The graph of one step over a paged cache that keeps `cache_dtype`, f32, bf16 or f16, with the inputs of
    /// [`Decoder::inputs`].
    fn graph(
        &self,
        output: Output,
        weights: &dyn WeightTypes,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<Graph, Error> {
        assert!(page_size.is_power_of_two() && page_size >= 16, "a page of {page_size} tokens");
        let mut graph = Builder::new(if output == Output::Scores { "classifier" } else { "decoder" });
        let inputs = self.inputs(page_size, cache_dtype).into_iter();
        let inputs: HashMap<String, Value> =
            inputs.map(|(name, ty)| (name.clone(), graph.input(name, ty))).collect();
        let tokens = inputs[state::TOKENS];
        let operands = [tokens, inputs[state::ROW_OFFSETS], inputs[state::CACHE_LENGTHS]];
        let positions = graph.op(RaggedPositions, &operands)?;
        let (state, locations) = self.state_and_locations();
        let shared = self.shared(&mut graph, &inputs, &state, positions)?;
        let (hidden, prefix) = (self.hidden, String::new());
        let mut context = Context { graph, weights, hidden, prefix, shared };
        let mut x = self.embed(&mut context, tokens, positions)?;
        if let Some(embedding) = self.layer_embedding {
            let parts = embedding.build(&mut context, self.layers.len(), tokens, x)?;
            context.shared.layer_embedding = Some((embedding, parts));
        }
        if let Some(streams) = self.streams {
            x = streams.split(&mut context, x)?;
        }
        for (index, (layer, state)) in self.layers.iter().zip(locations).enumerate() {
            context.prefix = format!("blk.{index}.");
            context.shared.layer = state;
            x = layer.build(&mut context, index, x)?;
        }
        context.prefix.clear();
        let rows = context.graph.op(Gather { axis: 0 }, &[x, inputs[state::OUTPUT_ROWS]])?;
        let results = self.results(&mut context, output, rows)?;
        Ok(context.graph.finish(&[results])?)
    }

    fn layers(&self) -> Vec<[String; 2]> {
        let layers = self.layers.iter();
        layers.map(|layer| [layer.mixer.summary().unwrap_or_default(), layer.channel.summary()]).collect()
    }

    fn experts_of(&self, weight: &str) -> Option<[usize; 2]> {
        let (layer, stem) = weight.strip_prefix("blk.")?.split_once('.')?;
        let experts = self.layers.get(layer.parse::<usize>().ok()?)?.channel.experts()?;
        stem.contains("_exps.").then_some([experts.count, experts.per_token])
    }

    /// The weights for keys and values of layers that read those of others.
    fn idle_weights(&self) -> Vec<String> {
        let others = self
            .layers
            .iter()
            .enumerate()
            .filter(|(_, layer)| layer.mixer.block().is_some_and(|mixer| mixer.keys_of().is_some()));
        others.flat_map(|(index, _)| OF_KEYS.map(|stem| format!("blk.{index}.{stem}.weight"))).collect()
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

impl Layer {
    /// f32[tokens, hidden], or f32[tokens, streams, hidden] → the same.
    fn build(&self, context: &mut Context<'_>, index: usize, x: Value) -> Result<Value, Error> {
        let embedding = context.shared.layer_embedding;
        let Some(streams) = context.shared.streams else {
            let mut y = self.blocks(context, x)?;
            if let Some((embedding, parts)) = embedding {
                let more = embedding.gated(context, index, parts, y)?;
                y = context.graph.add(y, more)?;
            }
            return self.scaled(context, y);
        };
        let predicted = streams.predict(context, x)?;
        let active = streams.active(context, predicted)?;
        let y = self.blocks(context, active)?;
        let corrected = streams.correct(context, predicted, y)?;
        let Some((embedding, parts)) = embedding else { return Ok(corrected) };
        let read = streams.read(context, corrected)?;
        let more = embedding.gated(context, index, parts, read)?;
        streams.add_to_others(context, corrected, more)
    }

    /// The two blocks around the residual stream: f32[tokens, hidden] → f32[tokens, hidden]
    fn blocks(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let normalized = |context: &mut Context<'_>, name: &str, x: Value| match self.norms {
            Norms::Pre(norm) | Norms::Shared(norm) | Norms::Sandwich { before: norm, .. } => {
                norm.build(context, name, context.hidden, x)
            }
            Norms::Post(_) => Ok(x),
        };
        let shortcut = context.shared.shortcut.take();
        let read = normalized(context, "attn_norm", x)?;
        let sum = match self.mixer.block() {
            None => x,
            Some(mixer) => {
                let mixed = mixer.build(context, read)?;
                let mixed = self.result(context, "post_attention_norm", mixed)?;
                let sum = context.graph.add(x, mixed)?;
                self.with_low_rank(context, read, sum)?
            }
        };
        let read = match (self.norms, self.mixer, self.channel) {
            (_, _, Channel::None) => return Ok(sum),
            // One norm is all that there is.
            (Norms::Shared(_), ..) | (_, Mixer::None, _) => read,
            _ => normalized(context, "ffn_norm", if self.residual.parallel { x } else { sum })?,
        };
        let fed = self.channel.build(context, read, sum)?;
        let fed = self.result(context, "post_ffw_norm", fed)?;
        let sum = context.graph.add(sum, fed)?;
        match shortcut {
            None => Ok(sum),
            Some(shortcut) => Ok(context.graph.add(sum, shortcut)?),
        }
    }

    /// The residual stream after the first block, with what a projection of low rank adds.
    fn with_low_rank(&self, context: &mut Context<'_>, read: Value, sum: Value) -> Result<Value, Error> {
        let Some(rank) = self.low_rank else { return Ok(sum) };
        let hidden = context.hidden;
        let y = context.linear("laurel_l", [rank, hidden], false, read)?;
        let y = context.linear("laurel_r", [hidden, rank], false, y)?;
        let y = self.norms.norm().build(context, "laurel_post_norm", hidden, y)?;
        let y = context.graph.add(read, y)?;
        let sum = context.graph.add(sum, y)?;
        context.scale(sum, std::f32::consts::FRAC_1_SQRT_2)
    }

    /// The residual stream after the layer.
    fn scaled(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        if !self.scaled {
            return Ok(x);
        }
        let factor = context.vector("layer_output_scale.weight", 1)?;
        Ok(context.graph.mul(x, factor)?)
    }

    /// What the residual stream takes of a block's result.
    fn result(&self, context: &mut Context<'_>, norm_name: &str, x: Value) -> Result<Value, Error> {
        let x = self.norms.after(context, norm_name, x)?;
        context.scale(x, self.residual.scale)
    }
}
