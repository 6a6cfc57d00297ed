// Nibbles that stand for the levels of a table.

// For each byte, the level of its low nibble, and from bit 16 on that of its high one.
var<workgroup> levels: array<u32, 256>;

fn level(nibble: u32) -> u32 {
    return (LEVELS[nibble / 4u] >> (8u * (nibble % 4u))) & 0xffu;
}

fn start_levels(lane: u32) {
    levels[lane] = level(lane % 16u) | (level(lane / 16u) << 16u);
    workgroupBarrier();
}

// The levels of four bytes: of the low nibbles, and of the high ones.
fn both_levels(word: u32) -> vec2<u32> {
    var both = vec2(0u);
    for (var shift = 0u; shift < 32u; shift += 8u) {
        let pair = levels[(word >> shift) & 0xffu];
        both |= vec2(pair & 0xffu, pair >> 16u) << vec2(shift);
    }
    return both;
}

fn level_codes(at: u32) -> Codes {
    let words = four_weights(at);
    let x = both_levels(words.x);
    let y = both_levels(words.y);
    let z = both_levels(words.z);
    let w = both_levels(words.w);
    return Codes(vec4(x.x, y.x, z.x, w.x), vec4(x.y, y.y, z.y, w.y));
}
