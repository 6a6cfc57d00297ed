// Folds the results of ranges from the first to the last, rescaled to their common maximum: a thread a dim of a row.
//
// `sink(head)` is the score that a row starts with, if `HAS_SINKS`.

// In place of minus infinity.
const LOWEST = -3.4028234e38;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let item = group_of(id) * 128u + thread;
    let index = item / (4u * p.width);
    if index >= p.tiles {
        return;
    }
    let number = p.first_tile + index;
    let tile = tile_of(number / p.kv_heads);
    let row = tile.first_row + item % 4u;
    if item % 4u >= tile.rows {
        return;
    }
    let position = tile.first_position + row / p.group;
    let first = first_seen(vec4<u32>(position)).x;
    let head = number % p.kv_heads * p.group + row % p.group;
    var largest = LOWEST;
    var sum = 0.0;
    var value = 0.0;
    if HAS_SINKS {
        largest = max(sink(head), LOWEST);
        sum = 1.0;
    }
    for (var i = max(first / 256u, tile.first_range) - tile.first_range; i < min(tile.ranges, p.ranges); i += 1u) {
        if (tile.first_range + i) * 256u > position {
            break;
        }
        let partial = (index * p.ranges + i) * (8u + 4u * p.width);
        let both = max(largest, partials(partial + item % 4u));
        let old = exp_(largest - both);
        let added = exp_(partials(partial + item % 4u) - both);
        largest = both;
        sum = sum * old + partials(partial + 4u + item % 4u) * added;
        value = fused(partials(partial + 8u + item % (4u * p.width)), added, value * old);
    }
    let token = min(tile.first_token + row / p.group, p.tokens - 1u);
    set_y((token * p.kv_heads * p.group + head) * p.width + item % (4u * p.width) / 4u, value / sum);
}
