// What follows the products of a row of the weight and a token.

// Where the results of this batch begin.
var<private> result_start: u32;

fn finish(sum: f32, row_of_piece: u32, token: u32, is_inside: bool) {
    let row = p.first_row + row_of_piece;
    if (is_inside && row < p.rows) {
        let at = token * p.rows + row;
        set_result(result_start + at, finished(sum, row, at));
    }
}

fn relu(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0);
}
