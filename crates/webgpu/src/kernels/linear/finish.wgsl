// What the functions that are printed for a dispatch need.

// Which of the weights of a dispatch is multiplied.
var<private> matrix: u32;
// Where the results of this batch begin.
var<private> result_start: u32;

fn relu(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0);
}
