// The result of a lane along an axis, of those of its segments.

fn value(i: u32) -> Element {
    let first = i / p.inner * p.inner * p.segments + i % p.inner;
    var joined = partials(first);
    for (var segment = 1u; segment < p.segments; segment++) {
        joined = join(joined, partials(first + segment * p.inner));
    }
    return finished(joined);
}
