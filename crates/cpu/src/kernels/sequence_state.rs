//! Where ops that go through the tokens of each sequence read and write its state.

use std::ops::Range;

use engine::{KernelCall, Operand, View};
use tensor::Shape;

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use super::ragged::check_offsets;

/// What a call does for one sequence.
#[derive(Clone, Debug)]
pub(super) struct SequenceRun {
    /// Its rows.
    pub(super) rows: Range<usize>,
    /// How many of them count; those after them are padding.
    pub(super) counted: usize,
    /// Where in the states its own begins before the call; `None` is a state of zeros.
    start: Option<usize>,
    /// Where in the states its own begins after the call.
    end: usize,
}

/// The states of a layer, and what a call does for each sequence: checked, so that no two sequences write one element and
/// none reads what another one writes.
pub(super) struct SequenceStates<'m> {
    states: Disjoint<'m, f32>,
    /// The sequences.
    pub(super) runs: Vec<SequenceRun>,
}

impl<'m> SequenceStates<'m> {
    /// The states in operand `position`, a buffer `[slots, layers, ..]`, and the three operands after it: row offsets,
    /// cache lengths and state table.
    ///
    /// # Errors
    /// If the lists do not fit `tokens` rows or the states.
    pub(super) fn new(
        call: &mut KernelCall<'_, 'm>,
        position: usize,
        layer: usize,
        tokens: usize,
    ) -> Result<SequenceStates<'m>, String> {
        let lists = [1, 2, 3].map(|i| view(call, position + i));
        let placeholder = Operand::InResult;
        let Operand::Buffer(states) = std::mem::replace(&mut call.inputs[position], placeholder) else {
            panic!("operand {position} is no buffer")
        };
        let runs = Place { position, layer, states: states.shape }.runs(lists, tokens)?;
        Ok(SequenceStates { states: Disjoint::new(elements_mut(states.bytes)), runs })
    }

    /// Refuses operands of a call as [`SequenceStates::new`] does.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check(
        inputs: &[View<'_>],
        position: usize,
        layer: usize,
        tokens: usize,
    ) -> Result<(), String> {
        let lists = [1, 2, 3].map(|i| inputs[position + i]);
        Place { position, layer, states: inputs[position].shape }.runs(lists, tokens).map(drop)
    }

    /// A part of a sequence's state before the call; `None` is zeros.
    ///
    /// # Safety
    /// While it is alive, this part of the sequence's state is not written.
    pub(super) unsafe fn before(&self, run: &SequenceRun, part: Range<usize>) -> Option<&[f32]> {
        let start = run.start?;
        let (range, len) = (start + part.start..start + part.end, part.len());
        // SAFETY: `pointer` checks the range. Only this sequence may write here, which the caller rules out.
        Some(unsafe { std::slice::from_raw_parts(self.states.pointer(range), len) })
    }

    /// A part of a sequence's state after the call.
    ///
    /// # Safety
    /// While it is alive, nothing else refers to this part of the sequence's state.
    pub(super) unsafe fn after(&self, run: &SequenceRun, part: Range<usize>) -> &'m mut [f32] {
        // SAFETY: no other sequence uses the slot, and the caller keeps the parts of this one disjoint.
        unsafe { self.states.part(run.end + part.start..run.end + part.end) }
    }
}

/// Where states lie.
struct Place<'a> {
    position: usize,
    layer: usize,
    states: &'a Shape,
}

impl Place<'_> {
    /// What a call does for each sequence, by row offsets, cache lengths and state table.
    fn runs(&self, lists: [View<'_>; 3], tokens: usize) -> Result<Vec<SequenceRun>, String> {
        let [offsets, lengths, table] = lists.map(|list| elements::<u32>(list.bytes));
        check_offsets(self.position + 1, &offsets, tokens)?;
        let rows = offsets.windows(2).map(|rows| rows[0] as usize..rows[1] as usize);
        let sequences = rows.zip(lengths.iter()).zip(table.chunks_exact(3)).enumerate();
        let runs = sequences.map(|(sequence, ((rows, &cached), entry))| {
            let [read, written, counted] = [0, 1, 2].map(|column| entry[column] as usize);
            if counted > rows.len() {
                let rows = rows.len();
                return Err(format!("{counted} rows of sequence {sequence} count, but it has {rows}"));
            }
            let start = (cached > 0).then(|| self.of(sequence, read)).transpose()?;
            Ok(SequenceRun { rows, counted, start, end: self.of(sequence, written)? })
        });
        let runs = runs.collect::<Result<Vec<_>, String>>()?;
        self.expect_apart(&runs)?;
        Ok(runs)
    }

    /// Elements of a state.
    fn size(&self) -> usize {
        self.states.dims()[2..].iter().product()
    }

    /// Where the state in a slot begins.
    fn of(&self, sequence: usize, slot: usize) -> Result<usize, String> {
        let (slots, layers) = (self.states[0], self.states[1]);
        if slot >= slots {
            return Err(format!("slot {slot} of sequence {sequence} is out of range for {slots} slots"));
        }
        if self.layer >= layers {
            let Place { position, layer, .. } = self;
            return Err(format!("operand {position} has {layers} layers, but layer {layer} is used"));
        }
        Ok((slot * layers + self.layer) * self.size())
    }

    /// Refuses a slot that one sequence writes and another one uses.
    fn expect_apart(&self, runs: &[SequenceRun]) -> Result<(), String> {
        if self.size() == 0 {
            return Ok(());
        }
        let mut writers: Vec<(usize, usize)> = (0..).zip(runs).map(|(i, run)| (run.end, i)).collect();
        writers.sort_unstable();
        let written_twice = writers.windows(2).find(|pair| pair[0].0 == pair[1].0);
        let twice = written_twice.map(|pair| (pair[0].0, pair[0].1, pair[1].1));
        let read = runs.iter().enumerate().find_map(|(reader, run)| {
            let start = run.start?;
            let writer = writers[writers.binary_search_by_key(&start, |&(end, _)| end).ok()?].1;
            (writer != reader).then_some((start, writer, reader))
        });
        let Some((start, writer, user)) = twice.or(read) else { return Ok(()) };
        let slot = start / self.size() / self.states[1];
        Err(format!("sequence {writer} writes slot {slot}, which sequence {user} uses"))
    }
}
