//! What an author states of an op.

use std::ops::RangeInclusive;

use crate::{Call, Operand, Parameter, Types};

/// A custom op.
pub trait Op {
    /// What graphs call it: letters, digits, underscores, points. A built-in op of that name is shadowed.
    const NAME: &'static str;

    /// What it takes, in order.
    const OPERANDS: &'static [Operand];

    /// Whether the last operand, a tensor, may come any number of times, also none.
    const VARIADIC: bool = false;

    /// How many results a node may have.
    const RESULTS: RangeInclusive<u32> = 1..=1;

    /// What it is told besides its operands.
    const PARAMETERS: &'static [Parameter] = &[];

    /// The type rule: sets the types of the results from those of the operands. The graph states types too, and both
    /// must agree; what this leaves alone is as stated.
    ///
    /// # Errors
    /// If the operands do not fit, with the two facts that disagree.
    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        let _ = types;
        Ok(())
    }

    /// Computes the results.
    ///
    /// # Errors
    /// If the data makes no sense, in words that name operand, position and limit.
    fn run(call: &mut Call<'_>) -> Result<(), String>;
}
