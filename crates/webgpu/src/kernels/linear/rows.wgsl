// Floats as a matrix stores them, row by row.

// Brings the numbers of a round to the memory of the group, 16 a column.
fn load(panel: u32, start: u32, count: u32, side: u32, thread: u32) {
    for (var i = thread; i < 16u * COLUMNS; i += THREADS) {
        let row = i / COLUMNS;
        let column = i % COLUMNS;
        if (16u * panel + row < p.rows && column < count) {
            let value = w((16u * panel + row) * p.columns + start + column);
            stage[side * WORDS + 16u * column + row] = bitcast<u32>(value);
        }
    }
}
