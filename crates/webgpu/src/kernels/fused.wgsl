
// `a * b + c`, rounded once. In f64 the product is exact. Their sum is rounded to odd: a sum that is not exact becomes the
// neighbor whose last bit is set, so that rounding it to f32 gives what rounding the exact sum gives (Boldo and Melquiond).
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let product = f64(a) * f64(b);
    let addend = f64(c);
    let sum = settled_64(product + addend);
    // The exact sum less the rounded one (Knuth); NaN if the sum is not finite.
    let added = settled_64(sum - product);
    let error = (product - (sum - added)) + (addend - added);
    let bits = bitcast<i64>(sum);
    let outward = 1li | ((bitcast<i64>(error) ^ bits) >> 63u);
    let is_even = (bits & 1li) == 0li;
    return f32(bitcast<f64>(bits + select(0li, outward, is_even && abs(error) > 0.0lf)));
}

fn fused_4(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>) -> vec4<f32> {
    return vec4(fused(a.x, b.x, c.x), fused(a.y, b.y, c.y), fused(a.z, b.z, c.z), fused(a.w, b.w, c.w));
}

// As `settled`.
fn settled_64(v: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(v) ^ u64(p.groups & 0x80000000u));
}
