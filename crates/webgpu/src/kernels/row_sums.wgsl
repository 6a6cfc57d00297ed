// Sums of `count` elements of `x` by the lanes of a workgroup. A lane reads several at once, as each takes long, and adds them
// one by one.

// Four elements of a lane less a mean; 0 behind the end.
fn centered(first: u32, i: u32, count: u32, mean: f32) -> vec4<f32> {
    let at = vec4<u32>(i, i + LANES, i + 2u * LANES, i + 3u * LANES);
    let values = vec4<f32>(x(first + at.x), x(first + at.y), x(first + at.z), x(first + at.w));
    return select(vec4<f32>(0.0), values - mean, at < vec4<u32>(count));
}

// The mean.
fn mean_of(first: u32, count: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < count; i += 8u * LANES) {
        let a = centered(first, i, count, 0.0);
        let b = centered(first, i + 4u * LANES, count, 0.0);
        sum = (((sum + a.x) + a.y) + a.z) + a.w;
        sum = (((sum + b.x) + b.y) + b.z) + b.w;
    }
    return sum_of_lanes(lane, sum) / f32(count);
}

// The mean square of what is left without a mean.
fn variance_of(first: u32, count: u32, lane: u32, mean: f32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < count; i += 8u * LANES) {
        let a = centered(first, i, count, mean);
        let b = centered(first, i + 4u * LANES, count, mean);
        sum = fused(a.w, a.w, fused(a.z, a.z, fused(a.y, a.y, fused(a.x, a.x, sum))));
        sum = fused(b.w, b.w, fused(b.z, b.z, fused(b.y, b.y, fused(b.x, b.x, sum))));
    }
    return sum_of_lanes(lane, sum) / f32(count);
}
