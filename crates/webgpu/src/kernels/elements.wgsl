// The threads of kernels that compute each element of a result by itself: `store` writes those from `first` on that a thread
// owns, as many as a word holds.

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let group = group_of(id);
    let first = (group * THREADS + lane) * PER_WORD;
    if (group < p.groups && first < p.count) {
        store(first);
    }
}
