// Conversions between numbers, as `cast` defines them.

// Towards 0 and within the range; NaN is 0.
fn i32_of(x: f32) -> i32 {
    let inside = select(0.0, x, abs(x) < 2147483648.0);
    let end = select(-2147483647 - 1, 2147483647, x > 0.0);
    return select(i32(inside), end, abs(x) >= 2147483648.0);
}

// Towards 0 and within the range; NaN is 0.
fn u32_of(x: f32) -> u32 {
    let inside = select(0.0, x, x > 0.0 && x < 4294967296.0);
    return select(u32(inside), 0xffffffffu, x >= 4294967296.0);
}

// What rounds to the same bf16: the bits that an f32 need not hold collapse into whether any of them is set.
fn odd_f32_of_u32(x: u32) -> f32 {
    let kept = (x & 0xffffff00u) | select(0u, 0x100u, (x & 0xffu) != 0u);
    return f32(select(x, kept, x >= 0x1000000u));
}

fn odd_f32_of_i32(x: i32) -> f32 {
    let size = odd_f32_of_u32(bitcast<u32>(abs(x)));
    return select(size, -size, x < 0);
}

// Whether it is neither 0 nor -0.
fn is_true(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}
