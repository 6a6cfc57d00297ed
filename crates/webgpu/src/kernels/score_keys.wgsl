// The scores of a position whose keys lie interleaved, `[dims, 16]`: products are added in the order of dims.
fn score(start: u32, lane: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    var dim = 0u;
    // Eight loads at a time, which wait for memory together.
    for (; dim + 8u <= p.dims; dim += 8u) {
        var keys = array<f32, 8>();
        for (var i = 0u; i < 8u; i += 1u) {
            keys[i] = cache(start + (dim + i) * 16u + lane);
        }
        for (var i = 0u; i < 8u; i += 1u) {
            sum = fused_4(queries[dim + i], vec4<f32>(keys[i]), sum);
        }
    }
    for (; dim < p.dims; dim += 1u) {
        sum = fused_4(queries[dim], vec4<f32>(cache(start + dim * 16u + lane)), sum);
    }
    return sum;
}
