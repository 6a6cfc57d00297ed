//! What runs in one step: a run of tokens for each of several sequences, laid end to end.

use std::ops::Range;

use tensor::Buffer;

use crate::run::kv_cache::{Page, PageCopy, StateSlot};
use crate::run::kv_cache::{Sequence, SequenceId};

/// The part of one sequence that runs in a step. Made by the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// The sequence.
    pub id: SequenceId,
    /// Sequences whose tokens these are too: [`Sequence::siblings`].
    pub siblings: Vec<SequenceId>,
    /// Tokens that the cache holds already.
    pub cached: usize,
    /// How many tokens of the sequence are its prompt; 0 if that is not known.
    pub prompt: usize,
    /// The tokens that run.
    pub tokens: Vec<u32>,
    /// The pages of the sequence, enough for both.
    pub pages: Vec<Page>,
    /// Whether the last of these tokens is the sequence's last, so that its logits predict the next one.
    pub predicts: bool,
    /// How many of these tokens, counted from the last, have their logits computed: one if the slice predicts, more
    /// where the prompt itself is scored.
    pub outputs: usize,
    /// Rows that run after the tokens for nothing but a common length. Their results are not used: no token
    /// looks ahead, what they leave in the cache is written over before the sequence gets there, and they leave states
    /// as they are.
    pub padding: usize,
    /// The slot that the state of the sequence is read from if the model keeps one, unless `cached` is 0.
    pub state_from: StateSlot,
    /// The slot that the state after the tokens is written to. No other slice reads or writes it.
    pub state_to: StateSlot,
}

impl Slice {
    /// The next `count` tokens of a sequence.
    pub fn from_sequence(sequence: &Sequence, count: usize) -> Slice {
        let end = sequence.cached + count;
        let predicts = end == sequence.tokens.len();
        let scored = sequence.compute_all && sequence.cached < sequence.prompt;
        let (state_from, state_to) = sequence.state_slots();
        Slice {
            id: sequence.id,
            siblings: sequence.siblings.clone(),
            cached: sequence.cached,
            prompt: sequence.prompt,
            tokens: sequence.tokens[sequence.cached..end].to_vec(),
            pages: sequence.pages.clone(),
            predicts,
            outputs: if scored { count } else { usize::from(predicts) },
            padding: 0,
            state_from,
            state_to,
        }
    }

    /// The sequences whose tokens these are.
    pub fn ids(&self) -> impl Iterator<Item = SequenceId> {
        std::iter::once(self.id).chain(self.siblings.iter().copied())
    }
}

/// The slices of one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// In the order in which they lie in the model's inputs.
    pub slices: Vec<Slice>,
    /// What is copied in the cache before the slices run, in order.
    pub copies: Vec<PageCopy>,
}

/// The token of rows that run for nothing.
const PADDING: u32 = 0;

/// A batch as the decoder graph takes it.
pub struct BatchInputs {
    /// u32[tokens]
    pub tokens: Buffer,
    /// u32[batch + 1]: where each slice starts, and the end.
    pub row_offsets: Buffer,
    /// u32[batch]: tokens of each sequence that the cache holds.
    pub cache_lengths: Buffer,
    /// u32[batch, max_pages]: the pages of each sequence, padded to a power of two with page 0, which is not read.
    pub page_table: Buffer,
    /// u32[outputs]: the rows whose logits are wanted.
    pub output_rows: Buffer,
    /// u32[batch, 3]: for each slice the slot that its state is read from, the slot that it is written to, and how many
    /// of its rows count.
    pub state_table: Buffer,
}

impl Batch {
    /// Whether nothing runs.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Rows that run.
    pub fn num_tokens(&self) -> usize {
        self.slices.iter().map(|slice| slice.tokens.len() + slice.padding).sum()
    }

    /// The sequences whose next token this step predicts, in the order of their slices.
    pub fn predicting(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.slices.iter().filter(|slice| slice.predicts).flat_map(Slice::ids)
    }

    /// The slices, each with the rows of logits that are its own; where a slice predicts, the last of them.
    pub fn rows(&self) -> impl Iterator<Item = (&Slice, Range<usize>)> {
        self.slices.iter().scan(0, |end, slice| {
            let start = *end;
            *end += slice.outputs;
            Some((slice, start..*end))
        })
    }

