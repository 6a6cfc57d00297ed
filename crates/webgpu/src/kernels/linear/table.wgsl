// Nibbles that stand for the numbers of a table, with which the panel begins.

var<workgroup> table: array<f32, 16>;

fn start_stage(panel: u32, thread: u32) {
    if (thread < 16u) {
        table[thread] = bitcast<f32>(weight(panel * p.panel_words + thread));
    }
}

// 16 f32 scales, then nibbles: those of the first of two columns are low.
fn table_floats(at: u32, column: u32, row: u32) -> vec2<f32> {
    let both = staged_byte(at + 16u, 8u * column + row);
    return vec2(table[both & 15u], table[both >> 4u]);
}
