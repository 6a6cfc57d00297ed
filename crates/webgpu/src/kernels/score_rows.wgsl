// The scores of a position whose rows lie one after the other, `[16, p.dims]`: sixteen sums over every sixteenth dim, which are
// added in halves.
fn score(start: u32, lane: u32) -> vec4<f32> {
    let row = start + lane * p.dims;
    var all = vec4<f32>();
    for (var first = 0u; first < 2u; first += 1u) {
        var eight = vec4<f32>();
        for (var second = first; second < 4u; second += 2u) {
            var four = vec4<f32>();
            for (var third = second; third < 8u; third += 4u) {
                four += every_sixteenth(row, third) + every_sixteenth(row, third + 8u);
            }
            eight += four;
        }
        all += eight;
    }
    return all;
}

fn every_sixteenth(row: u32, first: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    for (var dim = first; dim < p.dims; dim += 16u) {
        sum = fused_4(queries[dim], vec4<f32>(cache(row + dim)), sum);
    }
    return sum;
}
