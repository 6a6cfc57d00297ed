// Turns pairs of elements of heads by angles: a thread a pair, or an element after the pairs.
//
// `pair_of(i)` are the places of the two elements of pair `i` in a head.

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let item = group_of(id) * 128u + thread;
    let items = p.head_dim - p.pairs;
    if item >= p.heads * items {
        return;
    }
    let head = item / items * p.head_dim;
    let i = item % items;
    if i >= p.pairs {
        let at = head + p.pairs + i;
        set_y(at, x(at));
        return;
    }
    let pair = pair_of(i);
    let angle = item / items / p.heads_of_token * 2u * p.pairs + i;
    let cos = table(angle);
    let sin = table(angle + p.pairs);
    let a = x(head + pair.x);
    let b = x(head + pair.y);
    set_y(head + pair.x, a * cos - b * sin);
    set_y(head + pair.y, b * cos + a * sin);
}
