// The order of elements as whole numbers: the larger, the better. The best is the largest element, or else the SMALLEST; NaN
// is NAN_KEY.

fn key_f32(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    let even = select(bits, 0u, ONE_ZERO && bits == 0x80000000u);
    let order = even ^ select(0x80000000u, 0xffffffffu, even >= 0x80000000u);
    return select(select(order, ~order, SMALLEST), NAN_KEY, is_nan);
}

fn key_i32(value: i32) -> u32 {
    return key_u32(bitcast<u32>(value) ^ 0x80000000u);
}

fn key_u32(value: u32) -> u32 {
    return select(value, ~value, SMALLEST);
}

fn value_f32(key: u32) -> f32 {
    let order = select(key, ~key, SMALLEST);
    let bits = order ^ select(0xffffffffu, 0x80000000u, order >= 0x80000000u);
    return bitcast<f32>(select(bits, 0x7fc00000u, key == NAN_KEY));
}

fn value_i32(key: u32) -> i32 {
    return bitcast<i32>(value_u32(key) ^ 0x80000000u);
}

fn value_u32(key: u32) -> u32 {
    return select(key, ~key, SMALLEST);
}

// Whether an element is better than another: of equal ones the first. Both are a key and a position.
fn is_better(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}
