// The functions of an f32 that have polynomials: those of the CPU (`vec/{math,gelu}.rs`), in its order of operations.
//
// Infinity is an argument or a result, never a number in between: drivers may take it that there is none.

// `ln 2` as a sum: products of the first part and any exponent are exact.
const LN_2_HIGH = 0.6933594;
const LN_2_LOW = -2.1219444e-4;
const LOG2_E = 1.442695040888963;
// The last f32 whose exponential is finite.
const EXP_END = 88.72283;
// What the tails of `gelu` are multiplied by.
const TAIL_SCALE = 18446744073709551616.0;

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// The smaller one, `x` if it is NaN.
fn at_most(end: f32, x: f32) -> f32 {
    return select(x, end, end < x);
}

// The larger one, `x` if it is NaN.
fn at_least(end: f32, x: f32) -> f32 {
    return select(x, end, end > x);
}

fn copy_sign(magnitude: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}

// `2^n` for a normal result.
fn power_of_two(n: i32) -> f32 {
    return bitcast<f32>(bitcast<u32>(n + 127) << 23u);
}

// `e^x`: 0 below -103.98, infinity above 88.73.
fn exp_(x: f32) -> f32 {
    let inside = at_least(-104.0, at_most(EXP_END, x));
    let n = round(inside * LOG2_E);
    let r = fused(n, -LN_2_LOW, settled(fused(n, -LN_2_HIGH, inside)));
    // (e^r - 1 - r) / r^2 on ±ln 2 / 2.
    var q = fused(1.3946042e-3, r, 8.366374e-3);
    q = fused(q, r, 4.166629e-2);
    q = fused(q, r, 0.16666545);
    q = fused(q, r, 0.5);
    let tail = fused(r * r, q, r);
    let first = i32(n) >> 1u;
    let finite = (1.0 + tail) * power_of_two(first) * power_of_two(i32(n) - first);
    return bitcast<f32>(select(bitcast<u32>(finite), 0x7f800000u, x > EXP_END));
}

// `1 / (1 + e^-x)`.
fn sigmoid(x: f32) -> f32 {
    let shrunk = exp_(-abs(x));
    return select(1.0, shrunk, x < 0.0) / (1.0 + shrunk);
}

// `x / (1 + e^-x)`.
fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}

// `x / (1 + e^(-1.702 x))`.
fn gelu_quick(x: f32) -> f32 {
    return x * sigmoid(1.702 * at_least(-200.0, at_most(200.0, x)));
}

// An odd polynomial near 0, beyond it `1 - 2 / (e^2x + 1)`.
fn tanh_(x: f32) -> f32 {
    let size = at_most(44.0, abs(x));
    let large = 1.0 - 2.0 / (exp_(size + size) + 1.0);
    // (tanh x - x) / x^3 in x^2, on 0..0.64^2.
    let square = size * size;
    var p = fused(-5.649087e-3, square, 2.0599267e-2);
    p = fused(p, square, -5.373168e-2);
    p = fused(p, square, 0.13331417);
    p = fused(p, square, -0.33333285);
    let small = fused(size * square, p, size);
    return copy_sign(select(large, small, size < 0.625), x);
}

// `2^64·e^(-(x + rest)/2)` for `x` in 0..=214 and a rest of its last place.
fn shrunk_exp(x: f32, rest: f32) -> f32 {
    let n = round(x * (-0.5 * LOG2_E));
    let r = fused(n, 2.0 * LN_2_LOW, settled(fused(n, 2.0 * LN_2_HIGH, x)) + rest);
    // e^(-r/2) on ±ln 2, 2^64 times.
    var sum = fused(TAIL_SCALE * 2.1972393e-5, r, TAIL_SCALE * -2.618531e-4);
    sum = fused(sum, r, TAIL_SCALE * 2.604047e-3);
    sum = fused(sum, r, TAIL_SCALE * -0.020832952);
    sum = fused(sum, r, TAIL_SCALE * 0.12500001);
    sum = fused(sum, r, TAIL_SCALE * -0.5);
    sum = fused(sum, r, TAIL_SCALE);
    return bitcast<f32>(bitcast<u32>(sum) + (bitcast<u32>(i32(n)) << 23u));
}

