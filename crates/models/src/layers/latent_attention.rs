//! Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): all heads share one row of each token, from which each
//! makes its keys and values.
//!
//! The cache keeps the rows: a latent, followed by the dims of keys that are rotated. What makes keys of latents is applied
//! to queries instead, and what makes values of them to the attended latents, so that prompts and single tokens run
//! alike: attention of many heads to one row.

use graph::Value;
use graph::ops::{Broadcast, Concat, Constant, ExpertLinear, LatentStore, PagedAttention, Rope, Split};
use tensor::Tensor;

use super::mixer_block::MixerBlock;
use super::{Cached, Context, IndexerConfig, Norm, Reach};
use crate::Error;
use crate::key::{self, Key, Keyed, MAX_HEAD, MAX_SIZE};
use crate::state::CacheShape;

/// What latent attention keeps of a token, and makes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatentConfig {
    /// How wide latents are.
    pub rank: usize,
    /// How wide the latents of queries are; none is queries made at once.
    pub query_rank: Option<usize>,
    /// Dims of each value.
    pub value_dims: usize,
    /// What chooses the positions that a token attends to, if not all.
    pub indexer: Option<IndexerConfig>,
}

impl Keyed for LatentConfig {
    const KEYS: &'static [Key<LatentConfig>] = &[
        Key::size("latent size", ["kv_lora_rank", "attention.kv_lora_rank"], MAX_HEAD, |latent| {
            &mut latent.rank
        }),
        Key::size("latent size of queries", ["q_lora_rank", "attention.q_lora_rank"], MAX_SIZE, |latent| {
            &mut latent.query_rank
        }),
        Key::size("value size", ["v_head_dim", "attention.value_length_mla"], MAX_HEAD, |latent| {
            &mut latent.value_dims
        }),
    ];
}

impl LatentConfig {
    /// Checks that the numbers fit each other, and heads of some dims of which some are rotated.
    pub(crate) fn check(&self, head_dim: usize, rotated_dims: usize) -> Result<(), String> {
        key::check(self)?;
        key::check_size("number of rotated dims", rotated_dims, head_dim.saturating_sub(1))?;
        let Some(indexer) = self.indexer else { return Ok(()) };
        key::check(&indexer)?;
        key::check_size("number of rotated dims", rotated_dims, indexer.dims)?;
        match self.query_rank {
            Some(_) => Ok(()),
            None => Err("positions are chosen by latents of queries, but there are none".into()),
        }
    }
}

/// Attention to latents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatentAttention {
    /// Query heads.
    pub heads: usize,
    /// How wide latents are.
    pub rank: usize,
    /// How wide the latents of queries are; none is queries made at once.
    pub query_rank: Option<usize>,
    /// Dims of each head that are not rotated.
    pub plain_dims: usize,
    /// Dims of each head that are rotated, after the others; all heads share those of keys.
    pub rotated_dims: usize,
    /// Dims of each value.
    pub value_dims: usize,
    /// The factor on latents, after their norm.
    pub latent_scale: f32,
    /// The factor on scores.
    pub scale: f32,
    /// `eps` of the norms of latents.
    pub eps: f32,
    /// Whether the projections to latents have biases.
    pub latent_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Which of the decoder's rotary embeddings turns queries and keys.
    pub rope: usize,
    /// The positions that tokens attend to.
    pub reach: Reach,
}

impl MixerBlock for LatentAttention {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let row = self.row(context, x)?;
        let (query, latent) = self.query(context, x)?;
        let chosen = self.choose(context, x, latent)?;
        let numbers = self.head_numbers(context)?;
        let parts = Split { axis: 2, sizes: vec![self.plain_dims, self.rotated_dims] };
        let [plain, rotated] = context.graph.ops(parts, &[query])?[..] else { unreachable!("two parts") };
        let keys = [self.heads, self.rank, self.plain_dims];
        let keys = context.experts("attn_k_b.weight", keys)?;
        let plain = context.graph.op(ExpertLinear::default(), &[plain, numbers, keys])?;
        let rotated = self.rotate(context, rotated)?;
        let query = context.graph.op(Concat { axis: 2 }, &[plain, rotated])?; // [tokens, heads, row]
        let Cached { ref caches, ragged: [row_offsets, cache_lengths, page_table], .. } = context.shared;
        let location = context.shared.layer.cache.expect("attention keeps rows");
        let (cache, layer) = (caches[location.input], location.layer);
        let stored = [cache, row, row_offsets, cache_lengths, page_table];
        context.graph.ops(LatentStore { layer }, &stored)?;
        let (scale, values) = (self.scale, Some(self.rank));
        let (window, chunk, softcap) = (None, None, None);
        let attention = PagedAttention { layer, scale, window, chunk, softcap, values };
        let mut attended = vec![query, cache, row_offsets, cache_lengths, page_table];
        attended.extend(chosen);
        let attended = context.graph.op(attention, &attended)?; // [tokens, heads, rank]
        let values = [self.heads, self.value_dims, self.rank];
        let values = context.experts("attn_v_b.weight", values)?;
        let y = context.graph.op(ExpertLinear::default(), &[attended, numbers, values])?;
        let width = self.heads * self.value_dims;
        let y = context.reshape(&[width], y)?;
        let shape = [context.hidden, width];
        context.linear("attn_output", shape, self.output_bias, y)
    }

    fn summary(&self) -> String {
        let dims = self.plain_dims + self.rotated_dims;
        format!("{} query, {dims} dims each, latents of {} dims", self.heads, self.rank)
    }

    fn cached(&self) -> Option<CacheShape> {
        Some(CacheShape { kv_heads: 1, head_dim: self.rank + self.rotated_dims, has_values: false })
    }

    fn indexed(&self) -> Option<CacheShape> {
        match self.reach {
            Reach::Indexed(indexer) => {
                Some(CacheShape { kv_heads: 1, head_dim: indexer.dims, has_values: false })
            }
            Reach::All | Reach::Shared => None,
        }
    }
}

