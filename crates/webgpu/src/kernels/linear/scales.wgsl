// Weights without minimums.

fn put_factors(factors: vec2<f32>, at: u32) {
    scales[at] = factors.x;
}

fn put_corrections(at: u32, slot: u32, tokens: u32, scale: f32) {}

fn add_minimum(sum: f32, at: u32, slot: u32) -> f32 {
    return sum;
}