// `2^64·Φ(-x)` of the normal distribution, for `x` in 0..=14.5.
fn normal_tail(x: f32) -> f32 {
    var a = fused(0.0036488863, x, 0.037610155);
    a = fused(a, x, 0.17448222);
    a = fused(a, x, 0.4268321);
    a = fused(a, x, 0.5);
    var b = fused(0.009146225, x, 0.094283715);
    b = fused(b, x, 0.44630936);
    b = fused(b, x, 1.1667095);
    b = fused(b, x, 1.6515487);
    b = fused(b, x, 1.0);
    let square = x * x;
    let rest = fused(x, x, -square);
    return a * shrunk_exp(square, rest) / b;
}

// `max(x, 0) - size·tail / 2^64`.
fn without_tail(x: f32, size: f32, tail: f32) -> f32 {
    // The comparison keeps drivers from dividing the small size before it is multiplied.
    return fused(at_most(1e30, size * tail), -1.0 / TAIL_SCALE, at_least(0.0, x));
}

// `x · Φ(x)`.
fn gelu(x: f32) -> f32 {
    // Beyond the end, `|x|·Φ(-|x|)` rounds to 0.
    let size = select(0.0, abs(x), abs(x) < 14.36);
    return without_tail(x, size, normal_tail(size));
}

// `x · (1 + tanh u) / 2 = x · sigmoid(2u)` with `u = √(2/π)·(x + 0.044715·x^3)`.
fn gelu_tanh(x: f32) -> f32 {
    // Beyond the end, `|x|·sigmoid(-2u)` rounds to 0.
    let size = select(0.0, abs(x), abs(x) < 10.78);
    // 4·√(2/π), and that times 0.044715.
    let slope = fused(size * size, 0.14270963, 3.1915383);
    let fourfold = size * slope;
    let rest = fused(size, slope, -fourfold);
    let shrunk = shrunk_exp(fourfold, rest);
    return without_tail(x, size, shrunk / fused(shrunk, 1.0 / TAIL_SCALE, 1.0));
}

// `1 - 2·Φ(-√2·|x|)` with the sign of `x`; where that cancels, `x` times a polynomial in `x^2`.
fn erf_(x: f32) -> f32 {
    let size = at_most(10.0, abs(x));
    let square = size * size;
    var sum = fused(-0.000564806, square, 0.004921762);
    sum = fused(sum, square, -0.026715055);
    sum = fused(sum, square, 0.11280317);
    sum = fused(sum, square, -0.37612343);
    sum = fused(sum, square, 1.1283791671);
    let tail = normal_tail(at_most(14.0, size * 1.4142135624));
    let large = copy_sign(fused(tail, -2.0 / TAIL_SCALE, 1.0), x);
    return select(large, x * sum, square < 1.0);
}

// `2·artanh s` for `|s|` up to 0.172: `2·(s + s^3/3 + s^5/5 + …)`.
fn twice_artanh(s: f32) -> f32 {
    let square = s * s;
    var sum = fused(square, 1.0 / 13.0, 1.0 / 11.0);
    sum = fused(sum, square, 1.0 / 9.0);
    sum = fused(sum, square, 1.0 / 7.0);
    sum = fused(sum, square, 1.0 / 5.0);
    sum = fused(sum, square, 1.0 / 3.0);
    let twice = s + s;
    return fused(twice * square, sum, twice);
}

// `ln x`; the CPU computes it in f64.
fn log_(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    // Subnormal numbers by way of integers, which no driver takes for 0.
    let small = bits < 0x00800000u;
    let normal = select(bits, bitcast<u32>(f32(bits)), small);
    // x = 2^n·m, and m is in √½..√2.
    let above = bitcast<i32>(normal - 0x3f3504f3u) >> 23u;
    let m = bitcast<f32>(normal - (bitcast<u32>(above) << 23u));
    let n = f32(select(above, above - 149, small));
    let finite = fused(n, LN_2_HIGH, fused(n, LN_2_LOW, twice_artanh((m - 1.0) / (m + 1.0))));
    var result = bitcast<u32>(finite);
    result = select(result, 0xff800000u, (bits & 0x7fffffffu) == 0u);
    result = select(result, 0x7fc00000u, bits > 0x80000000u);
    // Infinity and NaN.
    result = select(result, bits, (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u);
    return bitcast<f32>(result);
}

// `ln(1 + x)`.
fn log1p_(x: f32) -> f32 {
    let near = abs(x) < 0.25;
    let small = select(0.0, x, near);
    return select(log_(1.0 + x), twice_artanh(small / (2.0 + small)), near);
}