impl LatentAttention {
    /// The positions that the tokens attend to, if not all. Later layers may share them.
    fn choose(
        &self,
        context: &mut Context<'_>,
        x: Value,
        latent: Option<(Value, usize)>,
    ) -> Result<Option<Value>, Error> {
        match self.reach {
            Reach::All => return Ok(None),
            Reach::Shared => {}
            Reach::Indexed(indexer) => {
                let latent = latent.expect("configurations with indexers have latents of queries");
                let chosen = indexer.build(context, x, latent)?;
                context.shared.chosen = Some(chosen);
            }
        }
        Ok(context.shared.chosen)
    }

    /// The tokens' rows: f32[tokens, 1, rank + rotated_dims]
    fn row(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let shape = [self.rank + self.rotated_dims, context.hidden];
        let row = context.linear("attn_kv_a_mqa", shape, self.latent_bias, x)?;
        let parts = Split { axis: 1, sizes: vec![self.rank, self.rotated_dims] };
        let [latent, rotated] = context.graph.ops(parts, &[row])?[..] else { unreachable!("two parts") };
        let norm = Norm::Rms { eps: self.eps };
        let latent = norm.build(context, "attn_kv_a_norm", self.rank, latent)?;
        let latent = context.scale(latent, self.latent_scale)?;
        let latent = context.reshape(&[1, self.rank], latent)?;
        let rotated = context.reshape(&[1, self.rotated_dims], rotated)?;
        let rotated = self.rotate(context, rotated)?;
        Ok(context.graph.op(Concat { axis: 2 }, &[latent, rotated])?)
    }

    /// The tokens' queries before rotation, f32[tokens, heads, plain_dims + rotated_dims], and the latents that they are
    /// made of, with their width.
    fn query(&self, context: &mut Context<'_>, x: Value) -> Result<(Value, Option<(Value, usize)>), Error> {
        let dims = self.plain_dims + self.rotated_dims;
        let (query, latent) = match self.query_rank {
            None => {
                let shape = [self.heads * dims, context.hidden];
                (context.linear("attn_q", shape, false, x)?, None)
            }
            Some(rank) => {
                let shape = [rank, context.hidden];
                let latent = context.linear("attn_q_a", shape, self.latent_bias, x)?;
                let norm = Norm::Rms { eps: self.eps };
                let latent = norm.build(context, "attn_q_a_norm", rank, latent)?;
                let shape = [self.heads * dims, rank];
                let query = context.linear("attn_q_b", shape, false, latent)?;
                (query, Some((latent, rank)))
            }
        };
        let query = context.reshape(&[self.heads, dims], query)?;
        let query = match context.shared.temperature {
            None => query,
            Some(factor) => context.graph.mul(query, factor)?,
        };
        Ok((query, latent))
    }

    /// Each head's number, for each token: u32[tokens, heads]
    fn head_numbers(&self, context: &mut Context<'_>) -> Result<Value, Error> {
        let numbers: Vec<u32> = (0..self.heads as u32).collect();
        let numbers = Constant::new(Tensor::from_slice([1, self.heads], &numbers));
        let numbers = context.graph.op(numbers, &[])?;
        let shape = vec!["tokens".into(), self.heads.into()];
        Ok(context.graph.op(Broadcast { shape }, &[numbers])?)
    }

    fn rotate(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let (style, table) = context.shared.ropes[self.rope];
        Ok(context.graph.op(Rope { style }, &[x, table])?)
    }
}
