// Tiles of up to 4 query rows of a sequence that use one head of the cache, and the positions that they see.
//
// The rows are counted token by token, within a token query head by query head.

struct QueryTile {
    sequence: u32,
    // Of the tokens that are new, and of the sequence.
    first_token: u32,
    first_position: u32,
    // In the sequence.
    first_row: u32,
    rows: u32,
    // The ranges of 256 positions that any of the rows sees.
    first_range: u32,
    ranges: u32,
}

// The rows of a tile; those past its end are its last row again.
fn rows_of(tile: QueryTile) -> vec4<u32> {
    return tile.first_row + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(max(tile.rows, 1u) - 1u));
}

// The first positions that queries at some positions see; their own are the last.
fn first_seen(positions: vec4<u32>) -> vec4<u32> {
    let of_window = positions + 1u - min(positions + 1u, vec4<u32>(p.window));
    return max(of_window, positions / p.chunk * p.chunk);
}

// The tile of a unit, which may have no rows and no ranges.
fn tile_of(unit: u32) -> QueryTile {
    let sequence = sequence_of(unit);
    let rows = new_tokens(sequence) * p.group;
    let first_row = (unit - first_unit(sequence)) * UNIT;
    var tile = QueryTile(sequence, row_offset(sequence), first_position(sequence), first_row, 0u, 0u, 0u);
    if first_row < rows {
        tile.rows = min(UNIT, rows - first_row);
        let positions = tile.first_position + rows_of(tile) / p.group;
        tile.first_range = first_seen(positions).x / 256u;
        tile.ranges = positions.w / 256u + 1u - tile.first_range;
    }
    return tile;
}