    /// The model's inputs.
    pub fn inputs(&self) -> BatchInputs {
        let mut tokens = Vec::with_capacity(self.num_tokens());
        let mut row_offsets = vec![0u32];
        let mut output_rows = Vec::new();
        // Few widths: the engine plans memory once for each.
        let max_pages =
            self.slices.iter().map(|slice| slice.pages.len()).max().unwrap_or(0).next_power_of_two();
        let mut page_table = vec![0; self.slices.len() * max_pages];
        for (slice, row) in self.slices.iter().zip(page_table.chunks_mut(max_pages)) {
            tokens.extend_from_slice(&slice.tokens);
            let end = tokens.len() as u32;
            tokens.extend(std::iter::repeat_n(PADDING, slice.padding));
            row_offsets.push(tokens.len() as u32);
            row[..slice.pages.len()].copy_from_slice(&slice.pages);
            output_rows.extend(end - slice.outputs as u32..end);
        }
        let cache_lengths: Vec<u32> = self.slices.iter().map(|slice| slice.cached as u32).collect();
        let state = |slice: &Slice| [slice.state_from, slice.state_to, slice.tokens.len() as u32];
        let state_table: Vec<u32> = self.slices.iter().flat_map(state).collect();
        BatchInputs {
            tokens: Buffer::from_slice([tokens.len()], &tokens),
            row_offsets: Buffer::from_slice([row_offsets.len()], &row_offsets),
            cache_lengths: Buffer::from_slice([cache_lengths.len()], &cache_lengths),
            page_table: Buffer::from_slice([self.slices.len(), max_pages], &page_table),
            output_rows: Buffer::from_slice([output_rows.len()], &output_rows),
            state_table: Buffer::from_slice([self.slices.len(), 3], &state_table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_end_to_end() {
        let slice = |id, cached, tokens: &[u32], pages: &[u32], outputs| Slice {
            id: SequenceId(id),
            siblings: Vec::new(),
            cached,
            prompt: 0,
            tokens: tokens.to_vec(),
            pages: pages.to_vec(),
            predicts: outputs > 0,
            outputs,
            padding: 0,
            state_from: id as u32,
            state_to: 10 * id as u32,
        };
        let slices = vec![slice(7, 16, &[5], &[3, 1], 1), slice(8, 0, &[1, 2, 3], &[0], 0)];
        let mut batch = Batch { slices, ..Batch::default() };
        let inputs = batch.inputs();
        assert_eq!(inputs.tokens.to_vec::<u32>(), [5, 1, 2, 3]);
        assert_eq!(inputs.row_offsets.to_vec::<u32>(), [0, 1, 4]);
        assert_eq!(inputs.cache_lengths.to_vec::<u32>(), [16, 0]);
        assert_eq!(inputs.page_table.to_vec::<u32>(), [3, 1, 0, 0]);
        assert_eq!(inputs.output_rows.to_vec::<u32>(), [0]);
        assert_eq!(batch.predicting().collect::<Vec<_>>(), [SequenceId(7)]);
        // Padding runs, and its logits are never asked for.
        batch.slices[0].padding = 2;
        let inputs = batch.inputs();
        assert_eq!(inputs.tokens.to_vec::<u32>(), [5, PADDING, PADDING, 1, 2, 3]);
        assert_eq!(inputs.row_offsets.to_vec::<u32>(), [0, 3, 6]);
        assert_eq!(inputs.output_rows.to_vec::<u32>(), [0]);
        assert_eq!(inputs.state_table.to_vec::<u32>(), [7, 70, 1, 8, 80, 3], "padding does not count");
        batch.slices.push(slice(9, 0, &[4, 6, 8], &[2], 2));
        assert_eq!(batch.inputs().output_rows.to_vec::<u32>(), [0, 7, 8]);
        assert_eq!(batch.rows().map(|(_, rows)| rows).collect::<Vec<_>>(), [0..1, 1..1, 1..3]);
    }

    #[test]
    fn a_scored_prompt_has_logits_throughout() {
        let mut sequence = Sequence { compute_all: true, ..Sequence::new(SequenceId(0), vec![1; 5], 9) };
        let outputs = |sequence: &Sequence, count| Slice::from_sequence(sequence, count).outputs;
        assert_eq!((outputs(&sequence, 3), outputs(&sequence, 5)), (3, 5));
        sequence.tokens.push(2);
        sequence.cached = 5;
        assert_eq!(outputs(&sequence, 1), 1);
        let plain = Sequence { compute_all: false, cached: 0, ..sequence };
        assert_eq!((outputs(&plain, 3), outputs(&plain, 6)), (0, 1));
    }
}
