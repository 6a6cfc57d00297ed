//! Ragged batches: the tokens of several sequences, one sequence after another, without padding.
//!
//! Three operands describe one: `row_offsets: u32[batch + 1]` (the tokens of sequence `b` are rows
//! `row_offsets[b]..row_offsets[b + 1]`), `cache_lengths: u32[batch]` (how many tokens of each sequence were
//! cached before this call), and for those that read or write the cache `page_table: u32[batch, max_pages]`
//! (the page of the `p`-th `page_size` tokens of each sequence).

use std::ops::Range;

use super::prelude::*;

/// `y_t = cache_lengths[b] + t - row_offsets[b]` for each token `t` of sequence `b`: its position in the
/// sequence.
///
/// Operands: `ids: u32[tokens]` or i32 (for its size alone), `row_offsets`, `cache_lengths`. Result:
/// `u32[tokens]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RaggedPositions;

impl Define for RaggedPositions {
    declare!("ragged_positions");

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [ids, row_offsets, cache_lengths] = operands(inputs, ["ids", "row_offsets", "cache_lengths"])?;
        expect_dtype("ids", ids, &[DType::U32, DType::I32])?;
        expect_rank("ids", ids, 1)?;
        expect_lengths(row_offsets, cache_lengths)?;
        Ok(vec![ids.with_dtype(DType::U32)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let tokens = tokens("ragged_positions", outputs[0][0], inputs[1], inputs[2])?;
        let positions: Option<Vec<u32>> = tokens.iter().map(|token| token.position.try_into().ok()).collect();
        let too_far = || Error::evaluation("ragged_positions", "a position is beyond 2^32");
        Ok(vec![Tensor::from_slice(outputs[0], &positions.ok_or_else(too_far)?)])
    }
}

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    /// Its sequence.
    pub(super) sequence: usize,
    /// Its position in the sequence.
    pub(super) position: usize,
}

/// Checks the operands that every ragged op has.
pub(super) fn expect_lengths(row_offsets: &Type, cache_lengths: &Type) -> Result<(), TypeError> {
    expect_dtype("cache_lengths", cache_lengths, &[DType::U32])?;
    expect_rank("cache_lengths", cache_lengths, 1)?;
    let offsets = &cache_lengths.shape[0] + &Dim::from(1);
    expect_type("row_offsets", row_offsets, DType::U32, &[&offsets])
}

/// Checks the page table of as many sequences as there are cache lengths.
pub(super) fn expect_page_table(page_table: &Type, cache_lengths: &Type) -> Result<(), TypeError> {
    expect_rank("page_table", page_table, 2)?;
    let shape = [&cache_lengths.shape[0], &page_table.shape[1]];
    expect_type("page_table", page_table, DType::U32, &shape)
}

/// The sequence and position of each row.
pub(super) fn tokens(
    op: &'static str,
    count: usize,
    row_offsets: &Tensor,
    cache_lengths: &Tensor,
) -> Result<Vec<Token>, Error> {
    let (offsets, lengths) = (row_offsets.to_vec::<u32>(), cache_lengths.to_vec::<u32>());
    let rows = rows(op, count, &offsets)?.into_iter().zip(&lengths).enumerate();
    let rows = rows.flat_map(|(sequence, (rows, &cached))| {
        (0..rows.len()).map(move |i| Token { sequence, position: cached as usize + i })
    });
    Ok(rows.collect())
}

/// The rows of each sequence.
pub(super) fn rows(op: &'static str, count: usize, offsets: &[u32]) -> Result<Vec<Range<usize>>, Error> {
    let ends = (offsets.first(), offsets.last().map(|&last| last as usize));
    if !offsets.is_sorted() || ends != (Some(&0), Some(count)) {
        let message = format!("row_offsets must rise from 0 to the {count} rows, got {}", excerpt(offsets));
        return Err(Error::evaluation(op, message));
    }
    Ok(offsets.windows(2).map(|rows| rows[0] as usize..rows[1] as usize).collect())
}

fn excerpt(values: &[u32]) -> String {
    if values.len() > 8 {
        format!("{:?} and {} more", &values[..8], values.len() - 8)
    } else {
        format!("{values:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types_and_values() {
        let op = RaggedPositions;
        check_types(
            op,
            &[
                (&["i32[tokens]", "u32[batch + 1]", "u32[batch]"], "u32[tokens]"),
                (
                    &["i32[tokens]", "u32[batch]", "u32[batch]"],
                    "ragged_positions: row_offsets is u32[batch], expected u32[batch + 1]",
                ),
                (
                    &["i32[tokens]", "u32[3]", "i32[2]"],
                    "ragged_positions: cache_lengths is i32[2], expected u32",
                ),
                (&["i32[a, b]", "u32[3]", "u32[2]"], "ragged_positions: ids is i32[a, b], expected 1 axis"),
            ],
        );
        let of = |tokens: usize, offsets: &[u32], lengths: &[u32]| {
            let ids = Tensor::zeros(DType::I32, [tokens]);
            let [offsets, lengths] = [offsets, lengths].map(|x| Tensor::from_slice([x.len()], x));
            run(op, &[&ids, &offsets, &lengths]).map(|results| results[0].to_vec::<u32>())
        };
        assert_eq!(of(6, &[0, 2, 2, 6], &[5, 9, 0]).unwrap(), [5, 6, 0, 1, 2, 3]);
        assert_eq!(of(0, &[0], &[]).unwrap(), [0u32; 0]);
        for (tokens, offsets) in [(2, [0, 1]), (2, [1, 2]), (2, [3, 2])] {
            let message = format!(
                "ragged_positions: row_offsets must rise from 0 to the {tokens} rows, got {offsets:?}"
            );
            assert_eq!(of(tokens, &offsets, &[0]).unwrap_err().to_string(), message);
        }
        assert!(of(2, &[0, 2], &[u32::MAX]).unwrap_err().to_string().contains("beyond 2^32"));
    }
}
