//! `y = softmax(scale · q · Kᵀ) · V`, causal, for a ragged batch whose keys and values lie in pages of a cache.

use tensor::{DType, Shape, Tensor};

use super::attributes::required;
use super::check::{expect_dtype, expect_finite, expect_rank, operands};
use super::elements::from_f64;
use super::kv_store::{Pages, expect_cache};
use super::ragged::{Token, expect_lengths, expect_page_table, tokens};
use super::{Attribute, Attributes, Define, Effect};
use crate::{Error, Type, TypeError};

/// Attention of each token to its sequence up to itself. Operands: `q` f32[tokens, heads, head_dim], `cache` (read;
/// laid out as in `kv_store.rs`, with the batch's own keys and values stored already), `row_offsets`,
/// `cache_lengths` and `page_table` of the batch. Result: the type of `q`.
///
/// The number of heads is a multiple of the cache's; head `h` of the queries uses head `h / (heads / kv_heads)`
/// of the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PagedAttention {
    /// The layer of the cache.
    pub layer: usize,
    /// What the products of queries and keys are multiplied by.
    pub scale: f32,
    /// How many positions a token sees, itself included; none is all.
    pub window: Option<usize>,
    /// Scores `s` become `softcap · tanh(s / softcap)` after scaling.
    pub softcap: Option<f32>,
}

impl Define for PagedAttention {
    const NAMES: &[&str] = &["paged_attention"];

    fn name(&self) -> &'static str {
        "paged_attention"
    }

    fn attributes(&self) -> Attributes {
        Attributes::default()
            .with("layer", Attribute::index(self.layer))
            .with("scale", Attribute::Float(self.scale))
            .with_some("window", self.window.map(Attribute::index))
            .with_some("softcap", self.softcap.map(Attribute::Float))
    }

    fn parse(_name: &str, attributes: &mut Attributes) -> Result<PagedAttention, TypeError> {
        let layer = required("layer", attributes.int("layer")?)?;
        let scale = required("scale", attributes.float("scale")?)?;
        let (window, softcap) = (attributes.int("window")?, attributes.float("softcap")?);
        Ok(PagedAttention { layer, scale, window, softcap })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let names = ["q", "cache", "row_offsets", "cache_lengths", "page_table"];
        let [q, cache, row_offsets, cache_lengths, page_table] = operands(inputs, names)?;
        expect_dtype("q", q, &[DType::F32])?;
        expect_rank("q", q, 3)?;
        expect_cache(cache, self.layer, &q.shape[2])?;
        let heads = (q.shape[1].as_static(), cache.shape[3].as_static());
        if !matches!(heads, (Some(heads), Some(kv_heads)) if kv_heads > 0 && heads.is_multiple_of(kv_heads)) {
            return Err(TypeError::new(format!("heads of q {q} are no multiple of those of cache {cache}")));
        }
        expect_lengths(row_offsets, cache_lengths)?;
        expect_page_table(page_table, cache_lengths)?;
        self.expect_attributes()?;
        Ok(vec![q.clone()])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 1 { Effect::Read } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (q, cache) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let [count, heads, head_dim] = [0, 1, 2].map(|axis| outputs[0][axis]);
        let group = heads / inputs[1].shape()[3];
        let tokens = tokens("paged_attention", count, inputs[2], inputs[3])?;
        let pages = Pages::new("paged_attention", inputs[1].shape(), self.layer, head_dim, inputs[4]);
        let mut result = Vec::with_capacity(q.len());
        for (row, token) in tokens.into_iter().enumerate() {
            for head in 0..heads {
                let q = &q[(row * heads + head) * head_dim..][..head_dim];
                result.extend(self.attend(q, &cache, &pages, token, head / group)?);
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &result)])
    }
}

impl PagedAttention {
    fn expect_attributes(&self) -> Result<(), TypeError> {
        expect_finite("scale", self.scale)?;
        if self.window == Some(0) {
            return Err(TypeError::new("window is 0, expected at least 1"));
        }
        match self.softcap {
            Some(cap) if !cap.is_finite() || cap <= 0.0 => {
                Err(TypeError::new(format!("softcap is {cap}, expected a finite number above 0")))
            }
            _ => Ok(()),
        }
    }

    /// One head of one token.
    fn attend(
        &self,
        q: &[f64],
        cache: &[f64],
        pages: &Pages,
        token: Token,
        kv_head: usize,
    ) -> Result<Vec<f64>, Error> {
        let first = self.window.map_or(0, |window| (token.position + 1).saturating_sub(window));
        let seen = || (first..=token.position).map(|position| Token { position, ..token });
        let mut scores = Vec::new();
        for other in seen() {
            let mut score = 0.0;
            for (d, q) in q.iter().enumerate() {
                score += q * cache[pages.key(other, kv_head, d)?];
            }
            score *= f64::from(self.scale);
            scores.push(self.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()));
        }
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let mut result = vec![0.0; q.len()];
        for (other, power) in seen().zip(powers) {
            for (d, result) in result.iter_mut().enumerate() {
                *result += power / sum * cache[pages.value(other, kv_head, d)?];
            }
        }
        Ok(result)
    }
}
