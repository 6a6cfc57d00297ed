// Attention of up to 4 query rows of an item to all its keys, in ranges of 256 from the first to the last: a thread a key for
// the scores, their maximum, the weights and their sum; then a thread a dim for the weighted values.
//
// `tile_of(number)` says which rows, `bias(tile, head, rows, key)` is added to scores. After each range, the results so far
// are rescaled to the maximum so far.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = group_of(id);
    if group >= p.groups {
        return;
    }
    let head = group % p.heads;
    if thread == 0u {
        shared_tile = tile_of(group / p.heads);
    }
    let tile = workgroupUniformLoad(&shared_tile);
    if tile.rows == 0u {
        return;
    }
    // Those past the end are the last row again.
    let rows = tile.first_row + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(tile.rows - 1u));
    let tokens = (tile.first_token + rows) * p.heads + head;
    for (var dim = thread; dim < p.dims; dim += 256u) {
        let at = tokens * p.dims + dim;
        queries[dim] = vec4<f32>(q(at.x), q(at.y), q(at.z), q(at.w)) * bitcast<f32>(p.scale);
    }
    var largest = vec4<f32>(LOWEST);
    var sum = vec4<f32>();
    var values = array<vec4<f32>, PIECES>();
    for (var start = 0u; start < tile.keys; start += 256u) {
        // Before it the queries are written, and the weights of the last range read.
        workgroupBarrier();
        let key = start + thread;
        var scores = vec4<f32>(LOWEST);
        if key < tile.keys {
            scores = max(score((tile.first_key + key) * p.heads + head) + bias(tile, head, rows, key), scores);
        }
        let both = max(largest, largest_of(thread, scores));
        let old = exponentials(largest - both);
        let weight = select(vec4<f32>(), exponentials(scores - both), key < tile.keys);
        sum = sum * old + sum_of(thread, weight);
        largest = both;
        let count = min(256u, tile.keys - start);
        for (var piece = 0u; piece < PIECES; piece += 1u) {
            let dim = min(piece * 256u + thread, p.width - 1u);
            var value = values[piece] * old;
            // Eight loads at a time, which wait for memory together.
            for (var next = 0u; next < count; next += 8u) {
                var loaded = array<f32, 8>();
                for (var j = 0u; j < 8u; j += 1u) {
                    let key = tile.first_key + start + min(next + j, count - 1u);
                    loaded[j] = v((key * p.heads + head) * p.width + dim);
                }
                for (var j = 0u; j < 8u; j += 1u) {
                    let sum = fused_4(weights[min(next + j, 255u)], vec4<f32>(loaded[j]), value);
                    value = select(value, sum, next + j < count);
                }
            }
            values[piece] = value;
        }
    }
    // Without keys the result is 0.
    sum = select(sum, vec4<f32>(1.0), tile.keys == 0u);
    for (var piece = 0u; piece < PIECES; piece += 1u) {
        let dim = piece * 256u + thread;
        if dim < p.width {
            let shares = values[piece] / sum;
            for (var row = 0u; row < tile.rows; row += 1u) {
                set_y(tokens[row] * p.width + dim, shares[row]);
            }
        }
    }
}

fn score(row: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    var dim = 0u;
    for (; dim + 8u <= p.dims; dim += 8u) {
        var keys = array<f32, 8>();
        for (var i = 0u; i < 8u; i += 1u) {
            keys[i] = k(row * p.dims + dim + i);
        }
        for (var i = 0u; i < 8u; i += 1u) {
            sum = fused_4(queries[dim + i], vec4<f32>(keys[i]), sum);
        }
    }
    for (; dim < p.dims; dim += 1u) {
        sum = fused_4(queries[dim], vec4<f32>(k(row * p.dims + dim)), sum);
    }
    return sum;
}
