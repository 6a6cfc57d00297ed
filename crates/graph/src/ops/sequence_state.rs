//! States of sequences: what ops that go through the tokens of each sequence keep from one call to the next.
//!
//! The states are a buffer `[slots, layers, ..]` of f32, and besides `row_offsets` and `cache_lengths` of the ragged
//! batch there is a `state_table: u32[batch, 3]`: for each sequence the slot that its state is read from, the slot that
//! it is written to, and how many of its rows count. A sequence whose cache length is 0 starts from zeros instead. Rows
//! after those that count are padding: they do not change the state, and their results are zeros.
//!
//! A slot may be both read and written by one sequence, and read by several; but no other sequence may use a slot that
//! a sequence writes.

use std::ops::Range;

use super::prelude::*;
use super::ragged::{expect_lengths, rows};

/// Checks the states `[slots, layers, ..shape]`.
pub(super) fn expect_states(states: &Type, layer: usize, shape: &[Dim]) -> Result<(), TypeError> {
    expect_dtype("state", states, &[DType::F32])?;
    expect_rank("state", states, 2 + shape.len())?;
    refuse_if!(
        states.shape[2..] != *shape,
        "state is {states}, expected f32[{}, {}, {}]",
        states.shape[0],
        states.shape[1],
        shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")
    );
    refuse_if!(
        states.shape[1].as_static().is_some_and(|layers| layer >= layers),
        "layer {layer} is out of range for state {states}"
    );
    Ok(())
}

/// Checks `row_offsets`, `cache_lengths` and `state_table`.
pub(super) fn expect_sequences([offsets, lengths, table]: [&Type; 3]) -> Result<(), TypeError> {
    expect_lengths(offsets, lengths)?;
    expect_type("state_table", table, DType::U32, &[&lengths.shape[0], &Dim::from(3)])
}

/// What an op does for one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SequenceRun {
    /// Its rows that count.
    pub(super) rows: Range<usize>,
    /// Where in the states its own begins before the call; `None` is a state of zeros.
    pub(super) start: Option<usize>,
    /// Where in the states its own begins after the call.
    pub(super) end: usize,
}

/// What an op does for each sequence; `lists` are `row_offsets`, `cache_lengths` and `state_table`.
pub(super) fn sequence_runs(
    op: &'static str,
    count: usize,
    states: &Shape,
    layer: usize,
    lists: [&Tensor; 3],
) -> Result<Vec<SequenceRun>, Error> {
    let [offsets, lengths, table] = lists.map(|list| list.to_vec::<u32>());
    let fail = |message: String| Err(Error::evaluation(op, message));
    let (slots, layers) = (states[0], states[1]);
    if layer >= layers {
        return fail(format!("layer {layer} is out of range for {layers} layers"));
    }
    let size: usize = states.dims()[2..].iter().product();
    let mut runs = Vec::with_capacity(lengths.len());
    for (sequence, rows) in rows(op, count, &offsets)?.into_iter().enumerate() {
        let [read, written, counted] = [0, 1, 2].map(|column| table[3 * sequence + column] as usize);
        if counted > rows.len() {
            return fail(format!("{counted} rows of sequence {sequence} count, but it has {}", rows.len()));
        }
        let starts = (lengths[sequence] > 0).then_some(read);
        if let Some(slot) = starts.into_iter().chain([written]).find(|&slot| slot >= slots) {
            return fail(format!("slot {slot} of sequence {sequence} is out of range for {slots} slots"));
        }
        let place = |slot: usize| (slot * layers + layer) * size;
        let rows = rows.start..rows.start + counted;
        runs.push(SequenceRun { rows, start: starts.map(place), end: place(written) });
    }
    // States without elements are all at one place.
    for (sequence, run) in runs.iter().enumerate().filter(|_| size > 0) {
        let uses = |other: &SequenceRun| other.end == run.end || other.start == Some(run.end);
        if let Some(other) = (0..runs.len()).find(|&other| other != sequence && uses(&runs[other])) {
            let slot = table[3 * sequence + 1];
            return fail(format!("sequence {sequence} writes slot {slot}, which sequence {other} uses"));
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(table: &[u32], offsets: &[u32], lengths: &[u32]) -> Result<Vec<SequenceRun>, String> {
        let list = |values: &[u32]| Tensor::from_slice([values.len()], values);
        let table = Tensor::from_slice([table.len() / 3, 3], table);
        let states = Shape::from([4, 2, 3, 5]);
        sequence_runs("op", 6, &states, 1, [&list(offsets), &list(lengths), &table])
            .map_err(|error| error.to_string())
    }

    #[test]
    fn runs_start_from_zeros_or_from_slots() {
        let run = |rows, start, end| SequenceRun { rows, start, end };
        assert_eq!(
            runs(&[9, 0, 2, 3, 1, 3, 3, 3, 0], &[0, 2, 6, 6], &[0, 7, 0]).unwrap_err(),
            "op: sequence 2 writes slot 3, which sequence 1 uses"
        );
        assert_eq!(
            runs(&[9, 0, 2, 3, 1, 3, 2, 2, 0], &[0, 2, 6, 6], &[0, 7, 1]).unwrap(),
            [run(0..2, None, 15), run(2..5, Some(105), 45), run(6..6, Some(75), 75)]
        );
        // Two sequences go on from one state.
        assert!(runs(&[3, 0, 2, 3, 1, 4], &[0, 2, 6], &[5, 5]).is_ok());
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let refused = |table: &[u32]| runs(table, &[0, 2, 6], &[1, 0]).unwrap_err();
        assert_eq!(refused(&[0, 1, 3, 0, 2, 4]), "op: 3 rows of sequence 0 count, but it has 2");
        assert_eq!(refused(&[4, 1, 2, 0, 2, 4]), "op: slot 4 of sequence 0 is out of range for 4 slots");
        assert_eq!(refused(&[0, 1, 2, 0, 9, 4]), "op: slot 9 of sequence 1 is out of range for 4 slots");
        assert_eq!(refused(&[0, 1, 2, 0, 1, 4]), "op: sequence 0 writes slot 1, which sequence 1 uses");
    }
}
