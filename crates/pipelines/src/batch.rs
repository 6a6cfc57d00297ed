//! What runs in one step: a run of tokens for each of several sequences, laid end to end.

use tensor::Buffer;

use crate::kv_cache::{Page, PageCopy};
use crate::sequence::{Sequence, SequenceId};

/// The part of one sequence that runs in a step. Made by the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// The sequence.
    pub id: SequenceId,
    /// Tokens that the cache holds already.
    pub cached: usize,
    /// The tokens that run.
    pub tokens: Vec<u32>,
    /// The pages of the sequence, enough for both.
    pub pages: Vec<Page>,
    /// Whether the last of these tokens is the sequence's last, so that its logits predict the next one.
    pub predicts: bool,
    /// Rows that run after the tokens for nothing but a common length. Nobody sees what they compute: no token
    /// looks ahead, and what they leave in the cache is written over before the sequence gets there.
    pub padding: usize,
}

impl Slice {
    /// The next `count` tokens of a sequence.
    pub fn of(sequence: &Sequence, count: usize) -> Slice {
        let end = sequence.cached + count;
        Slice {
            id: sequence.id,
            cached: sequence.cached,
            tokens: sequence.tokens[sequence.cached..end].to_vec(),
            pages: sequence.pages.clone(),
            predicts: end == sequence.tokens.len(),
            padding: 0,
        }
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
    /// u32[batch, max_pages]: the pages of each sequence, padded to a power of two with page 0, which nobody reads.
    pub page_table: Buffer,
    /// u32[outputs]: the rows whose logits are wanted.
    pub output_rows: Buffer,
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

    /// The sequences whose next token this step predicts, in the order of the rows of logits.
    pub fn predicting(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.slices.iter().filter(|slice| slice.predicts).map(|slice| slice.id)
    }

    /// The model's inputs. With `all_rows`, logits of every token are wanted (for echo and scoring).
    pub fn inputs(&self, all_rows: bool) -> BatchInputs {
        let mut tokens = Vec::with_capacity(self.num_tokens());
        let mut row_offsets = vec![0u32];
        let mut output_rows = Vec::new();
        // Few widths: the engine plans memory once for each.
        let max_pages =
            self.slices.iter().map(|slice| slice.pages.len()).max().unwrap_or(0).next_power_of_two();
        let mut page_table = vec![0; self.slices.len() * max_pages];
        for (slice, row) in self.slices.iter().zip(page_table.chunks_mut(max_pages)) {
            let start = tokens.len() as u32;
            tokens.extend_from_slice(&slice.tokens);
            let end = tokens.len() as u32;
            tokens.extend(std::iter::repeat_n(PADDING, slice.padding));
            row_offsets.push(tokens.len() as u32);
            row[..slice.pages.len()].copy_from_slice(&slice.pages);
            if all_rows {
                output_rows.extend(start..end);
            } else if slice.predicts {
                output_rows.push(end - 1);
            }
        }
        let cache_lengths: Vec<u32> = self.slices.iter().map(|slice| slice.cached as u32).collect();
        BatchInputs {
            tokens: Buffer::from_slice([tokens.len()], &tokens),
            row_offsets: Buffer::from_slice([row_offsets.len()], &row_offsets),
            cache_lengths: Buffer::from_slice([cache_lengths.len()], &cache_lengths),
            page_table: Buffer::from_slice([self.slices.len(), max_pages], &page_table),
            output_rows: Buffer::from_slice([output_rows.len()], &output_rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_end_to_end() {
        let slice = |id, cached, tokens: &[u32], pages: &[u32], predicts| Slice {
            id: SequenceId(id),
            cached,
            tokens: tokens.to_vec(),
            pages: pages.to_vec(),
            predicts,
            padding: 0,
        };
        let slices = vec![slice(7, 16, &[5], &[3, 1], true), slice(8, 0, &[1, 2, 3], &[0], false)];
        let mut batch = Batch { slices, ..Batch::default() };
        let inputs = batch.inputs(false);
        assert_eq!(inputs.tokens.to_vec::<u32>(), [5, 1, 2, 3]);
        assert_eq!(inputs.row_offsets.to_vec::<u32>(), [0, 1, 4]);
        assert_eq!(inputs.cache_lengths.to_vec::<u32>(), [16, 0]);
        assert_eq!(inputs.page_table.to_vec::<u32>(), [3, 1, 0, 0]);
        assert_eq!(inputs.output_rows.to_vec::<u32>(), [0]);
        assert_eq!(batch.inputs(true).output_rows.to_vec::<u32>(), [0, 1, 2, 3]);
        assert_eq!(batch.predicting().collect::<Vec<_>>(), [SequenceId(7)]);
        // Padding runs, and its logits are never asked for.
        batch.slices[0].padding = 2;
        let inputs = batch.inputs(false);
        assert_eq!(inputs.tokens.to_vec::<u32>(), [5, PADDING, PADDING, 1, 2, 3]);
        assert_eq!(inputs.row_offsets.to_vec::<u32>(), [0, 3, 6]);
        assert_eq!(inputs.output_rows.to_vec::<u32>(), [0]);
        assert_eq!(batch.inputs(true).output_rows.to_vec::<u32>(), [0, 3, 4, 5]);
    }
}
