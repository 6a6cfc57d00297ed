// Each element of its value and the statistics of its lane.

fn value(i: u32) -> f32 {
    let lane = i / (p.n * p.inner) * p.inner + i % p.inner;
    let largest = bitcast<f32>(statistics(lane).x);
    let share = bitcast<f32>(statistics(lane).y);
    return result(x(i) - largest, share);
}
