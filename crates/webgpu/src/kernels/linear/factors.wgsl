// How panels store the scale and the minimum of a row and a group of a block, whose factors begin at a word.

fn byte(at: u32, i: u32) -> u32 {
    return (weight(at + i / 4u) >> (8u * (i % 4u))) & 0xffu;
}

fn signed_byte(at: u32, i: u32) -> i32 {
    return bitcast<i32>(byte(at, i) << 24u) >> 24u;
}

fn f16_at(at: u32, i: u32) -> f32 {
    return f16_of((weight(at + i / 2u) >> (16u * (i % 2u))) & 0xffffu);
}

// An e4m3, divided by 256: the exponent of an f16 has one bit more.
fn float8(code: u32) -> f32 {
    return f16_of(((code & 0x80u) << 8u) | ((code & 0x7fu) << 7u));
}

// An f16 scale per 32 columns.
fn halves(at: u32, row: u32, group: u32) -> vec2<f32> {
    return vec2(f16_at(at, row), 0.0);
}

// An f16 scale and an f16 minimum per 32 columns.
fn halves_and_minimums(at: u32, row: u32, group: u32) -> vec2<f32> {
    return vec2(f16_at(at, row), f16_at(at, 16u + row));
}

// An f16 scale per 32 columns, and a multiple of it that is subtracted.
fn halves_and_zeros(at: u32, row: u32, group: u32) -> vec2<f32> {
    let scale = f16_at(at, row);
    return vec2(scale, 0.0 - scale * f32(byte(at, 32u + row)));
}

// An f32 scale per 32 columns, and a multiple of it that is subtracted.
fn singles_and_zeros(at: u32, row: u32, group: u32) -> vec2<f32> {
    let scale = bitcast<f32>(weight(at + row));
    return vec2(scale, 0.0 - scale * f32(byte(at, 64u + row)));
}

// A power of two per 32 columns: 2^(e - 128), of which the two smallest are subnormal.
fn exponents(at: u32, row: u32, group: u32) -> vec2<f32> {
    let exponent = byte(at, row);
    let bits = ((1u << 21u) << min(exponent, 2u)) + ((max(exponent, 2u) - 2u) << 23u);
    return vec2(bitcast<f32>(bits), 0.0);
}

// An f32 scale per 64 columns, and an e4m3 multiple of it per 16.
fn float_multiples(at: u32, row: u32, group: u32) -> vec2<f32> {
    return vec2(bitcast<f32>(weight(at + row)) * float8(byte(at, 64u + 16u * group + row)), 0.0);
}

// An f16 scale per 256 columns, and a multiple of its eighth per 16.
fn eighth_multiples(at: u32, row: u32, group: u32) -> vec2<f32> {
    return vec2(f16_at(at, row) * 0.125 * f32(byte(at, 32u + 16u * group + row)), 0.0);
}

// An f16 scale per 256 columns, and a signed multiple of it per group.
fn multiples(at: u32, row: u32, group: u32) -> vec2<f32> {
    return vec2(f16_at(at, row) * f32(signed_byte(at, 32u + 16u * group + row)), 0.0);
}

// An f16 scale and an f16 minimum per 256 columns, and multiples of both per group; minimums are subtracted.
fn multiples_and_minimums(at: u32, row: u32, group: u32) -> vec2<f32> {
    let scale = f16_at(at, row) * f32(byte(at, 64u + 16u * group + row));
    let minimum = (0.0 - f16_at(at, 16u + row)) * f32(byte(at, 64u + 16u * (8u * GROUPS + group) + row));
    return vec2(scale, minimum);
}
