// The largest value of each lane along an axis, and what `softmax.wgsl` divides it by: a thread for each, which sums in order.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let column = group_of(id) * 256u + thread;
    if (column >= p.columns) {
        return;
    }
    let first = column / p.inner * p.n * p.inner + column % p.inner;
    var key = 0u;
    for (var i = 0u; i < p.n; i++) {
        key = max(key, key_f32(x(first + i * p.inner)));
    }
    let largest = largest_number(key);
    var sum = 0.0;
    for (var i = 0u; i < p.n; i++) {
        sum += exp_(x(first + i * p.inner) - largest);
    }
    set_statistics(column, vec2<u32>(bitcast<u32>(largest), share(key, sum)));
}
