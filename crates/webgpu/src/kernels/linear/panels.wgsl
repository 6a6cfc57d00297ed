// Floats as panels store them.

// Brings the words of a round to the memory of the group. Those behind the panel are not used.
fn load(panel: u32, start: u32, count: u32, side: u32, thread: u32) {
    let begin = HEAD + start / COLUMNS * WORDS;
    for (var i = thread; i < WORDS; i += THREADS) {
        if (begin + i < p.panel_words) {
            stage[side * WORDS + i] = weight(panel * p.panel_words + begin + i);
        }
    }
}

fn staged_byte(at: u32, i: u32) -> u32 {
    return (stage[at + i / 4u] >> (8u * (i % 4u))) & 0xffu;
}

// 16 f16 a column.
fn halves(at: u32, column: u32, row: u32) -> vec2<f32> {
    let first = at + 8u * column + row / 2u;
    let shift = 16u * (row % 2u);
    return vec2(f16_of((stage[first] >> shift) & 0xffffu), f16_of((stage[first + 8u] >> shift) & 0xffffu));
}

// 16 pairs of bf16 in two columns.
fn pairs(at: u32, column: u32, row: u32) -> vec2<f32> {
    let word = stage[at + 8u * column + row];
    return vec2(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

// An e4m3, divided by 256: the exponent of an f16 has one bit more.
fn float8(code: u32) -> f32 {
    return f16_of(((code & 0x80u) << 8u) | ((code & 0x7fu) << 7u));
}

// 16 f32 scales, then 16 e4m3 a column.
fn eight_bit_floats(at: u32, column: u32, row: u32) -> vec2<f32> {
    let first = 16u * column + row;
    return vec2(float8(staged_byte(at + 16u, first)), float8(staged_byte(at + 16u, first + 16u)));
}
