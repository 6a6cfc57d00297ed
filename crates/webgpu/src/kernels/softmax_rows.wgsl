// The largest value of each lane along an axis, and what `softmax.wgsl` divides it by or takes from it: a workgroup for each.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let group = group_of(id);
    if (group >= p.groups) {
        return;
    }
    let first = group / p.inner * p.n * p.inner + group % p.inner;
    var key = 0u;
    for (var i = lane; i < p.n; i += LANES) {
        key = max(key, key_f32(x(first + i * p.inner)));
    }
    key = largest_of_lanes(lane, key);
    let largest = largest_number(key);
    var sum = 0.0;
    for (var i = lane; i < p.n; i += LANES) {
        sum += exp_(x(first + i * p.inner) - largest);
    }
    sum = sum_of_lanes(lane, sum);
    if (lane == 0u) {
        set_statistics(group, vec2<u32>(bitcast<u32>(largest), share(key, sum)));
    }
}
