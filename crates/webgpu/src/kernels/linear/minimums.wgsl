// What weights with minimums add: the minimum of a group times the sum of the inputs.

var<workgroup> minimums: array<f32, 2 * MOST * 16>;
var<workgroup> corrections: array<f32, 2 * SLOTS>;

fn put_factors(factors: vec2<f32>, at: u32) {
    scales[at] = factors.x;
    minimums[at] = factors.y;
}

fn put_corrections(at: u32, slot: u32, tokens: u32, scale: f32) {
    if (GROUPS == 1u) {
        corrections[slot] = scale * f32(sum_of(at, 0u) + sum_of(at, 1u));
    } else {
        corrections[slot] = scale * f32(sum_of(at, 0u));
        corrections[slot + tokens] = scale * f32(sum_of(at, 1u));
    }
}

fn add_minimum(sum: f32, at: u32, slot: u32) -> f32 {
    return fused(minimums[at], corrections[slot], sum);
}
