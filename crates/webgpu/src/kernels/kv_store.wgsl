// Writes new rows to their pages: a thread for two elements of the cache that lie side by side, and so share a word if they
// are halves. The two are of positions `2j` and `2j + 1` of a sequence, one of which may be in the cache already.
//
// `row_element(part, i)` is element `i` of the new keys or values, and `store(element, first, second, is_first_new, is_second_new)`
// writes those of two elements that are new.

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let item = group_of(id) * 128u + thread;
    let dim = item % p.dims;
    let part = item / p.dims % PARTS;
    let kv_head = item / (p.dims * PARTS) % p.kv_heads;
    let unit = item / (p.dims * PARTS) / p.kv_heads;
    if unit >= p.units {
        return;
    }
    let sequence = sequence_of(unit);
    let first = first_position(sequence);
    let end = first + new_tokens(sequence);
    let position = (first / 2u + unit - first_unit(sequence)) * 2u;
    if position >= end {
        return;
    }
    let tile = tile_start(sequence, kv_head, position);
    // The position and the dim of either element: keys of a dim lie side by side, values of a position.
    var positions = vec2<u32>(position, position + 1u);
    var dims = vec2<u32>(dim, dim);
    var element = tile + dim * 16u + position % 16u;
    if part == PARTS - 1u {
        let places = 2u * dim + vec2<u32>(0u, 1u);
        positions = position + places / p.dims;
        dims = places % p.dims;
        element = tile + p.values_start + position % 16u * p.dims + 2u * dim;
    }
    let is_new = (positions >= vec2<u32>(first)) & (positions < vec2<u32>(end));
    let rows = row_offset(sequence) + max(positions, vec2<u32>(first)) - first;
    let elements = (min(rows, vec2<u32>(p.tokens - 1u)) * p.kv_heads + kv_head) * p.dims + dims;
    store(element, row_element(part, elements.x), row_element(part, elements.y), is_new.x, is_new.y);
}
