// The scores of a position whose keys lie interleaved, `[DIMS, 16]`: products are added in the order of dims.
fn score(start: u32, lane: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    for (var dim = 0u; dim < DIMS; dim += 1u) {
        sum = fma(queries[dim], vec4<f32>(cache(start + dim * 16u + lane)), sum);
    }
    return sum;
}
