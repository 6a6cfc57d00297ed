// The tile of a number, which may have no rows: an item is a sequence, whose keys are those of its tokens.
fn tile_of(number: u32) -> Tile {
    let sequence = sequence_of(number);
    let tokens = new_tokens(sequence);
    let first = min((number - first_unit(sequence)) * UNIT, tokens);
    let start = row_offset(sequence);
    return Tile(sequence, start, first, min(UNIT, tokens - first), start, tokens);
}

// The biases of a key, by how far it is behind the queries.
fn bias(tile: Tile, head: u32, rows: vec4<u32>, key: u32) -> vec4<f32> {
    let distance = max(vec4<u32>(p.distances / 2u + key), rows) - rows;
    return biases_of(head * p.distances + min(distance, vec4<u32>(max(p.distances, 1u) - 1u)));
}
