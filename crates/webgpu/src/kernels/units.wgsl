// Which rows of a ragged batch threads look after.
//
// Units are `UNIT` neighboring rows of one sequence, of which each token has `p.group`. They are counted so that grids follow
// from shapes alone: those of a sequence start at the number of units that all rows before it fill, plus one for each
// sequence before it. So some numbers belong to no rows.

fn row_offset(sequence: u32) -> u32 {
    return min(row_offsets(sequence), p.tokens);
}

fn first_unit(sequence: u32) -> u32 {
    return row_offset(sequence) * p.group / UNIT + sequence;
}

// The sequence that a unit belongs to.
fn sequence_of(unit: u32) -> u32 {
    var low = 0u;
    var end = p.batch;
    while end - low > 1u {
        let middle = (low + end) / 2u;
        if first_unit(middle) <= unit {
            low = middle;
        } else {
            end = middle;
        }
    }
    return low;
}

// The new tokens of a sequence.
fn new_tokens(sequence: u32) -> u32 {
    return max(row_offset(sequence + 1u), row_offset(sequence)) - row_offset(sequence);
}
