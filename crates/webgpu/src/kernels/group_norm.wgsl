// A group of channels normalized by a workgroup to mean 0 and variance 1.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let number = group_of(id);
    if (number >= p.groups) {
        return;
    }
    let first = number * p.count;
    let mean = mean_of(first, p.count, lane);
    let factor = 1.0 / sqrt(variance_of(first, p.count, lane, mean) + bitcast<f32>(p.eps));
    let first_channel = number % p.in_example * (p.count / p.plane);
    for (var i = lane; i < p.count; i += LANES) {
        let channel = first_channel + i / p.plane;
        set_y(first + i, fused(x(first + i) - mean, factor * weight(channel), bias(channel)));
    }
}
