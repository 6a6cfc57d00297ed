// Functions that every shader may call: the place of a workgroup, and floats of 16 bits.

// The same number, as compilers cannot know: they do not rearrange what gave it with what it is used for.
fn settled(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ (p.groups & 0x80000000u));
}

// The number of a workgroup. Those from `p.groups` on complete the grid and have nothing to do.
fn group_of(id: vec3<u32>) -> u32 {
    return id.x + id.y * ROW;
}

// The f16 of 16 bits.
fn f16_of(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let magnitude = bits & 0x7fffu;
    // From 0x7c00 on: infinity and NaN, whose exponent has all bits here too.
    let exponent = select(112u << 23u, 224u << 23u, magnitude >= 0x7c00u);
    let normal = (magnitude << 13u) + exponent;
    let subnormal = bitcast<u32>(f32(magnitude) * 5.9604644775390625e-8);
    return bitcast<f32>(sign | select(normal, subnormal, magnitude < 0x400u));
}

// The bits of the nearest f16, the even one of two.
fn f16_bits(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u;
    }
    // 65520 and more round to infinity.
    if magnitude >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if magnitude < 0x38800000u {
        // A multiple of 2^-24: the sum with 0.5 holds it in its last bits, rounded.
        let sum = bitcast<u32>(bitcast<f32>(magnitude) + 0.5);
        return sign | (sum - 0x3f000000u);
    }
    let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
    return sign | ((rounded - (112u << 23u)) >> 13u);
}

// The bits of the nearest bf16, the even one of two.
fn bf16_bits(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// The nearest f16.
fn round_f16(v: f32) -> f32 {
    return f16_of(f16_bits(v));
}

// The nearest bf16.
fn round_bf16(v: f32) -> f32 {
    return bitcast<f32>(bf16_bits(v) << 16u);
}
