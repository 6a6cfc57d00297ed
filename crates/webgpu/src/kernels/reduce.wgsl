// Partial results of lanes along an axis: a thread for each segment of a lane, which takes every `p.segments`th element.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let partial = group_of(id) * 256u + thread;
    if (partial >= p.count) {
        return;
    }
    let segment = partial / p.inner % p.segments;
    let first = partial / (p.inner * p.segments) * p.n * p.inner + partial % p.inner;
    var joined = START;
    for (var i = segment; i < p.n; i += p.segments) {
        joined = join(joined, state_of(first + i * p.inner, i));
    }
    set_partials(partial, joined);
}
