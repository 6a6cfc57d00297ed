// The tile of a number: items have as many tokens each, and as many keys.
fn tile_of(number: u32) -> Tile {
    let tiles = (p.tokens + UNIT - 1u) / UNIT;
    let item = number / tiles;
    let first = number % tiles * UNIT;
    return Tile(item, item * p.tokens, first, min(UNIT, p.tokens - first), item * p.keys, p.keys);
}

// The elements of the mask for a key, which is broadcast.
fn bias(tile: Tile, head: u32, rows: vec4<u32>, key: u32) -> vec4<f32> {
    let at = tile.item * p.item_stride + head * p.head_stride + rows * p.row_stride + key * p.key_stride;
    return biases_of(at);
}
