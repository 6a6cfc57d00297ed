// Where the best elements along an axis are: a workgroup for each lane, which finds the best of those that are worse than the
// last one found.

var<workgroup> bests: array<vec2<u32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = group_of(id);
    if (group >= p.groups) {
        return;
    }
    let first = group / p.inner * p.n * p.inner + group % p.inner;
    let result = group / p.inner * p.k * p.inner + group % p.inner;
    var last = vec2<u32>(0u, 0u);
    for (var rank = 0u; rank < p.k; rank++) {
        var best = vec2<u32>(0u, 0xffffffffu);
        for (var i = thread; i < p.n; i += 256u) {
            let candidate = vec2<u32>(key(x(first + i * p.inner)), i);
            if (is_better(candidate, best) && (rank == 0u || is_better(last, candidate))) {
                best = candidate;
            }
        }
        bests[thread] = best;
        for (var half = 128u; half > 0u; half >>= 1u) {
            workgroupBarrier();
            if (thread < half && is_better(bests[thread + half], bests[thread])) {
                bests[thread] = bests[thread + half];
            }
        }
        workgroupBarrier();
        last = bests[0];
        workgroupBarrier();
        if (thread == 0u) {
            set_indices(result + rank * p.inner, vec2<u32>(last.y, 0u));
        }
    }
}
