//! The position of each token of a ragged batch.

use engine::{Kernel, KernelCall};

use super::operands::{elements, elements_mut, view};

/// Counts on from the tokens that each sequence has cached.
pub(crate) struct RaggedPositionsKernel;

impl Kernel for RaggedPositionsKernel {
    fn name(&self) -> String {
        "ragged_positions".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (offsets, lengths) =
            (elements::<u32>(view(&call, 1).bytes), elements::<u32>(view(&call, 2).bytes));
        let positions = elements_mut::<u32>(call.outputs[0].bytes);
        check_offsets(1, &offsets, positions.len())?;
        for (sequence, (rows, &cached)) in offsets.windows(2).zip(lengths.iter()).enumerate() {
            let rows = &mut positions[rows[0] as usize..rows[1] as usize];
            if cached.checked_add(rows.len().saturating_sub(1) as u32).is_none() {
                let tokens = rows.len();
                return Err(format!(
                    "operand 2 at [{sequence}] is {cached}, and {tokens} more tokens have positions beyond 2^32"
                ));
            }
            for (i, position) in (0..).zip(rows) {
                *position = cached + i;
            }
        }
        Ok(())
    }
}

/// Refuses offsets, operand `position` of an op, that do not rise from 0 to the number of tokens.
pub(crate) fn check_offsets(position: usize, offsets: &[u32], tokens: usize) -> Result<(), String> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(format!("operand {position} is empty, but must go from 0 to the {tokens} tokens"));
    };
    if first != 0 || last as usize != tokens {
        return Err(format!(
            "operand {position} goes from {first} to {last}, but must go from 0 to the {tokens} tokens"
        ));
    }
    match offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        None => Ok(()),
        Some(i) => {
            let (from, to) = (offsets[i], offsets[i + 1]);
            Err(format!("operand {position} falls from {from} to {to} at [{}]", i + 1))
        }
    }
}
