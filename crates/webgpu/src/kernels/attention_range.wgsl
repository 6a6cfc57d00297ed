// Attention of a tile of query rows to a range of 256 positions: a thread a position for the scores, their maximum, the
// weights and their sum; then a thread a dim for the weighted values.
//
// The results of a range, four rows each, are maxima, sums of weights, and values of each dim.
//
// `score(start, lane)` multiplies queries by a key, and `bias(heads, position)` is added to scores.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = group_of(id);
    if group >= p.groups {
        return;
    }
    let number = p.first_tile + group / p.ranges;
    let kv_head = number % p.kv_heads;
    if thread == 0u {
        shared_tile = tile_of(number / p.kv_heads);
    }
    let tile = workgroupUniformLoad(&shared_tile);
    if group % p.ranges >= tile.ranges {
        return;
    }
    let start = (tile.first_range + group % p.ranges) * 256u;
    let heads = kv_head * p.group + rows_of(tile) % p.group;
    let tokens = min(tile.first_token + rows_of(tile) / p.group, vec4<u32>(p.tokens - 1u));
    let rows = (tokens * p.kv_heads * p.group + heads) * p.dims;
    for (var dim = thread; dim < p.dims; dim += 256u) {
        let query = vec4<f32>(q(rows.x + dim), q(rows.y + dim), q(rows.z + dim), q(rows.w + dim));
        queries[dim] = query * bitcast<f32>(p.scale);
    }
    if thread < 16u {
        starts[thread] = tile_start(tile.sequence, kv_head, start + 16u * thread);
    }
    workgroupBarrier();

    let last = tile.first_position + rows_of(tile) / p.group;
    let first = first_seen(last);
    let position = start + thread;
    let is_seen = (vec4<u32>(position) >= first) & (vec4<u32>(position) <= last);
    var scores = vec4<f32>(LOWEST);
    if any(is_seen) {
        let all = bounded(score(starts[thread / 16u], thread % 16u)) + bias(heads, position);
        scores = select(scores, max(all, scores), is_seen);
    }
    let largest = largest_of(thread, scores);
    let weight = exponentials(scores - largest);
    let sum = sum_of(thread, select(vec4<f32>(), weight, is_seen));

    let partial = group * (8u + 4u * p.width);
    if thread == 0u {
        put_rows(partial, largest);
        put_rows(partial + 4u, sum);
    }
    let begin = max(first.x, start) - start;
    let end = min(last.w + 1u - start, 256u);
    let last_here = min(last, vec4<u32>(start + end - 1u));
    for (var dim = thread; dim < p.width; dim += 256u) {
        var sum = vec4<f32>();
        // Eight loads at a time, which wait for memory together.
        for (var next = begin; next < end; next += 8u) {
            var values = array<f32, 8>();
            for (var j = 0u; j < 8u; j += 1u) {
                let i = min(next + j, end - 1u);
                values[j] = cache(starts[i / 16u] + p.values_start + i % 16u * p.dims + dim);
            }
            for (var j = 0u; j < 8u; j += 1u) {
                let i = min(next + j, 255u);
                // A weight of 0 would not do: the value may be infinite.
                let sees = (vec4<u32>(start + next + j) >= first) & (vec4<u32>(start + next + j) <= last_here);
                sum = select(sum, fused_4(weights[i], vec4<f32>(values[j]), sum), sees);
            }
        }
        put_rows(partial + 8u + 4u * dim, sum);
    }
}

fn bounded(scores: vec4<f32>) -> vec4<f32> {
    if p.softcap == 0u {
        return scores;
    }
    let cap = bitcast<f32>(p.softcap);
    let x = scores / cap;
    return cap * vec4<f32>(tanh_(x.x), tanh_(x.y), tanh_(x.z), tanh_(x.w));
}

fn put_rows(at: u32, rows: vec4<f32>) {
    set_partials(at, rows.x);
    set_partials(at + 1u, rows.y);
    set_partials(at + 2u, rows.z);
    set_partials(at + 3u, rows.w);
}
