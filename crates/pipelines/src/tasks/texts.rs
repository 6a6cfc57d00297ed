//! Whole texts through a decoder, whose cache lasts for one batch.

use crate::Error;
use crate::plan::Plan;
use crate::run::batch::{Batch, Slice};
use crate::run::kv_cache::{Page, SequenceId, StateSlot};
use crate::run::runner::{Logits, Runner};
use crate::tasks::compiled::LoadedGraph;

/// The tokens of a text whose results are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRows {
    /// All of them.
    All,
    /// The last one.
    Last,
}

/// The results of a batch of texts, which have tokens, all of them known: f32[rows of all texts, width].
///
/// # Errors
/// If the cache does not fit into memory.
pub(crate) fn decode(
    plan: &Plan,
    graph: &LoadedGraph,
    texts: &[&[u32]],
    rows: TextRows,
    width: usize,
) -> Result<Logits, Error> {
    let page_size = plan.config().kv_cache_page_size;
    let mut pages = 0;
    let slice = |(index, tokens): (usize, &&[u32])| {
        let first = pages;
        pages += tokens.len().div_ceil(page_size) as Page;
        Slice {
            id: SequenceId(index as u64),
            tokens: tokens.to_vec(),
            pages: (first..pages).collect(),
            predicts: true,
            outputs: if rows == TextRows::All { tokens.len() } else { 1 },
            state_to: index as StateSlot,
            ..Slice::default()
        }
    };
    let slices = texts.iter().enumerate().map(slice).collect();
    let tokens = pages as usize * page_size;
    let cache = (tokens as u64).saturating_mul(plan.cache_bytes_per_token());
    let states = (texts.len() as u64).saturating_mul(plan.state_bytes_per_slot());
    plan.check_host_memory(0, cache.saturating_add(states), tokens)?;
    let mut runner = Runner::with_slots(graph.model.clone(), pages as usize, texts.len(), width)?;
    runner.run(&Batch { slices, ..Batch::default() })
}
