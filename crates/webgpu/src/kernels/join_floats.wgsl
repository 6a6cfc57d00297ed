// Sums of floats with what rounding took from them, so that the order hardly matters: the CPU sums in f64. A state is the
// bits of both.

// Two sums, and the error of theirs (Knuth).
fn join(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let left = bitcast<vec2<f32>>(a);
    let right = bitcast<vec2<f32>>(b);
    let sum = settled(left.x + right.x);
    let added = settled(sum - left.x);
    let error = (left.x - settled(sum - added)) + (right.x - added);
    return bitcast<vec2<u32>>(vec2<f32>(sum, left.y + right.y + error));
}

fn state(value: f32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(value), 0u);
}

fn is_finite(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
}

// The sum. Infinity and NaN have no error.
fn sum_of(state: vec2<u32>) -> f32 {
    let sum = bitcast<vec2<f32>>(state);
    return select(sum.x, sum.x + sum.y, is_finite(sum.x));
}

// The sum divided by a count: the quotient, and that of what is left. NaN of nothing.
fn mean_of(state: vec2<u32>, count: u32) -> f32 {
    let sum = bitcast<vec2<f32>>(state);
    let divisor = f32(max(count, 1u));
    let quotient = sum.x / divisor;
    let left = fused(-quotient, divisor, sum.x) + sum.y;
    let mean = select(quotient, quotient + left / divisor, is_finite(quotient));
    return bitcast<f32>(select(bitcast<u32>(mean), 0x7fc00000u, count == 0u));
}
