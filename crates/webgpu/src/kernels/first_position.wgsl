// The position of the first new token of a sequence.
fn first_position(sequence: u32) -> u32 {
    let capacity = p.max_pages << p.page_shift;
    return min(cache_lengths(sequence), capacity - min(capacity, new_tokens(sequence)));
}
