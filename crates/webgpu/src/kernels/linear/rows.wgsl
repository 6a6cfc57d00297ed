// Floats as matrices store them, row by row or, if `TRANSPOSED`, column by column; a batch of such matrices.

// Where the weight of this batch begins.
var<private> w_start: u32;

// Finds the batch of a workgroup, and gives its number there.
fn in_batch(group: u32) -> u32 {
    let groups = (p.rows_0 + 15u) / 16u * ((p.tokens + TILE - 1u) / TILE);
    var batch = group / groups;
    result_start = batch * p.tokens * p.rows_0;
    let i3 = batch % p.size_3;
    batch /= p.size_3;
    let i2 = batch % p.size_2;
    batch /= p.size_2;
    let i1 = batch % p.size_1;
    let i0 = batch / p.size_1;
    x_start = i0 * p.x_0 + i1 * p.x_1 + i2 * p.x_2 + i3 * p.x_3;
    w_start = i0 * p.w_0 + i1 * p.w_1 + i2 * p.w_2 + i3 * p.w_3;
    return group % groups;
}

// Brings the numbers of a round to the memory of the group, 16 a column.
fn load(panel: u32, start: u32, count: u32, side: u32, thread: u32) {
    for (var i = thread; i < 16u * COLUMNS; i += THREADS) {
        // Neighbouring threads read neighbours.
        let row = select(i / COLUMNS, i % 16u, TRANSPOSED);
        let column = select(i % COLUMNS, i / 16u, TRANSPOSED);
        let rows = 16u * panel + row;
        if (rows < p.rows_0 && column < count) {
            let columns = start + column;
            let at = select(rows * p.columns + columns, columns * p.rows_0 + rows, TRANSPOSED);
            stage[side * WORDS + 16u * column + row] = bitcast<u32>(w_0(w_start + at));
        }
    }
}
