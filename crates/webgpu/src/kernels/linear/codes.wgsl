// How panels store the codes of a row and 32 columns, from a word on: read as signed bytes, of four columns a word.

struct Codes {
    // Of columns 0..16.
    first: vec4<u32>,
    // Of columns 16..32.
    last: vec4<u32>,
}

fn nibbles(at: u32) -> Codes {
    let words = four_weights(at);
    return Codes(words & vec4(0x0f0f0f0fu), (words >> vec4(4u)) & vec4(0x0f0f0f0fu));
}

// A word with the fifth bits of all steps, then nibbles.
fn five_bits(at: u32) -> Codes {
    let bits = vec4(weight(at));
    let codes = nibbles(at + 16u);
    let first = (bits >> vec4(0u, 1u, 2u, 3u)) & vec4(0x01010101u);
    let last = (bits >> vec4(4u, 5u, 6u, 7u)) & vec4(0x01010101u);
    return Codes(codes.first | (first << vec4(4u)), codes.last | (last << vec4(4u)));
}

// A word with the upper bits of four steps, nibbles, the upper bits of the other steps.
fn six_bits(at: u32) -> Codes {
    let fields = vec4(0u, 2u, 4u, 6u);
    let codes = nibbles(at + 16u);
    let first = (vec4(weight(at)) >> fields) & vec4(0x03030303u);
    let last = (vec4(weight(at + 80u)) >> fields) & vec4(0x03030303u);
    return Codes(codes.first | (first << vec4(4u)), codes.last | (last << vec4(4u)));
}

// Less 128, so that they are signed.
fn eight_bits(at: u32) -> Codes {
    return Codes(four_weights(at) ^ vec4(0x80808080u), four_weights(at + 64u) ^ vec4(0x80808080u));
}
