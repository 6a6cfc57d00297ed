// Running sums along an axis: a thread for each segment of a lane. First the total of each, then its sums from the totals of
// those before it on.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let place = group_of(id) * 256u + thread;
    if (place >= p.count) {
        return;
    }
    let column = place % p.inner;
    let segment = place / p.inner % p.segments;
    let outer = place / (p.inner * p.segments);
    var before = vec2<u32>(0u, 0u);
    if (!IS_TOTAL) {
        for (var i = 0u; i < segment; i++) {
            before = join(before, totals((outer * p.segments + i) * p.inner + column));
        }
    }
    var own = vec2<u32>(0u, 0u);
    let end = min(p.n, (segment + 1u) * SEGMENT);
    for (var i = segment * SEGMENT; i < end; i++) {
        let element = (outer * p.n + select(i, p.n - 1u - i, IS_REVERSE)) * p.inner + column;
        let after = join(own, vec2<u32>(bitcast<u32>(x(element)), 0u));
        if (!IS_TOTAL) {
            set_y(element, sum_of(join(before, select(after, own, vec2<bool>(IS_EXCLUSIVE)))));
        }
        own = after;
    }
    if (IS_TOTAL) {
        set_totals(place, own);
    }
}
