// What follows the products of a row of the weight and a token.

fn finish(sum: f32, row_of_piece: u32, token: u32, is_inside: bool) {
    let row = p.first_row + row_of_piece;
    if (is_inside && row < p.rows) {
        let at = token * p.rows + row;
        set_result(at, finished(sum, row, at));
    }
}

fn relu(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0);
}
